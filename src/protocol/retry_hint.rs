//! How long a server asks to be left alone, from the many places it may say so, and what it says of its allowances.
//!
//! Has no clock: dates are read against the response's own `Date`.

use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use http::HeaderMap;

use crate::measurement::rate_limit::{
    RateLimit,
    RateLimitUnit::{self, InputTokens, OutputTokens, Requests, Tokens},
};

/// Longest wait believed: a month.
const WAIT_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// Hints in the response's headers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HeaderHints {
    /// `retry-after-ms`, else `retry-after`.
    pub(super) retry_after: Option<Duration>,
    /// When the bucket that is empty fills again.
    pub(super) bucket_reset: Option<Duration>,
    /// Allowances, one per unit.
    pub(super) rate_limits: Vec<RateLimit>,
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
        let number = |name: &str| text(name)?.parse::<f64>().ok().filter(|number| number.is_finite());
        let mut bucket_reset = None;
        let mut rate_limits: Vec<RateLimit> = Vec::new();
        for bucket in BUCKETS {
            let remaining = number(bucket.remaining);
            let reset = || text(bucket.reset).and_then(|value| reset_time(value, now));
            if remaining.is_some_and(|left| left <= 0.0) {
                bucket_reset = bucket_reset.max(reset());
            }
            let limit = number(bucket.limit);
            let is_known = rate_limits.iter().any(|known| known.unit == bucket.unit);
            if !is_known && (limit.is_some() || remaining.is_some()) {
                rate_limits.push(RateLimit { unit: bucket.unit, limit, remaining, reset: reset() });
            }
        }
        Self { retry_after, bucket_reset, rate_limits }
    }
}

/// The headers in which a provider reports one allowance.
struct Bucket {
    unit: RateLimitUnit,
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
}

macro_rules! buckets {
    ($($unit:ident $front:literal $back:literal),+ $(,)?) => {
        /// The most telling first: of two that count the same, the first is believed.
        const BUCKETS: &[Bucket] = &[$(Bucket {
            unit: $unit,
            limit: concat!($front, "limit", $back),
            remaining: concat!($front, "remaining", $back),
            reset: concat!($front, "reset", $back),
        }),+];
    };
}

buckets! {
    Requests "x-ratelimit-" "-requests",
    Tokens "x-ratelimit-" "-tokens",
    Requests "x-ratelimit-" "-req-minute",
    Tokens "x-ratelimit-" "-tokens-minute",
    Requests "x-ratelimit-" "-requests-day",
    Requests "x-ratelimit-" "",
    Requests "ratelimit-" "",
    Requests "anthropic-ratelimit-requests-" "",
    Tokens "anthropic-ratelimit-tokens-" "",
    InputTokens "anthropic-ratelimit-input-tokens-" "",
    OutputTokens "anthropic-ratelimit-output-tokens-" "",
}

/// A number of seconds, when it is one that can be waited.
pub(super) fn seconds(value: f64) -> Option<Duration> {
    // Servers mean decimals; microseconds are finer than any of them.
    let micros = (value * 1e6).round() / 1e6;
    // One that is too large for a duration is too large for us anyway.
    Duration::try_from_secs_f64(micros.min(WAIT_MAX.as_secs_f64())).ok()
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

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn check(headers: &[(&str, &str)], expect: &str) {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                (HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap())
            })
            .collect();
        let shown = |number: Option<f64>| number.map_or("?".to_owned(), |number| number.to_string());
        let found = HeaderHints::read(&headers).rate_limits.into_iter().map(|limit| {
            let reset = shown(limit.reset.map(|reset| reset.as_secs_f64()));
            format!("{} {}/{} {reset}", limit.unit, shown(limit.remaining), shown(limit.limit))
        });
        assert_eq!(found.collect::<Vec<_>>().join(", "), expect);
    }

    #[test]
    fn allowances_are_read_from_the_headers_of_many() {
        check(&[], "");
        check(
            &[
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            "requests 59/60 1, tokens 149984/? 360",
        );
        check(
            &[
                ("date", "Thu, 01 Jan 2026 00:00:00 GMT"),
                ("anthropic-ratelimit-input-tokens-limit", "50000"),
                ("anthropic-ratelimit-input-tokens-remaining", "0"),
                ("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:30Z"),
                ("anthropic-ratelimit-output-tokens-limit", "8000"),
            ],
            "input_tokens 0/50000 30, output_tokens ?/8000 ?",
        );
        check(&[("x-ratelimit-remaining", "3"), ("ratelimit-remaining", "4")], "requests 3/? ?");
        check(&[("x-ratelimit-limit-requests", "many"), ("x-ratelimit-remaining", "NaN")], "");
    }
}
