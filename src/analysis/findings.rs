//! What a ladder's numbers mean: named conclusions from a closed vocabulary, each with the numbers that support it.
//!
//! Pure: summaries in, conclusions out. Each is drawn only where the numbers carry it; silence means that nothing can
//! be said, not that all is well. Levels during which the prober's own machine was too busy say nothing about the
//! target, and are left out except where the finding is just that.

mod conduct;
mod engine;
mod growth;
mod latency;
mod load;
mod open;

use std::{borrow::Cow, collections::BTreeMap};

pub use growth::{Growth, LengthPoint, growth};

use super::{Capacity, LevelSummary};
use crate::{
    arrivals::Rate,
    config::{Objectives, PrefixCache},
};

macro_rules! vocabulary {
    ($($variant:ident = $name:literal, $meaning:literal, $mend:literal;)+) => {
        #[allow(clippy::doc_markdown, reason = "the meaning is shown to people as it stands")]
        /// Everything a ladder can be found to be: closed and public, the `finding` label.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Finding { $(#[doc = $meaning] $variant),+ }

        impl Finding {
            /// Every one, in the order of diagnosis: can it be measured, what limits it, what load it bears.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name used in labels and JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The one of this name.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|finding| finding.as_str() == name)
            }

            /// What it means, in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }

            /// What to do about it, in one line.
            #[must_use]
            pub const fn mend(self) -> &'static str {
                match self { $(Self::$variant => $mend),+ }
            }
        }
    };
}

