//! What a level writes to: the series of one cell, found once and then written to without any lookup.
//!
//! Decides which observation belongs into which metric. Knows nothing of how it is written down.

use super::{
    Metrics,
    labels::{Endpoint, ObjectiveKind, Phase, Quantile, SweepModel},
    layout::objective_kinds,
    value::{Counter, Gauge, Histogram},
};
use crate::{
    analysis::{LevelSummary, Percentiles},
    cell::Cell,
    config::Objectives,
    engine::Part,
    measurement::{
        FailureClass, Measurement, Outcome, TokenSource,
        rate_limit::{RateLimit, RateLimitUnit},
    },
};

/// The series of one cell.
#[derive(Debug)]
pub struct CellMetrics {
    objectives: Objectives,
    time_to_first_token: Histogram,
    time_to_first_answer_token: Histogram,
    time_per_output_token: Histogram,
    chunk_gap: Histogram,
    request_duration: Histogram,
    output_tokens_per_second: Histogram,
    requests: Counter,
    not_sent: Counter,
    failures: Vec<(FailureClass, Counter)>,
    within_objective: Vec<(ObjectiveKind, Counter)>,
    shared: SharedMetrics,
    level: LevelGauges,
}

/// What a cell shares with others: the tokens of its model, the phases of its target.
#[derive(Debug)]
struct SharedMetrics {
    prompt_tokens: Counter,
    cached_prompt_tokens: Counter,
    output_tokens: Counter,
    reasoning_tokens: Counter,
    up: Gauge,
    cold_ttft: Gauge,
    failing: Vec<(FailureClass, Gauge)>,
    allowances: Vec<Allowance>,
    phases: Vec<(Phase, Histogram)>,
}

/// The gauges of one unit of a rate limit.
#[derive(Debug)]
struct Allowance {
    unit: RateLimitUnit,
    limit: Gauge,
    remaining: Gauge,
    reset: Gauge,
}

#[derive(Debug)]
struct LevelGauges {
    tokens_per_second: Gauge,
    requests_per_second: Gauge,
    ttft: Vec<(Quantile, Gauge)>,
    tpot: Vec<(Quantile, Gauge)>,
    parts: Vec<(Part, Gauge)>,
    kv_cache: Gauge,
}

impl CellMetrics {
    pub(super) fn new(metrics: &Metrics, cell: &Cell, objectives: Objectives) -> Self {
        let failures = FailureClass::ALL.iter().map(|class| {
            let key = (cell.clone(), *class);
            (*class, metrics.request_failures.child(&key))
        });
        let within_objective = objective_kinds(&objectives).map(|kind| {
            let key = (cell.clone(), kind);
            (kind, metrics.requests_within_objective.child(&key))
        });
        Self {
            objectives,
            time_to_first_token: metrics.time_to_first_token.child(cell),
            time_to_first_answer_token: metrics.time_to_first_answer_token.child(cell),
            time_per_output_token: metrics.time_per_output_token.child(cell),
            chunk_gap: metrics.chunk_gap.child(cell),
            request_duration: metrics.request_duration.child(cell),
            output_tokens_per_second: metrics.output_tokens_per_second.child(cell),
            requests: metrics.requests.child(cell),
            not_sent: metrics.arrivals_not_sent.child(cell),
            failures: failures.collect(),
            within_objective: within_objective.collect(),
            shared: SharedMetrics::new(metrics, cell),
            level: LevelGauges::new(metrics, cell),
        }
    }

    /// Counts a measured probe.
    pub fn observe(&self, measurement: &Measurement) {
        self.shared.observe(measurement);
        self.requests.add(1);
        self.request_duration.observe(measurement.timeline.end.as_secs_f64());
        match measurement.outcome.failure() {
            None => self.observe_good(measurement),
            Some(failure) => count(&self.failures, &failure.class),
        }
    }

    /// Counts a probe that is not measured (warm-up, filler): what it cost and what it says about the endpoint,
    /// none of its latencies.
    pub fn observe_excluded(&self, measurement: &Measurement) {
        self.shared.observe(measurement);
    }

    /// Shows how long a probe took that may have woken the model; it is counted by [`Self::observe_excluded`].
    pub fn observe_cold(&self, measurement: &Measurement) {
        if let Some(time) = measurement.timeline.first_token().filter(|_| measurement.is_ok()) {
            self.shared.cold_ttft.set(Some(time.as_secs_f64()));
        }
    }

