//! What the archive holds, as rows: the columns of its tables and the lines of its export.
//!
//! Wire types: their JSON names are public and only ever added to. Knows nothing of SQL.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use super::{
    details::{self, Details, LevelIntervals},
    sketch::Sketch,
};
use crate::{
    analysis::{LevelSummary, Offered, Percentiles},
    arrivals::{Arrivals, Rate},
    cell::{Cell, Load},
    measurement::{FailureClass, record::Record},
};

/// One thing to write. What belongs to a run names it in full, so that it can be written even into a file that was begun after
/// the run was.
#[derive(Debug)]
pub enum Entry {
    /// A run began.
    RunStarted(Arc<RunRow>),
    /// A measured probe ended, or any probe failed.
    Probe(Arc<RunRow>, Box<ProbeRow>),
    /// A level ended.
    Level(Arc<RunRow>, Box<LevelRow>),
    /// A ladder ended.
    Ladder(Arc<RunRow>, Box<LadderRow>),
    /// A run ended.
    RunEnded {
        /// Which.
        run: Arc<RunRow>,
        /// When, in milliseconds since the Unix epoch.
        ended_at: i64,
        /// `completed`, `aborted` or `failed`.
        result: &'static str,
    },
    /// Something to be known again after a restart; it takes the place of the last one of its name.
    Note {
        /// Its name.
        name: &'static str,
        /// When it was true, in milliseconds since the Unix epoch.
        at: i64,
        /// What is to be known.
        value: Value,
    },
    /// Nothing: whoever waits for it knows that everything before it is written, or that it is not to be.
    Mark(oneshot::Sender<()>),
}

impl Entry {
    /// The run it belongs to; a note or a mark belongs to none.
    #[must_use]
    pub fn run(&self) -> Option<&Arc<RunRow>> {
        match self {
            Self::RunStarted(run)
            | Self::Probe(run, _)
            | Self::Level(run, _)
            | Self::Ladder(run, _)
            | Self::RunEnded { run, .. } => Some(run),
            Self::Note { .. } | Self::Mark(_) => None,
        }
    }
}

/// A run: one execution of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Names the run in every archive, whatever its number there.
    pub uid: String,
    /// Name of the sweep.
    pub sweep: String,
    /// Milliseconds since the Unix epoch.
    pub started_at: i64,
    /// Milliseconds since the Unix epoch; unknown while it runs, or when the program was killed.
    #[serde(default)]
    pub ended_at: Option<i64>,
    /// `completed`, `aborted` or `failed`; unknown as `ended_at`.
    #[serde(default)]
    pub result: Option<String>,
    /// Version of the program that ran it.
    pub version: String,
    /// Source revision of that program.
    pub revision: String,
    /// The whole configuration of the sweep and its targets, without secrets.
    pub plan: Value,
}

