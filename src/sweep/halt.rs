//! How running work is told to end: first no new probes, then, after a grace, none at all.

use tokio::{sync::watch, time::Instant};

/// How far the stop has gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Go on.
    #[default]
    Run,
    /// Start no new probe; let running ones end.
    Drain,
    /// Drop running probes: they are cancelled, not failed.
    Cancel,
}

/// What running work is told.
#[derive(Debug, Clone, Copy, Default)]
struct Order {
    stop: Stop,
    /// When the leave to send ends by itself, unless it is prolonged.
    lapses: Option<Instant>,
}

/// The listening end: cheap to clone, one in every worker.
#[derive(Debug, Clone)]
pub struct Halt(watch::Receiver<Order>);

/// The deciding end. Dropping it cancels.
#[derive(Debug)]
pub struct Brake(watch::Sender<Order>);

/// A brake and the halt it works on.
#[must_use]
pub fn brake() -> (Brake, Halt) {
    let (sender, receiver) = watch::channel(Order::default());
    (Brake(sender), Halt(receiver))
}

impl Brake {
    /// Goes on to `stop`; never goes back.
    pub fn pull(&self, stop: Stop) {
        self.0.send_if_modified(|current| {
            let further = stop > current.stop;
            current.stop = stop.max(current.stop);
            further
        });
    }

    /// From `instant` on no new probe may start, unless this is said again before: also where whoever should pull the brake
    /// then was kept from it, as in a process that was frozen.
    pub fn lapse_at(&self, instant: Instant) {
        // Nobody waits for this: it is looked at before every probe.
        self.0.send_if_modified(|current| {
            current.lapses = Some(instant);
            false
        });
    }
}

impl Halt {
    /// Whether no new probe may start.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        let order = *self.0.borrow();
        order.stop >= Stop::Drain
            || order.lapses.is_some_and(|lapses| Instant::now() >= lapses)
            || self.0.has_changed().is_err()
    }

    /// Resolves once no new probe may start.
    pub async fn stopping(&mut self) {
        let _ = self.0.wait_for(|order| order.stop >= Stop::Drain).await;
    }

    /// Resolves once running probes must be dropped.
    pub async fn cancelled(&mut self) {
        let _ = self.0.wait_for(|order| order.stop >= Stop::Cancel).await;
    }
}
