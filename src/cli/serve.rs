//! `tokenprobe serve`: the daemon.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use chrono::Utc;
use clap::Args;
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};

use super::{CONFIG, FAILED, election::ElectionArgs, load, print, tell, terminated};
use crate::{
    config::{Config, Plan, Shard},
    daemon::{Daemon, Options, Source},
    server::{self, Web},
};

/// Flags of `serve`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct ServeArgs {
    /// Configuration file
    #[arg(long = "config.file", value_name = "FILE", default_value = load::DEFAULT_FILE, conflicts_with = "demo")]
    config_file: PathBuf,
    /// Check the configuration, print what it would do, and exit
    #[arg(long = "config.check")]
    check: bool,
    /// Probe simulated models, without a configuration file
    #[arg(long)]
    demo: bool,
    /// Where /metrics is served; overrides the configuration file
    #[arg(long = "web.listen-address", value_name = "ADDRESS")]
    listen_address: Option<SocketAddr>,
    /// Reload when the configuration file changes
    #[arg(long = "config.auto-reload")]
    auto_reload: bool,
    /// Web configuration: TLS, client certificates, basic auth, bearer tokens
    #[arg(long = "web.config.file", value_name = "FILE")]
    web_config_file: Option<PathBuf>,
    /// Allow POST /-/reload and POST /api/v1/sweeps/NAME/run
    #[arg(long = "web.enable-lifecycle")]
    lifecycle: bool,
    /// Allow GET /probe?target=NAME&model=MODEL, which sends one probe
    #[arg(long = "web.enable-probe")]
    probes: bool,
    /// Probe this share only: shard I (from 0) of N, by target and model
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    #[command(flatten)]
    election: ElectionArgs,
}

/// Runs the daemon until it is told to stop.
pub(super) async fn run(args: ServeArgs) -> ExitCode {
    let mut owned = JoinSet::new();
    // What the demo keeps is given up when this function ends.
    let mut _scratch = None;
    let loaded: Result<(Config, Source), String> = if args.demo {
        super::demo::start(&mut owned).await.map(|(config, scratch)| {
            _scratch = scratch;
            (config, Source::BuiltIn)
        })
    } else {
        load::config(Some(&args.config_file)).map(|config| (config, Source::File(args.config_file.clone())))
    };
    let (config, source) = match loaded {
        Ok(loaded) => loaded,
        Err(text) => {
            tell(&text);
            return ExitCode::from(CONFIG);
        }
    };
    let web = args.web_config_file.as_deref().map_or_else(|| Ok(Web::open()), Web::load);
    let web = match web {
        Ok(web) => web,
        Err(text) => {
            tell(&text);
            return ExitCode::from(CONFIG);
        }
    };
    let election = match args.election.settings(args.shard) {
        Ok(election) => election,
        Err(text) => {
            tell(&text);
            return ExitCode::from(CONFIG);
        }
    };
    if args.check {
        let config = config.of_shard(args.shard);
        print(&Plan::new(&config, Utc::now()).to_string());
        return ExitCode::SUCCESS;
    }
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let options = Options {
        lifecycle: args.lifecycle,
        probes: args.probes,
        web,
        auto_reload: args.auto_reload,
        shard: args.shard,
        election,
    };
    match serve(args, config, source, options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            tracing::error!("{text}");
            ExitCode::from(FAILED)
        }
    }
}

async fn serve(args: ServeArgs, config: Config, source: Source, options: Options) -> Result<(), String> {
    let address = args.listen_address.unwrap_or(config.server.listen_address);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        format!("cannot listen on {address}: {error}; choose another with --web.listen-address")
    })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let (targets, sweeps) = (config.targets.len(), config.sweeps.len());
    let (daemon, surface) = Daemon::new(config, source, options, Utc::now())?;
    let (stop_server, server_stops) = oneshot::channel::<()>();
    let mut server = JoinSet::new();
    server.spawn(server::serve(listener, surface, async {
        let _ = server_stops.await;
    }));
    tracing::info!(%address, targets, sweeps, version = env!("CARGO_PKG_VERSION"), "serving");
    if args.demo {
        tell(&super::demo::greeting(address));
    }
    let ended = daemon.run(terminated(), terminated()).await;
    // Served until now, so that the last numbers can be scraped and readiness says that it is going.
    let _ = stop_server.send(());
    while server.join_next().await.is_some() {}
    tracing::info!("stopped");
    ended
}
