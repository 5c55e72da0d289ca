//! The book: what was spent in the current periods, what is held for probes under way, and what still fits.
//!
//! Pure: the wall clock is an argument, and may jump. A clock that is set back opens no new period, so it gives no
//! second budget; what is held over a period's end counts in the one in which it is settled.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
    sync::Arc,
};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::caps::{Amount, Cap, Caps, Period, Scope, Unit, in_units};

/// How far ahead of the clock a kept period may begin.
const IMPORT_DAYS_AHEAD_MAX: i64 = 31;

/// Who wants to spend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Name of the sweep.
    pub sweep: Arc<str>,
    /// Name of the target.
    pub target: Arc<str>,
}

impl Order {
    fn scopes(&self) -> [Scope; 3] {
        [Scope::All, Scope::Target(self.target.clone()), Scope::Sweep(self.sweep.clone())]
    }
}

/// A cap that one more request would have passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    /// Which.
    pub cap: Cap,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the budget of {} is spent", self.cap)
    }
}

/// What a cap still allows.
#[derive(Debug, Clone, PartialEq)]
pub struct Remaining {
    /// Which.
    pub cap: Cap,
    /// The most, in its unit.
    pub limit: f64,
    /// What is neither spent nor held, in its unit.
    pub left: f64,
}

/// One scope's spending in one period, as it is kept over restarts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// `all`, `target:NAME` or `sweep:NAME`.
    pub scope: String,
    /// `hour`, `day` or `month`.
    pub period: String,
    /// When the period began, seconds since 1970.
    pub start: i64,
    /// Requests sent in it.
    pub requests: u64,
    /// Tokens used in it.
    pub tokens: u64,
    /// Money spent in it, in units of the currency.
    pub cost: f64,
}

/// Spending under the caps of a configuration.
#[derive(Debug, Clone)]
pub struct Ledger {
    caps: Caps,
    accounts: BTreeMap<(Scope, Period), Account>,
    /// The latest time it was told: its own clock never goes back.
    latest: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy)]
struct Account {
    start: DateTime<Utc>,
    spent: Amount,
    held: Amount,
}

impl Account {
    fn new(start: DateTime<Utc>) -> Self {
        Self { start, spent: Amount::default(), held: Amount::default() }
    }

    /// Goes over to the period that `now` lies in; never back.
    fn roll(&mut self, period: Period, now: DateTime<Utc>) {
        let start = period.start(now);
        if start > self.start {
            self.start = start;
            self.spent = Amount::default();
        }
    }

    fn used(&self, unit: Unit) -> u64 {
        self.spent.in_unit(unit).saturating_add(self.held.in_unit(unit))
    }
}

