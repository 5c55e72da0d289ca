//! How running work is told to end: first no new probes, then, after a grace, none at all.

use tokio::sync::watch;

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

/// The listening end: cheap to clone, one in every worker.
#[derive(Debug, Clone)]
pub struct Halt(watch::Receiver<Stop>);

/// The deciding end. Dropping it cancels.
#[derive(Debug)]
pub struct Brake(watch::Sender<Stop>);

/// A brake and the halt it works on.
#[must_use]
pub fn brake() -> (Brake, Halt) {
    let (sender, receiver) = watch::channel(Stop::Run);
    (Brake(sender), Halt(receiver))
}

impl Brake {
    /// Goes on to `stop`; never goes back.
    pub fn pull(&self, stop: Stop) {
        self.0.send_if_modified(|current| {
            let further = stop > *current;
            *current = stop.max(*current);
            further
        });
    }
}

impl Halt {
    /// Whether no new probe may start.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.0.borrow() >= Stop::Drain || self.0.has_changed().is_err()
    }

    /// Resolves once no new probe may start.
    pub async fn stopping(&mut self) {
        let _ = self.0.wait_for(|stop| *stop >= Stop::Drain).await;
    }

    /// Resolves once running probes must be dropped.
    pub async fn cancelled(&mut self) {
        let _ = self.0.wait_for(|stop| *stop >= Stop::Cancel).await;
    }
}
