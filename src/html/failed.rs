//! One probe in full: what became of it, its timeline, and the ids to look for in other systems' logs.

use maud::{Markup, html};

use super::{number::latency, timeline::timeline};
use crate::measurement::record::Record;

/// The probe's error, when it failed, its timeline, and its ids.
#[must_use]
pub fn probe_details(record: &Record) -> Markup {
    html! {
        @if let Some(error) = &record.error {
            p.error { (error.message) }
        }
        (timeline(record))
        dl.ids {
            @if let Some(error) = &record.error {
                @if let Some(subclass) = &error.subclass { div { dt { "subclass" } dd { (subclass) } } }
                @if let Some(status) = error.http_status { div { dt { "HTTP status" } dd { (status) } } }
                @if let Some(seconds) = error.retry_after_seconds { div { dt { "retry after" } dd { (latency(seconds)) } } }
            }
            @if let Some(id) = &record.request_id { div { dt { "request id" } dd { code { (id) } } } }
            @if let Some(id) = &record.trace_id { div { dt { "trace id" } dd { code { (id) } } } }
            @if let Some(tokens) = record.output_tokens { div { dt { "output tokens" } dd { (tokens) } } }
            div { dt { "connection" } dd { (record.connection) } }
            @if !record.flags.is_empty() { div { dt { "flags" } dd { (record.flags.join(", ")) } } }
        }
    }
}
