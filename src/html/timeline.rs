//! One probe's time as a bar: connecting, waiting, reading, up to its end.

use maud::{Markup, html};

use super::{
    chart::{Scale, place},
    number::latency,
};
use crate::measurement::record::Record;

const WIDTH: f64 = 640.0;
/// A part shorter than this is drawn this wide: it is there.
const PART_MIN: f64 = 2.0;

struct Part {
    class: &'static str,
    name: &'static str,
    from: f64,
    to: f64,
}

/// The bar, and its parts in words.
#[must_use]
pub fn timeline(record: &Record) -> Markup {
    let parts = parts(record);
    let x = Scale::linear((0.0, record.duration_seconds.max(1e-6)), (0.0, WIDTH));
    html! {
        div.timeline {
            svg viewBox={ "0 0 " (WIDTH) " 16" } preserveAspectRatio="none" role="img" aria-label="timeline of the probe" {
                @for part in &parts {
                    rect class={ "part " (part.class) } x=(place(x.at(part.from))) y="0" height="16"
                        width=(place((x.at(part.to) - x.at(part.from)).max(PART_MIN))) {
                        title { (part.name) " " (latency(part.to - part.from)) }
                    }
                }
            }
            ol.parts {
                @for part in &parts {
                    li { span class={ "key " (part.class) } aria-hidden="true" { "■" } " " (part.name) " " b { (latency(part.to - part.from)) } }
                }
            }
        }
    }
}

/// What followed what. Phases that did not happen are left out; the last one lasts to the end.
fn parts(record: &Record) -> Vec<Part> {
    let phases = &record.phases;
    let mut parts = Vec::new();
    let mut at = 0.0_f64;
    let mut until = |class, name, to: Option<f64>| {
        if let Some(to) = to.filter(|to| *to > at) {
            parts.push(Part { class, name, from: at, to });
            at = to;
        }
    };
    let mut connected = 0.0;
    for (name, length) in [("DNS", phases.dns), ("TCP", phases.tcp), ("TLS", phases.tls)] {
        if let Some(length) = length {
            connected += length;
            until("connecting", name, Some(connected));
        }
    }
    until("sending", "sending", phases.sent);
    until("waiting", "waiting for headers", phases.headers);
    until("queueing", "waiting for the stream", phases.first_event);
    until("queueing", "waiting for a token", record.time_to_first_token_seconds);
    let end = Some(record.duration_seconds);
    match (&record.error, record.time_to_first_token_seconds) {
        (Some(_), _) => until("broken", "until it failed", end),
        (None, Some(_)) => until("streaming", "streaming", end),
        (None, None) => until("waiting", "until its end", end),
    }
    parts
}
