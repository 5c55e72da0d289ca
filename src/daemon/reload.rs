//! Going over to another configuration: all of it, or nothing. Sweeps that run end on their old plan.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use tokio::time::timeout;

use super::{Source, state::State};
use crate::{
    config::Config,
    probe::Endpoint,
    sweep::{Fleet, Prepared},
};

/// Nothing starts or stops meanwhile, so a file system that hangs is not waited for.
const LOADING_TIMEOUT: Duration = Duration::from_secs(10);

impl State {
    /// Takes over a new configuration as a whole, or keeps the old one and says so.
    pub(super) async fn reload(&mut self) -> Result<(), String> {
        let Source::File(path) = self.source.clone() else {
            return Err("there is no configuration file to reload: this is the built-in demo".into());
        };
        let (before, shard) = (self.fleet.clone(), self.shard);
        // Reading files and certificates must not hold up the loop's tasks.
        let loading = tokio::task::spawn_blocking(move || {
            if !std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                // A pipe would keep whoever opens it.
                return Err(format!("{} is not there, or no regular file", path.display()));
            }
            let config = Config::load(&path).map_err(|error| error.to_string())?.of_shard(shard);
            let fleet = fleet(&config, &before)?;
            Ok((config, fleet))
        });
        let loaded = match timeout(LOADING_TIMEOUT, loading).await {
            Ok(loaded) => loaded.unwrap_or_else(|error| Err(error.to_string())),
            Err(_) => Err(format!("it could not be read within {LOADING_TIMEOUT:?}: a file it names hangs")),
        };
        match loaded {
            Ok((config, fleet)) => {
                self.take_over(config, fleet);
                Ok(())
            }
            Err(error) => {
                self.observer.metrics().reload_failed();
                tracing::error!(error, "configuration not reloaded, the old one stays");
                Err(error)
            }
        }
    }

    fn take_over(&mut self, config: Config, fleet: Fleet) {
        if config.server != self.served {
            tracing::warn!("[server] changed: that takes a restart, the rest is reloaded");
        }
        let now = Utc::now();
        self.config = Arc::new(config);
        self.fleet = fleet;
        self.history.adopt(&self.config);
        self.governor.adopt(self.config.budget.caps.clone());
        self.budget_shown = None;
        self.paused.retain(|name| self.config.sweep(name).is_some());
        self.agenda.adopt(&self.config.sweeps, now);
        self.observer.adopt(&self.config);
        self.observer.metrics().reload_succeeded(now);
        self.publish_schedule();
        tracing::info!(
            targets = self.config.targets.len(),
            sweeps = self.config.sweeps.len(),
            "configuration reloaded"
        );
    }
}

/// Prepares every target; those that `before` knows keep their gates.
///
/// # Errors
/// A target's certificates cannot be loaded.
pub(super) fn fleet(config: &Config, before: &Fleet) -> Result<Fleet, String> {
    let redactor = Arc::new(config.redactor());
    let mut fleet = Fleet::under(config.budget.max_in_flight, before);
    for target in &config.targets {
        let endpoint = Endpoint::new(target.clone(), redactor.clone())
            .map_err(|error| format!("target \"{}\": {error}", target.name))?;
        fleet.insert(Prepared::new(endpoint), before);
    }
    Ok(fleet)
}
