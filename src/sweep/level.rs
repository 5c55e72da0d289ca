//! One level: `concurrency` workers in a closed loop, each starting its next probe as soon as its last one ended; or,
//! at a rate, an open loop (`open`).
//!
//! Every worker's first probe is a warm-up and excluded, as is whatever is sent before all workers are at work.
//! Workers start staggered over the length of one request, so that they neither hit the target as a wave nor
//! run in lock-step. When the measured requests are all under way, idle workers send one filler each, so that
//! the last measured ones still meet the level's load; fillers are cancelled when the last measured one ends.

mod crew;
mod open;

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Errand, Event, Halt, Register, Role,
    caught::caught,
    delay,
    gate::Gate,
    shot::{Prepared, Shots},
    witness::Witness,
};
use crate::{
    analysis::{FullWindow, LevelSummary, Offered, Sample, first_tokens, summarize},
    budget::{Advance, Exhausted, Governor},
    cell::Cell,
    config::LevelSettings,
    measurement::{FailureClass, GapSketch, Measurement},
    probe::{Again, Lane, Shot},
};

/// Longest time over which the starts of a level's workers are spread.
const RAMP_MAX: Duration = Duration::from_secs(30);

/// Everything one level needs.
pub(super) struct Level {
    pub(super) cell: Arc<Cell>,
    pub(super) endpoint: Prepared,
    pub(super) settings: LevelSettings,
    /// How long one request took at the level before: the time to spread the starts over.
    pub(super) pace: Option<Duration>,
    pub(super) gap_bounds: Arc<[f64]>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) halt: Halt,
    pub(super) register: Register,
    pub(super) governor: Governor,
    /// What its probes are paid out of.
    pub(super) advance: Arc<Advance>,
    pub(super) gate: Gate,
    /// Whether its requests count for a control alone, not for the cell.
    pub(super) is_control: bool,
}

/// What a level came to.
pub(super) struct Finished {
    pub(super) summary: LevelSummary,
    pub(super) delays: GapSketch,
    /// Why it ended before its time, and the climb with it.
    pub(super) ended: Option<Ended>,
}

/// Why a level sends nothing more, whatever it was still to measure.
#[derive(Debug, Clone)]
pub(super) enum Ended {
    /// A failure that the next level would meet as well.
    Fatal(FailureClass),
    /// The next probe would have passed a cap.
    Budget(Exhausted),
    /// The target asked to be left alone.
    HeldOff,
}

impl Level {
    /// Runs the level to its end, or to the halt.
    pub(super) async fn run(self) -> Finished {
        let concurrency = self.cell.concurrency;
        let floor = Arc::new(Floor::new(concurrency, &self.settings, self.pace));
        let level = Arc::new(self);
        let mut engine = Witness::before(&level.endpoint, &level.cell.model).await;
        let delays = delay::Watch::start(concurrency);
        tokio::select! {
            () = level.work(&floor) => {}
            () = linger(&floor, &mut engine) => {}
        }
        let delays = delays.stop().await;
        let samples = std::mem::take(&mut *floor.samples.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = floor.ended.get().cloned();
        // A level that the target ended is a failed one; only one that we ended says nothing.
        let by_us = matches!(ended, None | Some(Ended::Budget(_)));
        let incomplete = by_us && !floor.is_done();
        let mut summary = summarize(concurrency, &samples, floor.window(), None, incomplete);
        if let Some(rate) = level.cell.rate {
            let overflow = floor.refused.load(Ordering::Relaxed);
            summary.offer(Offered::of(rate, level.settings.arrivals, overflow, &samples));
        }
        let late = summary.offered.and_then(|offered| offered.late_p95_seconds);
        summary.client_saturated = delays.saturated(summary.ttft_seconds.map(|ttft| ttft.p50), late);
        if !level.halt.is_stopping() {
            summary.engine = engine.after(first_tokens(&samples)).await;
        }
        Finished { summary, delays: delays.sampled, ended }
    }
}

impl Level {
    /// What a probe is for to those outside: what a control measures is not the cell's.
    fn told(&self, role: Role) -> Role {
        if self.is_control && role == Role::Measured { Role::Control } else { role }
    }

