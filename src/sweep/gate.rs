//! What stands between a level and its target: other sweeps, the ceilings of requests in flight, and the target's own
//! wish to be left alone.
//!
//! Knows nothing of what is sent. A gate outlives the configuration that made it: sweeps that still run on an old one
//! are counted with those of the new one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::Halt;
use crate::measurement::Measurement;

/// Longest time a target may hold us off with one answer.
const HOLD_MAX: Duration = Duration::from_secs(24 * 3600);

/// So many requests may be in flight.
#[derive(Debug, Clone)]
pub(super) struct Ceiling {
    most: Option<u32>,
    permits: Arc<Semaphore>,
}

/// The gate of one target.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    turns: Arc<Semaphore>,
    allow_overlap: bool,
    ceiling: Ceiling,
    held_until: Arc<Mutex<Option<Instant>>>,
    /// When each model was last asked.
    asked: Arc<Mutex<HashMap<Arc<str>, Instant>>>,
}

/// The right to load a target with one level; returned by drop.
#[derive(Debug)]
pub(super) struct Pass {
    _of_target: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Ceiling {
    /// A ceiling; the one there was before if it is as high, with whatever is in flight under it.
    pub(super) fn new(most: Option<u32>, before: Option<&Self>) -> Self {
        if let Some(same) = before.filter(|before| before.most == most) {
            return same.clone();
        }
        let permits = most.map_or(Semaphore::MAX_PERMITS, |most| most as usize);
        Self { most, permits: Arc::new(Semaphore::new(permits)) }
    }

    /// Waits until so many requests fit beside those in flight. More than fit at all are taken for as many as do: the
    /// configuration refuses such levels, and one must not wait for ever.
    async fn take(&self, requests: u32) -> Option<OwnedSemaphorePermit> {
        let requests = self.most.map_or(requests, |most| requests.min(most));
        self.permits.clone().acquire_many_owned(requests).await.ok()
    }
}

impl Default for Ceiling {
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl Gate {
    /// A target's gate, sharing with the one before it what did not change.
    pub(super) fn new(allow_overlap: bool, max_in_flight: Option<u32>, before: Option<&Self>) -> Self {
        let turns = match before.filter(|before| before.allow_overlap == allow_overlap) {
            Some(before) => before.turns.clone(),
            None if allow_overlap => Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            None => Arc::new(Semaphore::new(1)),
        };
        Self {
            turns,
            allow_overlap,
            ceiling: Ceiling::new(max_in_flight, before.map(|before| &before.ceiling)),
            held_until: before.map_or_else(Arc::default, |before| before.held_until.clone()),
            asked: before.map_or_else(Arc::default, |before| before.asked.clone()),
        }
    }

    /// A model is asked now; whether that may wake it, because nobody here asked it within `cold_after`.
    pub(super) fn asks_cold(&self, model: &Arc<str>, cold_after: Duration) -> bool {
        let now = Instant::now();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let before = asked.insert(model.clone(), now);
        before.is_none_or(|before| now.saturating_duration_since(before) >= cold_after)
    }

    /// Waits until no other sweep loads the target. `None`: told to stop first.
    pub(super) async fn turn(&self, halt: &mut Halt) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            turn = self.turns.clone().acquire_owned() => turn.ok(),
            () = halt.stopping() => None,
        }
    }

    /// Waits until a level's requests fit under both ceilings. `None`: told to stop first.
    pub(super) async fn pass(&self, all: &Ceiling, requests: u32, halt: &mut Halt) -> Option<Pass> {
        // Always in this order, so that two levels never wait for each other.
        let both = async {
            let of_target = self.ceiling.take(requests).await?;
            let of_all = all.take(requests).await?;
            Some(Pass { _of_target: of_target, _of_all: of_all })
        };
        tokio::select! {
            pass = both => pass,
            () = halt.stopping() => None,
        }
    }

    /// Takes note of an answer by which the target asks to be left alone; `true` when it is one.
    pub(super) fn hold_off(&self, measurement: &Measurement) -> bool {
        let failure = measurement.outcome.failure();
        let asked = failure.filter(|failure| matches!(failure.http_status, Some(429 | 503)));
        let Some(wait) = asked.and_then(|failure| failure.retry_after).filter(|wait| !wait.is_zero()) else {
            return false;
        };
        let until = Instant::now() + wait.min(HOLD_MAX);
        let mut held = self.held_until.lock().unwrap_or_else(PoisonError::into_inner);
        *held = (*held).max(Some(until));
        true
    }

    /// How long the target is still to be left alone.
    pub(super) fn held_off(&self) -> Option<Duration> {
        let held = *self.held_until.lock().unwrap_or_else(PoisonError::into_inner);
        held?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}
