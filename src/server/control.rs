//! Requests that change something: reload, run, pause, resume. Passed on to the daemon; the answer is its own.
//!
//! A browser that submits a form is led back to the page; whoever asks otherwise gets a line of text.

use std::time::Duration;

use axum::{
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use tokio::sync::oneshot;

use super::{Command, RunAnswer, Surface};

/// How long a user waits for the daemon's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn reload(State(surface): State<Surface>, headers: HeaderMap) -> Response {
    let answer = ask(&surface, &headers, |reply| Command::Reload { reply }).await;
    match answer {
        Ok(Ok(())) => "configuration reloaded\n".into_response(),
        Ok(Err(error)) => {
            let text = format!("the old configuration stays in force:\n{error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

pub(super) async fn run_sweep(
    State(surface): State<Surface>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let answer = ask(&surface, &headers, |reply| Command::RunSweep { name: name.clone(), reply }).await;
    match answer {
        Ok(RunAnswer::Started) => back(&headers)
            .unwrap_or_else(|| (StatusCode::ACCEPTED, format!("sweep {name} starts\n")).into_response()),
        Ok(RunAnswer::Unknown) => unknown_sweep(&name),
        Ok(RunAnswer::Refused(why)) => (StatusCode::CONFLICT, format!("{why}\n")).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

pub(super) async fn pause_sweep(
    State(surface): State<Surface>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let word = "paused: it starts no more, and a run that is under way ends before its next level";
    set_paused(&surface, &headers, name, true, word).await
}

pub(super) async fn resume_sweep(
    State(surface): State<Surface>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    set_paused(&surface, &headers, name, false, "resumed: it starts when it is due next").await
}

async fn set_paused(
    surface: &Surface,
    headers: &HeaderMap,
    name: String,
    paused: bool,
    word: &str,
) -> Response {
    let answer =
        ask(surface, headers, |reply| Command::PauseSweep { name: name.clone(), paused, reply }).await;
    match answer {
        Ok(true) => back(headers).unwrap_or_else(|| format!("sweep {name} is {word}\n").into_response()),
        Ok(false) => unknown_sweep(&name),
        Err(refusal) => refusal.into_response(),
    }
}

/// Back to the page, for a browser that shows what it gets.
fn back(headers: &HeaderMap) -> Option<Response> {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    // Relative to /api/v1/sweeps/NAME/run.
    accepted
        .filter(|accepted| accepted.contains("text/html"))
        .map(|_| Redirect::to("../../../../").into_response())
}

fn unknown_sweep(name: &str) -> Response {
    let text = format!("there is no sweep named {name}; /api/v1/status lists them\n");
    (StatusCode::NOT_FOUND, text).into_response()
}

/// Passes a command on and waits for the answer; refuses it where changes are not allowed.
async fn ask<T>(
    surface: &Surface,
    headers: &HeaderMap,
    command: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Result<T, (StatusCode, &'static str)> {
    if !surface.may_change() {
        return Err((
            StatusCode::FORBIDDEN,
            "requests that change something are off: start tokenprobe with --web.enable-lifecycle, or with a \
             --web.config.file that asks for a credential, to allow them\n",
        ));
    }
    if from_another_site(headers) {
        return Err((StatusCode::FORBIDDEN, "refused: a page of another site sent this request\n"));
    }
    let (reply, answer) = oneshot::channel();
    if surface.commands.try_send(command(reply)).is_err() {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "tokenprobe is busy or shutting down: try again\n"));
    }
    match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err((StatusCode::SERVICE_UNAVAILABLE, "tokenprobe is shutting down\n")),
        Err(_) => {
            Err((StatusCode::GATEWAY_TIMEOUT, "no answer within 30 s: the log says what became of it\n"))
        }
    }
}

/// A browser says where a request comes from; a form on some web page must not reload the prober of whoever looks at it.
pub(super) fn from_another_site(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(HeaderValue::as_bytes);
    if let Some(site) = text("sec-fetch-site") {
        return site != b"same-origin" && site != b"none";
    }
    // Browsers say that of encrypted pages and of this machine's only; of any, which page has sent a form.
    let Some(origin) = text("origin") else { return false };
    let place = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
    // Of several proxies each adds what it was asked for.
    let forwarded =
        text("x-forwarded-host").unwrap_or_default().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let mut asked = text("host").into_iter().chain(forwarded);
    place.is_none_or(|place| !asked.any(|host| bare(host).eq_ignore_ascii_case(bare(place))))
}

/// A host without the port that goes without saying.
fn bare(host: &[u8]) -> &[u8] {
    host.strip_suffix(b":80").or(host.strip_suffix(b":443")).unwrap_or(host)
}