vocabulary! {
    FailsUnloaded = "fails_unloaded",
        "requests fail even at the lowest level",
        "Not a matter of load: check key, base URL and model with `tokenprobe check`.";
    ContextTooSmall = "context_too_small",
        "the model's context is too small for the prompt and the output asked for",
        "Ask for shorter prompts or fewer tokens, or serve the model with a longer context.";
    ClientSaturated = "client_saturated",
        "the prober's own machine was too busy to measure this level",
        "Give the prober a core, run fewer sweeps at once, or probe from elsewhere.";
    WrongMeasuringPoint = "wrong_measuring_point",
        "the first token comes sooner than any model can read the prompt",
        "Something before the model sends an empty piece or a stored answer: probe behind it.";
    BufferedPath = "buffered_path",
        "whole answers arrive in one or two reads",
        "Switch off response buffering in the proxy (nginx: proxy_buffering off) or gateway.";
    ConnectionsNotReused = "connections_not_reused",
        "the server closes connections that should be used again",
        "Raise the keep-alive timeout; each request pays for TCP and TLS anew.";
    ServedModelChanged = "served_model_changed",
        "answers name different models or builds",
        "Several versions answer: compare only runs of one, or pin the model.";
    HiddenReasoning = "hidden_reasoning",
        "reasoning tokens are billed and not streamed",
        "Time to first token contains the thinking; compare such models only with their like.";
    PromptTruncated = "prompt_truncated",
        "the server counted far fewer prompt tokens than were sent",
        "It cuts prompts silently: raise its context (Ollama: num_ctx), or ask for less.";
    OutputShorterThanAsked = "output_shorter_than_asked",
        "answers end before max_tokens",
        "Speed and throughput rest on short answers: lower max_tokens, or set ignore_eos in extra_body.";
    PrefixCacheHitThoughCold = "prefix_cache_hit_though_cold",
        "the prefix cache answered although every prompt is new",
        "Times to first token are too good: something puts a common prefix before the prompt.";
    CacheMissedThoughWarm = "cache_missed_though_warm",
        "the prefix cache did not answer although the prompt repeats",
        "Enable prefix caching, give it room, or route by prefix when there are replicas.";
    OtherLoad = "other_load",
        "the engine served requests of others meanwhile",
        "The numbers are of both: probe at quieter hours, or an engine that nobody else uses.";
    LevelUnsteady = "level_unsteady",
        "throughput times latency is not the concurrency: the level was in no steady state",
        "Measure more requests per level; look for restarts or other load meanwhile.";
    PrefillBound = "prefill_bound",
        "the median time to first token is long even at the lowest level",
        "Prefill or building the KV cache takes it: shorter prompts, prefix caching, more compute.";
    PrefillCompute = "prefill_compute",
        "time to first token grows about linearly with the prompt's length",
        "Prefill compute is what it costs: tensor parallelism, chunked prefill or a smaller model.";
    KvCacheGrowth = "kv_cache_growth",
        "time to first token grows much faster than the prompt's length",
        "Attention and memory movement for the KV cache: look at KV-cache use, preemptions, offloading.";
    OutsideEngine = "outside_engine",
        "most of the time to first token passes before the engine has the request",
        "Look at the gateway, the proxies and the network: the engine itself is prompt.";
    Preallocation = "preallocation",
        "time to first token changes when only max_tokens does",
        "The server reserves memory for the output up front: ask for no more than is needed.";
    OccasionalStalls = "occasional_stalls",
        "the median is fine, and P99 is far above it",
        "Queueing or memory fragmentation now and then: look at preemptions and waiting requests.";
    Queueing = "queueing",
        "requests wait in line: P95 outgrows P50 as concurrency rises, or the engine shows it",
        "Requests wait for one another: more replicas or slots, or admit fewer at once.";
    KvCacheExhausted = "kv_cache_exhausted",
        "the engine's KV cache is full: it puts requests back, or is about to",
        "Give it more memory, shorter prompts or fewer requests at once; quantise the KV cache.";
    DecodeBound = "decode_bound",
        "time per output token rises with concurrency",
        "Decoding is the bottleneck: memory bandwidth, batch size, quantisation, speculative decoding.";
    RateLimited = "rate_limited",
        "requests are refused because there are too many",
        "This is the limit of the key, not of the hardware: raise it, or climb less high.";
    FallsBehind = "falls_behind",
        "requests arrive faster than they are answered: each one takes longer than those before",
        "This rate is more than the endpoint carries: stay below, or add replicas.";
    ArrivalsNotSent = "arrivals_not_sent",
        "requests were due and not sent because as many as allowed were in flight",
        "Latencies leave out who was not sent: raise load.max_in_flight, or offer a lower rate.";
    FailsUnderLoad = "fails_under_load",
        "requests fail at this level and not below",
        "Its capacity or a timeout on the way is exceeded: stay below, or add replicas.";
    LatencyBeyondObjective = "latency_beyond_objective",
        "from this level on an objective is surely missed",
        "Stay below this level, or raise capacity.";
    ThroughputKnee = "throughput_knee",
        "total throughput stops growing here while latency goes on rising",
        "More load only waits: this level is the most that is worth sending.";
    SafeConcurrency = "safe_concurrency",
        "up to here there is room below the knee, and every objective is met",
        "Run at most this much at once.";
    NoSafeConcurrency = "no_safe_concurrency",
        "the objectives are missed at the lowest level already",
        "No load is safe: raise the objectives, or make the endpoint faster.";
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Numbers by name.
pub type Evidence = BTreeMap<Cow<'static, str>, f64>;

/// A conclusion and what supports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Which.
    pub finding: Finding,
    /// The concurrency at which it shows; `None` when it is of the ladder as a whole.
    pub level: Option<u32>,
    /// The rate at which it shows, in a ladder of rates.
    pub rate: Option<Rate>,
    /// The numbers: seconds, ratios, counts; each name says which.
    pub evidence: Evidence,
    /// What it rests on.
    pub basis: Basis,
}

/// What a finding rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The client saw it.
    Observed,
    /// The client saw what usually comes of it: the cause is a conclusion.
    Inferred,
    /// The engine's own metrics show it.
    Measured,
}

impl Basis {
    /// Its name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Inferred => "inferred",
            Self::Measured => "measured",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Observed, Self::Inferred, Self::Measured].into_iter().find(|basis| basis.as_str() == name)
    }
}

