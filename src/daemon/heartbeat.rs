//! Wake-ups by the wall clock.
//!
//! The event loop sleeps on the monotonic clock, which stands still while a machine is suspended and knows
//! nothing of a clock that is set. A job every second of tokio-cron-scheduler, which polls the wall clock, makes
//! the loop look again. Only that: what is due is decided by [`super::agenda`], so a beat that is late, doubled
//! or missing never moves, repeats or loses a start.

use tokio::sync::mpsc;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

/// Beats once a second for as long as it lives.
pub(super) struct Heartbeat {
    scheduler: JobScheduler,
    beats: mpsc::Receiver<()>,
}

impl Heartbeat {
    /// Starts beating.
    ///
    /// # Errors
    /// The scheduler cannot be started; the loop works without it.
    pub(super) async fn start() -> Result<Self, JobSchedulerError> {
        // One beat waiting is as good as ten.
        let (sender, beats) = mpsc::channel(1);
        let scheduler = JobScheduler::new().await?;
        let job = Job::new("* * * * * *", move |_, _| {
            let _ = sender.try_send(());
        })?;
        scheduler.add(job).await?;
        scheduler.start().await?;
        Ok(Self { scheduler, beats })
    }

    /// The next beat; never, once the scheduler is gone.
    pub(super) async fn beat(&mut self) {
        if self.beats.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops beating.
    pub(super) async fn stop(mut self) {
        if let Err(error) = self.scheduler.shutdown().await {
            tracing::debug!(%error, "heartbeat did not stop in order");
        }
    }
}
