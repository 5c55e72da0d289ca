//! Drives the pure engines in real time, from a thread of its own.
//!
//! A thread, because the runtime's timers round up to a whole millisecond, and a first token that comes a
//! millisecond late spoils the comparison this server exists for; a thread's own wait is late by a tenth of that.
//! Knows nothing of HTTP: jobs come in, tokens go out through a bounded channel each.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use super::{
    engine::{Emission, Engine, Event, Finish, Job, JobId},
    oracle::lock,
    profile::ModelProfile,
    stats::{Progress, Stats},
};

/// Owns the engines and the thread that drives them; dropping it stops both.
#[derive(Debug)]
pub(super) struct Clockwork {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    epoch: Instant,
    time_scale: f64,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    engines: Vec<Driven>,
    stopping: bool,
}

#[derive(Debug)]
struct Driven {
    engine: Engine,
    stats: Stats,
    open: HashMap<JobId, Open>,
}

#[derive(Debug)]
struct Open {
    tokens: mpsc::Sender<Token>,
    cached_tokens: u32,
    progress: Progress,
}

/// One generated token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub(super) index: u32,
    pub(super) reasoning: bool,
    pub(super) finish: Option<Finish>,
    pub(super) cached_tokens: u32,
}

impl Clockwork {
    /// Starts the engines of `profiles`, to be named by their place in it. `time_scale` 0.1 runs ten times faster.
    pub(super) fn start(profiles: &[ModelProfile], seed: u64, time_scale: f64) -> io::Result<Self> {
        let engines = (seed..).zip(profiles).map(|(seed, profile)| Driven::new(profile, seed)).collect();
        let shared = Arc::new(Shared {
            epoch: Instant::now(),
            time_scale: if time_scale > 0.0 { time_scale } else { 1.0 },
            state: Mutex::new(State { engines, stopping: false }),
            wake: Condvar::new(),
        });
        let driven = Arc::clone(&shared);
        let thread = thread::Builder::new().name("simulator".to_owned()).spawn(move || driven.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Gives `job` to engine number `engine`, as of `at`. `None` if there is no such engine.
    pub(super) fn submit(&self, engine: usize, at: Instant, job: Job) -> Option<Ticket> {
        let (sender, tokens) = mpsc::channel(job.output_tokens.max(1) as usize);
        let at = self.shared.engine_time(at);
        let prompt_tokens = job.prompt.tokens;
        let mut state = lock(&self.shared.state);
        let driven = state.engines.get_mut(engine)?;
        let id = driven.engine.submit(at, job);
        let progress = Progress::new(at, prompt_tokens);
        driven.open.insert(id, Open { tokens: sender, cached_tokens: 0, progress });
        drop(state);
        self.shared.wake.notify_one();
        Some(Ticket { tokens, engine, id, shared: Arc::clone(&self.shared) })
    }

    /// Shows the statistics of all engines, their load up to date, to `look`.
    pub(super) fn inspect(&self, look: impl FnOnce(&[&Stats])) {
        let mut state = lock(&self.shared.state);
        for driven in &mut state.engines {
            driven.stats.load = driven.engine.load();
        }
        look(&state.engines.iter().map(|driven| &driven.stats).collect::<Vec<_>>());
    }
}

impl Drop for Clockwork {
    fn drop(&mut self) {
        lock(&self.shared.state).stopping = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // It ends at once: it only ever waits on the condition just notified.
            let _ = thread.join();
        }
    }
}

/// A job under way; dropping it cancels the job.
#[derive(Debug)]
pub(super) struct Ticket {
    tokens: mpsc::Receiver<Token>,
    engine: usize,
    id: JobId,
    shared: Arc<Shared>,
}

impl Ticket {
    /// The next token; `None` after the last one and when the engine has stopped.
    pub(super) async fn next(&mut self) -> Option<Token> {
        self.tokens.recv().await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        let Some(driven) = state.engines.get_mut(self.engine) else { return };
        if driven.open.remove(&self.id).is_some() {
            driven.engine.cancel(self.id);
            driven.stats.abort();
            drop(state);
            self.shared.wake.notify_one();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut happened = Vec::new();
        let mut state = lock(&self.state);
        while !state.stopping {
            let now = self.engine_time(Instant::now());
            for driven in &mut state.engines {
                driven.advance(now, self.time_scale, &mut happened);
            }
            let next = state.engines.iter().filter_map(|driven| driven.engine.next_event()).min();
            state = self.wait(state, next.map(|at| self.real_time(at)));
        }
        // Whoever still waits for a token learns by the closed channel that none will come.
        for driven in &mut state.engines {
            driven.open.clear();
        }
    }

    /// Waits until `due` or until something changes.
    fn wait<'a>(&'a self, state: MutexGuard<'a, State>, due: Option<Instant>) -> MutexGuard<'a, State> {
        // A thread that sleeps wakes up late by about this much, so the rest of the wait is spent awake.
        const AWAKE: Duration = Duration::from_micros(100);
        let Some(due) = due else { return self.wake.wait(state).unwrap_or_else(PoisonError::into_inner) };
        let left = due.saturating_duration_since(Instant::now());
        if left > AWAKE {
            let left = left.saturating_sub(AWAKE);
            return self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        lock(&self.state)
    }

    fn engine_time(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.epoch).div_f64(self.time_scale)
    }

    fn real_time(&self, at: Duration) -> Instant {
        self.epoch + at.mul_f64(self.time_scale)
    }
}

impl Driven {
    fn new(profile: &ModelProfile, seed: u64) -> Self {
        Self { engine: Engine::new(profile, seed), stats: Stats::default(), open: HashMap::new() }
    }

    fn advance(&mut self, now: Duration, time_scale: f64, happened: &mut Vec<Emission>) {
        self.engine.advance(now, happened);
        for Emission { job, at, event } in happened.drain(..) {
            let Some(open) = self.open.get_mut(&job) else { continue };
            match event {
                Event::Admitted { cached_tokens } => {
                    open.cached_tokens = cached_tokens;
                    self.stats.admit(&mut open.progress, at, cached_tokens, time_scale);
                }
                Event::Token { index, reasoning, finish } => {
                    self.stats.token(&mut open.progress, at, finish, time_scale);
                    let token = Token { index, reasoning, finish, cached_tokens: open.cached_tokens };
                    // The channel holds the whole answer, so it can only fail when the reader has gone.
                    let _ = open.tokens.try_send(token);
                    if finish.is_some() {
                        self.open.remove(&job);
                    }
                }
            }
        }
    }
}
