//! The smallest types of the file: each holds one value that is known to be good.
//!
//! They are deserialised value by value, so an error stands exactly under the value. Rules between keys live
//! where the keys meet (`target.rs`, `sweep.rs`, `histograms.rs`).

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use chrono_tz::{TZ_VARIANTS, Tz};
use http::Uri;
use serde::Deserialize;
use toml::Value;

use super::{base_url::BaseUrl, nearest::nearest, prefix_cache::PrefixCache};
use crate::{arrivals::Rate, schedule::QuietHours};

/// Declares a newtype around one value, read by a function from the TOML value to it.
macro_rules! value {
    ($(#[$doc:meta])* $name:ident($inner:ty) = $read:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Deserialize)]
        #[serde(try_from = "Value")]
        pub(super) struct $name(pub $inner);

        impl TryFrom<Value> for $name {
            type Error = String;

            fn try_from(value: Value) -> Result<Self, String> {
                let read: fn(&Value) -> Result<$inner, String> = $read;
                read(&value).map(Self)
            }
        }
    };
}

value! {
    /// `true` or `false`.
    Flag(bool) = |value| value.as_bool().ok_or_else(|| format!("must be true or false, not {}", kind(value)))
}
value! {
    /// Name of a target or sweep.
    Name(String) = |value| word(value, "a name", NAME_CHARS_MAX)
}
value! {
    /// A model, exactly as it is asked for.
    Model(String) = |value| word(value, "a model", MODEL_CHARS_MAX)
}
value! {
    /// Any text.
    Text(String) = |value| text(value, "a string").map(str::to_owned)
}
value! {
    /// A duration longer than zero.
    PositiveDuration(Duration) = |value| match duration(value)? {
        Duration::ZERO => Err("must be longer than zero; write one like \"30s\"".to_owned()),
        duration => Ok(duration),
    }
}
value! {
    /// A duration, perhaps zero.
    AnyDuration(Duration) = duration
}
value! {
    /// Requests in flight.
    Concurrency(u32) = |value| whole(value, 1..=10_000)
}
value! {
    /// Requests per time.
    ArrivalRate(Rate) = |value| text(value, "a rate like \"5/s\"")?.parse()
}
value! {
    /// A prompt length in tokens.
    PromptTokens(u32) = |value| whole(value, 1..=2_000_000)
}
value! {
    /// Requests of a level.
    Requests(u32) = |value| whole(value, 1..=1_000_000)
}
value! {
    /// Warm-up requests of a level.
    WarmupRequests(u32) = |value| whole(value, 0..=100_000)
}
value! {
    /// Tokens to generate.
    MaxTokens(u32) = |value| whole(value, 1..=1_000_000)
}
value! {
    /// Tokens to think with.
    ReasoningBudget(u32) = |value| whole(value, 0..=1_000_000)
}
value! {
    /// A number of series.
    MaxSeries(u32) = |value| whole(value, 1..=10_000_000)
}
value! {
    /// A number of days.
    Days(u32) = |value| whole(value, 1..=36_500)
}
value! {
    /// A size of a file in bytes.
    ByteSize(u64) = byte_size
}
value! {
    /// A cap on requests or tokens.
    CapCount(u64) = |value| count(value, 1..=1_000_000_000_000_000)
}
value! {
    /// A cap on money, in units of the currency.
    CapCost(f64) = |value| number(value, "above 0 and up to 1000000000", |number| number > 0.0 && number <= 1e9)
}
value! {
    /// A price, in units of the currency.
    UnitPrice(f64) = |value| number(value, "from 0 to 1000000", |number| (0.0..=1e6).contains(&number))
}
value! {
    /// What a currency is called.
    Currency(String) = |value| word(value, "a currency like \"USD\"", CURRENCY_CHARS_MAX)
}
value! {
    /// Hours in which nothing is started.
    Quiet(QuietHours) = |value| QuietHours::parse(text(value, "hours like \"22:00-06:00\"")?)
}
value! {
    /// What is asked of the prefix cache.
    Cache(PrefixCache) = |value| PrefixCache::parse(text(value, "\"cold\", \"warm\" or \"shared:0.5\"")?)
}
value! {
    /// A sampling temperature.
    Temperature(f64) = |value| number(value, "from 0 to 5", |number| (0.0..=5.0).contains(&number))
}
value! {
    /// A share above zero.
    PositiveRatio(f64) =
        |value| number(value, "above 0 and up to 1", |number| number > 0.0 && number <= 1.0)
}
value! {
    /// A share.
    Ratio(f64) = |value| number(value, "from 0 to 1", |number| (0.0..=1.0).contains(&number))
}
value! {
    /// Upper bound of a histogram bucket.
    Bound(f64) = |value| number(value, "above 0", |number| number > 0.0)
}
value! {
    /// An IANA time zone.
    Zone(Tz) = zone
}
value! {
    /// An address to listen on.
    ListenAddress(SocketAddr) = listen_address
}
value! {
    /// A base URL.
    Base(BaseUrl) = |value| {
        BaseUrl::parse(text(value, "a URL like \"https://host/v1\"")?).map_err(|error| error.to_string())
    }
}
value! {
    /// Where an engine shows its metrics.
    MetricsUrl(Uri) = |value| metrics_url(text(value, "a URL like \"http://host:8000/metrics\"")?)
}
value! {
    /// A path of a file.
    FilePath(PathBuf) = |value| match text(value, "a path")? {
        "" => Err("is empty; write the path of a file".to_owned()),
        path => Ok(PathBuf::from(path)),
    }
}

const NAME_CHARS_MAX: usize = 100;
const MODEL_CHARS_MAX: usize = 256;
const CURRENCY_CHARS_MAX: usize = 16;

fn text<'v>(value: &'v Value, what: &str) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| format!("must be {what} in quotes, not {}", kind(value)))
}

