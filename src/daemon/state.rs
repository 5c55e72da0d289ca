//! The event loop: what happens is taken one after the other, and nothing here waits for a probe.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{Id, JoinSet},
    time::{Instant, sleep, timeout},
};

use super::{
    Daemon, Source,
    agenda::{Agenda, Due},
    heartbeat::Heartbeat,
    history::History,
    leadership::{Leadership, Leave},
    observer::Observer,
    on_demand::OnDemand,
    watcher::Changes,
};
use crate::{
    budget::Governor,
    config::{Config, Shard, Sweep},
    election::Notice,
    metrics::{SkipReason, SweepResult as SweepResultLabel},
    server::{Command, Demanded, Readiness, RunAnswer},
    sweep::{
        Brake, Demand, Event, Fleet, Halt, Means, Register, Run, Stop, SweepReport, SweepResult, affordable,
        brake,
    },
};

/// Events that may wait for the loop.
const EVENTS_MAX: usize = 4096;
/// The loop looks at the clock at least this often.
const NAP_MAX: Duration = Duration::from_secs(5);
/// What may be spent is shown anew this often.
const BUDGET_SHOWN_EVERY: Duration = Duration::from_secs(1);
/// How long cancelled probes get to be dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// A sweep that is running.
struct Running {
    sweep: Arc<Sweep>,
    since: Instant,
    /// Turned on to let no further level begin.
    paused: Arc<AtomicBool>,
}

/// Everything the loop changes.
pub(super) struct State {
    pub(super) config: Arc<Config>,
    /// `[server]` as it was at the start: a reload does not change it.
    pub(super) served: crate::config::Server,
    pub(super) source: Source,
    pub(super) fleet: Fleet,
    pub(super) observer: Observer,
    pub(super) history: History,
    register: Register,
    pub(super) governor: Governor,
    /// Sweeps paused by hand, by name: over reloads and, with an archive, restarts.
    pub(super) paused: BTreeSet<Arc<str>>,
    /// Changes of the configuration file, where they are followed.
    changes: Option<Changes>,
    /// When the page last showed what may be spent.
    pub(super) budget_shown: Option<Instant>,
    readiness: watch::Sender<Readiness>,
    commands: mpsc::Receiver<Command>,
    pub(super) agenda: Agenda,
    runs: JoinSet<SweepReport>,
    running: HashMap<Id, Running>,
    events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    /// What runs now is stopped by it.
    brake: Arc<Brake>,
    halt: Halt,
    leadership: Leadership,
    on_demand: OnDemand,
    pub(super) shard: Option<Shard>,
}

impl State {
    pub(super) fn new(daemon: Daemon, leadership: Leadership) -> Self {
        let Daemon {
            config,
            source,
            fleet,
            mut observer,
            history,
            register,
            governor,
            readiness,
            commands,
            auto_reload,
            shard,
            election: _,
        } = daemon;
        let (brake, halt) = brake();
        let mut paused = history.paused().clone();
        paused.retain(|name| config.sweep(name).is_some());
        for sweep in &paused {
            observer.paused(sweep, true);
        }
        let changes = match &source {
            Source::File(path) if auto_reload => Some(Changes::of(path.clone())),
            Source::File(_) | Source::BuiltIn => None,
        };
        // Among several, whether a first start is due is known to the lease only.
        let agenda = Agenda::new(&config.sweeps, Utc::now(), !leadership.is_contested());
        Self {
            served: config.server.clone(),
            config,
            source,
            fleet,
            observer,
            history,
            register,
            governor,
            paused,
            changes,
            budget_shown: None,
            readiness,
            commands,
            agenda,
            runs: JoinSet::new(),
            running: HashMap::new(),
            events: mpsc::channel(EVENTS_MAX),
            brake: Arc::new(brake),
            halt,
            leadership,
            on_demand: OnDemand::default(),
            shard,
        }
    }

