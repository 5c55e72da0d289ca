//! `/probe`: one probe for one scrape, in text format, as the blackbox exporter answers.
//!
//! Only what is configured can be asked for, by name. Knows nothing of how it is probed.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};

use super::{Command, Demanded, Surface, from_another_site};
use crate::{measurement::Measurement, metrics};

/// Taken off the scrape's own timeout, for the answer to get there.
const OFFSET: Duration = Duration::from_millis(500);
/// The deadline of somebody who names none.
const WITHIN_DEFAULT: Duration = Duration::from_secs(60);
const WITHIN_MAX: Duration = Duration::from_secs(600);
/// For the daemon to take the wish and to hand the answer back.
const HANDLING: Duration = Duration::from_secs(5);

pub(super) async fn probe(State(surface): State<Surface>, uri: Uri, headers: HeaderMap) -> Response {
    if !surface.probes {
        let text = "probes on demand are off: start tokenprobe with --web.enable-probe to allow them\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if from_another_site(&headers) {
        return (StatusCode::FORBIDDEN, "refused: a page of another site sent this request\n")
            .into_response();
    }
    let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let query: BTreeMap<_, _> = pairs.into_owned().collect();
    let (Some(target), Some(model), 2) = (query.get("target"), query.get("model"), query.len()) else {
        let text = "ask for /probe?target=NAME&model=MODEL, both as they are configured\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let Some(within) = deadline(&headers) else {
        let text = "X-Prometheus-Scrape-Timeout-Seconds is no number of seconds above 0.5\n";
        return (StatusCode::BAD_REQUEST, text).into_response();
    };
    let (reply, answer) = tokio::sync::oneshot::channel();
    let command = Command::Probe { target: target.clone(), model: model.clone(), within, reply };
    if surface.commands.try_send(command).is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "tokenprobe is busy or shutting down: try again\n")
            .into_response();
    }
    match tokio::time::timeout(within + HANDLING, answer).await {
        Ok(Ok(Demanded::Measured(measurement))) => {
            ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], written(&measurement)).into_response()
        }
        Ok(Ok(Demanded::Unknown)) => {
            let text = "no such target or model is configured; /api/v1/status lists them\n";
            (StatusCode::NOT_FOUND, text).into_response()
        }
        Ok(Ok(Demanded::Refused(why))) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("not probed: {why}\n")).into_response()
        }
        Ok(Err(_)) => (StatusCode::SERVICE_UNAVAILABLE, "tokenprobe is shutting down\n").into_response(),
        Err(_) => (StatusCode::GATEWAY_TIMEOUT, "no answer in time\n").into_response(),
    }
}

/// When the scrape gives up, and a little before.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let Some(value) = headers.get("x-prometheus-scrape-timeout-seconds") else { return Some(WITHIN_DEFAULT) };
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    let timeout = Duration::try_from_secs_f64(seconds).ok()?.min(WITHIN_MAX);
    timeout.checked_sub(OFFSET).filter(|left| !left.is_zero())
}

/// The measurement in text format.
fn written(measurement: &Arc<Measurement>) -> String {
    let mut out = String::new();
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let timeline = &measurement.timeline;
    let tokens = &measurement.tokens;
    let ok = measurement.is_ok();
    // Times of an answer that did not come whole say nothing.
    let good = |value: Option<f64>| value.filter(|_| ok);
    let success = Some(f64::from(u8::from(ok)));
    let status = measurement.outcome.failure().and_then(|failure| failure.http_status);
    for (name, help, value) in [
        ("probe_success", "1 when the probe got a whole answer, 0 when it did not.", success),
        ("probe_duration_seconds", "How long the probe took, in seconds.", seconds(Some(timeline.end))),
        (
            "probe_time_to_first_token_seconds",
            "Time from just before a connection was acquired to the first token of any kind, in seconds.",
            good(seconds(timeline.first_token())),
        ),
        (
            "probe_time_per_output_token_seconds",
            "(last token - first token) / (output tokens - 1), in seconds.",
            good(seconds(measurement.time_per_output_token())),
        ),
        (
            "probe_prompt_tokens",
            "Prompt tokens by the server's usage.",
            tokens.prompt.map(|count| count as f64),
        ),
        (
            "probe_output_tokens",
            "Output tokens by the server's usage, or chunks.",
            tokens.output.map(|count| count as f64),
        ),
        ("probe_http_status_code", "Status of an answer that was a failure.", status.map(f64::from)),
    ] {
        if let Some(value) = value {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
    }
    let phases = [("dns", timeline.dns), ("tcp", timeline.tcp), ("tls", timeline.tls)];
    let name = "probe_phase_duration_seconds";
    let mut header = format!(
        "# HELP {name} How long a phase of opening the connection took, in seconds.\n# TYPE {name} gauge\n"
    );
    for (phase, time) in phases {
        if let Some(time) = time {
            let _ = writeln!(
                out,
                "{}{name}{{phase=\"{phase}\"}} {}",
                std::mem::take(&mut header),
                time.as_secs_f64()
            );
        }
    }
    if let Some(failure) = measurement.outcome.failure() {
        let name = "probe_failure_info";
        let _ = writeln!(
            out,
            "# HELP {name} 1 for the error class by which the probe failed.\n# TYPE {name} gauge\n{name}{{reason=\"{}\"}} 1",
            failure.class
        );
    }
    out
}
