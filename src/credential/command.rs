//! A program that prints a credential: run without a shell, given up in time, its output never repeated.

use std::{process::Stdio, time::Duration};

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::{io::AsyncReadExt as _, process::Command, time::timeout};

use super::issuer::Issue;
use crate::{
    config::TokenCommand,
    measurement::{Failure, FailureClass},
};

/// Longest output that is read.
const BYTES_MAX: u64 = 256 << 10;
/// Longest life that is believed.
const LIFETIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Runs the program; `read` makes values of what it printed. A life it does not state is the configured one.
pub(super) async fn fetch(
    command: &TokenCommand,
    read: fn(&str, DateTime<Utc>) -> Result<Printed, &'static str>,
) -> Result<Issue, Failure> {
    let failed = |words: &str| failure(&command.program, words);
    let output = timeout(command.timeout, run(command))
        .await
        .map_err(|_| failed("did not end in time: raise `timeout`, or see whether it waits for somebody"))?
        .map_err(|words| failed(&words))?;
    let printed = read(output.expose_secret(), Utc::now()).map_err(failed)?;
    Ok(Issue { values: printed.values, lifetime: printed.lifetime.unwrap_or(command.ttl) })
}

/// What a program printed.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) values: Vec<SecretString>,
    /// How long they last, when it says so.
    pub(super) lifetime: Option<Duration>,
}

async fn run(command: &TokenCommand) -> Result<SecretString, String> {
    let mut child = Command::new(&command.program)
        .args(&command.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It may hold what must not be logged.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(BYTES_MAX + 1).read_to_end(&mut output).await;
        read.map_err(|error| format!("cannot be read: {error}"))?;
    }
    if output.len() as u64 > BYTES_MAX {
        return Err("printed too much for a token".to_owned());
    }
    let status = child.wait().await.map_err(|error| format!("was lost: {error}"))?;
    if !status.success() {
        return Err(format!("failed ({status}); run it by hand to see why"));
    }
    let text = String::from_utf8(output).map_err(|_| "printed what is not UTF-8".to_owned())?;
    Ok(SecretString::from(text))
}

/// The token alone, or JSON with it: as OAuth2 servers, Azure's CLI and Kubernetes' credential plugins write it.
pub(super) fn token(text: &str, now: DateTime<Utc>) -> Result<Printed, &'static str> {
    let text = text.trim();
    if !text.starts_with('{') {
        let one_word = !text.is_empty() && !text.contains(char::is_whitespace);
        let values = vec![SecretString::from(text)];
        return if one_word {
            Ok(Printed { values, lifetime: None })
        } else {
            Err("has to print a token and nothing else, or JSON")
        };
    }
    let value: Value = serde_json::from_str(text).map_err(|_| "printed broken JSON")?;
    let place = value.get("status").filter(|status| status.is_object()).unwrap_or(&value);
    let names = ["access_token", "accessToken", "token", "id_token"];
    let token = names.iter().find_map(|name| place.get(name)?.as_str()).filter(|token| !token.is_empty());
    let token = token.ok_or("printed JSON without access_token or token")?;
    Ok(Printed { values: vec![SecretString::from(token)], lifetime: lifetime(place, now) })
}

/// How long something lasts, from the many names for it.
pub(super) fn lifetime(value: &Value, now: DateTime<Utc>) -> Option<Duration> {
    if let Some(lifetime) = value.get("expires_in").and_then(seconds) {
        return Some(lifetime);
    }
    let names = [
        "expires_on",
        "expires_at",
        "expirationTimestamp",
        "expiration",
        "Expiration",
        "expiry",
        "token_expiry",
    ];
    let end = names.iter().find_map(|name| instant(value.get(name)?))?;
    Some((end - now).to_std().unwrap_or_default().min(LIFETIME_MAX))
}

/// A number of seconds, also in quotes.
pub(super) fn seconds(value: &Value) -> Option<Duration> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    Duration::try_from_secs_f64(number).ok().map(|lifetime| lifetime.min(LIFETIME_MAX))
}

fn instant(value: &Value) -> Option<DateTime<Utc>> {
    if let Some(text) = value.as_str()
        && let Ok(instant) = DateTime::parse_from_rfc3339(text.trim())
    {
        return Some(instant.to_utc());
    }
    let epoch = value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())?;
    DateTime::from_timestamp(epoch, 0)
}

fn failure(program: &str, words: &str) -> Failure {
    Failure {
        class: FailureClass::Auth,
        subclass: Some("token_command".into()),
        http_status: None,
        retry_after: None,
        message: format!("token command {program:?} {words}"),
    }
}
