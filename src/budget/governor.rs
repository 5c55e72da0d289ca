//! One ledger shared by everything that sends probes, and the reservations that travel with them.
//!
//! The door through which the wall clock reaches the ledger. A reservation that is dropped before its probe was sent
//! gives back what it held; one whose probe was sent and whose end nobody saw counts in full. What a level may come to is
//! held before its first probe ([`Advance`]): a process that is killed amid a level leaves a book in which it is spent.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};

use super::{Amount, Caps, Exhausted, Ledger, Order, Remaining, Spent, Unit};

/// By target and model.
type Dearnesses = BTreeMap<(Arc<str>, Arc<str>), Dearness>;

/// Guards the caps; cheap to clone.
#[derive(Debug, Clone)]
pub struct Governor {
    ledger: Arc<Mutex<Ledger>>,
    dearness: Arc<Mutex<Dearnesses>>,
    clock: fn() -> DateTime<Utc>,
}

/// Models whose dearness is kept: reloads under ever new names must not fill the memory.
const DEARNESSES_MAX: usize = 10_000;

/// How many times as dear as estimated the dearest answer was, in hundredths; 1 at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dearness {
    tokens: u64,
    cost: u64,
}

/// Dearness is counted in these.
const HUNDREDTHS: u64 = 100;

impl Default for Dearness {
    fn default() -> Self {
        Self { tokens: HUNDREDTHS, cost: HUNDREDTHS }
    }
}

impl Dearness {
    /// An estimate made as dear.
    #[must_use]
    pub fn of(self, estimate: Amount) -> Amount {
        let dearer = |amount: u64, by: u64| amount.saturating_mul(by).div_ceil(HUNDREDTHS);
        Amount {
            requests: estimate.requests,
            tokens: dearer(estimate.tokens, self.tokens),
            cost: estimate.cost.map(|nanos| dearer(nanos, self.cost)),
        }
    }

    /// What it is once `used` was seen where `held` had been reckoned with, this dearness included.
    fn after(self, held: Amount, used: Amount) -> Self {
        let by = |known: u64, held: u64, used: u64| {
            if used <= held {
                return known;
            }
            known.saturating_mul(used).div_ceil(held.max(1)).max(known)
        };
        let nanos = |amount: Amount| amount.in_unit(Unit::Cost);
        Self {
            tokens: by(self.tokens, held.tokens, used.tokens),
            cost: by(self.cost, nanos(held), nanos(used)),
        }
    }
}

/// An amount held for one probe.
#[derive(Debug)]
#[must_use = "a reservation that is dropped at once holds nothing"]
pub struct Reservation {
    governor: Governor,
    order: Order,
    held: Amount,
    /// What counts if this is dropped.
    dropped: Amount,
}

/// An amount held for all probes of a level, out of which their reservations come.
#[derive(Debug)]
#[must_use = "an advance that is dropped at once holds nothing"]
pub struct Advance {
    governor: Governor,
    order: Order,
    left: Mutex<Amount>,
}

