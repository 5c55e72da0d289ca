//! Every target and model in one line: its state, and its latest numbers beside their objective and last week's.
//!
//! Pure but for the look into the archive. The numbers are those of the lightest level (fewest requests in flight, first
//! prompt length): what a lone user feels; throughput is the highest of its ladder.

use std::{collections::HashMap, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::{
    CellStatus, LadderStatus, Latency, SweepStatus,
    status::{Status, instant_or_null},
};
use crate::{
    archive::Store,
    arrivals::Rate,
    cell::{Cell, Load},
};

/// Levels that a trend is drawn of.
const TREND_MAX: u32 = 48;
/// How well an endpoint does without an objective for it: this share of requests must get an answer.
const SUCCESS_RATIO: f64 = 0.99;

/// One model of a target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelStatus {
    /// Name of the target.
    pub target: Arc<str>,
    /// Model.
    pub model: Arc<str>,
    /// How it does.
    pub state: ModelState,
    /// Why it does not do well.
    pub reason: Option<String>,
    /// The sweep that the numbers are of.
    pub sweep: Arc<str>,
    /// Their prompt length.
    pub prompt_tokens: u32,
    /// Their requests in flight; at a rate, the most there may be.
    pub concurrency: u32,
    /// Their requests per second, in an open loop.
    pub rate: Option<f64>,
    /// When they were measured.
    #[serde(serialize_with = "instant_or_null")]
    pub measured_at: Option<DateTime<Utc>>,
    /// Samples that they rest on.
    pub samples: usize,
    /// 95th percentile of the time to first token, seconds.
    pub ttft_p95_seconds: Measured,
    /// 95th percentile of the time per output token, seconds.
    pub tpot_p95_seconds: Measured,
    /// Highest total throughput of the ladder, tokens per second.
    pub throughput_tokens_per_second: Measured,
    /// Where throughput stops growing.
    pub knee_concurrency: Option<u32>,
    /// The load that is safe.
    pub safe_concurrency: Option<u32>,
    /// Where the target no longer keeps up, in an open loop.
    pub knee_requests_per_second: Option<f64>,
    /// The rate that is safe.
    pub safe_requests_per_second: Option<f64>,
    /// The latest 95th percentiles of the time to first token, seconds, ascending in time.
    pub trend: Vec<f64>,
    /// Which cell the throughput is of.
    #[serde(skip)]
    peak: Load,
}

/// A number, what it should be, and what it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Now.
    pub latest: Option<f64>,
    /// The most it may be.
    pub objective: Option<f64>,
    /// A week ago, of the same cell.
    pub last_week: Option<f64>,
}

/// How a model does, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelState {
    /// Requests fail even without load.
    Failing,
    /// An objective is missed even without load.
    Slow,
    /// Nothing was measured yet.
    Waiting,
    /// All is well.
    Good,
}

impl ModelState {
    /// Every one, the worst first.
    pub const ALL: [Self; 4] = [Self::Failing, Self::Slow, Self::Waiting, Self::Good];

    /// The name used in the JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Slow => "slow",
            Self::Waiting => "waiting",
            Self::Good => "good",
        }
    }
}

/// Every model, in the order of the configuration; what only the archive knows is missing.
#[must_use]
pub fn models(status: &Status) -> Vec<ModelStatus> {
    let mut order: Vec<(&Arc<str>, &Arc<str>)> = Vec::new();
    let mut cells: HashMap<(&str, &str), Vec<&CellStatus>> = HashMap::new();
    for cell in &status.cells {
        let known = cells.entry((&cell.target, &cell.model)).or_default();
        if known.is_empty() {
            order.push((&cell.target, &cell.model));
        }
        known.push(cell);
    }
    let ladders: HashMap<_, &LadderStatus> = status
        .ladders
        .iter()
        .map(|ladder| ((&*ladder.sweep, &*ladder.target, &*ladder.model, ladder.prompt_tokens), ladder))
        .collect();
    let of = |(target, model): (&Arc<str>, &Arc<str>)| {
        let cells = cells.get(&(&**target, &**model))?;
        let head = headline(cells)?;
        let sweep = status.sweeps.iter().find(|sweep| sweep.name == head.sweep)?;
        let ladder = ladders.get(&(&*head.sweep, &**target, &**model, head.prompt_tokens)).copied();
        Some(one(head, cells, sweep, ladder))
    };
    order.into_iter().filter_map(of).collect()
}

/// The lightest cell of the first ladder that has been run; of the first one when none has.
fn headline<'a>(cells: &[&'a CellStatus]) -> Option<&'a CellStatus> {
    let known = |cell: &&CellStatus| cell.measured_at.is_some() || cell.not_run.is_some();
    cells.iter().copied().find(known).or_else(|| cells.first().copied())
}