    /// Sends the level's requests, until the last has ended.
    async fn work(self: &Arc<Self>, floor: &Arc<Floor>) {
        if let Some(rate) = self.cell.rate {
            open::run(self, floor, rate).await;
            return;
        }
        let mut workers = JoinSet::new();
        for index in 0..self.cell.concurrency {
            let mut worker = Worker::new(self, floor);
            workers.spawn(async move { worker.run(index).await });
        }
        join(&mut workers, floor, self.halt.clone()).await;
    }
}

/// When the last measured request has ended, looks at the engine while fillers still keep up the load, and then lets
/// them go. Never returns: the level ends with its workers.
async fn linger(floor: &Floor, engine: &mut Witness<'_>) {
    let mut complete = floor.complete.subscribe();
    if complete.wait_for(|complete| *complete).await.is_ok() {
        // Alone there are no fillers, and no load any more.
        if floor.concurrency > 1 {
            engine.under_load().await;
        }
        floor.over.send_replace(true);
    }
    std::future::pending::<()>().await;
}

/// Waits for all workers; when told to cancel, drops them with whatever they have under way. They do not listen for
/// that themselves: it would be one more thing to ask at every chunk.
async fn join(workers: &mut JoinSet<()>, floor: &Floor, mut halt: Halt) {
    loop {
        let result = tokio::select! {
            result = workers.join_next() => result,
            () = halt.cancelled() => break,
        };
        let Some(result) = result else { return };
        if let Err(error) = result {
            // A probe's panic is caught with the probe; this is one outside of it. Nobody may wait for this worker.
            tracing::error!(%error, "a worker ended before its time");
            floor.release();
        }
    }
    workers.shutdown().await;
}

/// What the workers of one level share.
struct Floor {
    epoch: Instant,
    concurrency: u32,
    /// Measured requests not yet handed out.
    tickets: AtomicU32,
    requests: u32,
    /// Warm-ups still owed beyond the one every worker sends.
    warmups: AtomicU32,
    /// Workers whose first probe has started.
    started: AtomicU32,
    /// Measured requests that ended.
    measured: AtomicU32,
    /// Arrivals that were not sent: too many were in flight.
    refused: AtomicU32,
    /// How long to spread the starts over; known once the first probe ended, or from the level before.
    pace: watch::Sender<Option<Duration>>,
    /// Turns true when the last measured request ended.
    complete: watch::Sender<bool>,
    /// Turns true soon after that, or when nothing more may be measured: nobody need keep up the load.
    over: watch::Sender<bool>,
    first_measured: OnceLock<Instant>,
    drained: OnceLock<Instant>,
    ended: OnceLock<Ended>,
    samples: Mutex<Vec<Sample>>,
}

impl Floor {
    fn new(concurrency: u32, settings: &LevelSettings, pace: Option<Duration>) -> Self {
        Self {
            epoch: Instant::now(),
            concurrency,
            tickets: AtomicU32::new(settings.requests),
            requests: settings.requests,
            warmups: AtomicU32::new(settings.warmup_requests.saturating_sub(concurrency)),
            started: AtomicU32::new(0),
            measured: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            pace: watch::Sender::new(pace),
            complete: watch::Sender::new(false),
            over: watch::Sender::new(false),
            first_measured: OnceLock::new(),
            drained: OnceLock::new(),
            ended: OnceLock::new(),
            samples: Mutex::default(),
        }
    }

    /// What a worker does next, after its first probe. `None`: nothing.
    fn next_role(&self, filled: bool) -> Option<Role> {
        if self.ended.get().is_some() {
            return None;
        }
        if self.started.load(Ordering::Acquire) < self.concurrency || take(&self.warmups) {
            return Some(Role::WarmUp);
        }
        if take(&self.tickets) {
            self.first_measured.get_or_init(Instant::now);
            return Some(Role::Measured);
        }
        self.drained.get_or_init(Instant::now);
        let is_needed = !*self.complete.borrow() && !*self.over.borrow();
        (!filled && is_needed).then_some(Role::Filler)
    }

    fn record(&self, measurement: &Measurement, started: Instant, role: Role) {
        let since = started.saturating_duration_since(self.epoch);
        let sample = Sample::of(measurement, since, role == Role::Measured);
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
        if role == Role::Measured {
            self.measured.fetch_add(1, Ordering::AcqRel);
            self.end_if_done();
        }
    }

    /// A measured request that is not sent.
    fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::AcqRel);
        self.end_if_done();
    }

    fn end_if_done(&self) {
        if self.is_done() {
            self.complete.send_replace(true);
        }
    }

    /// Whether nothing is left to be measured.
    fn is_done(&self) -> bool {
        let ended =
            self.measured.load(Ordering::Acquire).saturating_add(self.refused.load(Ordering::Acquire));
        ended >= self.requests
    }

    fn has_samples(&self) -> bool {
        !self.samples.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn stop(&self, why: Ended) {
        self.ended.get_or_init(|| why);
        self.release();
    }

    /// Lets go whoever waits for the pace or fills.
    fn release(&self) {
        self.over.send_replace(true);
        self.pace.send_if_modified(|pace| pace.is_none().then(|| *pace = Some(Duration::ZERO)).is_some());
    }

    fn window(&self) -> Option<FullWindow> {
        let since = |instant: &Instant| instant.saturating_duration_since(self.epoch);
        let from = self.first_measured.get().map(since)?;
        let to = self.drained.get().map_or_else(|| self.epoch.elapsed(), since);
        Some(FullWindow { from, to })
    }
}

/// Takes one from a counter that does not go below zero.
fn take(counter: &AtomicU32) -> bool {
    counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
}

struct Worker {
    level: Arc<Level>,
    floor: Arc<Floor>,
    lane: Lane,
    shots: Shots,
    halt: Halt,
}

