//! The words of a budget: amounts, prices, periods, scopes, and the caps a configuration sets on them.
//!
//! Values only: nothing here is spent or refused.

use std::{collections::BTreeMap, fmt, sync::Arc};

use chrono::{DateTime, Datelike as _, NaiveDate, TimeZone as _, Timelike as _, Utc};
use serde::Serialize;

use crate::measurement::named;

/// An amount of money, counted in billionths of the currency's unit, so that sums are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money(u64);

const NANOS_PER_UNIT: f64 = 1e9;
/// Prices are written per so many tokens.
const TOKENS_PER_PRICE: f64 = 1e6;

impl Money {
    /// This many units, rounded up to a billionth: what is charged is never less than what is due.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and a negative amount is none"
    )]
    pub fn from_units(units: f64) -> Self {
        Self((units * NANOS_PER_UNIT).ceil() as u64)
    }

    /// Another amount made of its billionths.
    pub(super) fn map(self, change: impl FnOnce(u64) -> u64) -> Self {
        Self(change(self.0))
    }

    /// In units of the currency.
    #[must_use]
    pub fn units(self) -> f64 {
        self.0 as f64 / NANOS_PER_UNIT
    }
}

/// What one model costs, in units of the currency.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// Per million prompt tokens.
    pub input: f64,
    /// Per million output tokens, reasoning included.
    pub output: f64,
    /// Per request, whatever its length.
    pub request: f64,
}

impl Price {
    /// What a request with these tokens costs.
    #[must_use]
    pub fn of(&self, prompt_tokens: u64, output_tokens: u64) -> Money {
        let tokens = prompt_tokens as f64 * self.input + output_tokens as f64 * self.output;
        Money::from_units(self.request + tokens / TOKENS_PER_PRICE)
    }
}

/// What something costs, in every unit a cap can be set on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Requests sent.
    pub requests: u64,
    /// Prompt and output tokens together.
    pub tokens: u64,
    /// Money.
    pub cost: Money,
}

impl Amount {
    /// This much in one unit, as a number to compare: nanos for money.
    #[must_use]
    pub(super) fn in_unit(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Requests => self.requests,
            Unit::Tokens => self.tokens,
            Unit::Cost => self.cost.0,
        }
    }

    /// The sum; it stops at the largest number instead of starting again at zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            tokens: self.tokens.saturating_add(other.tokens),
            cost: Money(self.cost.0.saturating_add(other.cost.0)),
        }
    }

    /// The larger of the two, unit by unit.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        Self {
            requests: self.requests.max(other.requests),
            tokens: self.tokens.max(other.tokens),
            cost: self.cost.max(other.cost),
        }
    }

    /// The smaller of the two, unit by unit.
    #[must_use]
    pub fn smaller(self, other: Self) -> Self {
        Self {
            requests: self.requests.min(other.requests),
            tokens: self.tokens.min(other.tokens),
            cost: self.cost.min(other.cost),
        }
    }

    /// The difference, zero at least.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: self.tokens.saturating_sub(other.tokens),
            cost: Money(self.cost.0.saturating_sub(other.cost.0)),
        }
    }

    /// This so many times.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self {
            requests: self.requests.saturating_mul(count),
            tokens: self.tokens.saturating_mul(count),
            cost: Money(self.cost.0.saturating_mul(count)),
        }
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

named! {
    /// What is counted: the `unit` label.
    Unit {
        /// Requests sent.
        Requests = "requests",
        /// Prompt and output tokens together.
        Tokens = "tokens",
        /// Money.
        Cost = "cost",
    }
}

named! {
    /// Over how long: the `period` label. Periods begin by the calendar, in UTC.
    Period {
        /// From the full hour.
        Hour = "hour",
        /// From midnight.
        Day = "day",
        /// From the first of the month.
        Month = "month",
    }
}

impl Period {
    /// When the period began that `now` lies in.
    #[must_use]
    pub fn start(self, now: DateTime<Utc>) -> DateTime<Utc> {
        let date = match self {
            Self::Hour | Self::Day => now.date_naive(),
            Self::Month => {
                NaiveDate::from_ymd_opt(now.year(), now.month(), 1).unwrap_or_else(|| now.date_naive())
            }
        };
        let hour = if self == Self::Hour { now.hour() } else { 0 };
        let start = date.and_hms_opt(hour, 0, 0).map(|start| Utc.from_utc_datetime(&start));
        start.unwrap_or(now)
    }
}

/// What a cap is set on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Everything this process sends.
    All,
    /// One target by name.
    Target(Arc<str>),
    /// One sweep by name.
    Sweep(Arc<str>),
}

impl fmt::Display for Scope {
    /// The `scope` label: `all`, `target:NAME`, `sweep:NAME`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Target(name) => write!(f, "target:{name}"),
            Self::Sweep(name) => write!(f, "sweep:{name}"),
        }
    }
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cap {
    /// On what.
    pub scope: Scope,
    /// Counted in what.
    pub unit: Unit,
    /// Over how long.
    pub period: Period,
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {} of {}", self.unit, self.period, self.scope)
    }
}

/// Every limit of a configuration, and what its currency is called.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Caps {
    /// The most that may be spent; money in billionths.
    limits: BTreeMap<Cap, u64>,
    /// Name of the currency: the `currency` label.
    pub currency: Arc<str>,
}

impl Caps {
    /// No limit at all, in US dollars.
    #[must_use]
    pub fn none() -> Self {
        Self { limits: BTreeMap::new(), currency: Arc::from("USD") }
    }

    /// What applies where no cap on the whole is configured: 100,000 requests and 500 million tokens a day.
    #[must_use]
    pub fn ceiling() -> Self {
        let mut caps = Self::none();
        caps.limit(Scope::All, Unit::Requests, Period::Day, 100_000.0);
        caps.limit(Scope::All, Unit::Tokens, Period::Day, 500e6);
        caps
    }

    /// Sets a limit, in units of the currency for money.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and a negative limit is none"
    )]
    pub fn limit(&mut self, scope: Scope, unit: Unit, period: Period, most: f64) {
        let most = match unit {
            Unit::Cost => (most * NANOS_PER_UNIT).floor() as u64,
            Unit::Requests | Unit::Tokens => most as u64,
        };
        self.limits.insert(Cap { scope, unit, period }, most);
    }

    /// Every limit, as a number in its unit.
    pub fn iter(&self) -> impl Iterator<Item = (&Cap, f64)> {
        self.limits.iter().map(|(cap, most)| (cap, in_units(cap.unit, *most)))
    }

    /// Limits as they are compared.
    pub(super) fn raw(&self) -> impl Iterator<Item = (&Cap, u64)> {
        self.limits.iter().map(|(cap, most)| (cap, *most))
    }

    /// Whether the whole has a limit.
    #[must_use]
    pub fn limits_all(&self) -> bool {
        self.limits.keys().any(|cap| cap.scope == Scope::All)
    }

    /// Adds the limits of another set where this one has none.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        for (cap, most) in other.limits {
            self.limits.entry(cap).or_insert(most);
        }
        self
    }
}

/// A raw number as people count it.
pub(super) fn in_units(unit: Unit, raw: u64) -> f64 {
    match unit {
        Unit::Cost => Money(raw).units(),
        Unit::Requests | Unit::Tokens => raw as f64,
    }
}