    /// Runs until `shutdown` resolves.
    pub(super) async fn serve(&mut self, shutdown: impl Future<Output = ()>) {
        let mut heartbeat = match Heartbeat::start().await {
            Ok(heartbeat) => Some(heartbeat),
            Err(error) => {
                tracing::warn!(%error, "no heartbeat: a clock that is set is noticed later");
                None
            }
        };
        let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
        let mut shutdown = std::pin::pin!(shutdown);
        self.publish_schedule();
        self.readiness.send_replace(Readiness::Ready);
        loop {
            let nap = self.agenda.wait(Utc::now()).unwrap_or(NAP_MAX).min(NAP_MAX);
            tokio::select! {
                () = &mut shutdown => break,
                () = sleep(nap) => {}
                () = beat(heartbeat.as_mut()) => {}
                Some(ended) = self.runs.join_next_with_id() => self.ended(ended),
                Some(event) = self.events.1.recv() => self.observe(event),
                Some(command) = self.commands.recv() => self.obey(command).await,
                notice = self.leadership.next() => self.heed(notice),
                Some((cell, measurement)) = self.on_demand.ended() => self.observer.demanded(&cell, &measurement),
                () = changed(self.changes.as_mut()) => {
                    // Like a signal: the outcome is in the log and the metrics.
                    let _ = self.reload().await;
                }
                () = hung_up(hangup.as_mut()) => {
                    // The outcome is in the log and the metrics; a signal has no one to answer to.
                    let _ = self.reload().await;
                }
            }
            self.start_due();
            self.observer.archived(self.history.standing());
            self.show_budget();
        }
        self.readiness.send_replace(Readiness::Draining);
        if let Some(heartbeat) = heartbeat {
            heartbeat.stop().await;
        }
    }

    /// Starts what is due; a sweep that still runs is skipped, and the skip counted.
    fn start_due(&mut self) {
        let now = Utc::now();
        let due = self.agenda.take_due(now);
        if due.is_empty() {
            return;
        }
        for due in due {
            self.ask_leave(due, now);
        }
        self.publish_schedule();
    }

    /// Starts what is due, or asks the other replicas first.
    fn ask_leave(&mut self, due: Due, now: DateTime<Utc>) {
        self.observer.passed_over(&due.sweep.name, due.passed_over);
        if let Some(waiting) = self.leadership.take_waiting(&due.sweep.name) {
            // The API server took a whole interval: nothing ran.
            self.observer.skipped(&waiting.sweep.name, waiting.due, SkipReason::Standby);
        }
        let (sweep, at) = (due.sweep.name.clone(), due.due);
        match self.leadership.ask(due.clone()) {
            Leave::Granted => self.start_or_skip(due, now),
            Leave::Asked => {}
            Leave::Refused => self.observer.skipped(&sweep, at, SkipReason::Standby),
        }
    }

    fn start_or_skip(&mut self, Due { sweep, due, .. }: Due, now: DateTime<Utc>) {
        if let Some(reason) = self.skip_reason(&sweep, now) {
            return self.observer.skipped(&sweep.name, due, reason);
        }
        self.start(sweep, Some(due));
    }

    /// Takes note of what the other replicas leave to this one.
    fn heed(&mut self, notice: Notice) {
        let now = Utc::now();
        match notice {
            Notice::Gained { starts, halt, brake } => {
                (self.halt, self.brake) = (halt, brake);
                self.observer.leads(true);
                self.agenda.pass_over(&starts, now);
                for due in self.leadership.gained(&starts, &self.config.sweeps, now) {
                    self.ask_leave(due, now);
                }
                self.publish_schedule();
            }
            Notice::Claimed(starts) => {
                for due in self.leadership.claimed(&starts) {
                    self.start_or_skip(due, now);
                }
            }
            Notice::Lost => {
                self.observer.leads(false);
                for due in self.leadership.lost() {
                    self.observer.skipped(&due.sweep.name, due.due, SkipReason::Standby);
                }
            }
        }
    }

    /// Why a due start does not happen, if it does not.
    fn skip_reason(&mut self, sweep: &Sweep, now: DateTime<Utc>) -> Option<SkipReason> {
        if self.paused.contains(&sweep.name) {
            return Some(SkipReason::Paused);
        }
        if sweep.is_quiet(now) {
            return Some(SkipReason::Quiet);
        }
        if self.is_running(&sweep.name) {
            return Some(SkipReason::Overlap);
        }
        let exhausted = affordable(sweep, &self.governor).err()?;
        self.observer.exhausted(&exhausted, now);
        Some(SkipReason::Budget)
    }

