//! Which due starts this replica may run: all of them when it is alone, those written into the lease when it leads, none
//! when it stands by.
//!
//! Pure but for the channel to the election. What passed by while nobody led is kept until somebody knows whether it was
//! dealt with.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};

use super::agenda::Due;
use crate::{
    config::Sweep,
    election::{Election, Notice, Starts},
};

/// This replica's leave to start sweeps.
#[derive(Debug)]
pub(super) struct Leadership {
    /// None: there is nobody else.
    election: Option<Election>,
    leads: bool,
    /// Asked for, and not answered yet.
    waiting: BTreeMap<Arc<str>, Due>,
    /// The latest start of each sweep that passed by.
    missed: BTreeMap<Arc<str>, Due>,
}

/// What becomes of a due start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// It may happen now.
    Granted,
    /// It was asked for.
    Asked,
    /// Not here.
    Refused,
}

impl Leadership {
    pub(super) fn new(election: Option<Election>) -> Self {
        Self { leads: election.is_none(), election, waiting: BTreeMap::new(), missed: BTreeMap::new() }
    }

    /// Whether this replica probes.
    pub(super) fn leads(&self) -> bool {
        self.leads
    }

    /// Whether there are others.
    pub(super) fn is_contested(&self) -> bool {
        self.election.is_some()
    }

    /// Asks for a due start.
    pub(super) fn ask(&mut self, due: Due) -> Leave {
        let Some(election) = &self.election else { return Leave::Granted };
        let name = due.sweep.name.clone();
        if self.leads && election.claim(Starts::from([(name.clone(), due.base)])) {
            self.waiting.insert(name, due);
            return Leave::Asked;
        }
        self.missed.insert(name, due);
        Leave::Refused
    }

    /// A start of the sweep that is still waiting for its answer.
    pub(super) fn take_waiting(&mut self, sweep: &str) -> Option<Due> {
        self.waiting.remove(sweep)
    }

    /// This replica leads from now on. Returns what is to be made up for: one start of every sweep of which some passed
    /// by, and the first of those that have never run and should at once.
    pub(super) fn gained(
        &mut self,
        dealt_with: &Starts,
        sweeps: &[Arc<Sweep>],
        now: DateTime<Utc>,
    ) -> Vec<Due> {
        self.leads = true;
        let mut missed = std::mem::take(&mut self.missed);
        let owed = sweeps.iter().filter_map(|sweep| {
            let last = dealt_with.get(&sweep.name).copied();
            let passed_by = missed.remove(&sweep.name).filter(|due| last.is_none_or(|last| due.base > last));
            let first = sweep.run_on_start && last.is_none();
            let due = passed_by.map(|due| (due.base, due.due)).or(first.then_some((now, now)));
            due.map(|(base, due)| Due { sweep: sweep.clone(), base, due, passed_over: 0 })
        });
        owed.collect()
    }

    /// What of these starts this replica had asked for.
    pub(super) fn claimed(&mut self, starts: &Starts) -> Vec<Due> {
        let mut granted = Vec::new();
        for (sweep, base) in starts {
            if self.waiting.get(sweep).is_some_and(|due| due.base == *base) {
                granted.extend(self.waiting.remove(sweep));
            }
        }
        granted
    }

    /// This replica leads no more. Returns what it had asked for in vain.
    pub(super) fn lost(&mut self) -> Vec<Due> {
        self.leads = false;
        let waiting = std::mem::take(&mut self.waiting);
        self.missed.extend(waiting.clone());
        waiting.into_values().collect()
    }

    /// The next notice; never, without an election.
    pub(super) async fn next(&mut self) -> Notice {
        match &mut self.election {
            Some(election) => election.next().await,
            None => std::future::pending().await,
        }
    }

    /// Gives the lease up.
    pub(super) async fn leave(self) {
        if let Some(election) = self.election {
            election.leave().await;
        }
    }
}
