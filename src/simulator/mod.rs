//! A model server without a model: a real HTTP server that behaves, in time and on the wire, like an inference engine.
//!
//! For trying tokenprobe out (`simulate`, `serve --demo`) and for testing it. Being the oracle of those tests it
//! shares nothing with the rest of the crate: its own counting of tokens, its own wire shapes, its own clockwork.
//!
//! The way of one request: `socket` (bytes, stamped as they leave) -> `http` (route, key, model, faults) ->
//! `clockwork` (the thread that drives the pure `engine` in real time) -> `reply` (tokens to events) -> `socket`.

pub mod engine;
pub mod fault;
pub mod oracle;
pub mod profile;
pub mod tokens;

mod clockwork;
mod http;
mod refusal;
mod reply;
mod socket;
mod stats;
mod wire;

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use tokio::{net::TcpListener, sync::watch};

pub use self::{
    oracle::{Oracle, Seen},
    profile::ModelProfile,
};

/// What to simulate.
pub struct Settings {
    /// The models served.
    pub models: Vec<ModelProfile>,
    /// Of all jitter: the same seed and requests give the same times.
    pub seed: u64,
    /// Length of a simulated second: 1 is real, 0.1 ten times faster.
    pub time_scale: f64,
    /// The key that requests must bear; `None` lets everybody in.
    pub api_key: Option<String>,
    /// Whether `POST /-/fault` may switch faults on at runtime.
    pub allow_fault_api: bool,
    /// How late `+slow-headers` and `+slow-first` are. Not scaled.
    pub lateness: Duration,
    /// How often `+keepalive` sends a comment. Not scaled.
    pub keepalive: Duration,
    /// Records what was really done; off by default.
    pub oracle: Oracle,
}

impl Default for Settings {
    /// The two demo models in real time.
    fn default() -> Self {
        Self {
            models: vec![ModelProfile::qwen3_8b(), ModelProfile::qwen3_14b()],
            seed: 1,
            time_scale: 1.0,
            api_key: None,
            allow_fault_api: false,
            lateness: Duration::from_secs(30),
            keepalive: Duration::from_millis(50),
            oracle: Oracle::default(),
        }
    }
}

/// Serves until `shutdown` completes; answers under way are then broken off.
///
/// # Errors
/// When the simulator's thread cannot be started. A connection's errors are its own.
pub async fn serve(
    listener: TcpListener,
    settings: Settings,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    // Broken-off answers need no longer than it takes to notice.
    const GRACE: Duration = Duration::from_secs(1);
    let (close, mut closing) = watch::channel(false);
    let allow_fault_api = settings.allow_fault_api;
    let router = http::router(Arc::new(server(settings, closing.clone())?), allow_fault_api);
    let service = router.into_make_service_with_connect_info::<socket::Connection>();
    let serving = axum::serve(socket::Doorway(listener), service)
        .with_graceful_shutdown(async move { reply::closed(&mut closing).await });
    let mut serving = std::pin::pin!(serving.into_future());
    tokio::select! {
        result = &mut serving => result,
        () = shutdown => {
            close.send_replace(true);
            tokio::time::timeout(GRACE, serving).await.unwrap_or(Ok(()))
        }
    }
}

fn server(settings: Settings, closing: watch::Receiver<bool>) -> io::Result<http::Server> {
    const SLOW_FACTOR: u32 = 2;
    let engines: Vec<_> =
        settings.models.iter().flat_map(|model| [model.clone(), model.slowed(SLOW_FACTOR)]).collect();
    Ok(http::Server {
        clockwork: clockwork::Clockwork::start(&engines, settings.seed, settings.time_scale)?,
        models: settings.models,
        api_key: settings.api_key,
        oracle: settings.oracle,
        lateness: settings.lateness,
        keepalive: settings.keepalive,
        closing,
        faults: Mutex::new(HashMap::new()),
        requests: AtomicU64::new(0),
    })
}