/// One level of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelRow {
    /// Name of the target.
    pub target: String,
    /// Model asked for.
    pub model: String,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// Requests in flight; in an open loop, the most there may be.
    pub concurrency: u32,
    /// What only a level of an open loop has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoop>,
    /// Milliseconds since the Unix epoch.
    pub started_at: i64,
    /// Milliseconds since the Unix epoch.
    pub ended_at: i64,
    /// Model that said it answered, last.
    pub served_model: Option<String>,
    /// `system_fingerprint` of the last answer.
    pub fingerprint: Option<String>,
    /// Measured requests.
    pub requests: u32,
    /// How many got a whole answer.
    pub ok: u32,
    /// How many did not, by class.
    #[serde(default)]
    pub failures: BTreeMap<String, u32>,
    /// Time to first token, seconds.
    pub ttft: Option<Spread>,
    /// Time to the first token that is not reasoning, seconds.
    #[serde(default)]
    pub first_answer: Option<Spread>,
    /// Time per output token, seconds.
    pub tpot: Option<Spread>,
    /// Output tokens per second of single requests.
    pub request_tps: Option<Spread>,
    /// Duration of good requests, seconds.
    pub duration: Option<Spread>,
    /// Tokens per second of the whole level while it was full.
    pub throughput_tokens_per_second: Option<f64>,
    /// Standard error of that.
    #[serde(default)]
    pub throughput_standard_error: Option<f64>,
    /// Requests per second while it was full.
    pub throughput_requests_per_second: Option<f64>,
    /// Mean prompt tokens by the server's count.
    pub prompt_tokens_measured: Option<f64>,
    /// Share of prompt tokens from the server's cache.
    pub cached_ratio: Option<f64>,
    /// The prober's own machine distorted it.
    pub client_saturated: Option<bool>,
    /// Stopped before all its requests were measured.
    pub incomplete: bool,
    /// How many independent samples the time to first token is worth: neighbours resemble each other.
    pub ttft_independent: Option<f64>,
    /// The same of the time per output token.
    pub tpot_independent: Option<f64>,
    /// Every time to first token, to 0.1%.
    pub ttft_sketch: Option<Sketch>,
    /// Every time per output token, to 0.1%.
    pub tpot_sketch: Option<Sketch>,
    /// Every good request's duration, to 0.1%.
    pub duration_sketch: Option<Sketch>,
    /// How sure the percentiles are; unknown of a level that an older program measured.
    #[serde(default)]
    pub intervals: Option<LevelIntervals>,
    /// What else is known of it.
    #[serde(default)]
    pub details: Details,
}

/// Summary of a level's samples of one quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many samples.
    pub count: u32,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// What a ladder came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LadderRow {
    /// Name of the target.
    pub target: String,
    /// Model asked for.
    pub model: String,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// Milliseconds since the Unix epoch.
    pub ended_at: i64,
    /// State of the knee: `found`, `not_reached`, `unstable`, `failed`.
    pub state: String,
    /// Concurrency of the knee.
    pub knee_concurrency: Option<u32>,
    /// Concurrency that is safe.
    pub safe_concurrency: Option<u32>,
    /// Whether every level that was to run did, or was left out for a reason.
    pub whole: bool,
    /// The ladder's object of `sweep --format json`, without its levels.
    pub report: Value,
}

/// One probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeRow {
    /// Name of the target.
    pub target: String,
    /// Model asked for.
    pub model: String,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// Requests in flight; 0 in an open loop.
    pub concurrency: u32,
    /// Requests per second, in an open loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// `measured`, `warm_up`, `filler` or `calibration`.
    pub role: String,
    /// Wall clock at t0, milliseconds since the Unix epoch.
    pub at: i64,
    /// The class of its failure.
    pub class: Option<String>,
    /// The measurement, as `request --format json` prints it.
    pub record: Record,
}

/// What only a level of an open loop has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Requests per second.
    pub rate: Rate,
    /// How they were spaced.
    pub arrivals: Arrivals,
    /// Most requests in flight.
    pub max_in_flight: u32,
    /// Arrivals that were not sent.
    pub not_sent: u32,
    /// Whether answers came as fast as requests.
    pub keeps_up: Option<bool>,
    /// Seconds by which each second of arrivals lengthened a request.
    pub growth: Option<f64>,
    /// How late requests left, seconds, 95th percentile.
    pub late_p95_seconds: Option<f64>,
}

impl OpenLoop {
    fn of(max_in_flight: u32, offered: Offered) -> Self {
        let Offered { rate, arrivals, overflow, growth, keeps_up, late_p95_seconds } = offered;
        Self { rate, arrivals, max_in_flight, not_sent: overflow, keeps_up, growth, late_p95_seconds }
    }
}

impl From<OpenLoop> for Offered {
    fn from(open: OpenLoop) -> Self {
        let OpenLoop { rate, arrivals, not_sent, keeps_up, growth, late_p95_seconds, max_in_flight: _ } =
            open;
        Self { rate, arrivals, overflow: not_sent, growth, keeps_up, late_p95_seconds }
    }
}

impl LevelRow {
    /// What tells it apart from the other levels of its ladder.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::of(self.concurrency, self.open_loop.map(|open| open.rate))
    }
}

