//! The book of probes: each is entered when it leaves and once more when its fate is known, whatever becomes of the task
//! that sent it.
//!
//! At any moment, attempts = successes + failures + cancelled + in flight: all are read and written under one lock.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

use crate::{
    cell::Cell,
    measurement::{Measurement, named},
};

named! {
    /// What a probe is sent for: the `role` label.
    Role {
        /// The first one after the model was left alone for so long that it may have been put to sleep; excluded.
        Cold = "cold",
        /// Opens the connection and brings the level to its load; excluded.
        WarmUp = "warm_up",
        /// Tells how the model counts prompts; excluded.
        Calibration = "calibration",
        /// Counts.
        Measured = "measured",
        /// Keeps the load while the last measured ones end; excluded.
        Filler = "filler",
        /// Shows what another output limit makes of the time to first token; counts for that alone.
        Control = "control",
        /// Sent because somebody asked for `/probe`; excluded from every sweep.
        OnDemand = "on_demand",
    }
}

named! {
    /// What became of a probe: the `result` label.
    Fate {
        /// A whole answer.
        Success = "success",
        /// Anything else that was seen to its end.
        Failure = "failure",
        /// Dropped by us before its end: a filler no longer needed, a shutdown, a lost lease.
        Cancelled = "cancelled",
    }
}

/// Who was asked, and what for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errand {
    /// Name of the target.
    pub target: Arc<str>,
    /// The model.
    pub model: Arc<str>,
    /// What for.
    pub role: Role,
}

impl Errand {
    /// A probe of a cell.
    #[must_use]
    pub fn of(cell: &Cell, role: Role) -> Self {
        Self { target: cell.target.clone(), model: cell.model.clone(), role }
    }
}

/// How many probes left on one errand, and what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sent.
    pub attempts: u64,
    /// Got a whole answer.
    pub successes: u64,
    /// Did not.
    pub failures: u64,
    /// Were given up by us.
    pub cancelled: u64,
}

/// The book; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Register(Arc<Mutex<BTreeMap<Errand, Tally>>>);

/// One probe under way; cancelled, unless it is said how it ended.
#[derive(Debug)]
#[must_use = "dropped at once it is cancelled"]
pub struct Entry {
    register: Register,
    errand: Errand,
    fate: Fate,
}

impl Register {
    /// A probe leaves.
    pub fn enter(&self, errand: Errand) -> Entry {
        self.book().entry(errand.clone()).or_default().attempts += 1;
        Entry { register: self.clone(), errand, fate: Fate::Cancelled }
    }

    /// How many are under way.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.book().values().map(Tally::in_flight).sum()
    }

    /// Every errand and its tally, of one moment.
    #[must_use]
    pub fn tallies(&self) -> Vec<(Errand, Tally)> {
        self.book().iter().map(|(errand, tally)| (errand.clone(), *tally)).collect()
    }

    fn book(&self) -> MutexGuard<'_, BTreeMap<Errand, Tally>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    /// How many are under way.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.attempts - self.successes - self.failures - self.cancelled
    }

    /// How many had this fate.
    #[must_use]
    pub fn of(&self, fate: Fate) -> u64 {
        match fate {
            Fate::Success => self.successes,
            Fate::Failure => self.failures,
            Fate::Cancelled => self.cancelled,
        }
    }
}

impl Entry {
    /// It was seen to its end.
    pub fn ended(mut self, measurement: &Measurement) {
        self.fate = if measurement.is_ok() { Fate::Success } else { Fate::Failure };
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut book = self.register.book();
        let tally = book.entry(self.errand.clone()).or_default();
        match self.fate {
            Fate::Success => tally.successes += 1,
            Fate::Failure => tally.failures += 1,
            Fate::Cancelled => tally.cancelled += 1,
        }
    }
}
