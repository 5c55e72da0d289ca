//! Whole answers, played with stamps instead of a clock.

mod captures;
mod failures;
mod framing;
mod fuzz;
mod hostile;
mod other_formats;
mod requests;
mod streams;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Ending, Protocol, Reply, ReplyHead};
use crate::measurement::Measurement;

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

/// One answer to be played.
#[derive(Debug, Clone)]
struct Play<'a> {
    protocol: Protocol,
    host: &'a str,
    status: u16,
    headers: &'a [(&'a str, &'a str)],
    include_usage: bool,
    ending: Ending,
}

impl Default for Play<'_> {
    fn default() -> Self {
        Self {
            protocol: Protocol::OpenAiChat,
            host: "api.example.test",
            status: 200,
            headers: &[],
            include_usage: false,
            ending: Ending::Clean,
        }
    }
}

impl Play<'_> {
    fn reply(&self) -> Reply {
        let headers: HeaderMap = self
            .headers
            .iter()
            .map(|(name, value)| {
                (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap())
            })
            .collect();
        let head = ReplyHead {
            protocol: self.protocol,
            host: self.host,
            status: self.status,
            headers: &headers,
            include_usage: self.include_usage,
            keep_text: true,
            gap_bounds: Arc::from([0.01, 0.1, 1.0]),
        };
        Reply::new(&head, ms(5))
    }

    /// Reads at the given milliseconds; the body ends with the last of them.
    fn reads(&self, reads: &[(u64, &[u8])]) -> Measurement {
        let mut reply = self.reply();
        for (at, bytes) in reads {
            reply.read(ms(*at), bytes);
        }
        reply.end(reads.last().map_or(ms(5), |(at, _)| ms(*at)), self.ending)
    }

    /// One read every 10 ms, the first at 10 ms.
    fn texts(&self, texts: &[impl AsRef<[u8]>]) -> Measurement {
        let reads: Vec<_> = texts.iter().zip(1..).map(|(text, index)| (index * 10, text.as_ref())).collect();
        self.reads(&reads)
    }
}

/// A chat chunk as an event, with this delta.
fn delta(delta: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}\n\n")
}

/// A chat chunk as an event, with this content.
fn content(text: &str) -> String {
    delta(&format!("{{\"content\":{}}}", serde_json::Value::from(text)))
}

/// The finish chunk and `[DONE]`.
fn finish(reason: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n")
}

/// `outcome`, with `class/subclass` when it failed.
fn outcome(measurement: &Measurement) -> String {
    let outcome = measurement.outcome.as_str();
    match measurement.outcome.failure() {
        None => outcome.to_owned(),
        Some(failure) => match &failure.subclass {
            None => format!("{outcome} {}", failure.class),
            Some(subclass) => format!("{outcome} {}/{subclass}", failure.class),
        },
    }
}

fn flags(measurement: &Measurement) -> Vec<&'static str> {
    measurement.flags.iter().map(|flag| flag.as_str()).collect()
}
