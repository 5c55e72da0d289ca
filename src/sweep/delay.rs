//! The prober's own delay, measured while it probes, and whether a level's numbers can be trusted in spite of it.
//!
//! A probe's stamps are taken when its task runs. If the runtime or the machine is busy, every stamp is late by
//! about as much as this module's own task is.
//!
//! The clock that wakes it is a thread of its own: a timer of the runtime that is due soon would have the kernel set up and
//! take down an alarm around every chunk.

use std::{
    sync::{
        Arc,
        mpsc::{self as threads, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::kept_waiting::KeptWaiting;
use crate::measurement::GapSketch;

#[cfg(test)]
mod tests;

/// Upper bounds in seconds of the delay histogram.
pub const DELAY_BOUNDS: [f64; 18] = [
    0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25,
    0.5, 1.0,
];

/// How often the delay is sampled at most and at least: at 100 tokens a second and stream, every fifth chunk of a few
/// streams. A level of one worker must not spend as much on watching itself as on its chunks, one of many is short
/// and needs enough samples. No divisors of anything a server does.
const PERIOD_MIN: Duration = Duration::from_millis(7);
const PERIOD_MAX: Duration = Duration::from_millis(47);
/// Ticks that wait for the task's turn: more than there are in seconds.
const TICKS_MAX: usize = 1024;
/// tokio's timer, by which requests leave that are due, rounds up to its millisecond tick: up to that much is no delay.
const TIMER_GRANULARITY: Duration = Duration::from_millis(1);
/// A level is saturated when the delay is more than this share of its median time to first token ...
const SHARE_MAX: f64 = 0.05;
/// ... or than this, whichever is larger.
const DELAY_MIN: Duration = Duration::from_millis(5);

/// A running watch, in a task of its own: scheduled as the probes are, by the same threads.
pub(super) struct Watch {
    task: JoinSet<GapSketch>,
    end: threads::Sender<()>,
    started: Instant,
    before: Option<KeptWaiting>,
}

/// What a process that the kernel calls starved is judged by: one in a hundred, later than this share of the limit.
const STARVED: (f64, f64) = (0.99, 0.5);
/// And any other: one in twenty, later than the limit.
const SERVED: (f64, f64) = (0.95, 1.0);

/// What a watch saw.
pub(super) struct Delays {
    /// How long after it was due the task had its turn.
    pub(super) sampled: GapSketch,
    /// Whether others had the cores; `false` where the kernel does not say.
    starved: bool,
}

impl Watch {
    /// Watches over a level with so many streams.
    pub(super) fn start(streams: u32) -> Self {
        let (end, ended) = threads::channel();
        let (ticks, due) = mpsc::channel(TICKS_MAX);
        let period = (PERIOD_MAX / streams.max(1)).max(PERIOD_MIN);
        let clock = thread::Builder::new().name("delay".into());
        if let Err(error) = clock.spawn(move || tick(period, &ended, &ticks)) {
            tracing::warn!(%error, "no thread is to be had: whether the prober itself is too slow is not known");
        }
        let mut task = JoinSet::new();
        task.spawn(watch(due));
        Self { task, end, started: Instant::now(), before: KeptWaiting::read() }
    }

    /// Ends the watch; what it saw.
    pub(super) async fn stop(mut self) -> Delays {
        drop(self.end);
        let sampled = self.task.join_next().await.and_then(Result::ok).unwrap_or_else(sketch);
        let cores =
            thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1));
        let kept = KeptWaiting::read().zip(self.before).map(|(now, before)| now.since(&before));
        let starved = kept.is_some_and(|kept| kept.is_starved(self.started.elapsed(), cores));
        Delays { sampled, starved }
    }
}

impl Delays {
    /// Whether they distorted a level with this median time to first token. `late_p95_seconds`: by how much its requests
    /// left after they were due, where they were due.
    ///
    /// The 95th percentile of the samples decides: one late wake-up is no verdict, one in twenty is. But a process that
    /// asks for little is served promptly even where others take the core: then its wake-ups are late now and then, and
    /// by up to the others' slice, which spoils a level's high percentiles and not its median. Where the kernel says
    /// that others took the core, one in a hundred later than half the limit is enough.
    pub(super) fn saturated(
        &self,
        ttft_p50_seconds: Option<f64>,
        late_p95_seconds: Option<f64>,
    ) -> Option<bool> {
        let limit = ttft_p50_seconds.map_or(0.0, |ttft| ttft * SHARE_MAX).max(DELAY_MIN.as_secs_f64());
        let (quantile, share) = if self.starved { STARVED } else { SERVED };
        let late = late_p95_seconds.is_some_and(|late| late - TIMER_GRANULARITY.as_secs_f64() > limit);
        Some(late || self.sampled.quantile(quantile)? > limit * share)
    }
}

/// Says when a turn was due, again and again, until `ended` has no other end.
fn tick(period: Duration, ended: &threads::Receiver<()>, ticks: &mpsc::Sender<Instant>) {
    loop {
        let due = Instant::now() + period;
        if ended.recv_timeout(period) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        // When there is no room, those that wait say enough.
        let _ = ticks.try_send(due);
    }
}

async fn watch(mut due: mpsc::Receiver<Instant>) -> GapSketch {
    let mut delays = sketch();
    while let Some(due) = due.recv().await {
        delays.record(due.elapsed());
    }
    delays
}

/// An empty sketch with the delay histogram's bounds.
fn sketch() -> GapSketch {
    GapSketch::new(Arc::from(DELAY_BOUNDS))
}
