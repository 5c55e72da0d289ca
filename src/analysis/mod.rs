//! What a level's measurements add up to. Pure: measurements in, numbers out.

pub mod compare;
mod independent;
mod knee;
mod level;
mod percentile;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use independent::independent;
pub use knee::{Knee, knee, meets, safe_concurrency};
pub use level::{FullWindow, Sample, summarize};
pub use percentile::{Percentiles, percentile};

use crate::measurement::FailureClass;

/// The statistics of one level.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelSummary {
    /// Requests in flight.
    pub concurrency: u32,
    /// Measured requests (warm-up excluded).
    pub requests: u32,
    /// How many got a whole answer.
    pub ok: u32,
    /// How many did not, by class.
    pub failures: BTreeMap<FailureClass, u32>,
    /// Time to first token, seconds.
    pub ttft_seconds: Option<Percentiles>,
    /// Time to the first token that is not reasoning, seconds.
    pub first_answer_token_seconds: Option<Percentiles>,
    /// Time per output token, seconds (only probes whose token count comes from the server).
    pub tpot_seconds: Option<Percentiles>,
    /// Output tokens per second of single requests.
    pub request_tps: Option<Percentiles>,
    /// Duration of requests that got a whole answer, streamed or not, seconds.
    pub duration_seconds: Option<Percentiles>,
    /// Tokens per second of the whole level while it was full.
    pub throughput_tokens_per_second: Option<f64>,
    /// Requests completed per second while it was full.
    pub throughput_requests_per_second: Option<f64>,
    /// Mean prompt tokens as the server counted them.
    pub prompt_tokens_measured: Option<f64>,
    /// Share of prompt tokens the server took from its cache.
    pub cached_ratio: Option<f64>,
    /// The prober's own machine distorted this level; `None` when it was not watched.
    pub client_saturated: Option<bool>,
    /// The level was stopped before all its requests were measured.
    pub incomplete: bool,
}
