//! The open loop of a level: requests leave when they are due, whatever became of those before them.
//!
//! One task keeps the schedule and never waits for an answer; every request is a task of its own that is started
//! somewhat ahead, makes its prompt, and sleeps until it is due. In flight are no more than the level's bound: who
//! arrives beyond it is counted, not sent. Knows nothing of how arrivals are spaced.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use super::{Floor, Halt, Level, Role, Worker};
use crate::arrivals::{Rate, Schedule};

/// How long before a request is due its task starts: time enough to make a long prompt.
const LEAD: Duration = Duration::from_millis(20);
/// The first request is repeated when the target refused a field that can be done without.
const AHEAD_MAX: u32 = 2;

/// Runs the level's schedule to its end, or to the halt.
pub(super) async fn run(level: &Arc<Level>, floor: &Arc<Floor>, rate: Rate) {
    let mut crew = Crew {
        level: level.clone(),
        floor: floor.clone(),
        idle: Vec::new(),
        under_way: JoinSet::new(),
        halt: level.halt.clone(),
        over: floor.over.subscribe(),
    };
    if crew.go_ahead().await {
        let schedule = Schedule::new(rate, level.settings.arrivals, fastrand::u64(..));
        crew.keep(schedule, rate).await;
    }
    crew.come_home().await;
}

/// The workers of an open level. One that is back keeps its connection for the next arrival.
struct Crew {
    level: Arc<Level>,
    floor: Arc<Floor>,
    idle: Vec<Worker>,
    under_way: JoinSet<Worker>,
    halt: Halt,
    over: watch::Receiver<bool>,
}

impl Crew {
    /// The first request goes alone: it tells how long one takes, and what the target refuses, before many ask.
    /// `false`: nothing may follow.
    async fn go_ahead(&mut self) -> bool {
        for _ in 0..AHEAD_MAX {
            self.send(Role::WarmUp, Instant::now());
            tokio::select! {
                () = self.halt.cancelled() => return false,
                Some(back) = self.under_way.join_next() => self.welcome(back),
            }
            if self.floor.has_samples() {
                break;
            }
        }
        !self.halt.is_stopping() && self.floor.ended.get().is_none()
    }

    /// Sends every request of the schedule when it is due: warm-up, measured, and fillers until the last measured one
    /// ended.
    async fn keep(&mut self, schedule: Schedule, rate: Rate) {
        let settings = &self.level.settings;
        let (requests, margin) = (settings.requests, settings.margin());
        // As many as arrive while one is answered: then as many leave as come.
        let length = (*self.floor.pace.borrow()).unwrap_or_default();
        let warmups = rate.arriving_in(length).min(margin).max(settings.warmup_requests);
        let roles = [(Role::WarmUp, warmups), (Role::Measured, requests), (Role::Filler, margin)];
        let roles = roles.into_iter().flat_map(|(role, count)| (0..count).map(move |_| role));
        let begin = Instant::now() + LEAD;
        let mut left = requests;
        for (offset, role) in schedule.zip(roles) {
            let due = begin + offset;
            if !self.wait_until(due - LEAD).await {
                return;
            }
            if role == Role::Measured {
                self.floor.first_measured.get_or_init(|| due);
                left -= 1;
            }
            if left == 0 {
                self.floor.drained.get_or_init(|| due);
            }
            self.send(role, due);
        }
    }

    /// Sends one request, unless as many as may be are in flight.
    fn send(&mut self, role: Role, due: Instant) {
        if self.under_way.len() >= self.level.cell.concurrency as usize {
            if role == Role::Measured {
                self.floor.refuse();
            }
            return;
        }
        let mut worker = self.idle.pop().unwrap_or_else(|| Worker::new(&self.level, &self.floor));
        self.under_way.spawn(async move {
            worker.serve(role, due).await;
            worker
        });
    }

    /// Takes in who comes back until then. `false`: nothing more is to be sent.
    async fn wait_until(&mut self, instant: Instant) -> bool {
        loop {
            let back = tokio::select! {
                biased;
                () = self.halt.stopping() => return false,
                Some(back) = self.under_way.join_next() => back,
                _ = self.over.wait_for(|over| *over) => return false,
                () = sleep_until(instant) => return true,
            };
            self.welcome(back);
        }
    }

    /// Waits for everyone; when told to cancel, drops them with whatever they have under way.
    async fn come_home(&mut self) {
        loop {
            tokio::select! {
                () = self.halt.cancelled() => break,
                back = self.under_way.join_next() => match back {
                    Some(back) => self.welcome(back),
                    None => return,
                },
            }
        }
        self.under_way.shutdown().await;
    }

    fn welcome(&mut self, back: Result<Worker, JoinError>) {
        match back {
            Ok(worker) => self.idle.push(worker),
            Err(error) => {
                // A probe's panic is caught with the probe; this is one outside of it. Nobody may wait for it.
                tracing::error!(%error, "a worker ended before its time");
                self.floor.release();
            }
        }
    }
}

impl Worker {
    /// Sends the request that is due then, and takes note of what became of it.
    async fn serve(&mut self, role: Role, due: Instant) {
        if let Some(measurement) = self.probe(role, Some(due)).await {
            self.settle(measurement, due, role, 0).await;
        }
    }
}
