//! `serve --demo`: simulated models and sweeps over them, in one process; no file, no key, no other service.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    config::{Config, process_environment},
    simulator,
};

/// What the demo probes. Two targets, so that the quick sweep is not held up by the long ladder.
const CONFIG: &str = include_str!("demo.toml");

/// Memory for the ladder's largest level and not much more: a demo that runs for weeks must not grow for hours.
const KV_TOKENS: u64 = 280_000;

/// The most that the demo keeps of what it measures: it may run for weeks.
const ARCHIVE_BYTES_MAX: u64 = 128 << 20;

/// Where the demo keeps what it measures while it runs; gone when dropped.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// A new directory that only its owner may read; `None` where none can be made.
    fn new() -> Option<Self> {
        let name = format!("tokenprobe-demo-{:016x}", fastrand::u64(..));
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts the simulators and returns the configuration that probes them, and where its history is kept.
///
/// # Errors
/// No socket on loopback is to be had.
pub(super) async fn start(owned: &mut JoinSet<()>) -> Result<(Config, Option<Scratch>), String> {
    let mut text = CONFIG.to_owned();
    for name in ["CHAT", "LONG"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        owned.spawn(async move {
            let mut settings = simulator::Settings::default();
            for model in &mut settings.models {
                model.kv_tokens = KV_TOKENS;
            }
            if let Err(error) = simulator::serve(listener, settings, std::future::pending()).await {
                tracing::error!(%error, "the simulator stopped");
            }
        });
        text = text.replace(&format!("{{{name}}}"), &address.to_string());
    }
    let config = Config::parse(&text, Path::new("demo.toml"), &process_environment);
    let mut config = config.map_err(|error| error.to_string())?;
    let scratch = Scratch::new();
    config.archive.path = scratch.as_ref().map(|scratch| scratch.0.join("demo.db"));
    config.archive.size_max = ARCHIVE_BYTES_MAX;
    Ok((config, scratch))
}

/// Where to look.
pub(super) fn greeting(address: SocketAddr) -> String {
    format!(
        "\n  demo: two simulated models (qwen3-8b, qwen3-14b) are being probed every few seconds\n\n  \
         status page   http://{address}/\n  \
         metrics       curl -s http://{address}/metrics | grep time_to_first_token\n  \
         stop          Ctrl-C\n"
    )
}
