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
    noted,
    shot::Prepared,
    toll,
};
use crate::{
    analysis::{
        Capacity, Decided, Examined, Found, Growth, Knee, LengthPoint, LevelSummary, PromptLength, Scaling,
        examine, growth, knee,
    },
    arrivals::Rate,
    budget::{Advance, Exhausted, Order},
    cell::{Cell, Load},
    config::{ConnectionPolicy, LevelSettings, midpoint},
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
    /// How the time to first token grows with the prompt's length, up to this ladder's.
    pub growth: Option<Growth>,
    /// The lowest level once more with another output limit, and that limit.
    pub control: Option<(u32, LevelSummary)>,
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
    /// The model fails already where it is asked least of.
    LighterFails,
    /// The model sleeps, or nobody knows, and is not to be woken.
    Asleep(String),
    /// The whole run was told to stop.
    Stopped,
}

impl Cause {
    /// Whether the load it was put under ended the climb, rather than something that would meet any level.
    fn is_of_load(&self) -> bool {
        match self {
            Self::FailureRatio { .. } | Self::AfterKnee(_) => true,
            Self::Fatal(..)
            | Self::NotStreaming(_)
            | Self::Budget(_)
            | Self::HeldOff(_)
            | Self::Quiet
            | Self::Paused
            | Self::LighterFails
            | Self::Asleep(_)
            | Self::Stopped => false,
        }
    }
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
            Self::LighterFails => {
                f.write_str("the model fails already at shorter prompts and the lowest concurrency")
            }
            Self::Asleep(why) => write!(f, "not woken: {why}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Climbs one ladder: of a model at a target, with prompts of a length.
pub(super) async fn climb(
    run: &mut Run,
    door: (&Prepared, &Gate),
    (model, prompt_tokens): (&Arc<str>, u32),
    other_lengths: &[LengthPoint],
    mut stopped: Option<Cause>,
) -> LadderReport {
    let sweep = run.sweep.clone();
    let mut climb = Climb {
        run,
        door,
        model: model.clone(),
        prompt_tokens,
        levels: Vec::new(),
        not_run: Vec::new(),
        control: None,
    };
    for rung in sweep.loads() {
        let is_first = climb.levels.is_empty();
        let admission = match climb.admit(rung, stopped.take()).await {
            Ok(admission) => admission,
            Err(cause) => {
                stopped = Some(cause);
                continue;
            }
        };
        stopped = climb.run_level(rung, admission.advance).await;
        if let (true, None, Some(max_tokens)) = (is_first, &stopped, sweep.max_tokens_control) {
            stopped = climb.run_control(rung, max_tokens).await;
        }
        drop(admission.pass);
    }
    if sweep.refine && stopped.as_ref().is_none_or(Cause::is_of_load) {
        climb.refine().await;
    }
    climb.conclude(other_lengths)
}

/// A level to climb to: concurrency, or the most in flight and a rate.
type Rung = (u32, Option<Rate>);

/// A climb under way.
struct Climb<'a> {
    run: &'a mut Run,
    door: (&'a Prepared, &'a Gate),
    model: Arc<str>,
    prompt_tokens: u32,
    levels: Vec<LevelSummary>,
    not_run: Vec<NotRun>,
    control: Option<(u32, LevelSummary)>,
}

impl Climb<'_> {
    fn cell(&self, (concurrency, rate): Rung) -> Arc<Cell> {
        Arc::new(Cell {
            sweep: self.run.sweep.name.clone(),
            target: self.door.0.endpoint.target().name.clone(),
            model: self.model.clone(),
            prompt_tokens: self.prompt_tokens,
            concurrency,
            rate,
        })
    }

    /// Lets a level begin, calibrated before the first of them, or takes note of why it must not.
    async fn admit(&mut self, rung: Rung, stopped: Option<Cause>) -> Result<Admission, Cause> {
        let cell = self.cell(rung);
        let admitted = match admit(self.run, self.door, &cell, stopped).await {
            Ok(Admission { pass, advance }) if self.levels.is_empty() => {
                // The calibration's own requests come first.
                drop(advance);
                calibrate(self.run, self.door, &cell).await;
                drop(pass);
                // It may have been told to wait, or have spent what was left.
                admit(self.run, self.door, &cell, None).await
            }
            admitted => admitted,
        };
        if let Err(cause) = &admitted {
            let (concurrency, rate) = rung;
            self.not_run.push(NotRun { concurrency, rate, reason: cause.to_string() });
            self.run.send(Event::LevelNotRun { cell, cause: cause.clone() }).await;
        }
        admitted
    }

    /// Runs a level that was admitted; returns why none should follow it, if none should.
    async fn run_level(&mut self, rung: Rung, advance: Advance) -> Option<Cause> {
        let cell = self.cell(rung);
        let settings = self.run.sweep.level.clone();
        self.run.send(Event::LevelStarted { cell: cell.clone(), requests: settings.requests }).await;
        let finished = self.level(cell.clone(), settings, advance, false).run().await;
        let event = Event::LevelEnded {
            cell,
            summary: Box::new(finished.summary.clone()),
            delays: Box::new(finished.delays),
        };
        self.run.send(event).await;
        let load = load_of(rung);
        let at = self.levels.partition_point(|level| level.load() < load);
        self.levels.insert(at, finished.summary);
        match finished.ended {
            Some(ended) => Some(self.cause(ended, load_of(rung))),
            None => guard(self.run, &self.levels),
        }
    }

