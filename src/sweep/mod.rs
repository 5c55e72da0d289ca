//! From a sweep's grid to probes: targets and their models in turn, ladders, levels, workers.
//!
//! Knows nothing of schedules, metrics or terminals: what happens is told as [`Event`]s over one bounded channel,
//! and the whole comes back as a [`SweepReport`].

mod calibrate;
mod caught;
mod delay;
mod gate;
mod halt;
mod kept_waiting;
mod ladder;
mod level;
mod on_demand;
mod register;
mod shot;
mod toll;
mod witness;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use self::gate::{Ceiling, Gate};
pub use self::{
    delay::DELAY_BOUNDS,
    halt::{Brake, Halt, Stop, brake},
    ladder::{Cause, LadderReport, NotRun},
    on_demand::{Demand, Means, on_demand},
    register::{Entry, Errand, Fate, Register, Role, Tally},
    shot::{Prepared, Remembered},
};
use crate::{
    analysis::{LengthPoint, LevelSummary},
    budget::{Exhausted, Governor},
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
    /// Something was held of the budget and is about to be spent.
    Advanced {
        /// Told once a restart would know of it, and dropped where nothing outlives the program.
        noted: oneshot::Sender<()>,
    },
}

/// How long spending waits to be noted: a disk that is full or slow must not stop the probing.
const NOTING_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until what is held of the budget would survive the program's death.
async fn noted(events: &mpsc::Sender<Event>) {
    let (noted, waiting) = oneshot::channel();
    if events.send(Event::Advanced { noted }).await.is_ok() {
        let _ = timeout(NOTING_TIMEOUT, waiting).await;
    }
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

/// The targets as they are probed: shared by all sweeps, so that two of them do not load one target at once.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    members: HashMap<Arc<str>, (Prepared, Gate)>,
    ceiling: Ceiling,
}

impl Fleet {
    /// A fleet without targets, under a ceiling of requests in flight over everything. What `before` has in flight
    /// under the same ceiling counts.
    #[must_use]
    pub fn under(max_in_flight: u32, before: &Self) -> Self {
        Self { members: HashMap::new(), ceiling: Ceiling::new(Some(max_in_flight), Some(&before.ceiling)) }
    }

    /// Adds a prepared target. One that `before` knows by the same name shares its gate with it, so that a sweep
    /// still running on an old configuration holds off the sweeps of the new one.
    pub fn insert(&mut self, prepared: Prepared, before: &Self) {
        let target = prepared.endpoint.target().clone();
        let standing = before.members.get(&target.name).map(|(_, gate)| gate);
        let gate = Gate::new(target.allow_overlap, target.max_in_flight, standing);
        let prepared = match before.members.get(&target.name) {
            Some((before, _)) => prepared.succeeding(before),
            None => prepared,
        };
        self.members.insert(target.name.clone(), (prepared, gate));
    }

    /// What was learned of how models count prompts, to be kept over a restart.
    #[must_use]
    pub fn calibrations(&self) -> Vec<Remembered> {
        self.members.values().flat_map(|(prepared, _)| prepared.remembered()).collect()
    }

    /// Takes over what was learned before a restart; what the targets no longer are is left out.
    pub fn remember(&self, calibrations: &[Remembered]) {
        for calibration in calibrations {
            for (prepared, _) in self.members.values() {
                prepared.remember(calibration);
            }
        }
    }

    /// How to reach a target by name.
    #[must_use]
    pub fn endpoint(&self, target: &str) -> Option<&Endpoint> {
        self.members.get(target).map(|(prepared, _)| &*prepared.endpoint)
    }

    fn member(&self, target: &Target) -> Option<&(Prepared, Gate)> {
        self.members.get(&target.name)
    }
}

/// Whether a budget lets a sweep do anything at all: the cheapest level of one of its models fits.
///
/// # Errors
/// The cap under which it does not.
pub fn affordable(sweep: &Sweep, governor: &Governor) -> Result<(), Exhausted> {
    let mut refused = Ok(());
    for (order, amount) in toll::cheapest(sweep, governor) {
        match governor.covers(&order, amount) {
            Ok(()) => return Ok(()),
            Err(exhausted) => refused = Err(exhausted),
        }
    }
    refused
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
    /// Where every probe is entered.
    pub register: Register,
    /// What may be spent.
    pub governor: Governor,
    /// Turned on to let no further level begin.
    pub paused: Arc<AtomicBool>,
}

impl Run {
    /// Runs the sweep to its end, or to the halt. Targets are loaded one after the other.
    pub async fn run(mut self) -> SweepReport {
        let mut ladders = Vec::new();
        for (target, models) in self.sweep.targets.clone() {
            let Some((prepared, gate)) = self.fleet.member(&target).cloned() else { continue };
            // Another sweep may be loading this target: its load would be measured as the target's latency.
            let Some(turn) = gate.turn(&mut self.halt).await else { break };
            for model in &models {
                let mut lengths = Vec::new();
                let mut stopped = asleep(&prepared, model).await;
                for prompt_tokens in self.sweep.prompt_tokens.clone() {
                    let place = (&prepared, &gate);
                    let wanted = (model, prompt_tokens);
                    let report = ladder::climb(&mut self, place, wanted, &lengths, stopped.clone()).await;
                    let lowest = report.levels.first();
                    if stopped.is_none() && fails_unloaded(&report, &self.sweep) {
                        stopped = Some(Cause::LighterFails);
                    }
                    lengths.extend(lowest.and_then(|level| LengthPoint::of(level, prompt_tokens)));
                    self.send(Event::LadderEnded { report: Box::new(report.clone()) }).await;
                    ladders.push(report);
                }
            }
            drop(turn);
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

/// Why a model must not be asked because it would be woken by that; `None` when it is up.
async fn asleep(prepared: &Prepared, model: &str) -> Option<Cause> {
    match prepared.endpoint.is_awake(model).await {
        Ok(true) => None,
        Ok(false) => Some(Cause::Asleep("awake_url does not name it".into())),
        Err(why) => Some(Cause::Asleep(why)),
    }
}

/// Whether a model fails as far as the sweep tolerates, at the lowest level of a ladder: it will not fare better with more
/// to do.
fn fails_unloaded(report: &LadderReport, sweep: &Sweep) -> bool {
    let Some(level) = report.levels.first().filter(|level| !level.incomplete) else { return false };
    let failed = level.requests.saturating_sub(level.ok);
    failed > 0 && f64::from(failed) / f64::from(level.requests.max(1)) >= sweep.abort.failure_ratio
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
