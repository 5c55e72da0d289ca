//! The HTTP surface: metrics, health, readiness, reload, the status page and its JSON.
//!
//! Shows what others measured and passes on what a user asks for. It knows nothing of probes or the configuration:
//! it reads [`Metrics`], the latest [`Status`] and the archive's file, and sends [`Command`]s to the daemon. No request
//! waits for a probe.

mod api;
mod connections;
mod control;
mod memory;
mod models;
mod page;
mod pages;
mod status;
mod web;

#[cfg(test)]
mod tests;

use std::{future::Future, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use flate2::{Compression, write::GzEncoder};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
};

pub use self::{
    memory::Memory,
    status::{
        BudgetStatus, CellStatus, LadderStatus, Latency, LevelName, ObjectiveStatus, Progress, Status,
        SweepStatus,
    },
    web::Web,
};

use crate::metrics::{self, Metrics};

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
    /// TLS, credentials and headers.
    pub web: Web,
    /// Where history is read.
    pub memory: Memory,
}

/// Serves on a listener until `shutdown` resolves, then lets running answers end, for a few seconds at most.
pub async fn serve(listener: TcpListener, surface: Surface, shutdown: impl Future<Output = ()>) {
    let (metrics, web) = (surface.metrics.clone(), surface.web.clone());
    connections::serve(listener, (router(surface), web), move || metrics.connection_refused(), shutdown)
        .await;
}

/// Every path.
pub fn router(surface: Surface) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .route("/-/reload", post(control::reload))
        .merge(pages::router())
        .merge(api::router())
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(surface.web.clone(), web::guard))
        .with_state(surface)
}

impl Surface {
    /// Whether a request may change something.
    fn may_change(&self) -> bool {
        self.lifecycle || self.web.asks_for_credential()
    }
}

async fn scrape(State(surface): State<Surface>, headers: HeaderMap) -> Response {
    let gzip = accepts_gzip(&headers);
    // Writing and packing megabytes would hold up the probes that share this thread.
    let written = tokio::task::spawn_blocking(move || {
        let text = surface.metrics.encode().into_bytes();
        if gzip { (compressed(&text), true) } else { (text, false) }
    });
    let Ok((body, packed)) = written.await else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n").into_response();
    };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// `gzip` or `*` is among the accepted encodings, and not with the weight zero.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let items: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
    let weight_of = |wanted: &str| {
        items.iter().find_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            parts.next().filter(|coding| coding.eq_ignore_ascii_case(wanted))?;
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            Some(weight.map_or(1.0, |weight| weight.trim().parse::<f32>().unwrap_or(0.0)))
        })
    };
    weight_of("gzip").or_else(|| weight_of("*")).is_some_and(|weight| weight > 0.0)
}

/// Packed, or empty if that fails, which writing to memory cannot.
fn compressed(text: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).unwrap_or_default()
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

async fn not_found() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "not found; there are:\n\
         GET  /                           status page; /failures, /runs, /configuration\n\
         GET  /metrics                    for Prometheus\n\
         GET  /-/healthy                  the process runs\n\
         GET  /-/ready                    the schedule runs\n\
         POST /-/reload                   read the configuration again\n\
         GET  /api/v1/status              what the page shows, as JSON\n\
         GET  /api/v1/openapi.json        everything under /api/v1\n\
         POST /api/v1/sweeps/{name}/run   run a sweep now\n\
         POST /api/v1/sweeps/{name}/pause, POST /api/v1/sweeps/{name}/resume\n",
    )
}
