//! What of two runs can be compared: levels of like cells, side by side, and what differs in how they were made.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::{read::SweepRecord, row::LevelRow, sketch::Sketch};
use crate::{
    analysis::compare::{Distribution, Pair, Side},
    arrivals::Rate,
    cell::Load,
};

/// Which levels of a run; all when nothing is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Only of this model, whatever the other side's.
    pub model: Option<String>,
    /// Only of this target, whatever the other side's.
    pub target: Option<String>,
}

/// What two levels must have in common. A target or model that was chosen on both sides need not be the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LikeCell {
    /// Name of the target; both, where they differ.
    pub target: String,
    /// Model; both, where they differ.
    pub model: String,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// Requests in flight; in an open loop, the most there may be.
    pub concurrency: u32,
    /// Requests per second, in an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// A setting that differs between two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Path of the setting: `targets.gateway.base_url`.
    pub setting: String,
    /// Its value before; unset when null.
    pub before: Value,
    /// Its value after.
    pub after: Value,
}

/// The cells that both runs have, in their order, and how many levels of either were left without a partner.
#[must_use]
pub fn pair(before: (&SweepRecord, &Part), after: (&SweepRecord, &Part)) -> (Vec<Pair<LikeCell>>, usize) {
    let (one, other) = (keyed(before.0, before.1), keyed(after.0, after.1));
    let pairs: Vec<Pair<LikeCell>> = one
        .iter()
        .filter_map(|(key, level)| {
            let partner = other.get(key)?;
            Some(Pair { cell: like_cell(level, partner), before: side(level), after: side(partner) })
        })
        .collect();
    let alone = one.len() + other.len() - 2 * pairs.len();
    (pairs, alone)
}

type Key<'a> = (Option<&'a str>, Option<&'a str>, u32, Load);

/// Whole levels by what they must have in common with a partner.
fn keyed<'a>(record: &'a SweepRecord, part: &Part) -> BTreeMap<Key<'a>, &'a LevelRow> {
    let chosen = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
    let levels = record.levels.iter().filter(|level| {
        !level.incomplete && chosen(&part.target, &level.target) && chosen(&part.model, &level.model)
    });
    let free = |wanted: &Option<String>, name: &'a str| wanted.is_none().then_some(name);
    let keyed = levels.map(|level| {
        let target = free(&part.target, &level.target);
        let model = free(&part.model, &level.model);
        ((target, model, level.prompt_tokens, level.load()), level)
    });
    keyed.collect()
}

fn like_cell(before: &LevelRow, after: &LevelRow) -> LikeCell {
    let both = |one: &str, other: &str| {
        if one == other { one.to_owned() } else { format!("{one} -> {other}") }
    };
    LikeCell {
        target: both(&before.target, &after.target),
        model: both(&before.model, &after.model),
        prompt_tokens: before.prompt_tokens,
        concurrency: before.concurrency,
        rate: before.open_loop.map(|open| open.rate),
    }
}

fn side(level: &LevelRow) -> Side {
    let of = |sketch: &Option<Sketch>, independent| {
        sketch.as_ref().and_then(|sketch| Distribution::new(sketch.samples(), independent))
    };
    Side {
        ttft: of(&level.ttft_sketch, level.ttft_independent),
        tpot: of(&level.tpot_sketch, level.tpot_independent),
        requests: level.requests,
        ok: level.ok,
        throughput_tokens_per_second: level.throughput_tokens_per_second,
    }
}

/// Every setting in which two runs differ, with what the servers said they are and the program's version.
#[must_use]
pub fn differences(before: &SweepRecord, after: &SweepRecord) -> Vec<Difference> {
    let (one, other) = (settings(before), settings(after));
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let value =
        |settings: &BTreeMap<String, Value>, name: &str| settings.get(name).cloned().unwrap_or_default();
    let both = names.into_iter().map(|name| Difference {
        setting: name.clone(),
        before: value(&one, name),
        after: value(&other, name),
    });
    both.filter(|difference| difference.before != difference.after).collect()
}

fn settings(record: &SweepRecord) -> BTreeMap<String, Value> {
    let mut settings = BTreeMap::new();
    flatten(String::new(), &record.listing.run.plan, &mut settings);
    settings.insert("tokenprobe.version".into(), record.listing.run.version.clone().into());
    settings.insert("tokenprobe.revision".into(), record.listing.run.revision.clone().into());
    for level in &record.levels {
        let said = [("served_model", &level.served_model), ("fingerprint", &level.fingerprint)];
        for (name, value) in said {
            if let Some(value) = value {
                settings.insert(format!("{name}.{}.{}", level.target, level.model), value.clone().into());
            }
        }
    }
    settings
}

fn flatten(path: String, value: &Value, settings: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(path, member, settings);
            }
        }
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            settings.insert(path, value.clone());
        }
    }
}