impl Worker {
    fn new(level: &Arc<Level>, floor: &Arc<Floor>) -> Self {
        Self {
            lane: Lane::new(level.endpoint.endpoint.clone(), level.settings.connection),
            shots: Shots::new(&level.cell, &level.settings, &level.endpoint, level.gap_bounds.clone()),
            halt: level.halt.clone(),
            level: level.clone(),
            floor: floor.clone(),
        }
    }

    async fn run(&mut self, index: u32) {
        if !self.wait_for_turn(index).await {
            return;
        }
        self.floor.started.fetch_add(1, Ordering::AcqRel);
        let mut role = Role::WarmUp;
        let mut filled = false;
        while !self.halt.is_stopping() {
            filled |= role == Role::Filler;
            let started = Instant::now();
            let Some((measurement, cold)) = self.probe(role, None).await else { break };
            self.settle(measurement, started, (role, cold), index).await;
            match self.floor.next_role(filled) {
                Some(next) => role = next,
                None => break,
            }
        }
    }

    /// The first worker goes at once. The others wait until the length of a request is known and start spread
    /// over it. `false`: the level ended before that.
    async fn wait_for_turn(&mut self, index: u32) -> bool {
        if index == 0 {
            return true;
        }
        let mut pace = self.floor.pace.subscribe();
        let known = tokio::select! {
            known = pace.wait_for(Option::is_some) => known.ok().and_then(|pace| *pace),
            () = self.halt.stopping() => None,
        };
        let Some(length) = known else { return false };
        let share = f64::from(index) / f64::from(self.floor.concurrency);
        let due = Instant::now() + length.min(RAMP_MAX).mul_f64(share);
        tokio::select! {
            () = sleep_until(due) => {}
            () = self.halt.stopping() => return false,
        }
        self.floor.ended.get().is_none()
    }

    /// One probe, at once or when it is due, and whether it may have woken the model; `None` when it was a filler and is no
    /// longer needed, or may not be paid for.
    async fn probe(&mut self, role: Role, due: Option<Instant>) -> Option<(Measurement, bool)> {
        let toll = self.shots.toll();
        let loaded = self.shots.next();
        let worst_case = toll.worst_case(loaded.prompt_tokens(), &self.level.governor);
        let mut reservation = match self.level.advance.reserve(worst_case) {
            Ok(reservation) => reservation,
            Err(exhausted) => {
                self.floor.stop(Ended::Budget(exhausted));
                return None;
            }
        };
        let cold_after = self.level.endpoint.endpoint.target().cold_after;
        let cold = self.level.gate.asks_cold(&self.level.cell.model, cold_after) && role == Role::WarmUp;
        let label = if cold { Role::Cold } else { self.level.told(role) };
        let entry = self.level.register.enter(Errand::of(&self.level.cell, label));
        let again = || self.level.advance.reserve(worst_case).map(|mut further| further.sent()).is_ok();
        let shot = Shot { due, again: Some(Again(&again)), ..loaded.as_shot() };
        reservation.sent();
        let probe = caught(self.lane.probe(&shot));
        let measurement = if role == Role::Filler {
            let mut over = self.floor.over.subscribe();
            tokio::select! {
                biased;
                measurement = probe => measurement,
                // Dropped: what became of it nobody will say, so the reservation counts in full.
                _ = over.wait_for(|over| *over) => return None,
            }
        } else {
            probe.await
        };
        entry.ended(&measurement);
        let used = toll.used(reservation.held(), &measurement, &self.level.governor);
        reservation.settle(used);
        Some((measurement, cold))
    }

    /// Takes note of a measurement and passes it on.
    async fn settle(
        &mut self,
        measurement: Measurement,
        started: Instant,
        (role, cold): (Role, bool),
        index: u32,
    ) {
        if role == Role::WarmUp && self.shots.learn(&measurement) {
            // The target refused a field we can do without: it is not asked again.
            return;
        }
        if role == Role::WarmUp {
            self.shots.verify(&measurement);
        }
        let failure = measurement.outcome.failure();
        let fatal = failure.filter(|failure| super::is_fatal(failure, role)).map(|failure| failure.class);
        // A target that refuses the very first request has failed it, warm-up or not.
        let held_off = self.level.gate.hold_off(&measurement);
        let role = if fatal.is_some() || held_off { Role::Measured } else { role };
        if index == 0 {
            let length = measurement.timeline.end;
            self.floor.pace.send_if_modified(|pace| pace.is_none().then(|| *pace = Some(length)).is_some());
        }
        self.floor.record(&measurement, started, role);
        if let Some(class) = fatal {
            self.floor.stop(Ended::Fatal(class));
        } else if held_off {
            self.floor.stop(Ended::HeldOff);
        }
        let role = if cold && role == Role::WarmUp { Role::Cold } else { role };
        let trace_id = self.shots.trace_id();
        let event = Event::Probed {
            cell: self.level.cell.clone(),
            role: self.level.told(role),
            measurement: Box::new(measurement),
            trace_id,
        };
        // The listener going away is no reason to stop measuring.
        let _ = self.level.events.send(event).await;
    }
}
