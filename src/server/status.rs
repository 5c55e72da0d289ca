//! What the status page and its JSON show: a snapshot that the daemon fills and the surface only reads.
//!
//! Wire types: their names are public API. Knows nothing of how they are measured or drawn.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Serialize, Serializer};

use crate::{
    analysis::{LevelSummary, Percentiles},
    arrivals::Rate,
    cell::Cell,
    measurement::FailureClass,
    metrics::SweepResult,
};

/// The program as a whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Version of the program.
    pub version: &'static str,
    /// When the process began.
    #[serde(serialize_with = "instant")]
    pub started_at: DateTime<Utc>,
    /// Whether this replica is the one that probes; `null` where there is one only.
    pub leader: Option<bool>,
    /// Sweeps, in the order of the configuration.
    pub sweeps: Vec<SweepStatus>,
    /// Cells, in the order in which they are run.
    pub cells: Vec<CellStatus>,
    /// What may still be spent.
    pub budgets: Vec<BudgetStatus>,
}

/// What one cap still allows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BudgetStatus {
    /// `all`, `target:NAME` or `sweep:NAME`.
    pub scope: String,
    /// `requests`, `tokens` or `cost`.
    pub unit: &'static str,
    /// `hour`, `day` or `month`.
    pub period: &'static str,
    /// The most in a period.
    pub limit: f64,
    /// What is neither spent nor held for running probes.
    pub remaining: f64,
}

/// One sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its schedule, as configured.
    pub schedule: String,
    /// Whether it runs now.
    pub running: bool,
    /// Whether it is paused by hand.
    pub paused: bool,
    /// When it last started.
    #[serde(serialize_with = "instant_or_null")]
    pub last_start: Option<DateTime<Utc>>,
    /// When it last ended.
    #[serde(serialize_with = "instant_or_null")]
    pub last_end: Option<DateTime<Utc>>,
    /// How it last ended.
    pub last_result: Option<SweepResult>,
    /// When it is due next.
    #[serde(serialize_with = "instant_or_null")]
    pub next_start: Option<DateTime<Utc>>,
}

/// The latest level of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellStatus {
    /// Name of the sweep.
    pub sweep: Arc<str>,
    /// Name of the target.
    pub target: Arc<str>,
    /// Model.
    pub model: Arc<str>,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// Requests in flight; at a rate, the most there may be.
    pub concurrency: u32,
    /// Requests per second, in an open loop.
    pub rate: Option<f64>,
    /// When the level ended; `None` before the first.
    #[serde(serialize_with = "instant_or_null")]
    pub measured_at: Option<DateTime<Utc>>,
    /// Requests that were measured.
    pub requests: u32,
    /// How many got a whole answer.
    pub ok: u32,
    /// How many did not, by class.
    pub failures: BTreeMap<FailureClass, u32>,
    /// Time to first token, seconds.
    pub ttft_seconds: Option<Latency>,
    /// Time per output token, seconds.
    pub tpot_seconds: Option<Latency>,
    /// Tokens per second of the whole level while it was full.
    pub throughput_tokens_per_second: Option<f64>,
}

/// A quantity's distribution over a level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Latency {
    /// Samples it rests on.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Which of them rest on too few samples to be relied on.
    pub low_confidence: Vec<&'static str>,
}

impl Status {
    /// A program that has measured nothing yet.
    #[must_use]
    pub fn new(started_at: DateTime<Utc>) -> Self {
        Self {
            version: crate::version::PACKAGE,
            started_at,
            leader: None,
            sweeps: Vec::new(),
            cells: Vec::new(),
            budgets: Vec::new(),
        }
    }
}

impl CellStatus {
    /// A cell without a level yet.
    #[must_use]
    pub fn unmeasured(cell: &Cell) -> Self {
        let Cell { sweep, target, model, prompt_tokens, concurrency, rate } = cell.clone();
        Self {
            sweep,
            target,
            model,
            prompt_tokens,
            concurrency,
            rate: rate.map(Rate::per_second),
            measured_at: None,
            requests: 0,
            ok: 0,
            failures: BTreeMap::new(),
            ttft_seconds: None,
            tpot_seconds: None,
            throughput_tokens_per_second: None,
        }
    }

    /// A cell with the level that ended at `measured_at`.
    #[must_use]
    pub fn measured(cell: &Cell, summary: &LevelSummary, measured_at: DateTime<Utc>) -> Self {
        Self {
            measured_at: Some(measured_at),
            requests: summary.requests,
            ok: summary.ok,
            failures: summary.failures.clone(),
            ttft_seconds: summary.ttft_seconds.map(Latency::from),
            tpot_seconds: summary.tpot_seconds.map(Latency::from),
            throughput_tokens_per_second: summary.throughput_tokens_per_second,
            ..Self::unmeasured(cell)
        }
    }

    /// Whether this is the status of `cell`.
    #[must_use]
    pub fn is_of(&self, cell: &Cell) -> bool {
        self.sweep == cell.sweep
            && self.target == cell.target
            && self.model == cell.model
            && self.prompt_tokens == cell.prompt_tokens
            && self.rate == cell.rate.map(Rate::per_second)
            && self.concurrency == cell.concurrency
    }
}

impl From<Percentiles> for Latency {
    fn from(percentiles: Percentiles) -> Self {
        let Percentiles { count, mean, p50, p95, p99, .. } = percentiles;
        Self { count, mean, p50, p95, p99, low_confidence: percentiles.low_confidence() }
    }
}

fn instant<S: Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

#[allow(clippy::ref_option, reason = "serde passes the field by reference")]
fn instant_or_null<S: Serializer>(at: &Option<DateTime<Utc>>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => instant(at, serializer),
        None => serializer.serialize_none(),
    }
}
