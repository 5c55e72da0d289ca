//! The HTTP surface: metrics, health, readiness, reload, the status page and its JSON.
//!
//! Shows what others measured and passes on what a user asks for. It knows nothing of probes or the configuration:
//! it reads [`Metrics`], the latest [`Status`] and the archive's file, and sends [`Command`]s to the daemon. No page
//! waits for a probe.

mod api;
mod connections;
mod control;
mod memory;
mod models;
mod page;
mod pages;
mod probe;
mod scrape;
mod status;
mod web;

#[cfg(test)]
mod tests;

use std::{future::Future, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    middleware,
    routing::{get, post},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
};

use self::scrape::Scrapes;
pub use self::{
    memory::Memory,
    status::{
        BudgetStatus, CellStatus, LadderStatus, Latency, LevelName, ObjectiveStatus, Progress, Status,
        SweepStatus,
    },
    web::Web,
};

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
        .merge(
            Router::new()
                .route("/metrics", get(scrape::scrape))
                .with_state((surface.clone(), Scrapes::default())),
        )
        .route("/probe", get(probe::probe))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .route("/-/reload", post(control::reload))
        .merge(pages::router())
        .merge(api::router())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(surface.web.clone(), web::guard))
        .with_state(surface)
}

impl Surface {
    /// Whether a request may change something.
    fn may_change(&self) -> bool {
        self.lifecycle || self.web.asks_for_credential()
    }
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
         GET  /probe?target=T&model=M     one probe now, for a scrape (--web.enable-probe)\n\
         GET  /-/healthy                  the process runs\n\
         GET  /-/ready                    the schedule runs\n\
         POST /-/reload                   read the configuration again\n\
         GET  /api/v1/status              what the page shows, as JSON\n\
         GET  /api/v1/openapi.json        everything under /api/v1\n\
         POST /api/v1/sweeps/{name}/run   run a sweep now\n\
         POST /api/v1/sweeps/{name}/pause, POST /api/v1/sweeps/{name}/resume\n",
    )
}

async fn method_not_allowed() -> (StatusCode, &'static str) {
    (StatusCode::METHOD_NOT_ALLOWED, "this path is not asked so: the header `allow` says how\n")
}
