//! Follows running sweeps and hands what they come to to the archive's queue. Never waits, so that an event loop may
//! hold one.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use serde::Serialize;
use tokio::sync::oneshot;

use super::{
    plan::run_plan,
    recall::SPENT,
    recorder::Recorder,
    row::Entry,
    writer::{Archive, Standing},
};
use crate::{
    budget::Spent,
    config::{ArchiveSettings, Redactor, Sweep},
    sweep::{Event, SweepResult},
};

/// An archive and what it needs to follow running sweeps.
#[derive(Debug)]
pub struct Keeper {
    archive: Archive,
    recorder: Recorder,
}

impl Keeper {
    /// Starts to write into a file.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn start(path: PathBuf, settings: ArchiveSettings) -> io::Result<Self> {
        Ok(Self { archive: Archive::start(path, settings)?, recorder: Recorder::default() })
    }

    /// A run begins; its plan is kept without secrets. Returns the run's uid.
    pub fn started(&mut self, sweep: &Arc<Sweep>, redactor: &Redactor, now: DateTime<Utc>) -> String {
        let run = self.recorder.started(&sweep.name, run_plan(sweep, redactor), now);
        let uid = run.uid.clone();
        self.archive.put(Entry::RunStarted(run));
        uid
    }

    /// Something happened in a run.
    pub fn observe(&mut self, event: &Event, now: DateTime<Utc>) {
        if let Some(entry) = self.recorder.observe(event, now) {
            self.archive.put(entry);
        }
    }

    /// A run ended.
    pub fn ended(&mut self, sweep: &str, result: SweepResult, now: DateTime<Utc>) {
        if let Some(entry) = self.recorder.ended(sweep, result, now) {
            self.archive.put(entry);
        }
    }

    /// Takes note of something that a restart must not forget (spent budgets, calibrations): it comes back as
    /// [`Recalled::notes`](super::Recalled::notes), the latest of each name.
    pub fn note(&self, name: &'static str, value: &impl Serialize, now: DateTime<Utc>) {
        if let Ok(value) = serde_json::to_value(value) {
            self.archive.put(Entry::Note { name, at: now.timestamp_millis(), value });
        }
    }

    /// Takes note of what was spent of the budgets: a restart must not give them back.
    pub fn spent(&self, spent: &[Spent], now: DateTime<Utc>) {
        self.note(SPENT, &spent, now);
    }

    /// Tells `reached` once all that was handed over before is written; it is dropped when that is not to be.
    pub fn mark(&self, reached: oneshot::Sender<()>) {
        self.archive.put(Entry::Mark(reached));
    }

    /// How the writing goes.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.archive.standing()
    }

    /// Writes what is waiting, for as long as `within` at most.
    pub async fn close(self, within: Duration) -> Standing {
        self.archive.close(within).await
    }
}
