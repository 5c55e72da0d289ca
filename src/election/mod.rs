//! Which of several replicas probes: leader election through a Kubernetes Lease.
//!
//! Two promises, which rest on different things:
//!
//! - **No due start is run twice.** Before a leader starts what is due it writes the due instant into the lease, in one
//!   request that the API server refuses when anybody else wrote meanwhile (`resourceVersion`). Whoever leads next finds
//!   it there. No clock takes part in this.
//! - **Two replicas do not probe at a time.** A leader whose lease was not renewed for two thirds of its length sends
//!   nothing more and drops what is under way; a replica takes the lease over only when it saw no change of it for its
//!   whole length. Both are counted on the replica's own monotonic clock from what it saw itself; the times in the lease
//!   are for people. A process that was frozen finds its time over before it sends another probe.
//!
//! Knows nothing of schedules and sweeps beyond their names and due instants. The API is asked with the HTTP client that
//! is here anyway: three requests do not earn the `kube` crate's 28 further crates, which bring no election either.

mod api;
mod contender;
mod lease;
mod task;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use self::{api::Api, contender::Contender, task::Task};
use crate::{
    budget::{Governor, Spent},
    sweep::{Brake, Halt},
};

/// Claims that may wait for the API server; more are as good as lost to it.
const CLAIMS_MAX: usize = 64;
/// Notices that may wait for the daemon.
const NOTICES_MAX: usize = 64;
/// Longest time to give the lease up at shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// How this replica stands for election.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Base URL of the API server.
    pub api_server: String,
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub lease: String,
    /// What this replica calls itself; no two may share it.
    pub identity: String,
    /// Within how long a leader that is gone is replaced.
    pub takeover: Duration,
    /// File of the service account's token, read again when it changes.
    pub token_file: Option<PathBuf>,
    /// Authorities to trust; the system's when unset.
    pub ca_file: Option<PathBuf>,
}

/// The due instants dealt with so far, by sweep: the schedule's own time, without jitter.
pub type Starts = BTreeMap<Arc<str>, DateTime<Utc>>;

/// What the daemon is told.
#[derive(Debug)]
pub enum Notice {
    /// This replica leads.
    Gained {
        /// What leaders before it dealt with.
        starts: Starts,
        /// Stops whatever is started under this term.
        halt: Halt,
        /// The other end of that, for the shutdown.
        brake: Arc<Brake>,
    },
    /// These starts stand in the lease: they are to be run now, here and nowhere else.
    Claimed(Starts),
    /// This replica no longer leads. What it started has been told to stop.
    Lost,
}

/// This replica's part in the election; it leaves it when dropped, without a word to the others.
#[derive(Debug)]
pub struct Election {
    claims: mpsc::Sender<Starts>,
    notices: mpsc::Receiver<Notice>,
    release: Option<oneshot::Sender<()>>,
    running: JoinSet<()>,
}

impl Election {
    /// Joins the election. What is spent travels with the lease, so that a new leader gets no new budget; `failed` is
    /// called for every request to the API server that came to nothing.
    ///
    /// # Errors
    /// The settings cannot be used: one line with the mend.
    pub fn join(
        settings: &Settings,
        governor: Governor,
        failed: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let contender = Contender::new(settings.identity.clone(), settings.takeover)?;
        let api = Api::new(settings)?;
        let (claims, claimed) = mpsc::channel(CLAIMS_MAX);
        let (told, notices) = mpsc::channel(NOTICES_MAX);
        let (release, released) = oneshot::channel();
        let mut running = JoinSet::new();
        let task = Task::new(api, contender, governor, told, Box::new(failed));
        running.spawn(task.run(claimed, released));
        Ok(Self { claims, notices, release: Some(release), running })
    }

    /// Asks for these starts; `false` when too many wait already.
    #[must_use]
    pub fn claim(&self, starts: Starts) -> bool {
        self.claims.try_send(starts).is_ok()
    }

    /// The next notice; never, once the election is over.
    pub async fn next(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notice) => notice,
            None => std::future::pending().await,
        }
    }

    /// Gives the lease up, so that another replica need not wait for its end.
    pub async fn leave(mut self) {
        drop(self.release.take());
        // Notices are no longer read: nothing may wait for room among them.
        self.notices.close();
        let left = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(RELEASE_TIMEOUT, left).await.is_err() {
            tracing::warn!("the lease was not given up in time: another replica takes over when it ends");
        }
    }
}

/// What is written into the lease beside who holds it.
#[derive(Debug, Clone, Default, PartialEq)]
struct Carried {
    starts: Starts,
    spent: Vec<Spent>,
}