    /// Runs the lowest level once more with another output limit.
    async fn run_control(&mut self, rung: Rung, max_tokens: u32) -> Option<Cause> {
        let cell = self.cell(rung);
        let settings = LevelSettings { max_tokens, ..self.run.sweep.level.clone() };
        let worst_case = toll::level(&cell, &settings, self.door.0.endpoint.target(), &self.run.governor);
        let order = Order { sweep: cell.sweep.clone(), target: cell.target.clone() };
        if self.run.halt.is_stopping() {
            return None;
        }
        let advance = self.run.governor.advance(&order, worst_case).ok()?;
        noted(&self.run.events).await;
        let finished = self.level(cell, settings, advance, true).run().await;
        self.control = Some((max_tokens, finished.summary));
        finished.ended.map(|ended| self.cause(ended, load_of(rung)))
    }

    /// Runs a level between the knee and the level after it: the knee lies there.
    async fn refine(&mut self) {
        let Some(knee) = knee(&self.levels).concurrency() else { return };
        let after = self.levels.iter().map(|level| level.concurrency).find(|level| *level > knee);
        let Some(between) = after.and_then(|after| midpoint(knee, after)) else { return };
        if let Ok(Admission { pass, advance }) = self.admit((between, None), None).await {
            self.run_level((between, None), advance).await;
            drop(pass);
        }
    }

    fn level(&self, cell: Arc<Cell>, settings: LevelSettings, advance: Advance, is_control: bool) -> Level {
        let (prepared, gate) = self.door;
        let before = self.levels.iter().rfind(|level| level.load() <= cell.load());
        let pace = before.and_then(|level| level.duration_seconds).map(|d| Duration::from_secs_f64(d.p50));
        Level {
            cell,
            endpoint: prepared.clone(),
            settings,
            pace,
            gap_bounds: self.run.gap_bounds.clone(),
            events: self.run.events.clone(),
            advance: Arc::new(advance),
            halt: self.run.halt.clone(),
            register: self.run.register.clone(),
            governor: self.run.governor.clone(),
            gate: gate.clone(),
            is_control,
        }
    }

    fn cause(&self, ended: Ended, load: Load) -> Cause {
        match ended {
            Ended::Fatal(class) => Cause::Fatal(class, load),
            Ended::Budget(exhausted) => Cause::Budget(exhausted),
            Ended::HeldOff => Cause::HeldOff(self.door.1.held_off().unwrap_or_default()),
        }
    }

    fn conclude(self, other_lengths: &[LengthPoint]) -> LadderReport {
        let sweep = &self.run.sweep;
        let settings = &sweep.level;
        let prepared = self.door.0;
        let capacity = Capacity::of(&self.levels, &sweep.objectives);
        let calibrated = prepared.review(&self.model, settings, self.prompt_tokens, &self.levels);
        let length = match (calibrated, settings.prompts.have_wanted_length()) {
            (_, false) => PromptLength::Real,
            (true, true) => PromptLength::Calibrated,
            (false, true) => PromptLength::Estimated,
        };
        let findings = examine(&Examined {
            levels: &self.levels,
            capacity: &capacity,
            objectives: &sweep.objectives,
            prompt_tokens: self.prompt_tokens,
            length,
            max_tokens: settings.output_tokens_max(),
            reuses_connections: settings.connection == ConnectionPolicy::Reuse,
            prefix_cache: settings.prefix_cache,
            other_lengths,
            max_tokens_control: self.control.as_ref().map(|(max_tokens, level)| (*max_tokens, level)),
        });
        let this = self.levels.first().and_then(|level| LengthPoint::of(level, self.prompt_tokens));
        let lengths: Vec<LengthPoint> = other_lengths.iter().copied().chain(this).collect();
        LadderReport {
            sweep: sweep.name.clone(),
            target: prepared.endpoint.target().name.clone(),
            model: self.model,
            prompt_tokens: self.prompt_tokens,
            levels: self.levels,
            not_run: self.not_run,
            knee: capacity.knee,
            decided: capacity.decided,
            safe_concurrency: capacity.safe_concurrency,
            safe_rate: capacity.safe_rate,
            scaling: capacity.scaling,
            growth: growth(&lengths),
            control: self.control,
            findings,
        }
    }
}

fn load_of((concurrency, rate): Rung) -> Load {
    Load::of(concurrency, rate)
}

/// What a level that may begin has got.
struct Admission {
    /// Its requests fit beside everything in flight.
    pass: Pass,
    /// They are paid for.
    advance: Advance,
}

/// A hold that ends this soon is waited for; a longer one ends the climb.
const HOLD_WAIT_MAX: Duration = Duration::from_secs(30);

/// Lets a level begin once its requests fit beside everything in flight, or says why it must not.
async fn admit(
    run: &mut Run,
    (prepared, gate): (&Prepared, &Gate),
    cell: &Cell,
    stopped: Option<Cause>,
) -> Result<Admission, Cause> {
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
    let advance = run.governor.advance(&order, worst_case).map_err(Cause::Budget)?;
    noted(&run.events).await;
    Ok(Admission { pass, advance })
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