impl Governor {
    /// Caps on which nothing is spent, by the system's clock.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        Self::with_clock(caps, Utc::now)
    }

    /// The same by another clock.
    #[must_use]
    pub fn with_clock(caps: Caps, clock: fn() -> DateTime<Utc>) -> Self {
        Self { ledger: Arc::new(Mutex::new(Ledger::new(caps))), dearness: Arc::default(), clock }
    }

    /// No caps: for what a person starts by hand and watches.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(Caps::none())
    }

    /// Holds the worst case of one probe.
    ///
    /// # Errors
    /// The cap that it would pass.
    pub fn reserve(&self, order: &Order, worst_case: Amount) -> Result<Reservation, Exhausted> {
        self.ledger().hold(order, worst_case, self.now())?;
        Ok(Reservation {
            governor: self.clone(),
            order: order.clone(),
            held: worst_case,
            dropped: Amount::default(),
        })
    }

    /// Holds the worst case of a whole level.
    ///
    /// # Errors
    /// The cap that it would pass.
    pub fn advance(&self, order: &Order, worst_case: Amount) -> Result<Advance, Exhausted> {
        self.ledger().hold(order, worst_case, self.now())?;
        Ok(Advance { governor: self.clone(), order: order.clone(), left: Mutex::new(worst_case) })
    }

    /// Whether this much fits now, nothing held.
    ///
    /// # Errors
    /// The cap that it would pass.
    pub fn covers(&self, order: &Order, amount: Amount) -> Result<(), Exhausted> {
        self.ledger().covers(order, amount, self.now())
    }

    /// How much dearer than estimated the model's answers have come out.
    #[must_use]
    pub fn dearness(&self, target: &Arc<str>, model: &Arc<str>) -> Dearness {
        let known = self.dearnesses();
        known.get(&(target.clone(), model.clone())).copied().unwrap_or_default()
    }

    /// A probe for which `held` was held came to `used`: from now on others like it are held at least as dear. It survives
    /// reloads, so that nobody gets a first surprise twice.
    pub fn learn(&self, target: &Arc<str>, model: &Arc<str>, held: Amount, used: Amount) {
        let mut known = self.dearnesses();
        let key = (target.clone(), model.clone());
        let dearness = known.get(&key).copied().unwrap_or_default();
        let learned = dearness.after(held, used);
        if learned == dearness || (known.len() >= DEARNESSES_MAX && !known.contains_key(&key)) {
            return;
        }
        tracing::warn!(%target, %model, held = held.tokens, used = used.tokens,
            "uses more tokens than its requests can: budgets reckon with that from now on");
        known.insert(key, learned);
    }

    fn dearnesses(&self) -> MutexGuard<'_, Dearnesses> {
        self.dearness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes over to other caps; what was spent stays spent.
    pub fn adopt(&self, caps: Caps) {
        self.ledger().adopt(caps, self.now());
    }

    /// What every cap still allows.
    #[must_use]
    pub fn remaining(&self) -> Vec<Remaining> {
        self.ledger().remaining(self.now())
    }

    /// What was spent in the current periods, to be kept over a restart.
    #[must_use]
    pub fn export(&self) -> Vec<Spent> {
        self.ledger().export()
    }

    /// The same of scopes and periods with a cap: what another replica must know to go on under the same budget.
    #[must_use]
    pub fn export_capped(&self) -> Vec<Spent> {
        self.ledger().export_capped()
    }

    /// Takes note of what replicas spent together, this one included, as far as anybody wrote it down.
    pub fn catch_up(&self, spent: &[Spent]) {
        self.ledger().catch_up(spent, self.now());
    }

    /// Adds what an earlier process spent.
    pub fn import(&self, spent: &[Spent]) {
        self.ledger().import(spent, self.now());
    }

    /// The wall clock by which periods and quiet hours go.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        (self.clock)()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// The probe leaves now: whatever becomes of it, it counts.
    pub fn sent(&mut self) {
        self.dropped = self.held;
    }

    /// What was held before the probe.
    #[must_use]
    pub fn held(&self) -> Amount {
        self.held
    }

    /// The probe used this much.
    pub fn settle(mut self, used: Amount) {
        self.dropped = used;
    }
}

impl Advance {
    /// Holds the worst case of one probe: out of what is left, and beyond that under the caps.
    ///
    /// # Errors
    /// The cap that it would pass.
    pub fn reserve(&self, worst_case: Amount) -> Result<Reservation, Exhausted> {
        let mut left = self.left();
        let covered = left.smaller(worst_case);
        let governor = &self.governor;
        governor.ledger().hold(&self.order, worst_case.minus(covered), governor.now())?;
        *left = left.minus(covered);
        Ok(Reservation {
            governor: governor.clone(),
            order: self.order.clone(),
            held: worst_case,
            dropped: Amount::default(),
        })
    }

    fn left(&self) -> MutexGuard<'_, Amount> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Advance {
    fn drop(&mut self) {
        let (now, left) = (self.governor.now(), *self.left());
        self.governor.ledger().settle(&self.order, left, Amount::default(), now);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let now = self.governor.now();
        self.governor.ledger().settle(&self.order, self.held, self.dropped, now);
    }
}
