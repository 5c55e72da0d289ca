//! The daemon: one event loop that owns it all.
//!
//! State changes here and nowhere else: a due start, a probe's result, a reload and the shutdown are events that
//! the loop takes one after the other, none of which waits for a probe. Sweeps run in tasks of their own; what
//! they hold (their plan, their permits) they hold until they end, whatever is reloaded meanwhile.

mod agenda;
mod display;
mod heartbeat;
mod history;
mod observer;
mod watcher;

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinSet},
    time::{Instant, sleep, timeout},
};

use self::{
    agenda::{Agenda, Due},
    heartbeat::Heartbeat,
    history::History,
    observer::Observer,
    watcher::Changes,
};
use crate::{
    budget::Governor,
    config::{Config, Sweep},
    metrics::{Metrics, SkipReason, SweepResult as SweepResultLabel},
    probe::Endpoint,
    server::{Command, Memory, Readiness, RunAnswer, Surface, Web},
    sweep::{
        Brake, Event, Fleet, Halt, InFlight, Prepared, Run, Stop, SweepReport, SweepResult, affordable, brake,
    },
};

/// Events that may wait for the loop.
const EVENTS_MAX: usize = 4096;
/// Commands that may wait for the loop.
const COMMANDS_MAX: usize = 16;
/// The loop looks at the clock at least this often.
const NAP_MAX: Duration = Duration::from_secs(5);
/// What may be spent is shown anew this often.
const BUDGET_SHOWN_EVERY: Duration = Duration::from_secs(1);
/// How long cancelled probes get to be dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file, read again at every reload.
    File(PathBuf),
    /// Built in: nothing to reload.
    BuiltIn,
}

/// The daemon before it runs.
#[derive(Debug)]
pub struct Daemon {
    config: Arc<Config>,
    source: Source,
    fleet: Fleet,
    observer: Observer,
    history: History,
    in_flight: InFlight,
    governor: Governor,
    readiness: watch::Sender<Readiness>,
    commands: mpsc::Receiver<Command>,
    auto_reload: bool,
}

/// How the daemon is run, beside its configuration.
#[derive(Debug)]
pub struct Options {
    /// Whether requests may change anything.
    pub lifecycle: bool,
    /// TLS and credentials of the HTTP surface.
    pub web: Web,
    /// Whether to reload when the configuration file changes.
    pub auto_reload: bool,
}

/// A sweep that is running.
struct Running {
    sweep: Arc<Sweep>,
    since: Instant,
    /// Turned on to let no further level begin.
    paused: Arc<AtomicBool>,
}

impl Daemon {
    /// A daemon with its series laid out and its targets prepared.
    ///
    /// # Errors
    /// A target's certificates cannot be loaded.
    pub fn new(
        config: Config,
        source: Source,
        options: Options,
        now: DateTime<Utc>,
    ) -> Result<(Self, Surface), String> {
        let fleet = fleet(&config, &Fleet::default())?;
        let in_flight = InFlight::default();
        let governor = Governor::new(config.budget.caps.clone());
        let counted = in_flight.clone();
        let metrics = Arc::new(Metrics::new(move || counted.count()));
        let config = Arc::new(config);
        let mut observer = Observer::new(metrics.clone(), &config, now);
        let history = History::open(&config, &mut observer, &governor);
        metrics.reload_succeeded(now);
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let readiness = watch::Sender::new(Readiness::Starting);
        let surface = Surface {
            metrics,
            status: observer.status(),
            readiness: readiness.subscribe(),
            commands: sender,
            lifecycle: options.lifecycle,
            web: options.web,
            memory: Memory::new(config.archive.path.clone()),
        };
        let auto_reload = options.auto_reload;
        let daemon = Self {
            config,
            source,
            fleet,
            observer,
            history,
            in_flight,
            governor,
            readiness,
            commands,
            auto_reload,
        };
        Ok((daemon, surface))
    }

    /// Runs until `shutdown` resolves, then drains: no new probes, running ones get the grace period.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let grace = self.config.server.shutdown_grace;
        let (brake, halt) = brake();
        let mut state = State::new(self, halt);
        state.serve(shutdown).await;
        state.drain(&brake, grace).await;
    }
}

/// Everything the loop changes.
struct State {
    config: Arc<Config>,
    /// `[server]` as it was at the start: a reload does not change it.
    served: crate::config::Server,
    source: Source,
    fleet: Fleet,
    observer: Observer,
    history: History,
    in_flight: InFlight,
    governor: Governor,
    /// Sweeps paused by hand, by name: over reloads, until they are resumed.
    paused: HashSet<Arc<str>>,
    /// Changes of the configuration file, where they are followed.
    changes: Option<Changes>,
    /// When the page last showed what may be spent.
    budget_shown: Option<Instant>,
    readiness: watch::Sender<Readiness>,
    commands: mpsc::Receiver<Command>,
    agenda: Agenda,
    runs: JoinSet<SweepReport>,
    running: HashMap<Id, Running>,
    events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    halt: Halt,
}

