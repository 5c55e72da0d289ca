//! `load`: an open loop, whose levels are rates, in place of `concurrency`.

use std::collections::HashSet;

use toml::de::DeValue;

use super::{
    Target,
    diagnostic::Placed,
    file::{ArrivalRate, Concurrency},
    section::Section,
};
use crate::arrivals::{Arrivals, Rate};

/// Most requests in flight where nothing says otherwise.
const MAX_IN_FLIGHT: u32 = 256;

/// The keys of `load`; what is absent is `None`.
#[derive(Default, Clone)]
pub(super) struct LoadKeys {
    rates: Option<Vec<Placed<ArrivalRate>>>,
    arrivals: Option<Arrivals>,
    max_in_flight: Option<Placed<Concurrency>>,
}

/// An open loop as it was written.
pub(super) struct OpenLoop {
    /// Ascending.
    pub(super) rates: Vec<Rate>,
    pub(super) arrivals: Arrivals,
    pub(super) max_in_flight: u32,
}

impl LoadKeys {
    /// Reads `load`; `None` where neither the table nor the defaults have one, or `concurrency` stands in its place.
    pub(super) fn read(section: &Section<'_>, defaults: Option<Self>) -> Option<Self> {
        let closed = section.raw("concurrency").is_some();
        let Some(load) = section.section("load") else { return defaults.filter(|_| !closed) };
        if closed {
            let message =
                "a sweep has `concurrency` (closed loop) or `load` (open loop), not both; remove one";
            section.notes().complain(&load.here(), message);
        }
        let defaults = defaults.unwrap_or_default();
        let keys = Self {
            rates: rates(&load).or(defaults.rates),
            arrivals: load.choice("arrivals", &["poisson", "constant"]).or(defaults.arrivals),
            max_in_flight: load.value("max_in_flight").or(defaults.max_in_flight),
        };
        if keys.rates.is_none() && load.raw("rate").is_none() {
            load.missing("rate", "add rate = \"5/s\", or a ladder: rate = [\"1/s\", \"5/s\"]");
        }
        load.finish();
        Some(keys)
    }

    /// What they come to; `None` when the rate is missing or bad, which was complained about.
    pub(super) fn resolve<'t>(
        &self,
        section: &Section<'_>,
        targets: impl Iterator<Item = &'t Target>,
    ) -> Option<OpenLoop> {
        let mut rates = HashSet::new();
        for rate in self.rates.iter().flatten() {
            if !rates.insert(rate.value.0) {
                section.notes().complain(&rate.at, "is listed twice; remove one");
            }
        }
        let mut rates: Vec<Rate> = rates.into_iter().collect();
        rates.sort_unstable();
        let allowed = targets.filter_map(|target| target.max_in_flight).chain([MAX_IN_FLIGHT]).min();
        let written = self.max_in_flight.as_ref().map(|most| most.value.0);
        Some(OpenLoop {
            rates: Some(rates).filter(|rates| !rates.is_empty())?,
            arrivals: self.arrivals.unwrap_or_default(),
            max_in_flight: written.or(allowed)?,
        })
    }
}

/// One rate, or a list of them.
fn rates(load: &Section<'_>) -> Option<Vec<Placed<ArrivalRate>>> {
    if matches!(load.raw("rate")?.get_ref(), DeValue::Array(_)) {
        return load.list("rate").map(|list| list.value);
    }
    load.value("rate").map(|rate| vec![rate])
}