/// A model's name as it may stand in a label and on a terminal.
pub(crate) fn model_name(name: &str) -> Result<String, String> {
    printable(name, "a model name", MODEL_CHARS_MAX)
}

fn word(value: &Value, what: &str, chars_max: usize) -> Result<String, String> {
    printable(text(value, what)?, what, chars_max)
}

fn printable(word: &str, what: &str, chars_max: usize) -> Result<String, String> {
    if word.trim().is_empty() {
        return Err(format!("is empty; write {what}"));
    }
    if word.trim() != word {
        return Err(format!("has white space around it; write \"{}\"", word.trim().escape_debug()));
    }
    if word.chars().count() > chars_max {
        return Err(format!("is longer than {chars_max} characters; it becomes a label, keep it short"));
    }
    if word.chars().any(is_unprintable) {
        return Err("holds control characters; it becomes a label, keep it printable".to_owned());
    }
    Ok(word.to_owned())
}

/// Control characters, and those that only steer how text around them is drawn.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn duration(value: &Value) -> Result<Duration, String> {
    if let Some(number) = value.as_integer() {
        return Err(format!("needs a unit, in quotes; write \"{number}s\" for seconds"));
    }
    let text = text(value, "a duration like \"30s\"")?;
    humantime::parse_duration(text.trim()).map_err(|error| {
        format!("is not a duration ({error}); write one like \"500ms\", \"30s\" or \"1m 30s\"")
    })
}

fn whole(value: &Value, range: RangeInclusive<u32>) -> Result<u32, String> {
    let (min, max) = (range.start(), range.end());
    let Some(number) = value.as_integer() else {
        return Err(format!("must be a whole number from {min} to {max}, not {}", kind(value)));
    };
    match u32::try_from(number) {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("must be from {min} to {max}, not {number}")),
    }
}

/// Smallest size of a file that can hold anything.
const BYTES_MIN: u64 = 1 << 20;

fn byte_size(value: &Value) -> Result<u64, String> {
    let text = text(value, "a size like \"2GiB\"")?.trim();
    let digits = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: Option<u64> = match unit.trim() {
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "TB" => Some(1_000_000_000_000),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        "TiB" => Some(1 << 40),
        _ => None,
    };
    let size = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    size.filter(|size| *size >= BYTES_MIN).ok_or_else(|| {
        format!("\"{text}\" is not a size of 1 MiB or more; write a whole number and MB, GB, MiB or GiB, like \"2GiB\"")
    })
}

fn count(value: &Value, range: RangeInclusive<u64>) -> Result<u64, String> {
    let (min, max) = (range.start(), range.end());
    let Some(number) = value.as_integer() else {
        return Err(format!("must be a whole number from {min} to {max}, not {}", kind(value)));
    };
    match u64::try_from(number) {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("must be from {min} to {max}, not {number}")),
    }
}

fn number(value: &Value, wanted: &str, fits: fn(f64) -> bool) -> Result<f64, String> {
    let number = match value {
        Value::Float(number) => *number,
        Value::Integer(number) => *number as f64,
        Value::String(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            return Err(format!("must be a number {wanted}, not {}", kind(value)));
        }
    };
    if number.is_finite() && fits(number) {
        return Ok(number);
    }
    Err(format!("must be a number {wanted}, not {number}"))
}

pub(crate) fn metrics_url(text: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = text.trim().parse().ok();
    let uri = uri.filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    });
    let Some(uri) = uri else {
        return Err("is not a URL; write one like \"http://host:8000/metrics\"".to_owned());
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("holds a user name or password; the engine's page must be readable without".to_owned());
    }
    if uri.path() == "/" {
        return Err(format!("has no path; engines show their metrics at \"{uri}metrics\""));
    }
    Ok(uri)
}

fn zone(value: &Value) -> Result<Tz, String> {
    let name = text(value, "an IANA time zone like \"Europe/Berlin\"")?;
    if let Ok(zone) = name.parse() {
        return Ok(zone);
    }
    let names = || TZ_VARIANTS.iter().map(|zone| zone.name());
    // People write the city alone more often than they misspell it.
    let city = |zone: &&str| zone.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
    match names().find(city).or_else(|| nearest(name, names())) {
        Some(near) => Err(format!("\"{name}\" is not an IANA time zone; did you mean \"{near}\"?")),
        None => {
            Err(format!("\"{name}\" is not an IANA time zone; write one like \"UTC\" or \"Europe/Berlin\""))
        }
    }
}

fn listen_address(value: &Value) -> Result<SocketAddr, String> {
    let address = text(value, "an address like \"0.0.0.0:9877\"")?;
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    // Prometheus writes ":9090" for all interfaces.
    match address.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()) {
        Some(port) => Ok(SocketAddr::from(([0, 0, 0, 0], port))),
        None => Err(format!(
            "\"{address}\" is not an IP address and port; write one like \"0.0.0.0:9877\" or \"[::]:9877\""
        )),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a decimal number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}
