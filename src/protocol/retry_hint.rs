//! How long a server asks to be left alone, from the many places it may say so.
//!
//! Has no clock: dates are read against the response's own `Date`.

use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use http::HeaderMap;

/// Longest wait believed: a month.
const WAIT_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// Hints in the response's headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HeaderHints {
    /// `retry-after-ms`, else `retry-after`.
    pub(super) retry_after: Option<Duration>,
    /// When the bucket that is empty fills again.
    pub(super) bucket_reset: Option<Duration>,
}

impl HeaderHints {
    /// Reads the headers of a response.
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let now = text("date").and_then(http_date);
        let milliseconds = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok());
        let retry_after = milliseconds
            .and_then(|value| seconds(value / 1000.0))
            .or_else(|| text("retry-after").and_then(|value| instant_or_seconds(value, now)));
        let empty_buckets = BUCKETS.iter().filter(|(remaining, _)| {
            text(remaining).and_then(|value| value.parse::<f64>().ok()).is_some_and(|left| left <= 0.0)
        });
        let resets =
            empty_buckets.filter_map(|(_, reset)| text(reset).and_then(|value| reset_time(value, now)));
        Self { retry_after, bucket_reset: resets.max() }
    }
}

/// `(what is left, when it fills again)` of the buckets providers report.
const BUCKETS: [(&str, &str); 10] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining-req-minute", "x-ratelimit-reset-req-minute"),
    ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
];

/// A number of seconds, when it is one that can be waited.
pub(super) fn seconds(value: f64) -> Option<Duration> {
    // Servers mean decimals; microseconds are finer than any of them.
    let micros = (value * 1e6).round() / 1e6;
    Duration::try_from_secs_f64(micros).ok().map(|wait| wait.min(WAIT_MAX))
}

/// A duration as Go writes it: `6m0s`, `120ms`, `1h2m3.5s`.
pub(super) fn go_duration(text: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at_checked(unit_end)?;
        let scale = match unit.trim() {
            "d" => 86_400.0,
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * scale;
        rest = next;
    }
    seconds(total)
}

fn instant_or_seconds(text: &str, now: Option<DateTime<FixedOffset>>) -> Option<Duration> {
    if let Ok(value) = text.parse::<f64>() {
        return seconds(value);
    }
    Some(until(http_date(text)?, now?))
}

fn reset_time(text: &str, now: Option<DateTime<FixedOffset>>) -> Option<Duration> {
    if let Ok(value) = text.parse::<f64>() {
        // Small numbers are seconds to wait; large ones an epoch, in seconds or milliseconds.
        let epoch = match value {
            _ if value < 1e9 => return seconds(value),
            _ if value < 1e12 => value,
            _ => value / 1000.0,
        };
        let now = now?.timestamp_millis() as f64 / 1000.0;
        return seconds((epoch - now).max(0.0));
    }
    go_duration(text).or_else(|| Some(until(DateTime::parse_from_rfc3339(text).ok()?, now?)))
}

fn http_date(text: &str) -> Option<DateTime<FixedOffset>> {
    DateTime::parse_from_rfc2822(text).ok()
}

fn until(then: DateTime<FixedOffset>, now: DateTime<FixedOffset>) -> Duration {
    (then - now).to_std().unwrap_or_default().min(WAIT_MAX)
}
