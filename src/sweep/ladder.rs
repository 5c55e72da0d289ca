//! One ladder: the levels of one model and prompt length, cheap ones first, and the guard that ends the climb.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Event, Run,
    calibrate::calibrate,
    gate::{Gate, Pass},
    level::{Ended, Level},
    shot::Prepared,
    toll,
};
use crate::{
    analysis::{Capacity, Decided, Examined, Found, Knee, LengthPoint, LevelSummary, Scaling, examine, knee},
    arrivals::Rate,
    budget::{Exhausted, Order},
    cell::{Cell, Load},
    config::ConnectionPolicy,
    measurement::FailureClass,
};

/// What a ladder came to.
#[derive(Debug, Clone, PartialEq)]
pub struct LadderReport {
    /// Name of the sweep.
    pub sweep: Arc<str>,
    /// Name of the target.
    pub target: Arc<str>,
    /// The model.
    pub model: Arc<str>,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// The levels that were run, in order.
    pub levels: Vec<LevelSummary>,
    /// The levels that were not, and why.
    pub not_run: Vec<NotRun>,
    /// Where throughput stops growing.
    pub knee: Knee,
    /// What decided that; `None` unless it was found.
    pub decided: Option<Decided>,
    /// The load that is safe.
    pub safe_concurrency: Option<u32>,
    /// The rate that is safe, in a ladder of rates.
    pub safe_rate: Option<Rate>,
    /// The Universal Scalability Law fitted to the levels.
    pub scaling: Option<Scaling>,
    /// What the numbers mean.
    pub findings: Vec<Found>,
}

/// A level that was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRun {
    /// Its concurrency; at a rate, the most requests in flight.
    pub concurrency: u32,
    /// Its rate, in an open loop.
    pub rate: Option<Rate>,
    /// Why, in words.
    pub reason: String,
}

impl NotRun {
    /// What tells it apart from the other levels of its ladder.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::of(self.concurrency, self.rate)
    }
}