    /// Counts requests of a rate that were due and not sent.
    pub fn not_sent(&self, requests: u32) {
        self.not_sent.add(u64::from(requests));
    }

    /// Shows the level that just ended. One that was stopped early says nothing: the last whole one stays.
    pub fn level(&self, summary: &LevelSummary) {
        if !summary.incomplete {
            self.level.set(summary);
        }
    }

    /// Shows nothing of a level that could not be run again: what an earlier run said no longer holds.
    pub fn forget_level(&self) {
        self.level.forget();
    }

    fn observe_good(&self, measurement: &Measurement) {
        if let Some(time) = measurement.timeline.first_token() {
            self.time_to_first_token.observe(time.as_secs_f64());
        }
        if let Some(time) = measurement.timeline.first_answer_token {
            self.time_to_first_answer_token.observe(time.as_secs_f64());
        }
        // Chunks are not tokens: without the server's own count, a time per token would be a guess.
        if counted_by_server(measurement.tokens.source) {
            if let Some(time) = measurement.time_per_output_token() {
                self.time_per_output_token.observe(time.as_secs_f64());
            }
            if let Some(speed) = measurement.output_tokens_per_second() {
                self.output_tokens_per_second.observe(speed);
            }
        }
        for (gaps, mean) in measurement.gaps.means() {
            self.chunk_gap.observe_many(mean, gaps);
        }
        for (kind, counter) in &self.within_objective {
            if kept(&self.objectives, *kind, measurement) {
                counter.add(1);
            }
        }
    }
}

/// Whether a good probe kept an objective; one that is not set is always kept.
///
/// A probe without a time per output token (one token, or all in one read) made nobody wait between tokens: it kept
/// that objective. Where chunks had to be counted the time is too long rather than too short, so that what passes
/// is good.
fn kept(objectives: &Objectives, kind: ObjectiveKind, measurement: &Measurement) -> bool {
    let within = |time: Option<_>, longest: Option<_>| longest.is_none_or(|longest| time <= Some(longest));
    match kind {
        ObjectiveKind::Ttft => within(measurement.timeline.first_token(), objectives.ttft),
        ObjectiveKind::Tpot => within(measurement.time_per_output_token(), objectives.tpot),
        ObjectiveKind::Duration => within(Some(measurement.timeline.end), objectives.duration),
        ObjectiveKind::All => [ObjectiveKind::Ttft, ObjectiveKind::Tpot, ObjectiveKind::Duration]
            .into_iter()
            .all(|each| kept(objectives, each, measurement)),
    }
}

fn counted_by_server(source: TokenSource) -> bool {
    match source {
        TokenSource::Usage | TokenSource::UsageCumulative | TokenSource::Vendor(_) => true,
        TokenSource::ChunkCount | TokenSource::None => false,
    }
}

fn count<K: PartialEq>(counters: &[(K, Counter)], wanted: &K) {
    for (_, counter) in counters.iter().filter(|(key, _)| key == wanted) {
        counter.add(1);
    }
}

impl SharedMetrics {
    fn new(metrics: &Metrics, cell: &Cell) -> Self {
        let model = SweepModel::from(cell);
        let endpoint = Endpoint::from(cell);
        let failing = FailureClass::ALL.iter().map(|class| {
            let key = (endpoint.clone(), *class);
            (*class, metrics.failing.child(&key))
        });
        let allowances = RateLimitUnit::ALL.iter().map(|unit| {
            let key = (endpoint.clone(), *unit);
            Allowance {
                unit: *unit,
                limit: metrics.rate_limit.child(&key),
                remaining: metrics.rate_limit_remaining.child(&key),
                reset: metrics.rate_limit_reset.child(&key),
            }
        });
        let phases = Phase::ALL.iter().map(|phase| {
            let key = (cell.target.clone(), *phase);
            (*phase, metrics.connection_phase.child(&key))
        });
        Self {
            prompt_tokens: metrics.prompt_tokens.child(&model),
            cached_prompt_tokens: metrics.cached_prompt_tokens.child(&model),
            output_tokens: metrics.output_tokens.child(&model),
            reasoning_tokens: metrics.reasoning_tokens.child(&model),
            up: metrics.up.child(&endpoint),
            cold_ttft: metrics.cold_ttft.child(&endpoint),
            failing: failing.collect(),
            allowances: allowances.collect(),
            phases: phases.collect(),
        }
    }