impl State {
    fn new(daemon: Daemon, halt: Halt) -> Self {
        let Daemon {
            config,
            source,
            fleet,
            observer,
            history,
            in_flight,
            governor,
            readiness,
            commands,
            auto_reload,
        } = daemon;
        let changes = match &source {
            Source::File(path) if auto_reload => Some(Changes::of(path.clone())),
            Source::File(_) | Source::BuiltIn => None,
        };
        let agenda = Agenda::new(&config.sweeps, Utc::now(), true);
        Self {
            served: config.server.clone(),
            config,
            source,
            fleet,
            observer,
            history,
            in_flight,
            governor,
            paused: HashSet::new(),
            changes,
            budget_shown: None,
            readiness,
            commands,
            agenda,
            runs: JoinSet::new(),
            running: HashMap::new(),
            events: mpsc::channel(EVENTS_MAX),
            halt,
        }
    }

    async fn serve(&mut self, shutdown: impl Future<Output = ()>) {
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
        for Due { sweep, due } in due {
            if let Some(reason) = self.skip_reason(&sweep, now) {
                self.observer.skipped(&sweep.name, reason);
                continue;
            }
            let delay = (now - due).to_std().unwrap_or_default();
            self.start(sweep, Some(delay));
        }
        self.publish_schedule();
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

    fn start(&mut self, sweep: Arc<Sweep>, delay: Option<Duration>) {
        let now = Utc::now();
        self.observer.started(&sweep, now, delay);
        self.history.started(&sweep, now);
        let paused = Arc::new(AtomicBool::new(false));
        let run = Run {
            sweep: sweep.clone(),
            fleet: self.fleet.clone(),
            gap_bounds: self.config.histograms.time_per_output_token_seconds.as_slice().into(),
            events: self.events.0.clone(),
            halt: self.halt.clone(),
            in_flight: self.in_flight.clone(),
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
    }

    fn observe(&mut self, event: Event) {
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
            Command::PauseSweep { name, paused, reply } => {
                let _ = reply.send(self.pause_sweep(&name, paused));
            }
        }
    }

    fn run_sweep(&mut self, name: &str) -> RunAnswer {
        let Some(sweep) = self.config.sweep(name).cloned() else { return RunAnswer::Unknown };
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
        self.observer.paused(&sweep.name, paused);
        true
    }

    /// Takes over a new configuration as a whole, or keeps the old one and says so.
    async fn reload(&mut self) -> Result<(), String> {
        let Source::File(path) = self.source.clone() else {
            return Err("there is no configuration file to reload: this is the built-in demo".into());
        };
        let before = self.fleet.clone();
        // Reading files and certificates must not hold up the loop's tasks.
        let loaded = tokio::task::spawn_blocking(move || {
            let config = Config::load(&path).map_err(|error| error.to_string())?;
            let fleet = fleet(&config, &before)?;
            Ok((config, fleet))
        })
        .await
        .unwrap_or_else(|error| Err(error.to_string()));
        match loaded {
            Ok((config, fleet)) => {
                self.take_over(config, fleet);
                Ok(())
            }
            Err(error) => {
                self.observer.metrics().reload_failed();
                tracing::error!(error, "configuration not reloaded, the old one stays");
                Err(error)
            }
        }
    }

    fn take_over(&mut self, config: Config, fleet: Fleet) {
        if config.server != self.served {
            tracing::warn!("[server] changed: that takes a restart, the rest is reloaded");
        }
        let now = Utc::now();
        self.config = Arc::new(config);
        self.fleet = fleet;
        self.history.adopt(&self.config);
        self.governor.adopt(self.config.budget.caps.clone());
        self.budget_shown = None;
        self.paused.retain(|name| self.config.sweep(name).is_some());
        self.agenda.adopt(&self.config.sweeps, now);
        self.observer.adopt(&self.config);
        self.observer.metrics().reload_succeeded(now);
        self.publish_schedule();
        tracing::info!(
            targets = self.config.targets.len(),
            sweeps = self.config.sweeps.len(),
            "configuration reloaded"
        );
    }

    fn publish_schedule(&mut self) {
        let upcoming = self.agenda.upcoming().map(|(sweep, next, interval)| {
            (sweep.name.clone(), next, interval.and_then(|interval| interval.to_std().ok()))
        });
        let upcoming: Vec<_> = upcoming.collect();
        self.observer.scheduled(&upcoming);
    }

    /// No new probes; running ones get the grace, then they are cancelled.
    async fn drain(mut self, brake: &Brake, grace: Duration) {
        brake.pull(Stop::Drain);
        tracing::info!(probes = self.in_flight.count(), grace = ?grace, "draining");
        if timeout(grace, self.finish_runs()).await.is_err() {
            tracing::info!(probes = self.in_flight.count(), "grace is over, cancelling running probes");
            brake.pull(Stop::Cancel);
            let _ = timeout(CANCEL_GRACE, self.finish_runs()).await;
        }
        self.history.spent(self.governor.export(), Utc::now());
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
        Command::PauseSweep { .. } => {}
    }
}

fn fleet(config: &Config, before: &Fleet) -> Result<Fleet, String> {
    let redactor = Arc::new(config.redactor());
    let mut fleet = Fleet::under(config.budget.max_in_flight, before);
    for target in &config.targets {
        let endpoint = Endpoint::new(target.clone(), redactor.clone())
            .map_err(|error| format!("target \"{}\": {error}", target.name))?;
        fleet.insert(Prepared::new(endpoint), before);
    }
    Ok(fleet)
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