impl Ledger {
    /// Nothing spent yet.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        Self { caps, accounts: BTreeMap::new(), latest: DateTime::UNIX_EPOCH }
    }

    /// The caps in force.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Goes over to other caps. What was spent stays spent, also under a cap that is new.
    pub fn adopt(&mut self, caps: Caps, now: DateTime<Utc>) {
        let now = self.advance(now);
        self.caps = caps;
        // What no longer counts is dropped, so that reloads under ever new names do not fill the memory.
        self.accounts.retain(|(_, period), account| {
            account.roll(*period, now);
            !account.held.is_zero() || !account.spent.is_zero()
        });
    }

    /// Whether this much more fits under every cap, nothing held.
    ///
    /// # Errors
    /// The first cap under which it does not.
    pub fn covers(&mut self, order: &Order, amount: Amount, now: DateTime<Utc>) -> Result<(), Exhausted> {
        let now = self.advance(now);
        let scopes = order.scopes();
        let caps = self.caps.raw().filter(|(cap, _)| scopes.contains(&cap.scope));
        for (cap, most) in caps {
            let wanted = amount.in_unit(cap.unit);
            let account = self.accounts.get_mut(&(cap.scope.clone(), cap.period));
            let used = account.map_or(0, |account| {
                account.roll(cap.period, now);
                account.used(cap.unit)
            });
            if wanted > 0 && used.saturating_add(wanted) > most {
                return Err(Exhausted { cap: cap.clone() });
            }
        }
        Ok(())
    }

    /// Holds an amount.
    ///
    /// # Errors
    /// The first cap under which it does not fit; nothing is held then.
    pub fn hold(&mut self, order: &Order, amount: Amount, now: DateTime<Utc>) -> Result<(), Exhausted> {
        self.covers(order, amount, now)?;
        self.change(order, now, |account| account.held = account.held.plus(amount));
        Ok(())
    }

    /// What was held was used as far as `used`, which may be more than was held.
    pub fn settle(&mut self, order: &Order, held: Amount, used: Amount, now: DateTime<Utc>) {
        self.change(order, now, |account| {
            account.held = account.held.minus(held);
            account.spent = account.spent.plus(used);
        });
    }

    fn advance(&mut self, now: DateTime<Utc>) -> DateTime<Utc> {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn change(&mut self, order: &Order, now: DateTime<Utc>, change: impl Fn(&mut Account)) {
        let now = self.advance(now);
        for scope in order.scopes() {
            for period in Period::ALL.iter().copied() {
                let account = match self.accounts.entry((scope.clone(), period)) {
                    Entry::Occupied(entry) => entry.into_mut(),
                    Entry::Vacant(entry) => entry.insert(Account::new(period.start(now))),
                };
                account.roll(period, now);
                change(account);
            }
        }
    }

    /// What every cap still allows.
    pub fn remaining(&mut self, now: DateTime<Utc>) -> Vec<Remaining> {
        let now = self.advance(now);
        let caps: Vec<(Cap, u64)> = self.caps.raw().map(|(cap, most)| (cap.clone(), most)).collect();
        let remaining = caps.into_iter().map(|(cap, most)| {
            let account = self.accounts.get_mut(&(cap.scope.clone(), cap.period));
            let used = account.map_or(0, |account| {
                account.roll(cap.period, now);
                account.used(cap.unit)
            });
            let (limit, left) = (in_units(cap.unit, most), in_units(cap.unit, most.saturating_sub(used)));
            Remaining { cap, limit, left }
        });
        remaining.collect()
    }

    /// What was spent in the current periods, for whoever keeps it over a restart. What is held counts as spent: if
    /// the process dies now, nobody will say what became of it.
    #[must_use]
    pub fn export(&self) -> Vec<Spent> {
        let spent = self.accounts.iter().map(|((scope, period), account)| {
            let amount = account.spent.plus(account.held);
            Spent {
                scope: scope.to_string(),
                period: period.as_str().to_owned(),
                start: account.start.timestamp(),
                requests: amount.requests,
                tokens: amount.tokens,
                cost: amount.cost.units(),
            }
        });
        spent.collect()
    }

    /// As [`Self::export`], of scopes and periods with a cap only.
    #[must_use]
    pub fn export_capped(&self) -> Vec<Spent> {
        let capped: BTreeSet<(String, &str)> =
            self.caps.raw().map(|(cap, _)| (cap.scope.to_string(), cap.period.as_str())).collect();
        let mut spent = self.export();
        spent.retain(|entry| capped.contains(&(entry.scope.clone(), entry.period.as_str())));
        spent
    }

    /// Adds what an earlier process spent in periods that are still current; anything else is passed over.
    pub fn import(&mut self, spent: &[Spent], now: DateTime<Utc>) {
        self.merge(spent, now, Amount::plus);
    }

    /// Takes over sums that may hold this process's own spending: of each the larger counts.
    pub fn catch_up(&mut self, spent: &[Spent], now: DateTime<Utc>) {
        self.merge(spent, now, Amount::larger);
    }

    fn merge(&mut self, spent: &[Spent], now: DateTime<Utc>, merge: fn(Amount, Amount) -> Amount) {
        for entry in spent {
            let period = Period::ALL.iter().find(|period| period.as_str() == entry.period);
            let (Some(scope), Some(period)) = (scope(&entry.scope), period) else { continue };
            let start = DateTime::from_timestamp(entry.start, 0);
            // One that began later than now was written before the clock was set back: it is still current.
            // One from a clock that was wrong by years is not.
            let current = |start: &DateTime<Utc>| {
                *start >= period.start(now) && *start <= now + TimeDelta::days(IMPORT_DAYS_AHEAD_MAX)
            };
            let Some(start) = start.filter(current) else { continue };
            let account = self.accounts.entry((scope, *period)).or_insert_with(|| Account::new(start));
            account.start = account.start.max(start);
            let told = Amount {
                requests: entry.requests,
                tokens: entry.tokens,
                cost: super::Money::from_units(entry.cost),
            };
            account.spent = merge(account.spent, told);
        }
    }
}

fn scope(text: &str) -> Option<Scope> {
    match text.split_once(':') {
        None => (text == "all").then_some(Scope::All),
        Some(("target", name)) => Some(Scope::Target(name.into())),
        Some(("sweep", name)) => Some(Scope::Sweep(name.into())),
        Some(_) => None,
    }
}
