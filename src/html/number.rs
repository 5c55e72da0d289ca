//! Numbers and times as people read them.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use maud::{Markup, html};

use crate::cell::Load;

/// Seconds as milliseconds or seconds, with three digits or so: `9.31 ms`, `168 ms`, `1.68 s`.
#[must_use]
pub fn latency(seconds: f64) -> String {
    let millis = seconds * 1e3;
    match millis {
        _ if millis < 9.995 => format!("{millis:.2} ms"),
        _ if millis < 99.95 => format!("{millis:.1} ms"),
        _ if millis < 999.5 => format!("{millis:.0} ms"),
        _ if seconds < 9.995 => format!("{seconds:.2} s"),
        _ if seconds < 99.95 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

/// A latency, marked when it rests on too few of its samples.
#[must_use]
pub fn latency_low(seconds: Option<f64>, samples: usize, low: bool) -> Markup {
    html! {
        @match seconds {
            Some(seconds) => {
                @if low {
                    span.low title={ "only " (samples) " samples" } { "~" span.unseen { " (only " (samples) " samples) " } }
                }
                (latency(seconds))
            }
            None => "–",
        }
    }
}

/// A load in words: `8 in flight`, `5 per second`.
#[must_use]
pub fn load_words(load: Load) -> String {
    match load {
        Load::Concurrency(concurrency) => format!("{concurrency} in flight"),
        Load::Rate(rate) => format!("{rate} per second"),
    }
}

/// Tokens per second.
#[must_use]
pub fn tokens_per_second(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { grouped(rate) }
}

/// A whole number with thin spaces between thousands.
#[must_use]
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if number < 0.0 { format!("-{text}") } else { text }
}

/// By how much something changed, as a signed percentage.
#[must_use]
pub fn percent_change(before: f64, after: f64) -> Option<f64> {
    (before > 0.0).then(|| (after / before - 1.0) * 100.0)
}

/// RFC 3339 in UTC, to the second.
#[must_use]
pub fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// An instant relative to now, with the exact time for whoever wants it.
#[must_use]
pub fn moment(at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Markup {
    html! {
        @match at {
            Some(at) => time datetime=(instant(at)) title=(instant(at)) {
                @if (at - now).num_seconds() > 0 { "in " (span(at - now)) } @else if (now - at).num_seconds() < 1 { "now" } @else { (span(now - at)) " ago" }
            },
            None => "–",
        }
    }
}

/// A length of time, as exact as a reader wants it.
#[must_use]
pub fn span(length: TimeDelta) -> String {
    let seconds = length.num_seconds().max(0);
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, _) => format!("{minutes} min"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, _, _) => format!("{days} d {hours} h"),
    }
}

/// What a ladder says about capacity, in a sentence. `state` is that of its knee.
#[must_use]
pub fn capacity(state: &str, knee: Option<Load>, safe: Option<Load>) -> String {
    let told = match (state, knee) {
        ("found", Some(Load::Concurrency(knee))) => format!("Throughput stops growing at {knee} in flight."),
        ("found", Some(Load::Rate(knee))) => {
            format!("The endpoint keeps up with {knee} requests per second, and not with more.")
        }
        ("not_reached", _) => {
            "The knee was not reached: throughput was still growing at the highest level.".into()
        }
        ("failed", _) => "No level succeeded.".into(),
        _ => "Where throughput stops growing cannot be told from these numbers.".into(),
    };
    safe.map_or(told.clone(), |safe| format!("{told} Safe: {}.", load_words(safe)))
}
