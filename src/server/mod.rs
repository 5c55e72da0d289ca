//! The HTTP surface: metrics, health, readiness, reload, the status page and its JSON.
//!
//! Shows what others measured and passes on what a user asks for. It knows nothing of probes or the configuration:
//! it reads [`Metrics`] and the latest [`Status`], and sends [`Command`]s to the daemon. No request waits for a probe.

mod connections;
mod page;
mod probe;
mod scrape;
mod status;
mod web;

#[cfg(test)]
mod tests;

use std::{future::Future, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chrono::Utc;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
};

use self::scrape::Scrapes;
pub use self::web::Web;
pub use status::{BudgetStatus, CellStatus, Latency, Status, SweepStatus};

use crate::{measurement::Measurement, metrics::Metrics};

/// Whether the daemon does its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Readiness {
    /// The schedule does not run yet.
    #[default]
    Starting,
    /// The schedule runs.
    Ready,
    /// Shutting down: no new probes.
    Draining,
}

/// What a user asks the daemon for.
#[derive(Debug)]
pub enum Command {
    /// Read the configuration again. The answer's error is the whole text that a user needs to mend it.
    Reload {
        /// Where the answer goes.
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Pause a sweep, or resume it.
    PauseSweep {
        /// Its name.
        name: String,
        /// Whether it is to pause.
        paused: bool,
        /// Whether there is such a sweep.
        reply: oneshot::Sender<bool>,
    },
    /// Send one probe now.
    Probe {
        /// Name of the target.
        target: String,
        /// The model.
        model: String,
        /// The answer is of no use after this.
        within: Duration,
        /// Where the answer goes.
        reply: oneshot::Sender<Demanded>,
    },
    /// Run a sweep now.
    RunSweep {
        /// Its name.
        name: String,
        /// Where the answer goes.
        reply: oneshot::Sender<RunAnswer>,
    },
}

/// What became of the wish to run a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunAnswer {
    /// It starts.
    Started,
    /// There is no sweep of that name.
    Unknown,
    /// Not now, and why.
    Refused(String),
}

/// What became of the wish for one probe.
#[derive(Debug, Clone)]
pub enum Demanded {
    /// It was sent.
    Measured(Arc<Measurement>),
    /// No such target or model is configured.
    Unknown,
    /// Not now, and why.
    Refused(String),
}

/// What the surface reads from and writes to.
#[derive(Debug, Clone)]
pub struct Surface {
    /// Everything measured.
    pub metrics: Arc<Metrics>,
    /// What the page shows.
    pub status: watch::Receiver<Arc<Status>>,
    /// What `/-/ready` says.
    pub readiness: watch::Receiver<Readiness>,
    /// The daemon's ear.
    pub commands: mpsc::Sender<Command>,
    /// Whether requests may change anything (`--web.enable-lifecycle`); they may, too, where the web configuration
    /// asks for a credential.
    pub lifecycle: bool,
    /// Whether `/probe` sends probes (`--web.enable-probe`).
    pub probes: bool,
    /// TLS, credentials and headers.
    pub web: Web,
}

/// How long a user waits for the daemon's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves on a listener until `shutdown` resolves, then lets running answers end, for a few seconds at most.
pub async fn serve(listener: TcpListener, surface: Surface, shutdown: impl Future<Output = ()>) {
    let (metrics, web) = (surface.metrics.clone(), surface.web.clone());
    connections::serve(listener, (router(surface), web), move || metrics.connection_refused(), shutdown)
        .await;
}

/// Every path.
pub fn router(surface: Surface) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/page.css", get(style))
        .merge(
            Router::new()
                .route("/metrics", get(scrape::scrape))
                .with_state((surface.clone(), Scrapes::default())),
        )
        .route("/probe", get(probe::probe))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .route("/-/reload", post(reload))
        .route("/api/v1/status", get(status_json))
        .route("/api/v1/sweeps/{name}/run", post(run_sweep))
        .route("/api/v1/sweeps/{name}/pause", post(pause_sweep))
        .route("/api/v1/sweeps/{name}/resume", post(resume_sweep))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(surface.web.clone(), web::guard))
        .with_state(surface)
}

async fn healthy() -> &'static str {
    "tokenprobe is healthy.\n"
}

async fn ready(State(surface): State<Surface>) -> (StatusCode, &'static str) {
    match *surface.readiness.borrow() {
        Readiness::Ready => (StatusCode::OK, "tokenprobe is ready.\n"),
        Readiness::Starting => (StatusCode::SERVICE_UNAVAILABLE, "tokenprobe is starting.\n"),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "tokenprobe is shutting down.\n"),
    }
}

async fn reload(State(surface): State<Surface>, headers: HeaderMap) -> Response {
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

async fn run_sweep(State(surface): State<Surface>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    let answer = ask(&surface, &headers, |reply| Command::RunSweep { name: name.clone(), reply }).await;
    match answer {
        Ok(RunAnswer::Started) => (StatusCode::ACCEPTED, format!("sweep {name} starts\n")).into_response(),
        Ok(RunAnswer::Unknown) => unknown_sweep(&name),
        Ok(RunAnswer::Refused(why)) => (StatusCode::CONFLICT, format!("{why}\n")).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn pause_sweep(
    State(surface): State<Surface>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let word = "paused: it starts no more, and a run that is under way ends before its next level";
    set_paused(&surface, &headers, name, true, word).await
}

async fn resume_sweep(
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
        Ok(true) => format!("sweep {name} is {word}\n").into_response(),
        Ok(false) => unknown_sweep(&name),
        Err(refusal) => refusal.into_response(),
    }
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
    if !surface.lifecycle && !surface.web.asks_for_credential() {
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
fn from_another_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    matches!(site, Some(site) if site != b"same-origin" && site != b"none")
}

async fn status_json(State(surface): State<Surface>) -> Json<Arc<Status>> {
    Json(surface.status.borrow().clone())
}

async fn index(State(surface): State<Surface>) -> Response {
    let status = surface.status.borrow().clone();
    let readiness = *surface.readiness.borrow();
    let mut response = Response::new(Body::from(page::render(&status, readiness, Utc::now())));
    let fixed = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ];
    set(response.headers_mut(), fixed);
    response
}

async fn style() -> Response {
    let mut response = Response::new(Body::from(page::STYLE));
    let fixed =
        [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    set(response.headers_mut(), fixed);
    response
}

fn set<const N: usize>(headers: &mut HeaderMap, fixed: [(HeaderName, &'static str); N]) {
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

async fn method_not_allowed() -> (StatusCode, &'static str) {
    (StatusCode::METHOD_NOT_ALLOWED, "this path is not asked so: the header `allow` says how\n")
}

async fn not_found() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "not found; there are:\n\
         GET  /                           status page\n\
         GET  /metrics                    for Prometheus\n\
         GET  /probe?target=T&model=M     one probe now, for a scrape (--web.enable-probe)\n\
         GET  /-/healthy                  the process runs\n\
         GET  /-/ready                    the schedule runs\n\
         POST /-/reload                   read the configuration again\n\
         GET  /api/v1/status              what the page shows, as JSON\n\
         POST /api/v1/sweeps/{name}/run   run a sweep now\n\
         POST /api/v1/sweeps/{name}/pause, POST /api/v1/sweeps/{name}/resume\n",
    )
}