impl Finding {
    /// What it rests on as long as the engine was not asked: causes inside of it are concluded.
    #[must_use]
    pub const fn basis(self) -> Basis {
        match self {
            Self::PrefillBound
            | Self::PrefillCompute
            | Self::KvCacheGrowth
            | Self::Preallocation
            | Self::OccasionalStalls
            | Self::Queueing
            | Self::DecodeBound => Basis::Inferred,
            Self::OutsideEngine | Self::KvCacheExhausted | Self::OtherLoad => Basis::Measured,
            Self::FailsUnloaded
            | Self::ContextTooSmall
            | Self::ClientSaturated
            | Self::WrongMeasuringPoint
            | Self::BufferedPath
            | Self::ConnectionsNotReused
            | Self::ServedModelChanged
            | Self::HiddenReasoning
            | Self::PromptTruncated
            | Self::OutputShorterThanAsked
            | Self::PrefixCacheHitThoughCold
            | Self::CacheMissedThoughWarm
            | Self::LevelUnsteady
            | Self::FallsBehind
            | Self::ArrivalsNotSent
            | Self::RateLimited
            | Self::FailsUnderLoad
            | Self::LatencyBeyondObjective
            | Self::ThroughputKnee
            | Self::SafeConcurrency
            | Self::NoSafeConcurrency => Basis::Observed,
        }
    }
}

impl Found {
    fn at(finding: Finding, level: u32, evidence: impl IntoIterator<Item = (&'static str, f64)>) -> Self {
        Self { level: Some(level), ..Self::of_ladder(finding, evidence) }
    }

    fn of_ladder(finding: Finding, evidence: impl IntoIterator<Item = (&'static str, f64)>) -> Self {
        let evidence = evidence.into_iter().map(|(name, number)| (Cow::Borrowed(name), number)).collect();
        Self { finding, level: None, rate: None, evidence, basis: finding.basis() }
    }
}

/// A ladder, and what was asked of it.
#[derive(Debug, Clone, Copy)]
pub struct Examined<'a> {
    /// Its levels, ascending.
    pub levels: &'a [LevelSummary],
    /// What they say about capacity.
    pub capacity: &'a Capacity,
    /// What counts as good.
    pub objectives: &'a Objectives,
    /// Wanted prompt length.
    pub prompt_tokens: u32,
    /// How well prompts have the wanted length.
    pub length: PromptLength,
    /// Output tokens asked for at most.
    pub max_tokens: u32,
    /// Whether connections should be used again.
    pub reuses_connections: bool,
    /// What was asked of the prefix cache.
    pub prefix_cache: PrefixCache,
    /// Times to first token of the same model's ladders with other prompt lengths.
    pub other_lengths: &'a [LengthPoint],
    /// The lowest level once more with another `max_tokens`, and that number.
    pub max_tokens_control: Option<(u32, &'a LevelSummary)>,
}

/// How well prompts have the length that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptLength {
    /// Calibrated with the server's own counts.
    Calibrated,
    /// Estimated.
    Estimated,
    /// They have their own.
    Real,
}

impl<'a> Examined<'a> {
    /// The levels with answers that the prober's machine did not distort.
    fn sound(&self) -> impl Iterator<Item = &'a LevelSummary> + use<'a> {
        self.levels.iter().filter(|level| level.ok > 0 && level.client_saturated != Some(true))
    }
}

/// Everything that can be concluded, in the order of [`Finding::ALL`].
#[must_use]
pub fn examine(ladder: &Examined<'_>) -> Vec<Found> {
    let is_open = ladder.levels.iter().any(|level| level.offered.is_some());
    let mut found = if is_open { open::findings(ladder) } else { closed(ladder) };
    engine::judge(ladder, &mut found);
    found.sort_by_key(|found| (found.finding, found.level, found.rate));
    found
}

/// What can be concluded of levels that are told apart by their concurrency.
fn closed(ladder: &Examined<'_>) -> Vec<Found> {
    [load::findings(ladder), conduct::findings(ladder), latency::findings(ladder)].concat()
}
