//! The prober's own delay, measured while it probes, and whether a level's numbers can be trusted in spite of it.
//!
//! A probe's stamps are taken when its task runs. If the runtime or the machine is busy, every stamp is late by
//! about as much as this module's own timer is.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::kept_waiting::KeptWaiting;
use crate::measurement::GapSketch;

#[cfg(test)]
mod tests;

/// Upper bounds in seconds of the delay histogram.
pub const DELAY_BOUNDS: [f64; 18] = [
    0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25,
    0.5, 1.0,
];

/// How often the delay is sampled. Not a divisor of anything a server does, and seldom enough that a level of one
/// worker does not spend more on watching itself than on its chunks.
const PERIOD: Duration = Duration::from_millis(23);
/// tokio's timer rounds up to its millisecond tick: up to that much is no delay.
const TIMER_GRANULARITY: Duration = Duration::from_millis(1);
/// A level is saturated when the delay is more than this share of its median time to first token ...
const SHARE_MAX: f64 = 0.05;
/// ... or than this, whichever is larger.
const DELAY_MIN: Duration = Duration::from_millis(5);

/// A running watch, in a task of its own: scheduled as the probes are, by the same threads.
pub(super) struct Watch {
    task: JoinSet<GapSketch>,
    end: oneshot::Sender<()>,
    started: Instant,
    before: Option<KeptWaiting>,
}

/// What a watch saw.
pub(super) struct Delays {
    /// How late the timer fired.
    pub(super) sampled: GapSketch,
    kept_waiting: Option<KeptWaiting>,
    span: Duration,
}

impl Watch {
    pub(super) fn start() -> Self {
        let (end, ended) = oneshot::channel();
        let mut task = JoinSet::new();
        task.spawn(watch(ended));
        Self { task, end, started: Instant::now(), before: KeptWaiting::read() }
    }

    /// Ends the watch; what it saw.
    pub(super) async fn stop(mut self) -> Delays {
        drop(self.end);
        let sampled = self.task.join_next().await.and_then(Result::ok).unwrap_or_else(sketch);
        let kept_waiting = KeptWaiting::read().zip(self.before).map(|(now, before)| now.since(before));
        Delays { sampled, kept_waiting, span: self.started.elapsed() }
    }
}

impl Delays {
    /// Whether they distorted a level with this median time to first token.
    ///
    /// The 95th percentile of the samples decides: one late wake-up is no verdict, one in twenty is. But a process
    /// that shares its core is served promptly as long as it asks for little, so that a timer that asks seldom may see
    /// little of what thousands of stamps suffer. The kernel counts every wake-up: where it says that the process was
    /// starved, one in a hundred later than half the limit is enough.
    pub(super) fn saturated(&self, ttft_p50_seconds: Option<f64>) -> Option<bool> {
        let limit = ttft_p50_seconds.map_or(0.0, |ttft| ttft * SHARE_MAX).max(DELAY_MIN.as_secs_f64());
        let starved = self.kept_waiting.is_some_and(|kept| kept.is_starved(self.span));
        let (quantile, limit) = if starved { (0.99, limit / 2.0) } else { (0.95, limit) };
        Some(self.sampled.quantile(quantile)? > limit)
    }
}

async fn watch(mut ended: oneshot::Receiver<()>) -> GapSketch {
    let mut delays = sketch();
    loop {
        let due = Instant::now() + PERIOD;
        tokio::select! {
            biased;
            () = sleep_until(due) => delays.record(due.elapsed().saturating_sub(TIMER_GRANULARITY)),
            _ = &mut ended => return delays,
        }
    }
}

/// An empty sketch with the delay histogram's bounds.
fn sketch() -> GapSketch {
    GapSketch::new(Arc::from(DELAY_BOUNDS))
}