impl ProbeRow {
    /// The load of its level.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::of(self.concurrency, self.rate)
    }
}

impl Spread {
    /// Mean, median, 95th and 99th percentile.
    #[must_use]
    pub fn numbers(self) -> [f64; 4] {
        [self.mean, self.p50, self.p95, self.p99]
    }
}

impl From<Percentiles> for Spread {
    fn from(percentiles: Percentiles) -> Self {
        let Percentiles { count, mean, p50, p95, p99, intervals: _ } = percentiles;
        Self { count: u32::try_from(count).unwrap_or(u32::MAX), mean, p50, p95, p99 }
    }
}

impl LevelRow {
    /// A level's statistics, without what its samples alone can tell.
    #[must_use]
    pub fn new(cell: &Cell, summary: &LevelSummary, started_at: i64, ended_at: i64) -> Self {
        let failures = summary.failures.iter().map(|(class, count)| (class.as_str().to_owned(), *count));
        Self {
            target: cell.target.to_string(),
            model: cell.model.to_string(),
            prompt_tokens: cell.prompt_tokens,
            concurrency: cell.concurrency,
            open_loop: summary.offered.map(|offered| OpenLoop::of(cell.concurrency, offered)),
            started_at,
            ended_at,
            served_model: None,
            fingerprint: None,
            requests: summary.requests,
            ok: summary.ok,
            failures: failures.collect(),
            ttft: summary.ttft_seconds.map(Spread::from),
            first_answer: summary.first_answer_token_seconds.map(Spread::from),
            tpot: summary.tpot_seconds.map(Spread::from),
            request_tps: summary.request_tps.map(Spread::from),
            duration: summary.duration_seconds.map(Spread::from),
            throughput_tokens_per_second: summary.throughput_tokens_per_second,
            throughput_standard_error: summary.throughput_standard_error,
            throughput_requests_per_second: summary.throughput_requests_per_second,
            prompt_tokens_measured: summary.prompt_tokens_measured,
            cached_ratio: summary.cached_ratio,
            client_saturated: summary.client_saturated,
            incomplete: summary.incomplete,
            ttft_independent: None,
            tpot_independent: None,
            ttft_sketch: None,
            tpot_sketch: None,
            duration_sketch: None,
            intervals: LevelIntervals::of(summary),
            details: Details::of(summary),
        }
    }

    /// The statistics again. A failure class of a newer program is left out.
    #[must_use]
    pub fn summary(&self) -> LevelSummary {
        let class = |name: &str| FailureClass::ALL.iter().find(|class| class.as_str() == name).copied();
        let failures = self.failures.iter().filter_map(|(name, count)| Some((class(name)?, *count)));
        let intervals = self.intervals.unwrap_or_default();
        LevelSummary {
            concurrency: self.concurrency,
            requests: self.requests,
            ok: self.ok,
            failures: failures.collect(),
            ttft_seconds: percentiles(self.ttft, intervals.ttft),
            first_answer_token_seconds: percentiles(self.first_answer, intervals.first_answer),
            tpot_seconds: percentiles(self.tpot, intervals.tpot),
            request_tps: percentiles(self.request_tps, intervals.request_tps),
            duration_seconds: percentiles(self.duration, intervals.duration),
            throughput_tokens_per_second: self.throughput_tokens_per_second,
            throughput_standard_error: self.throughput_standard_error,
            throughput_requests_per_second: self.throughput_requests_per_second,
            prompt_tokens_measured: self.prompt_tokens_measured,
            cached_ratio: self.cached_ratio,
            client_saturated: self.client_saturated,
            incomplete: self.incomplete,
            little: self.details.little(),
            offered: self.open_loop.map(Offered::from),
            traits: self.details.traits(),
            engine: None,
        }
    }
}

fn percentiles(spread: Option<Spread>, bounds: [[Option<f32>; 2]; 3]) -> Option<Percentiles> {
    let Spread { count, mean, p50, p95, p99 } = spread?;
    let intervals = details::intervals(bounds);
    Some(Percentiles { count: count as usize, mean, p50, p95, p99, intervals })
}
