//! From a sweep's grid to probes: targets and their models in turn, ladders, levels, workers.
//!
//! Knows nothing of schedules, metrics or terminals: what happens is told as [`Event`]s over one bounded channel,
//! and the whole comes back as a [`SweepReport`].

mod calibrate;
mod caught;
mod delay;
mod halt;
mod kept_waiting;
mod ladder;
mod level;
mod shot;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{Semaphore, mpsc};

pub use self::{
    delay::DELAY_BOUNDS,
    halt::{Brake, Halt, Stop, brake},
    ladder::{Cause, LadderReport, NotRun},
    shot::Prepared,
};
use crate::{
    analysis::{LengthPoint, LevelSummary},
    cell::Cell,
    config::{Sweep, Target},
    measurement::{Failure, FailureClass, GapSketch, Measurement},
    probe::{Endpoint, TraceId},
};

/// What happens while a sweep runs.
#[derive(Debug)]
pub enum Event {
    /// A level begins.
    LevelStarted {
        /// Which.
        cell: Arc<Cell>,
        /// How many requests it will measure.
        requests: u32,
    },
    /// A probe ended.
    Probed {
        /// Whose.
        cell: Arc<Cell>,
        /// Whether it counts.
        role: Role,
        /// What it observed.
        measurement: Box<Measurement>,
        /// The id it was sent with.
        trace_id: TraceId,
    },
    /// A level ended.
    LevelEnded {
        /// Which.
        cell: Arc<Cell>,
        /// Its statistics.
        summary: Box<LevelSummary>,
        /// The prober's own delay meanwhile.
        delays: Box<GapSketch>,
    },
    /// A level was left out.
    LevelNotRun {
        /// Which.
        cell: Arc<Cell>,
        /// Why.
        cause: Cause,
    },
    /// A ladder ended.
    LadderEnded {
        /// What it came to.
        report: Box<LadderReport>,
    },
}

/// What a probe is sent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Opens the connection and brings the level to its load; excluded.
    WarmUp,
    /// Tells how the model counts prompts; excluded.
    Calibration,
    /// Counts.
    Measured,
    /// Keeps the load while the last measured ones end; excluded.
    Filler,
}

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepResult {
    /// Every ladder was climbed as far as it goes.
    Completed,
    /// It was told to stop.
    Aborted,
    /// Not one request succeeded.
    Failed,
}

/// What a sweep came to.
#[derive(Debug)]
pub struct SweepReport {
    /// Its ladders, in the order they were climbed.
    pub ladders: Vec<LadderReport>,
    /// How it ended.
    pub result: SweepResult,
}

/// Number of probes in flight, over everything.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<AtomicUsize>);

/// One probe in flight; gone when dropped.
#[derive(Debug)]
pub struct InFlightGuard(Arc<AtomicUsize>);

impl InFlight {
    /// How many now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn enter(&self) -> InFlightGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(self.0.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The targets as they are probed: shared by all sweeps, so that two of them do not load one target at once.
#[derive(Debug, Clone, Default)]
pub struct Fleet(HashMap<Arc<str>, (Prepared, Arc<Semaphore>)>);

impl Fleet {
    /// Adds a prepared target. One that `before` knows by the same name shares its permit with it, so that a
    /// sweep still running on an old configuration holds off the sweeps of the new one.
    pub fn insert(&mut self, prepared: Prepared, before: &Self) {
        let target = prepared.endpoint.target();
        let standing = before.0.get(&target.name);
        let permits = match standing {
            Some((old, permits)) if old.endpoint.target().allow_overlap == target.allow_overlap => {
                permits.clone()
            }
            _ if target.allow_overlap => Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            _ => Arc::new(Semaphore::new(1)),
        };
        self.0.insert(target.name.clone(), (prepared, permits));
    }

    /// How to reach a target by name.
    #[must_use]
    pub fn endpoint(&self, target: &str) -> Option<&Endpoint> {
        self.0.get(target).map(|(prepared, _)| &*prepared.endpoint)
    }

    fn member(&self, target: &Target) -> Option<&(Prepared, Arc<Semaphore>)> {
        self.0.get(&target.name)
    }
}

/// One run of one sweep.
#[derive(Debug)]
pub struct Run {
    /// What to run.
    pub sweep: Arc<Sweep>,
    /// The targets it may name.
    pub fleet: Fleet,
    /// Bucket bounds of the gap sketches.
    pub gap_bounds: Arc<[f64]>,
    /// Who listens.
    pub events: mpsc::Sender<Event>,
    /// When to stop.
    pub halt: Halt,
    /// Counts the probes.
    pub in_flight: InFlight,
}

impl Run {
    /// Runs the sweep to its end, or to the halt. Targets are loaded one after the other.
    pub async fn run(mut self) -> SweepReport {
        let mut ladders = Vec::new();
        for (target, models) in self.sweep.targets.clone() {
            let Some((prepared, permits)) = self.fleet.member(&target).cloned() else { continue };
            // Another sweep may be loading this target: its load would be measured as the target's latency.
            let permit = tokio::select! {
                permit = permits.acquire_owned() => permit,
                () = self.halt.stopping() => break,
            };
            for model in &models {
                let mut lengths = Vec::new();
                for &prompt_tokens in &self.sweep.prompt_tokens {
                    let report = ladder::climb(&self, &prepared, model, prompt_tokens, &lengths).await;
                    lengths.extend(
                        report.levels.first().and_then(|level| LengthPoint::of(level, prompt_tokens)),
                    );
                    self.send(Event::LadderEnded { report: Box::new(report.clone()) }).await;
                    ladders.push(report);
                }
            }
            drop(permit);
        }
        let any_ok = ladders.iter().flat_map(|ladder| &ladder.levels).any(|level| level.ok > 0);
        let result = if self.halt.is_stopping() {
            SweepResult::Aborted
        } else if any_ok {
            SweepResult::Completed
        } else {
            SweepResult::Failed
        };
        SweepReport { ladders, result }
    }

    async fn send(&self, event: Event) {
        // The listener going away is no reason to stop measuring.
        let _ = self.events.send(event).await;
    }
}

/// Whether the next request would fail the same way, so that asking again only costs.
fn is_fatal(failure: &Failure, role: Role) -> bool {
    match failure.class {
        FailureClass::Auth
        | FailureClass::Quota
        | FailureClass::ModelNotFound
        | FailureClass::EndpointNotFound => true,
        // The shape of the request does not change from one to the next; what the first one met, all meet.
        FailureClass::BadRequest => role == Role::WarmUp,
        FailureClass::Edge => matches!(failure.http_status, Some(401 | 403 | 404)),
        FailureClass::Connect
        | FailureClass::Tls
        | FailureClass::Timeout
        | FailureClass::RateLimited
        | FailureClass::Overloaded
        | FailureClass::ContentFilter
        | FailureClass::UpstreamError
        | FailureClass::StreamTruncated
        | FailureClass::Protocol
        | FailureClass::EmptyOutput
        | FailureClass::NotStreaming => false,
    }
}
