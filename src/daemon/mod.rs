//! The daemon: one event loop that owns it all.
//!
//! State changes here and nowhere else: a due start, a probe's result, a reload and the shutdown are events that
//! the loop takes one after the other, none of which waits for a probe. Sweeps run in tasks of their own; what
//! they hold (their plan, their permits) they hold until they end, whatever is reloaded meanwhile.

mod agenda;
mod display;
mod heartbeat;
mod history;
mod leadership;
mod observer;
mod on_demand;
mod reload;
mod state;
mod watcher;

#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use chrono::{DateTime, Utc};
use tokio::sync::{mpsc, watch};

use self::{history::History, leadership::Leadership, observer::Observer, state::State};
use crate::{
    budget::Governor,
    config::{Config, Shard},
    election::{self, Election},
    metrics::Metrics,
    server::{Command, Memory, Readiness, Surface, Web},
    sweep::{Fleet, Register},
};

/// Commands that may wait for the loop.
const COMMANDS_MAX: usize = 16;

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file, read again at every reload.
    File(PathBuf),
    /// Built in: nothing to reload.
    BuiltIn,
}

/// The daemon before it runs.
#[derive(Debug)]
pub struct Daemon {
    config: Arc<Config>,
    source: Source,
    fleet: Fleet,
    observer: Observer,
    history: History,
    register: Register,
    governor: Governor,
    readiness: watch::Sender<Readiness>,
    commands: mpsc::Receiver<Command>,
    auto_reload: bool,
    shard: Option<Shard>,
    election: Option<election::Settings>,
}

/// How the daemon is run, beside its configuration.
#[derive(Debug)]
pub struct Options {
    /// Whether requests may change anything.
    pub lifecycle: bool,
    /// Whether `/probe` sends probes.
    pub probes: bool,
    /// TLS and credentials of the HTTP surface.
    pub web: Web,
    /// Whether to reload when the configuration file changes.
    pub auto_reload: bool,
    /// Which share of the targets and models is this program's.
    pub shard: Option<Shard>,
    /// How it stands for election, where replicas stand by for each other.
    pub election: Option<election::Settings>,
}

impl Daemon {
    /// A daemon with its series laid out and its targets prepared.
    ///
    /// # Errors
    /// A target's certificates cannot be loaded.
    pub fn new(
        config: Config,
        source: Source,
        options: Options,
        now: DateTime<Utc>,
    ) -> Result<(Self, Surface), String> {
        let config = config.of_shard(options.shard);
        let fleet = reload::fleet(&config, &Fleet::default())?;
        let register = Register::default();
        let governor = Governor::new(config.budget.caps.clone());
        let metrics = Arc::new(Metrics::new(register.clone()));
        let config = Arc::new(config);
        let mut observer = Observer::new(metrics.clone(), &config, now);
        let history = History::open(&config, &mut observer, &governor, &fleet)?;
        metrics.reload_succeeded(now);
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let readiness = watch::Sender::new(Readiness::Starting);
        let surface = Surface {
            metrics,
            status: observer.status(),
            readiness: readiness.subscribe(),
            commands: sender,
            lifecycle: options.lifecycle,
            probes: options.probes,
            web: options.web,
            memory: Memory::new(config.archive.path.clone()),
        };
        let Options { auto_reload, shard, election, .. } = options;
        let daemon = Self {
            config,
            source,
            fleet,
            observer,
            history,
            register,
            governor,
            readiness,
            commands,
            auto_reload,
            shard,
            election,
        };
        Ok((daemon, surface))
    }

    /// Runs until `shutdown` resolves, then drains: no new probes, running ones get the grace period, or until `hurry`
    /// resolves.
    ///
    /// # Errors
    /// It cannot stand for election: one line with the mend.
    pub async fn run(
        mut self,
        shutdown: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let grace = self.config.server.shutdown_grace;
        let leadership = self.leadership()?;
        let mut state = State::new(self, leadership);
        state.serve(shutdown).await;
        state.drain(grace, hurry).await;
        Ok(())
    }

    fn leadership(&mut self) -> Result<Leadership, String> {
        let Some(settings) = self.election.take() else { return Ok(Leadership::new(None)) };
        let metrics = self.observer.shared_metrics();
        let election =
            Election::join(&settings, self.governor.clone(), move || metrics.lease_request_failed())?;
        self.observer.leads(false);
        Ok(Leadership::new(Some(election)))
    }
}
