//! The daemon's memory: what an earlier program measured is shown at the start, what is measured now is handed to the
//! archive's queue.
//!
//! Runs inside the event loop, so nothing here waits; writing is the archive's own thread's business.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;

use super::observer::Observer;
use crate::{
    archive::{ArchiveError, Keeper, Owner, Recalled, Standing, is_of_others},
    budget::{Governor, Spent},
    config::{Config, Redactor, Sweep},
    sweep::{Event, Fleet, Remembered, SweepResult},
};

/// How long the shutdown waits for what is not written yet.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Name of the note on sweeps that are paused by hand.
const PAUSED: &str = "paused";
/// Name of the note on how models count prompts.
const CALIBRATIONS: &str = "calibrations";

/// The archive, where one is configured.
#[derive(Debug)]
pub(super) struct History {
    keeper: Option<Keeper>,
    _owner: Option<Owner>,
    redactor: Redactor,
    path: Option<PathBuf>,
    spent: Vec<Spent>,
    paused: BTreeSet<Arc<str>>,
}

impl History {
    /// Shows what the archive holds, gives the governor back what was spent, and opens the file for what comes. One
    /// that cannot be used is told of, and nothing else suffers.
    ///
    /// # Errors
    /// Another daemon has the file, or it is something else.
    pub(super) fn open(
        config: &Config,
        observer: &mut Observer,
        governor: &Governor,
        fleet: &Fleet,
    ) -> Result<Self, String> {
        let path = config.archive.path.clone();
        if let Some(path) = path.as_ref().filter(|path| is_of_others(path)) {
            return Err(format!("[archive] path: {}", ArchiveError::Other(path.clone())));
        }
        let owner = path.as_deref().map(Owner::claim).transpose()?.flatten();
        let mut paused = BTreeSet::new();
        if let Some(path) = &path {
            match Recalled::from_file(path, &config.sweeps) {
                Ok(recalled) => {
                    observer.recall(&recalled);
                    governor.import(&recalled.spent());
                    fleet.remember(&recalled.noted::<Vec<Remembered>>(CALIBRATIONS));
                    paused = recalled.noted(PAUSED);
                }
                // Nobody's text is written over, and nobody's mistake found out days later.
                Err(error @ ArchiveError::Other(_)) => return Err(format!("[archive] path: {error}")),
                Err(error) => tracing::error!(%error, "earlier measurements are not shown"),
            }
        }
        let keeper = path.clone().and_then(|path| {
            let started = Keeper::start(path, config.archive.clone());
            started.inspect_err(|error| tracing::error!(%error, "nothing is archived")).ok()
        });
        Ok(Self { keeper, _owner: owner, redactor: config.redactor(), path, spent: Vec::new(), paused })
    }

    /// Goes over to another configuration; the file stays the one that is open.
    pub(super) fn adopt(&mut self, config: &Config) {
        if config.archive.path != self.path {
            tracing::warn!("the archive's path changed: that takes a restart, the rest is reloaded");
        }
        self.redactor = config.redactor();
    }

    pub(super) fn started(&mut self, sweep: &Arc<Sweep>, now: DateTime<Utc>) {
        if let Some(keeper) = &mut self.keeper {
            keeper.started(sweep, &self.redactor, now);
        }
    }

    pub(super) fn observe(&mut self, event: &Event, now: DateTime<Utc>) {
        if let Some(keeper) = &mut self.keeper {
            keeper.observe(event, now);
        }
    }

    pub(super) fn ended(&mut self, sweep: &str, result: SweepResult, now: DateTime<Utc>) {
        if let Some(keeper) = &mut self.keeper {
            keeper.ended(sweep, result, now);
        }
    }

    /// Takes note of what was spent, if that changed: a restart must not give a budget back.
    pub(super) fn spent(&mut self, spent: Vec<Spent>, now: DateTime<Utc>) {
        if let Some(keeper) = self.keeper.as_ref().filter(|_| spent != self.spent) {
            keeper.spent(&spent, now);
            self.spent = spent;
        }
    }

    /// Tells `reached` once all that was noted before is on disk; without an archive it is dropped.
    pub(super) fn mark(&self, reached: oneshot::Sender<()>) {
        if let Some(keeper) = &self.keeper {
            keeper.mark(reached);
        }
    }

    /// Takes note of what was learned of how models count prompts: a restart need not ask again.
    pub(super) fn calibrated(&self, calibrations: &[Remembered], now: DateTime<Utc>) {
        if let Some(keeper) = self.keeper.as_ref().filter(|_| !calibrations.is_empty()) {
            keeper.note(CALIBRATIONS, &calibrations, now);
        }
    }

    /// What was paused when the program ended.
    pub(super) fn paused(&self) -> &BTreeSet<Arc<str>> {
        &self.paused
    }

    /// Takes note of what is paused: it stays so over a restart.
    pub(super) fn pauses(&mut self, paused: BTreeSet<Arc<str>>, now: DateTime<Utc>) {
        if let Some(keeper) = &self.keeper {
            keeper.note(PAUSED, &paused, now);
        }
        self.paused = paused;
    }

    /// How the archive is doing.
    pub(super) fn standing(&self) -> Option<Standing> {
        self.keeper.as_ref().map(Keeper::standing)
    }

    /// Writes what is waiting.
    pub(super) async fn close(self) {
        let Some(keeper) = self.keeper else { return };
        let standing = keeper.close(CLOSE_TIMEOUT).await;
        let dropped = standing.dropped_queue_full + standing.dropped_unwritten;
        if dropped > 0 {
            tracing::warn!(dropped, "entries are missing in the archive");
        }
    }
}
