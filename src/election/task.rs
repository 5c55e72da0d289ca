//! The loop of one replica: look, ask, renew, tell the daemon.

use std::{future::Future, sync::Arc};

use chrono::{DateTime, Utc};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    Carried, Notice, Starts,
    api::{Answer, Api},
    contender::Contender,
    lease::Lease,
};
use crate::{
    budget::Governor,
    sweep::{Brake, Stop, brake},
};

/// Plays one replica.
pub(super) struct Task {
    api: Api,
    contender: Contender,
    governor: Governor,
    notices: mpsc::Sender<Notice>,
    failed: Box<dyn Fn() + Send + Sync>,
    term: Option<Term>,
    /// Starts that are asked for and not yet written.
    claims: Starts,
    unclear: Option<Attempt>,
    /// The last complaint, so that it is told once.
    complaint: Option<String>,
}

/// One reign.
struct Term {
    brake: Arc<Brake>,
    starts: Starts,
}

/// A write of which nobody said what became of it.
struct Attempt {
    wish: Lease,
    carried: Carried,
    asked: Instant,
}

/// What one attempt to write came to.
enum Written {
    Yes,
    /// Somebody else wrote first, or the lease is gone.
    No,
    /// Nobody knows.
    Unclear,
}

impl Task {
    pub(super) fn new(
        api: Api,
        contender: Contender,
        governor: Governor,
        notices: mpsc::Sender<Notice>,
        failed: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            api,
            contender,
            governor,
            notices,
            failed,
            term: None,
            claims: Starts::new(),
            unclear: None,
            complaint: None,
        }
    }

    /// Plays until `released` resolves, then gives the lease up.
    pub(super) async fn run(
        mut self,
        mut claims: mpsc::Receiver<Starts>,
        mut released: oneshot::Receiver<()>,
    ) {
        let mut wake = Instant::now();
        loop {
            tokio::select! {
                biased;
                _ = &mut released => break,
                () = sleep_until(self.deadline(wake)) => {}
                Some(starts) = claims.recv() => self.claims.extend(starts),
            }
            while let Ok(starts) = claims.try_recv() {
                self.claims.extend(starts);
            }
            self.expire().await;
            if self.term.is_none() {
                // Asked for under a term that is over.
                self.claims.clear();
            }
            self.round().await;
            self.expire().await;
            wake = self.contender.wake(Instant::now());
        }
        self.give_up().await;
    }

    /// The end of the term is met at once, whatever else is waited for.
    fn deadline(&self, wake: Instant) -> Instant {
        self.contender.until().map_or(wake, |until| until.min(wake))
    }

    /// One look, or one attempt to write.
    async fn round(&mut self) {
        if self.term.is_some() {
            // Where it did not succeed for certain, what the lease says now decides.
            match self.write().await {
                Written::Yes => return,
                Written::No | Written::Unclear => {}
            }
        }
        match self.limited(self.api.read()).await {
            Answer::Lease(lease) => {
                let now = Instant::now();
                let attempt = self.unclear.take().filter(|attempt| {
                    lease.says_the_same(&attempt.wish) && now < self.contender.good_until(attempt.asked)
                });
                self.contender.saw(*lease.clone(), now);
                if let Some(Attempt { carried, asked, .. }) = attempt {
                    // It was written after all: only the answer was lost.
                    return self.won(*lease, carried, asked).await;
                }
            }
            Answer::Missing => self.contender.saw_none(),
            Answer::Conflict => return,
            Answer::Failed(error) => return self.complain(error),
        }
        self.complaint = None;
        if self.term.is_some() && !self.contender.is_named() {
            return self.lose("another replica holds the lease").await;
        }
        if self.contender.may_take(Instant::now()) {
            self.write().await;
        }
    }

    /// Writes the lease with this replica as its holder, and every claim.
    async fn write(&mut self) -> Written {
        let carried = self.carried();
        let base = self.contender.lease().cloned();
        let exists = base.is_some();
        let base = base.unwrap_or_else(|| Lease::new(self.api.name()));
        let wish = self.contender.wish(&base, &carried, Utc::now());
        let asked = Instant::now();
        let answer = if exists {
            self.limited(self.api.replace(&wish)).await
        } else {
            self.limited(self.api.create(&wish)).await
        };
        match answer {
            Answer::Lease(lease) => {
                self.complaint = None;
                self.won(*lease, carried, asked).await;
                Written::Yes
            }
            Answer::Conflict | Answer::Missing => {
                (self.failed)();
                Written::No
            }
            Answer::Failed(error) => {
                self.complain(error);
                self.unclear = Some(Attempt { wish, carried, asked });
                Written::Unclear
            }
        }
    }

    /// What to write into the lease: what leaders dealt with, this one's claims, what was spent.
    fn carried(&self) -> Carried {
        let mut starts = match &self.term {
            Some(term) => term.starts.clone(),
            None => self.contender.lease().map(|lease| lease.carried().starts).unwrap_or_default(),
        };
        if self.term.is_none() {
            let spent = self.contender.lease().map(|lease| lease.carried().spent).unwrap_or_default();
            self.governor.catch_up(&spent);
        }
        starts.extend(self.claims.clone());
        Carried { starts, spent: self.governor.export_capped() }
    }

    async fn won(&mut self, lease: Lease, carried: Carried, asked: Instant) {
        let until = self.contender.won(lease, asked, Instant::now());
        let written = |sweep: &Arc<str>, base: &mut DateTime<Utc>| carried.starts.get(sweep) == Some(base);
        let claimed: Starts = self.claims.extract_if(.., written).collect();
        if let Some(term) = &mut self.term {
            term.brake.lapse_at(until);
            term.starts = carried.starts;
        } else {
            let (brake, halt) = brake();
            brake.lapse_at(until);
            let brake = Arc::new(brake);
            self.term = Some(Term { brake: brake.clone(), starts: carried.starts.clone() });
            tracing::info!(lease = self.api.name(), "leads: this replica probes");
            self.tell(Notice::Gained { starts: carried.starts, halt, brake }).await;
        }
        if !claimed.is_empty() {
            self.tell(Notice::Claimed(claimed)).await;
        }
    }

    /// Ends a term whose time is over.
    async fn expire(&mut self) {
        if self.contender.until().is_some_and(|until| Instant::now() >= until) {
            self.lose("the lease could not be renewed in time").await;
        }
    }

    async fn lose(&mut self, why: &str) {
        self.contender.lost();
        self.claims.clear();
        let Some(term) = self.term.take() else { return };
        term.brake.pull(Stop::Cancel);
        tracing::warn!(lease = self.api.name(), "leads no more: {why}");
        self.tell(Notice::Lost).await;
    }

    async fn give_up(&mut self) {
        let Some(term) = self.term.take() else { return };
        term.brake.pull(Stop::Cancel);
        let Some(lease) = self.contender.lease() else { return };
        let carried = Carried { starts: term.starts, spent: self.governor.export_capped() };
        let given_up = lease.given_up(&carried, Utc::now());
        if let Answer::Failed(error) = self.limited(self.api.replace(&given_up)).await {
            tracing::warn!(error, "the lease was not given up: another replica takes over when it ends");
        }
    }

    /// Waits for an answer no longer than it is of use: to the end of the term, or until the next look.
    async fn limited(&self, asking: impl Future<Output = Answer>) -> Answer {
        let patience = Instant::now() + self.contender.look_every();
        let deadline = self.contender.until().map_or(patience, |until| until.min(patience));
        let answer = timeout_at(deadline, asking).await;
        answer.unwrap_or_else(|_| Answer::Failed("no answer in time".into()))
    }

    fn complain(&mut self, error: String) {
        (self.failed)();
        if self.complaint.as_ref() != Some(&error) {
            tracing::warn!(lease = self.api.name(), error, "the API server does not help with the lease");
        }
        self.complaint = Some(error);
    }

    async fn tell(&self, notice: Notice) {
        // A daemon that is going down listens no more.
        let _ = self.notices.send(notice).await;
    }
}