    /// Shows what may still be spent, at most once a second: every event of the loop comes by here.
    fn show_budget(&mut self) {
        let now = Instant::now();
        if self.budget_shown.is_some_and(|shown| now.duration_since(shown) < BUDGET_SHOWN_EVERY) {
            return;
        }
        self.budget_shown = Some(now);
        self.observer.budget(&self.governor.remaining());
        self.history.spent(self.governor.export(), Utc::now());
    }

    fn is_running(&self, name: &str) -> bool {
        self.running.values().any(|running| *running.sweep.name == *name)
    }

    fn start(&mut self, sweep: Arc<Sweep>, due: Option<DateTime<Utc>>) {
        let now = Utc::now();
        self.observer.started(&sweep, now, due);
        self.history.started(&sweep, now);
        let paused = Arc::new(AtomicBool::new(false));
        let run = Run {
            sweep: sweep.clone(),
            fleet: self.fleet.clone(),
            gap_bounds: self.config.histograms.time_per_output_token_seconds.as_slice().into(),
            events: self.events.0.clone(),
            halt: self.halt.clone(),
            register: self.register.clone(),
            governor: self.governor.clone(),
            paused: paused.clone(),
        };
        let id = self.runs.spawn(run.run()).id();
        self.running.insert(id, Running { sweep, since: Instant::now(), paused });
    }

    /// Takes note of a sweep's end. One that panicked failed; it is free to start again all the same.
    fn ended(&mut self, ended: Result<(Id, SweepReport), tokio::task::JoinError>) {
        // What it told before it ended comes first.
        while let Ok(event) = self.events.1.try_recv() {
            self.observe(event);
        }
        let (id, result) = match ended {
            Ok((id, report)) => (id, report.result),
            Err(error) => {
                tracing::error!(%error, "a sweep broke");
                (error.id(), SweepResult::Failed)
            }
        };
        let Some(running) = self.running.remove(&id) else { return };
        let label = match result {
            SweepResult::Completed => SweepResultLabel::Completed,
            SweepResult::Aborted => SweepResultLabel::Aborted,
            SweepResult::Failed => SweepResultLabel::Failed,
        };
        let now = Utc::now();
        self.observer.ended(&running.sweep.name, now, running.since.elapsed(), label);
        self.history.ended(&running.sweep.name, result, now);
        self.history.calibrated(&self.fleet.calibrations(), now);
    }

