//! Who serves requests that are due: one task each, none of which the schedule waits for.
//!
//! In flight are no more than a bound: who arrives beyond it is told of, not served. Knows nothing of what is sent.

use std::{future::Future, time::Duration};

use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use super::{Halt, Role};

/// How long before a request is due its task starts: time enough to make a long prompt.
pub(super) const LEAD: Duration = Duration::from_millis(20);

/// Serves one request at a time.
pub(super) trait Serve: Sized + Send + 'static {
    /// Serves the request that is due then, and is free for another.
    fn serve(self, role: Role, due: Instant) -> impl Future<Output = Self> + Send;
}

/// Those who serve. One that is back keeps its connection for the next request.
pub(super) struct Crew<S: Serve, H: Fn() -> S> {
    hire: H,
    in_flight_max: usize,
    idle: Vec<S>,
    under_way: JoinSet<S>,
    halt: Halt,
    /// Turns true when nothing more is to be served.
    over: watch::Receiver<bool>,
}

impl<S: Serve, H: Fn() -> S> Crew<S, H> {
    /// Nobody yet.
    pub(super) fn new(hire: H, in_flight_max: u32, halt: Halt, over: watch::Receiver<bool>) -> Self {
        let (idle, under_way) = (Vec::new(), JoinSet::new());
        Self { hire, in_flight_max: in_flight_max as usize, idle, under_way, halt, over }
    }

    /// Serves one request now, alone, to its end.
    pub(super) async fn serve_alone(&mut self, role: Role) {
        self.start(role, Instant::now());
        tokio::select! {
            () = self.halt.cancelled() => {}
            Some(back) = self.under_way.join_next() => self.welcome(back),
        }
    }

    /// Serves every request of a plan when it is due, since `begin`; `note` is told of each whether it is served. Ends
    /// early when nothing more is to be sent.
    pub(super) async fn serve_all(
        &mut self,
        begin: Instant,
        plan: impl Iterator<Item = (Duration, Role)>,
        mut note: impl FnMut(Role, Instant, bool),
    ) {
        for (offset, role) in plan {
            let due = begin + offset;
            if !self.wait_until(due.checked_sub(LEAD).unwrap_or(due)).await {
                return;
            }
            note(role, due, self.start(role, due));
        }
    }

    /// Waits for everyone; when told to cancel, drops them with whatever they have under way.
    pub(super) async fn come_home(mut self) {
        loop {
            let back = tokio::select! {
                () = self.halt.cancelled() => break,
                back = self.under_way.join_next() => back,
            };
            match back {
                Some(back) => self.welcome(back),
                None => return,
            }
        }
        self.under_way.shutdown().await;
    }

    /// Starts one request, unless as many as may be are in flight.
    fn start(&mut self, role: Role, due: Instant) -> bool {
        if self.under_way.len() >= self.in_flight_max {
            return false;
        }
        let server = self.idle.pop().unwrap_or_else(&self.hire);
        self.under_way.spawn(server.serve(role, due));
        true
    }

    /// Takes in who comes back until then. `false`: nothing more is to be sent.
    async fn wait_until(&mut self, instant: Instant) -> bool {
        loop {
            let back = tokio::select! {
                biased;
                () = self.halt.stopping() => return false,
                Some(back) = self.under_way.join_next() => back,
                _ = self.over.wait_for(|over| *over) => return false,
                // Leave to send may have lapsed without a word.
                () = sleep_until(instant) => return !self.halt.is_stopping(),
            };
            self.welcome(back);
        }
    }

    fn welcome(&mut self, back: Result<S, JoinError>) {
        match back {
            Ok(server) => self.idle.push(server),
            // A probe's panic is caught with the probe; this is one outside of it.
            Err(error) => tracing::error!(%error, "a worker ended before its time"),
        }
    }
}

#[cfg(test)]
mod tests;
