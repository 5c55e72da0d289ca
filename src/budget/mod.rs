//! What probes may spend: requests, tokens and money per hour, day and month.
//!
//! The core is pure: [`Ledger`] takes the wall clock as an argument and decides whether one more request fits under
//! every cap it falls under. [`Governor`] shares one ledger among everything that sends probes, and hands out
//! [`Reservation`]s that travel with them: the worst case is held before a probe leaves, and settled by what the server
//! says it used. Knows nothing of sweeps, sockets or metrics.

mod caps;
mod governor;
mod ledger;

#[cfg(test)]
mod tests;

pub use caps::{Amount, Cap, Caps, Money, Period, Price, Scope, Unit};
pub use governor::{Advance, Governor, Reservation};
pub use ledger::{Exhausted, Ledger, Order, Remaining, Spent};
