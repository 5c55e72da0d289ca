//! What the status page and its JSON show: a snapshot that the daemon fills and the surface only reads.
//!
//! Wire types: their names are public API. Knows nothing of how they are measured or drawn.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Serialize, Serializer};

use crate::{
    analysis::{Found, LevelSummary, Percentiles},
    arrivals::Rate,
    cell::{Cell, Load},
    html::load_words,
    measurement::FailureClass,
    metrics::SweepResult,
    sweep::LadderReport,
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
    /// What their last runs said about ladders, in the same order; those that never ended are missing.
    pub ladders: Vec<LadderStatus>,
    /// What may still be spent.
    pub budgets: Vec<BudgetStatus>,
    /// Grows whenever something ended or began: what was drawn before is out of date.
    pub revision: u64,
    /// The configuration, without secrets; told apart, since it is large and hardly ever changes.
    #[serde(skip)]
    pub configuration: Arc<serde_json::Value>,
}

/// What the last run of a ladder came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LadderStatus {
    /// Name of the sweep.
    pub sweep: Arc<str>,
    /// Name of the target.
    pub target: Arc<str>,
    /// Model.
    pub model: Arc<str>,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// When it ended.
    #[serde(serialize_with = "instant")]
    pub ended_at: DateTime<Utc>,
    /// State of the knee: `found`, `not_reached`, `unstable`, `failed`.
    pub state: String,
    /// Where throughput stops growing.
    pub knee_concurrency: Option<u32>,
    /// The load that is safe.
    pub safe_concurrency: Option<u32>,
    /// The same of an open loop: where the target no longer keeps up.
    pub knee_requests_per_second: Option<f64>,
    /// The rate that is safe.
    pub safe_requests_per_second: Option<f64>,
    /// What was found, with its evidence.
    #[serde(serialize_with = "found")]
    pub findings: Vec<Found>,
}

/// What counts as good; `null` where nothing is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ObjectiveStatus {
    /// Longest time to first token (P95), seconds.
    pub ttft_seconds: Option<f64>,
    /// Longest time per output token (P95), seconds.
    pub tpot_seconds: Option<f64>,
    /// Longest duration (P95), seconds.
    pub duration_seconds: Option<f64>,
    /// Least share of requests that get a whole answer.
    pub success_ratio: Option<f64>,
}

/// How far a running sweep is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Levels that ended or were left out.
    pub levels_done: u32,
    /// Levels in all.
    pub levels: u32,
    /// Measured requests that ended, those of left-out levels included.
    pub requests_done: u32,
    /// Measured requests in all.
    pub requests: u32,
    /// The level that runs.
    pub level: Option<LevelName>,
}

/// A level, as it is called while it runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelName {
    /// Name of the target.
    pub target: Arc<str>,
    /// Model.
    pub model: Arc<str>,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// Its load in words: `8 in flight`, `5 per second`.
    pub load: String,
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
    /// What counts as good.
    pub objectives: ObjectiveStatus,
    /// How far it is; `null` while it does not run.
    pub progress: Option<Progress>,
}

impl LadderStatus {
    /// Of a ladder that ended.
    #[must_use]
    pub fn of(report: &LadderReport, ended_at: DateTime<Utc>) -> Self {
        Self {
            sweep: report.sweep.clone(),
            target: report.target.clone(),
            model: report.model.clone(),
            prompt_tokens: report.prompt_tokens,
            ended_at,
            state: report.knee.state().to_owned(),
            knee_concurrency: report.knee.concurrency(),
            safe_concurrency: report.safe_concurrency,
            knee_requests_per_second: report.knee.rate().map(Rate::per_second),
            safe_requests_per_second: report.safe_rate.map(Rate::per_second),
            findings: report.findings.clone(),
        }
    }

    /// Where throughput stops growing, or the target no longer keeps up.
    #[must_use]
    pub fn knee(&self) -> Option<Load> {
        of_either(self.knee_concurrency, self.knee_requests_per_second)
    }

    /// The load that is safe.
    #[must_use]
    pub fn safe(&self) -> Option<Load> {
        of_either(self.safe_concurrency, self.safe_requests_per_second)
    }

    /// Whether both are of the same ladder.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.sweep == other.sweep
            && self.target == other.target
            && self.model == other.model
            && self.prompt_tokens == other.prompt_tokens
    }
}

impl Progress {
    /// A level ended, or was left out: its requests are done with.
    pub fn level_ended(&mut self) {
        self.levels_done = self.levels_done.saturating_add(1).min(self.levels);
        let done = u64::from(self.requests) * u64::from(self.levels_done) / u64::from(self.levels.max(1));
        self.requests_done = u32::try_from(done).unwrap_or(self.requests);
        self.level = None;
    }

    /// A measured request ended.
    pub fn request_ended(&mut self) {
        self.requests_done = self.requests_done.saturating_add(1).min(self.requests);
    }
}

impl LevelName {
    /// Of a cell.
    #[must_use]
    pub fn of(cell: &Cell) -> Self {
        let Cell { target, model, prompt_tokens, .. } = cell.clone();
        Self { target, model, prompt_tokens, load: load_words(cell.load()) }
    }
}

impl SweepStatus {
    /// A sweep that has not run.
    #[must_use]
    pub fn unstarted(name: Arc<str>) -> Self {
        Self {
            name,
            schedule: String::new(),
            running: false,
            paused: false,
            last_start: None,
            last_end: None,
            last_result: None,
            next_start: None,
            objectives: ObjectiveStatus::default(),
            progress: None,
        }
    }
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
    /// Why the last run left this level out, if it did: then nothing was measured.
    pub not_run: Option<String>,
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
            ladders: Vec::new(),
            budgets: Vec::new(),
            revision: 0,
            configuration: Arc::default(),
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
            not_run: None,
        }
    }

    /// A cell that the last run left out, and why.
    #[must_use]
    pub fn left_out(cell: &Cell, reason: String) -> Self {
        Self { not_run: Some(reason), ..Self::unmeasured(cell) }
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

    /// What tells it apart from the other cells of its ladder.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::of(self.concurrency, self.rate.and_then(Rate::new))
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

fn of_either(concurrency: Option<u32>, per_second: Option<f64>) -> Option<Load> {
    per_second.and_then(Rate::new).map(Load::Rate).or(concurrency.map(Load::Concurrency))
}

fn found<S: Serializer>(found: &[Found], serializer: S) -> Result<S::Ok, S::Error> {
    crate::report::findings_value(found).serialize(serializer)
}

pub(super) fn instant<S: Serializer>(at: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.to_rfc3339_opts(SecondsFormat::Millis, true))
}

#[allow(clippy::ref_option, reason = "serde passes the field by reference")]
pub(super) fn instant_or_null<S: Serializer>(
    at: &Option<DateTime<Utc>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => instant(at, serializer),
        None => serializer.serialize_none(),
    }
}
