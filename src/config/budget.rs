//! `[budget]`, `budget` of targets and sweeps, and `prices`: what may be spent, and what it costs.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Budget, Limits, Sweep, Target,
    diagnostic::Placed,
    file::{CapCost, CapCount, Concurrency, Currency, UnitPrice},
    nearest::mend,
    section::Section,
};
use crate::budget::{Caps, Period, Price, Scope, Unit};

/// Every cap there can be.
const KEYS: [(&str, Unit, Period); 9] = [
    ("requests_per_hour", Unit::Requests, Period::Hour),
    ("requests_per_day", Unit::Requests, Period::Day),
    ("requests_per_month", Unit::Requests, Period::Month),
    ("tokens_per_hour", Unit::Tokens, Period::Hour),
    ("tokens_per_day", Unit::Tokens, Period::Day),
    ("tokens_per_month", Unit::Tokens, Period::Month),
    ("cost_per_hour", Unit::Cost, Period::Hour),
    ("cost_per_day", Unit::Cost, Period::Day),
    ("cost_per_month", Unit::Cost, Period::Month),
];

/// `[budget]` as it stands in the file.
#[derive(Default)]
pub(super) struct Whole {
    limits: Limits,
    currency: Option<Arc<str>>,
    max_in_flight: Option<u32>,
}

/// Reads `[budget]`.
pub(super) fn read(section: Section<'_>) -> Whole {
    let whole = Whole {
        limits: read_limits(&section),
        currency: section.value::<Currency>("currency").map(|currency| currency.value.0.as_str().into()),
        max_in_flight: section.value::<Concurrency>("max_in_flight").map(|most| most.value.0),
    };
    section.finish();
    whole
}

/// Reads the `budget` of a target or sweep.
pub(super) fn limits(section: &Section<'_>) -> Limits {
    let Some(budget) = section.section("budget") else { return Limits::new() };
    let limits = read_limits(&budget);
    budget.finish();
    limits
}

fn read_limits(section: &Section<'_>) -> Limits {
    let mut limits = Limits::new();
    for (key, unit, period) in KEYS {
        let most = match unit {
            Unit::Cost => section.value::<CapCost>(key).map(|most| most.value.0),
            Unit::Requests | Unit::Tokens => section.value::<CapCount>(key).map(|most| most.value.0 as f64),
        };
        limits.extend(most.map(|most| (unit, period, most)));
    }
    limits
}

/// Reads `prices`, whose keys are the target's models.
pub(super) fn prices(section: &Section<'_>, models: &[Arc<str>]) -> BTreeMap<Arc<str>, Price> {
    let Some(table) = section.section("prices") else { return BTreeMap::new() };
    let mut prices = BTreeMap::new();
    for (name, _) in table.entries() {
        let Some(model) = models.iter().find(|model| &***model == name.value) else {
            let mend = mend(name.value, models.iter().map(AsRef::as_ref));
            let message = format!("this target has no model \"{}\"; {mend}", name.value.escape_debug());
            section.notes().complain(&name.at, message);
            continue;
        };
        let Some(entry) = table.entry(name.value) else { continue };
        let rate = |key| entry.value::<UnitPrice>(key).map_or(0.0, |rate| rate.value.0);
        let price = Price {
            input: rate("input_per_million"),
            output: rate("output_per_million"),
            request: rate("per_request"),
        };
        entry.finish();
        prices.insert(model.clone(), price);
    }
    prices
}

/// Complains about a cap on money that cannot hold, because a model it covers has no price.
pub(super) fn complain_if_unpriced<'t>(
    section: &Section<'_>,
    limits: &Limits,
    covered: impl IntoIterator<Item = (&'t Arc<Target>, &'t [Arc<str>])>,
) {
    if !limits.iter().any(|(unit, _, _)| *unit == Unit::Cost) {
        return;
    }
    for (target, models) in covered {
        complain_if_target_unpriced(section, &target.name, &target.prices, models);
    }
}

fn complain_if_target_unpriced(
    section: &Section<'_>,
    target: &str,
    prices: &BTreeMap<Arc<str>, Price>,
    models: &[Arc<str>],
) {
    let Some(raw) = section.raw("budget") else { return };
    let Some(model) = models.iter().find(|model| !prices.contains_key(*model)) else { return };
    let message = format!(
        "limits the cost, but \"{model}\" of target \"{target}\" has no price; add it to that target's `prices` \
         (0 where it costs nothing)"
    );
    section.notes().complain(&section.at("budget", raw.span()), message);
}

/// The same for one target's own caps.
pub(super) fn complain_if_own_unpriced(
    section: &Section<'_>,
    limits: &Limits,
    target: &str,
    prices: &BTreeMap<Arc<str>, Price>,
    models: &[Arc<str>],
) {
    if limits.iter().any(|(unit, _, _)| *unit == Unit::Cost) {
        complain_if_target_unpriced(section, target, prices, models);
    }
}

/// All caps together, with the built-in ceiling where the whole has none.
pub(super) fn assemble(
    root: &Section<'_>,
    whole: Whole,
    targets: &[Arc<Target>],
    sweeps: &[Placed<Sweep>],
) -> Budget {
    let covered = sweeps.iter().flat_map(|sweep| &sweep.value.targets);
    complain_if_unpriced(root, &whole.limits, covered.map(|(target, models)| (target, models.as_slice())));
    let default = Budget::default();
    let max_in_flight = whole.max_in_flight.unwrap_or(default.max_in_flight);
    for sweep in sweeps {
        complain_if_over(root, sweep, max_in_flight);
    }
    let is_ceiling = whole.limits.is_empty();
    let mut caps = if is_ceiling { default.caps } else { Caps::none() };
    if let Some(currency) = whole.currency {
        caps.currency = currency;
    }
    let mut add = |scope: &Scope, limits: &Limits| {
        for (unit, period, most) in limits {
            caps.limit(scope.clone(), *unit, *period, *most);
        }
    };
    add(&Scope::All, &whole.limits);
    for target in targets {
        add(&Scope::Target(target.name.clone()), &target.budget);
    }
    for sweep in sweeps {
        add(&Scope::Sweep(sweep.value.name.clone()), &sweep.value.budget);
    }
    Budget { caps, is_ceiling, max_in_flight }
}

/// A level that could never run is a mistake.
fn complain_if_over(root: &Section<'_>, sweep: &Placed<Sweep>, max_in_flight: u32) {
    let Some(highest) = sweep.value.concurrency.last() else { return };
    let of_targets = sweep.value.targets.iter().filter_map(|(target, _)| {
        let most = target.max_in_flight?;
        Some((most, format!("of target \"{}\"", target.name)))
    });
    let ceilings = of_targets.chain([(max_in_flight, "of [budget]".to_owned())]);
    for (most, whose) in ceilings.filter(|(most, _)| highest > most) {
        let key = if sweep.value.rates.is_empty() { "concurrency" } else { "load.max_in_flight" };
        let message = format!(
            "has {key} {highest}, more than max_in_flight = {most} {whose}; lower the one or raise the other"
        );
        root.notes().complain(&sweep.at, message);
    }
}