fn one(
    head: &CellStatus,
    cells: &[&CellStatus],
    sweep: &SweepStatus,
    ladder: Option<&LadderStatus>,
) -> ModelStatus {
    let objectives = sweep.objectives;
    let p95 = |latency: &Option<Latency>| latency.as_ref().map(|latency| latency.p95);
    let like =
        cells.iter().filter(|cell| cell.sweep == head.sweep && cell.prompt_tokens == head.prompt_tokens);
    let rates = like.filter_map(|cell| Some((cell.throughput_tokens_per_second?, cell.load())));
    let peak = rates.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let (state, reason) = judged(head, sweep);
    ModelStatus {
        target: head.target.clone(),
        model: head.model.clone(),
        state,
        reason,
        sweep: head.sweep.clone(),
        prompt_tokens: head.prompt_tokens,
        concurrency: head.concurrency,
        rate: head.rate,
        measured_at: head.measured_at,
        samples: head.ttft_seconds.as_ref().map_or(0, |ttft| ttft.count),
        ttft_p95_seconds: Measured {
            latest: p95(&head.ttft_seconds),
            objective: objectives.ttft_seconds,
            last_week: None,
        },
        tpot_p95_seconds: Measured {
            latest: p95(&head.tpot_seconds),
            objective: objectives.tpot_seconds,
            last_week: None,
        },
        throughput_tokens_per_second: Measured { latest: peak.map(|(rate, _)| rate), ..Measured::default() },
        knee_concurrency: ladder.and_then(|ladder| ladder.knee_concurrency),
        safe_concurrency: ladder.and_then(|ladder| ladder.safe_concurrency),
        knee_requests_per_second: ladder.and_then(|ladder| ladder.knee_requests_per_second),
        safe_requests_per_second: ladder.and_then(|ladder| ladder.safe_requests_per_second),
        trend: Vec::new(),
        peak: peak.map_or(head.load(), |(_, load)| load),
    }
}

fn judged(head: &CellStatus, sweep: &SweepStatus) -> (ModelState, Option<String>) {
    if let Some(reason) = &head.not_run {
        let waits = ["quiet hours", "paused", "stopped"].contains(&reason.as_str());
        let state = if waits { ModelState::Waiting } else { ModelState::Failing };
        return (state, Some(format!("not run: {reason}")));
    }
    if head.measured_at.is_none() {
        return (ModelState::Waiting, None);
    }
    let share = f64::from(head.ok) / f64::from(head.requests.max(1));
    if share < sweep.objectives.success_ratio.unwrap_or(SUCCESS_RATIO) || head.ok == 0 {
        let worst = head.failures.iter().max_by_key(|(_, count)| **count);
        let how = if head.failures.len() > 1 { ", mostly" } else { ":" };
        let class = worst.map(|(class, _)| format!("{how} {}", class.as_str())).unwrap_or_default();
        let failed = head.requests.saturating_sub(head.ok);
        return (ModelState::Failing, Some(format!("{failed} of {} requests failed{class}", head.requests)));
    }
    let beyond = |latency: &Option<Latency>, limit: Option<f64>| {
        latency.as_ref().zip(limit).is_some_and(|(latency, limit)| latency.p95 > limit)
    };
    let missed: Vec<&str> = [
        ("TTFT", beyond(&head.ttft_seconds, sweep.objectives.ttft_seconds)),
        ("TPOT", beyond(&head.tpot_seconds, sweep.objectives.tpot_seconds)),
    ]
    .into_iter()
    .filter(|(_, beyond)| *beyond)
    .map(|(name, _)| name)
    .collect();
    if missed.is_empty() {
        (ModelState::Good, None)
    } else {
        (ModelState::Slow, Some(format!("{} beyond its objective", missed.join(" and "))))
    }
}

/// Adds what the archive knows: the trend, and last week's numbers.
///
/// # Errors
/// The archive cannot be read.
pub fn remember(models: &mut [ModelStatus], store: &Store, now: DateTime<Utc>) -> rusqlite::Result<()> {
    let week = TimeDelta::days(7).num_milliseconds();
    let now = now.timestamp_millis();
    for model in models.iter_mut().filter(|model| model.measured_at.is_some()) {
        let head = model.cell(model.load());
        let recent = store.moments(&head, (now - 4 * week, i64::MAX), TREND_MAX)?;
        model.trend = recent.iter().filter_map(|moment| moment.ttft_p95_seconds).collect();
        // A level or so of an hourly sweep may be missing; one of a fortnight ago is not last week's.
        let then = (now - week - week / 2, now - week);
        if let Some(before) = store.moments(&head, then, 1)?.first() {
            model.ttft_p95_seconds.last_week = before.ttft_p95_seconds;
            model.tpot_p95_seconds.last_week = before.tpot_p95_seconds;
        }
        let peak = store.moments(&model.cell(model.peak), then, 1)?;
        model.throughput_tokens_per_second.last_week =
            peak.first().and_then(|before| before.throughput_tokens_per_second);
    }
    Ok(())
}

impl ModelStatus {
    /// The load of the level that the numbers are of.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::of(self.concurrency, self.rate.and_then(Rate::new))
    }

    fn cell(&self, load: Load) -> Cell {
        // In an open loop, the rate alone names the cell.
        let (concurrency, rate) = match load {
            Load::Concurrency(concurrency) => (concurrency, None),
            Load::Rate(rate) => (self.concurrency, Some(rate)),
        };
        Cell {
            sweep: self.sweep.clone(),
            target: self.target.clone(),
            model: self.model.clone(),
            prompt_tokens: self.prompt_tokens,
            concurrency,
            rate,
        }
    }
}
