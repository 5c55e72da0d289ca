//! The open loop of a level: requests leave when they are due, whatever became of those before them.
//!
//! A first request goes ahead alone. Then come warm-up, measured requests and fillers on one schedule, in this order. What is
//! due while as many requests are in flight as may be is not sent, and counted.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Floor, Level, Role, Worker,
    crew::{Crew, LEAD, Serve},
};
use crate::arrivals::{Rate, Schedule};

/// The first request is repeated when the target refused a field that can be done without.
const AHEAD_MAX: u32 = 2;

/// Runs the level's schedule to its end, or to the halt.
pub(super) async fn run(level: &Arc<Level>, floor: &Arc<Floor>, rate: Rate) {
    let hire = || Worker::new(level, floor);
    let mut crew = Crew::new(hire, level.cell.concurrency, level.halt.clone(), floor.over.subscribe());
    // It tells how long a request takes, and what the target refuses, before many ask.
    for _ in 0..AHEAD_MAX {
        if !level.halt.is_stopping() && !floor.has_samples() {
            crew.serve_alone(Role::WarmUp).await;
        }
    }
    if !level.halt.is_stopping() && floor.ended.get().is_none() {
        let schedule = Schedule::new(rate, level.settings.arrivals, fastrand::u64(..));
        let plan = schedule.zip(roles(level, floor, rate));
        let mut left = level.settings.requests;
        let note = |role, due, sent: bool| {
            if role == Role::Measured {
                floor.first_measured.get_or_init(|| due);
                left -= 1;
                if !sent {
                    floor.refuse();
                }
            }
            if left == 0 {
                floor.drained.get_or_init(|| due);
            }
        };
        crew.serve_all(Instant::now() + LEAD, plan, note).await;
    }
    crew.come_home().await;
}

/// What the arrivals are for, in their order.
fn roles(level: &Level, floor: &Floor, rate: Rate) -> impl Iterator<Item = Role> + Send + use<> {
    let settings = &level.settings;
    // As many as arrive while one is answered: then as many leave as come.
    let length = (*floor.pace.borrow()).unwrap_or_default();
    let warmups = rate.arriving_in(length).min(settings.margin()).max(settings.warmup_requests);
    let counts =
        [(Role::WarmUp, warmups), (Role::Measured, settings.requests), (Role::Filler, settings.margin())];
    counts.into_iter().flat_map(|(role, count)| (0..count).map(move |_| role))
}

impl Serve for Worker {
    async fn serve(mut self, role: Role, due: Instant) -> Self {
        if let Some((measurement, cold)) = self.probe(role, Some(due)).await {
            self.settle(measurement, due, (role, cold), 0).await;
        }
        self
    }
}