    fn observe(&mut self, event: Event) {
        if let Event::Advanced { noted } = event {
            self.history.spent(self.governor.export(), Utc::now());
            self.history.mark(noted);
            return;
        }
        self.history.observe(&event, Utc::now());
        self.observer.observe(event);
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Reload { reply } => {
                let result = self.reload().await;
                let _ = reply.send(result);
            }
            Command::RunSweep { name, reply } => {
                let _ = reply.send(self.run_sweep(&name));
            }
            Command::Probe { target, model, within, reply } => self.probe((&target, &model), within, reply),
            Command::PauseSweep { name, paused, reply } => {
                let _ = reply.send(self.pause_sweep(&name, paused));
            }
        }
    }

    fn run_sweep(&mut self, name: &str) -> RunAnswer {
        let Some(sweep) = self.config.sweep(name).cloned() else { return RunAnswer::Unknown };
        if !self.leadership.leads() {
            return RunAnswer::Refused("this replica stands by: ask the one that leads".into());
        }
        if self.is_running(name) {
            return RunAnswer::Refused("it is running already".into());
        }
        if self.paused.contains(name) {
            return RunAnswer::Refused("it is paused: resume it first".into());
        }
        if let Err(exhausted) = affordable(&sweep, &self.governor) {
            return RunAnswer::Refused(exhausted.to_string());
        }
        self.start(sweep, None);
        RunAnswer::Started
    }

    /// One probe of what is configured, under the first sweep's settings that names it.
    fn probe(&mut self, (target, model): (&str, &str), within: Duration, reply: oneshot::Sender<Demanded>) {
        let Some(cell) = self.config.demanded(target, model) else {
            drop(reply.send(Demanded::Unknown));
            return;
        };
        if !self.leadership.leads() {
            drop(reply.send(Demanded::Refused("this replica stands by: ask the one that leads".into())));
            return;
        }
        let (cell, mut settings) = cell;
        let timeouts = &mut settings.timeouts;
        for limit in [
            &mut timeouts.connect,
            &mut timeouts.headers,
            &mut timeouts.first_token,
            &mut timeouts.stall,
            &mut timeouts.total,
        ] {
            *limit = within.min(*limit);
        }
        let demand = Demand {
            cell: Arc::new(cell),
            settings,
            within,
            gap_bounds: self.config.histograms.time_per_output_token_seconds.as_slice().into(),
        };
        let means = Means {
            fleet: self.fleet.clone(),
            register: self.register.clone(),
            governor: self.governor.clone(),
            events: self.events.0.clone(),
            halt: self.halt.clone(),
        };
        self.on_demand.ask(demand, means, reply);
    }

    /// Lets a sweep start no more, and a running one begin no further level; or lets it start again. `false`: there is
    /// no such sweep.
    fn pause_sweep(&mut self, name: &str, paused: bool) -> bool {
        let Some(sweep) = self.config.sweep(name).cloned() else { return false };
        if paused {
            self.paused.insert(sweep.name.clone());
        } else {
            self.paused.remove(name);
        }
        for running in self.running.values().filter(|running| running.sweep.name == sweep.name) {
            running.paused.store(paused, Ordering::Relaxed);
        }
        self.history.pauses(self.paused.clone(), Utc::now());
        self.observer.paused(&sweep.name, paused);
        true
    }

    pub(super) fn publish_schedule(&mut self) {
        let upcoming = self.agenda.upcoming().map(|(sweep, next, interval)| {
            (sweep.name.clone(), next, interval.and_then(|interval| interval.to_std().ok()))
        });
        let upcoming: Vec<_> = upcoming.collect();
        self.observer.scheduled(&upcoming);
    }

    /// No new probes; running ones get the grace, then they are cancelled.
    pub(super) async fn drain(mut self, grace: Duration, hurry: impl Future<Output = ()>) {
        self.brake.pull(Stop::Drain);
        tracing::info!(probes = self.register.in_flight(), grace = ?grace, "draining");
        let finished = tokio::select! {
            finished = timeout(grace, self.finish_runs()) => finished.is_ok(),
            () = hurry => false,
        };
        if !finished {
            tracing::info!(probes = self.register.in_flight(), "grace is over, cancelling running probes");
            self.brake.pull(Stop::Cancel);
            let _ = timeout(CANCEL_GRACE, self.finish_runs()).await;
        }
        self.history.spent(self.governor.export(), Utc::now());
        self.leadership.leave().await;
        self.history.close().await;
    }

    async fn finish_runs(&mut self) {
        loop {
            tokio::select! {
                ended = self.runs.join_next_with_id() => match ended {
                    Some(ended) => self.ended(ended),
                    None => return,
                },
                Some(event) = self.events.1.recv() => self.observe(event),
                Some(command) = self.commands.recv() => refuse(command),
                // Whoever leads from now on, it is not this one; what it started is stopped by the election itself.
                _ = self.leadership.next() => {}
            }
        }
    }
}

/// Answers what comes while the daemon goes down.
fn refuse(command: Command) {
    let going = "the daemon is shutting down".to_owned();
    match command {
        Command::Reload { reply } => drop(reply.send(Err(going))),
        Command::RunSweep { reply, .. } => drop(reply.send(RunAnswer::Refused(going))),
        // Dropped: the surface says that nobody answers.
        Command::PauseSweep { .. } | Command::Probe { .. } => {}
    }
}

async fn changed(changes: Option<&mut Changes>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

async fn beat(heartbeat: Option<&mut Heartbeat>) {
    match heartbeat {
        Some(heartbeat) => heartbeat.beat().await,
        None => std::future::pending().await,
    }
}

async fn hung_up(signal: Option<&mut tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => {
            if signal.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}