/// Why a climb ended before its last level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A failure that every request would meet, at this level.
    Fatal(FailureClass, Load),
    /// Too many requests of a level failed.
    FailureRatio {
        /// How many failed.
        failed: u32,
        /// Of how many.
        requests: u32,
        /// Which level.
        level: Load,
    },
    /// Every answer came whole, at this level: there is no first token to time.
    NotStreaming(Load),
    /// More load brings nothing after this level.
    AfterKnee(Load),
    /// The level would not fit into what may still be spent.
    Budget(Exhausted),
    /// The target asked to be left alone for so long, counted from then.
    HeldOff(Duration),
    /// Quiet hours have begun.
    Quiet,
    /// Paused by hand.
    Paused,
    /// The whole run was told to stop.
    Stopped,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fatal(class, level) => write!(f, "{class} at {level}"),
            Self::FailureRatio { failed, requests, level } => {
                write!(f, "{failed} of {requests} requests failed at {level}")
            }
            Self::NotStreaming(level) => {
                write!(f, "the endpoint does not stream (seen at {level}): only whole requests can be timed")
            }
            Self::AfterKnee(knee) => write!(f, "throughput stopped growing after {knee}"),
            Self::Budget(exhausted) => exhausted.fmt(f),
            Self::HeldOff(left) => {
                write!(f, "the target asked to be left alone for {} more seconds", left.as_secs_f64().ceil())
            }
            Self::Quiet => f.write_str("quiet hours"),
            Self::Paused => f.write_str("paused"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Climbs one ladder.
pub(super) async fn climb(
    run: &mut Run,
    (prepared, gate): (&Prepared, &Gate),
    model: &Arc<str>,
    prompt_tokens: u32,
    other_lengths: &[LengthPoint],
) -> LadderReport {
    let sweep = run.sweep.clone();
    let target = prepared.endpoint.target().name.clone();
    let cell = |(concurrency, rate)| {
        Arc::new(Cell {
            sweep: sweep.name.clone(),
            target: target.clone(),
            model: model.clone(),
            prompt_tokens,
            concurrency,
            rate,
        })
    };
    let mut levels: Vec<LevelSummary> = Vec::new();
    let mut not_run = Vec::new();
    let mut stopped: Option<Cause> = None;
    for load in sweep.loads() {
        let cell = cell(load);
        let door = (prepared, gate);
        let admitted = match admit(run, door, &cell, stopped.take()).await {
            Ok(pass) if levels.is_empty() => {
                calibrate(run, door, &cell).await;
                drop(pass);
                // It may have been told to wait, or have spent what was left.
                admit(run, door, &cell, None).await
            }
            admitted => admitted,
        };
        let _pass = match admitted {
            Ok(pass) => pass,
            Err(cause) => {
                let (concurrency, rate) = load;
                not_run.push(NotRun { concurrency, rate, reason: cause.to_string() });
                stopped = Some(cause.clone());
                run.send(Event::LevelNotRun { cell, cause }).await;
                continue;
            }
        };
        run.send(Event::LevelStarted { cell: cell.clone(), requests: sweep.level.requests }).await;
        let pace =
            levels.last().and_then(|level| level.duration_seconds).map(|d| Duration::from_secs_f64(d.p50));
        let level = Level {
            cell: cell.clone(),
            endpoint: prepared.clone(),
            settings: sweep.level.clone(),
            pace,
            gap_bounds: run.gap_bounds.clone(),
            events: run.events.clone(),
            halt: run.halt.clone(),
            register: run.register.clone(),
            governor: run.governor.clone(),
            gate: gate.clone(),
        };
        let load = cell.load();
        let finished = level.run().await;
        let event = Event::LevelEnded {
            cell,
            summary: Box::new(finished.summary.clone()),
            delays: Box::new(finished.delays),
        };
        run.send(event).await;
        levels.push(finished.summary);
        stopped = match finished.ended {
            Some(Ended::Fatal(class)) => Some(Cause::Fatal(class, load)),
            Some(Ended::Budget(exhausted)) => Some(Cause::Budget(exhausted)),
            Some(Ended::HeldOff) => Some(Cause::HeldOff(gate.held_off().unwrap_or_default())),
            None => guard(run, &levels),
        };
    }
    let capacity = Capacity::of(&levels, &sweep.objectives);
    let findings = examine(&Examined {
        levels: &levels,
        capacity: &capacity,
        objectives: &sweep.objectives,
        prompt_tokens,
        calibrated: prepared.review(model, &sweep.level, prompt_tokens, &levels),
        max_tokens: sweep.level.output_tokens_max(),
        reuses_connections: sweep.level.connection == ConnectionPolicy::Reuse,
        prefix_cache: sweep.level.prefix_cache,
        other_lengths,
        max_tokens_control: None,
    });
    LadderReport {
        sweep: sweep.name.clone(),
        target,
        model: model.clone(),
        prompt_tokens,
        levels,
        not_run,
        knee: capacity.knee,
        decided: capacity.decided,
        safe_concurrency: capacity.safe_concurrency,
        safe_rate: capacity.safe_rate,
        scaling: capacity.scaling,
        findings,
    }
}

/// A hold that ends this soon is waited for; a longer one ends the climb.
const HOLD_WAIT_MAX: Duration = Duration::from_secs(30);

/// Lets a level begin once its requests fit beside everything in flight, or says why it must not.
async fn admit(
    run: &mut Run,
    (prepared, gate): (&Prepared, &Gate),
    cell: &Cell,
    stopped: Option<Cause>,
) -> Result<Pass, Cause> {
    if let Some(cause) = stopped {
        return Err(cause);
    }
    while let Some(left) = gate.held_off() {
        if left > HOLD_WAIT_MAX {
            return Err(Cause::HeldOff(left));
        }
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            () = run.halt.stopping() => return Err(Cause::Stopped),
        }
    }
    let pass = gate.pass(&run.fleet.ceiling, cell.concurrency, &mut run.halt).await.ok_or(Cause::Stopped)?;
    if run.halt.is_stopping() {
        return Err(Cause::Stopped);
    }
    if run.paused.load(Ordering::Relaxed) {
        return Err(Cause::Paused);
    }
    if run.sweep.is_quiet(run.governor.now()) {
        return Err(Cause::Quiet);
    }
    let worst_case = toll::level(cell, &run.sweep.level, prepared.endpoint.target(), &run.governor);
    let order = Order { sweep: cell.sweep.clone(), target: cell.target.clone() };
    run.governor.covers(&order, worst_case).map_err(Cause::Budget)?;
    Ok(pass)
}

/// Why the climb should end after the latest level, if it should.
fn guard(run: &Run, levels: &[LevelSummary]) -> Option<Cause> {
    let level = levels.last()?;
    let failed = level.requests.saturating_sub(level.ok);
    if level.ok == 0 && failed > 0 && level.failures.keys().all(|class| *class == FailureClass::NotStreaming)
    {
        return Some(Cause::NotStreaming(level.load()));
    }
    let ratio = f64::from(failed) / f64::from(level.requests.max(1));
    if failed > 0 && ratio >= run.sweep.abort.failure_ratio {
        return Some(Cause::FailureRatio { failed, requests: level.requests, level: level.load() });
    }
    let knee = knee(levels);
    let knee = knee.concurrency().map(Load::Concurrency).or(knee.rate().map(Load::Rate));
    knee.filter(|_| run.sweep.abort.after_knee).map(Cause::AfterKnee)
}