    fn observe(&self, measurement: &Measurement) {
        let tokens = &measurement.tokens;
        self.prompt_tokens.add(tokens.prompt.unwrap_or(0));
        self.cached_prompt_tokens.add(tokens.cached_prompt.unwrap_or(0));
        self.output_tokens.add(tokens.output.unwrap_or(0));
        self.reasoning_tokens.add(tokens.reasoning.unwrap_or(0));
        self.up.set(Some(f64::from(u8::from(generated_text(&measurement.outcome)))));
        let reason = measurement.outcome.failure().map(|failure| failure.class);
        for (class, gauge) in &self.failing {
            gauge.set(Some(f64::from(u8::from(reason == Some(*class)))));
        }
        // A probe without an answer says nothing of allowances.
        if measurement.timeline.headers.is_some() {
            for allowance in &self.allowances {
                allowance.set(&measurement.rate_limits);
            }
        }
        for (phase, histogram) in &self.phases {
            let span = match phase {
                Phase::Dns => measurement.timeline.dns,
                Phase::Tcp => measurement.timeline.tcp,
                Phase::Tls => measurement.timeline.tls,
            };
            if let Some(span) = span {
                histogram.observe(span.as_secs_f64());
            }
        }
    }
}

impl Allowance {
    fn set(&self, told: &[RateLimit]) {
        let told = told.iter().find(|told| told.unit == self.unit);
        self.limit.set(told.and_then(|told| told.limit));
        self.remaining.set(told.and_then(|told| told.remaining));
        self.reset.set(told.and_then(|told| told.reset).map(|reset| reset.as_secs_f64()));
    }
}

/// Text that broke off, or came all at once, is text: the endpoint generates.
fn generated_text(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Ok | Outcome::Partial(_) | Outcome::Unmeasurable(_) => true,
        Outcome::Empty(_) | Outcome::Error(_) => false,
    }
}

impl LevelGauges {
    fn new(metrics: &Metrics, cell: &Cell) -> Self {
        let quantiles = |family: &super::Family<(Cell, Quantile), Gauge>| {
            let gauges =
                Quantile::ALL.iter().map(|quantile| (*quantile, family.child(&(cell.clone(), *quantile))));
            gauges.collect()
        };
        Self {
            tokens_per_second: metrics.level_throughput_tokens.child(cell),
            requests_per_second: metrics.level_throughput_requests.child(cell),
            ttft: quantiles(&metrics.level_ttft),
            tpot: quantiles(&metrics.level_tpot),
            parts: Part::ALL
                .iter()
                .map(|part| (*part, metrics.level_ttft_part.child(&(cell.clone(), *part))))
                .collect(),
            kv_cache: metrics.level_kv_cache.child(cell),
        }
    }

    fn forget(&self) {
        let latencies = self.ttft.iter().chain(&self.tpot).map(|(_, gauge)| gauge);
        let parts = self.parts.iter().map(|(_, gauge)| gauge);
        let others = [&self.tokens_per_second, &self.requests_per_second, &self.kv_cache];
        for gauge in latencies.chain(parts).chain(others) {
            gauge.set(None);
        }
    }

    fn set(&self, summary: &LevelSummary) {
        self.tokens_per_second.set(summary.throughput_tokens_per_second);
        self.requests_per_second.set(summary.throughput_requests_per_second);
        let engine = summary.engine.as_ref();
        for (part, gauge) in &self.parts {
            gauge.set(engine.and_then(|engine| engine.part(*part)));
        }
        self.kv_cache.set(engine.and_then(|engine| engine.kv_cache_usage));
        for (gauges, percentiles) in [(&self.ttft, summary.ttft_seconds), (&self.tpot, summary.tpot_seconds)]
        {
            for (quantile, gauge) in gauges {
                gauge.set(percentiles.map(|percentiles| of(&percentiles, *quantile)));
            }
        }
    }
}

fn of(percentiles: &Percentiles, quantile: Quantile) -> f64 {
    match quantile {
        Quantile::P50 => percentiles.p50,
        Quantile::P95 => percentiles.p95,
        Quantile::P99 => percentiles.p99,
    }
}
