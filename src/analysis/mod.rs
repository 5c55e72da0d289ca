//! What a level's measurements add up to. Pure: measurements in, numbers out.

pub mod compare;
mod findings;
mod independent;
mod interval;
mod knee;
mod level;
mod offered;
mod percentile;
mod scaling;
mod steady;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use findings::{
    Basis, Evidence, Examined, Finding, Found, Growth, LengthPoint, PromptLength, examine, growth,
};
pub use independent::independent;
pub use interval::{Interval, wilson};
pub use knee::{Capacity, Decided, Knee, knee, meets, safe_concurrency};
pub use level::{FullWindow, Sample, first_tokens, summarize};
pub use offered::Offered;
pub use percentile::{PercentileIntervals, Percentiles, percentile};
pub use scaling::Scaling;
pub use steady::Little;

use crate::{arrivals::Rate, cell::Load, engine::EngineView, measurement::FailureClass};

/// The statistics of one level.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// Standard error of that, from its spread over parts of the level.
    pub throughput_standard_error: Option<f64>,
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
    /// Whether the level was in a steady state; `None` when it was too short to tell.
    pub little: Option<Little>,
    /// What was offered, in an open loop; then `concurrency` is the most that may be in flight.
    pub offered: Option<Offered>,
    /// What its requests had in common.
    pub traits: Traits,
    /// The engine's own account of it; `None` when it was not asked.
    pub engine: Option<EngineView>,
}

impl LevelSummary {
    /// What tells it apart from the other levels of its ladder.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::of(self.concurrency, self.rate())
    }

    /// The rate, in an open loop.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.offered.map(|offered| offered.rate)
    }

    /// Makes it an open level. That as many requests are in flight as its concurrency says is then no longer asked.
    pub fn offer(&mut self, offered: Offered) {
        self.offered = Some(offered);
        self.little = None;
    }

    /// How many requests failed.
    #[must_use]
    pub fn failed(&self) -> u32 {
        self.requests.saturating_sub(self.ok)
    }

    /// The share of requests that failed, as an interval (Wilson's); `None` without requests.
    #[must_use]
    pub fn failure_ratio_interval(&self) -> Option<Interval> {
        wilson(self.failed(), self.requests)
    }
}

/// What findings need to know of a level beyond its latencies: counts of good measured requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traits {
    /// That opened their connection.
    pub connections_opened: u32,
    /// Whose answer of many tokens came in one or two reads.
    pub bursts: u32,
    /// Whose reasoning was billed and not streamed.
    pub hidden_reasoning: u32,
    /// That were refused because the prompt is longer than the model takes (these are not good ones).
    pub context_refusals: u32,
    /// Output tokens as the server counted them, median.
    pub output_tokens_p50: Option<f64>,
    /// The model names the server gave in its answers, hashed.
    pub served_models: BTreeSet<u64>,
    /// The server's fingerprints of itself, hashed.
    pub fingerprints: BTreeSet<u64>,
}
