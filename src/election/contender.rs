//! What one replica knows of the lease, and what follows from it. Pure: time is an argument.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::{Carried, lease::Lease};

/// The lease is looked at and renewed this many times within the time of a takeover.
const LOOKS_PER_TAKEOVER: u32 = 8;
/// Shortest time of a takeover: leases are as long as whole seconds.
const TAKEOVER_MIN: Duration = Duration::from_secs(3);
const TAKEOVER_MAX: Duration = Duration::from_secs(3600);

/// One replica.
#[derive(Debug)]
pub(super) struct Contender {
    identity: String,
    look_every: Duration,
    lease_seconds: u32,
    seen: Option<Seen>,
    /// Until when this replica leads, while it does.
    until: Option<Instant>,
}

/// The lease as this replica last saw it.
#[derive(Debug)]
struct Seen {
    lease: Lease,
    /// When it was first seen so.
    since: Instant,
}

impl Contender {
    /// A replica that has seen nothing yet. The lease is so much shorter than a takeover may take that looking for its
    /// end and asking for it fit in, too.
    ///
    /// # Errors
    /// The time cannot be kept, and what can.
    pub(super) fn new(identity: String, takeover: Duration) -> Result<Self, String> {
        if !(TAKEOVER_MIN..=TAKEOVER_MAX).contains(&takeover) {
            return Err("the lease duration must be from 3s to 1h; 15s is usual".into());
        }
        let look_every = takeover / LOOKS_PER_TAKEOVER;
        let length = takeover.saturating_sub(look_every * 2);
        let lease_seconds = u32::try_from(length.as_secs()).unwrap_or(u32::MAX).max(1);
        Ok(Self { identity, look_every, lease_seconds, seen: None, until: None })
    }

    pub(super) fn look_every(&self) -> Duration {
        self.look_every
    }

    /// Until when the lease is good for its holder, who asked for it at `asked`: two thirds of its length. The rest is for
    /// clocks that run unequally and for probes to be dropped.
    pub(super) fn good_until(&self, asked: Instant) -> Instant {
        asked + Duration::from_secs(u64::from(self.lease_seconds)) * 2 / 3
    }

    /// The lease was read at `now`.
    pub(super) fn saw(&mut self, lease: Lease, now: Instant) {
        let known = self.seen.as_ref().is_some_and(|seen| seen.lease.version() == lease.version());
        if !known {
            self.seen = Some(Seen { lease, since: now });
        }
    }

    /// There is no lease.
    pub(super) fn saw_none(&mut self) {
        self.seen = None;
    }

    /// The lease as last seen.
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.seen.as_ref().map(|seen| &seen.lease)
    }

    /// Whether this replica may ask for the lease: nobody has it, or whoever has it let it end.
    pub(super) fn may_take(&self, now: Instant) -> bool {
        let Some(seen) = &self.seen else { return true };
        match seen.lease.holder() {
            None => true,
            Some(holder) => {
                holder == self.identity || now.saturating_duration_since(seen.since) >= seen.lease.length()
            }
        }
    }

    /// When to look again.
    pub(super) fn wake(&self, now: Instant) -> Instant {
        let next = now + self.look_every;
        let ends = self.seen.as_ref().map(|seen| seen.since + seen.lease.length());
        // A lease that ends sooner is asked for as soon as it ends.
        ends.filter(|ends| self.until.is_none() && *ends > now).map_or(next, |ends| next.min(ends))
    }

    /// The lease as this replica would have it; `base` is what was seen, or a new one.
    pub(super) fn wish(&self, base: &Lease, carried: &Carried, now: DateTime<Utc>) -> Lease {
        base.held_by(&self.identity, self.lease_seconds, carried, now)
    }

    /// The API server made it so; this replica had asked at `asked`. Returns until when it leads.
    pub(super) fn won(&mut self, lease: Lease, asked: Instant, now: Instant) -> Instant {
        self.seen = Some(Seen { lease, since: now });
        let until = self.good_until(asked);
        self.until = Some(until);
        until
    }

    /// This replica leads no more.
    pub(super) fn lost(&mut self) {
        self.until = None;
    }

    /// Until when it leads.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether the lease as last seen names this replica.
    pub(super) fn is_named(&self) -> bool {
        self.lease().and_then(Lease::holder) == Some(&self.identity)
    }
}
