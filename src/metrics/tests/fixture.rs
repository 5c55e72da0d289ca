//! One cell, its probes and levels, and a reader of what is shown of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    analysis::{LevelSummary, PercentileIntervals, Percentiles},
    cell::Cell,
    config::Objectives,
    engine::{EngineView, Part},
    measurement::{
        ConnectionUse, Failure, FailureClass, Flag, GapSketch, Measurement, Outcome, Timeline, TokenKind,
        TokenSource, Tokens,
        rate_limit::{RateLimit, RateLimitUnit},
    },
    metrics::{Buckets, BudgetScope, Endpoint, Layout, Metrics, SweepLayout},
    sweep::{Errand, Register, Role},
};

/// Metrics of one cell after these probes.
pub(super) fn after(probes: &[Measurement]) -> Seen {
    let layout = layout();
    let metrics = metrics(&layout);
    let writer = metrics.cell(&cell(), layout.sweeps[0].objectives);
    for probe in probes {
        writer.observe(probe);
    }
    Seen::of(&metrics)
}

pub(super) fn metrics(layout: &Layout) -> Metrics {
    let register = Register::default();
    for _ in 0..3 {
        // In flight for ever.
        std::mem::forget(register.enter(Errand::of(&cell(), Role::Measured)));
    }
    let metrics = Metrics::new(register);
    metrics.apply(layout);
    metrics
}

pub(super) fn layout() -> Layout {
    let bounds: Arc<[f64]> = [0.1, 0.25, 0.5, 1.0].into();
    Layout {
        buckets: Buckets {
            time_to_first_token: bounds.clone(),
            time_per_output_token: bounds.clone(),
            chunk_gap: bounds.clone(),
            request_duration: bounds.clone(),
            output_tokens_per_second: [10.0, 100.0].into(),
            client_delay: [0.001, 0.005].into(),
        },
        sweeps: vec![SweepLayout {
            name: "s".into(),
            objectives: Objectives {
                ttft: Some(ms(100)),
                tpot: Some(ms(100)),
                duration: Some(ms(1200)),
                success_ratio: Some(0.99),
            },
            cells: vec![cell()],
        }],
        engine_cells: [cell()].into(),
        findings: ["prefill_bound", "queueing"].map(Arc::from).to_vec(),
        prices: vec![(Endpoint::from(&cell()), "EUR".into())],
        budgets: vec![BudgetScope { scope: "all".into(), unit: "tokens".into(), period: "1d".into() }],
    }
}

pub(super) fn cell() -> Cell {
    Cell {
        sweep: "s".into(),
        target: "gateway".into(),
        model: "org/model:1".into(),
        prompt_tokens: 1000,
        concurrency: 8,
        rate: None,
    }
}

/// A cell of an open loop.
pub(super) fn at_rate() -> Cell {
    Cell { sweep: "open".into(), rate: "2.5/s".parse().ok(), ..cell() }
}

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Eleven tokens, the first (reasoning) after 0.1 s, the first visible after 0.3 s, the last after 1.1 s.
pub(super) fn good() -> Measurement {
    let mut gaps = GapSketch::new([0.1, 0.25, 0.5, 1.0].into());
    gaps.record(ms(250));
    gaps.record(ms(500));
    Measurement {
        timeline: Timeline {
            tcp: Some(ms(2)),
            sent: Some(ms(3)),
            headers: Some(ms(50)),
            first_answer_token: Some(ms(300)),
            first_reasoning_token: Some(ms(100)),
            last_token: Some(ms(1100)),
            last_answer_token: Some(ms(1100)),
            end: ms(1200),
            ..Timeline::default()
        },
        outcome: Outcome::Ok,
        first_token_kind: Some(TokenKind::Content),
        tokens: Tokens {
            prompt: Some(100),
            cached_prompt: Some(10),
            output: Some(11),
            reasoning: Some(2),
            source: TokenSource::Usage,
            chunks: 11,
            answer_chunks: 9,
            reads: 11,
            answer_reads: 9,
        },
        gaps,
        finish_reason: Some("stop".into()),
        flags: BTreeSet::from([Flag::KeepaliveComments]),
        connection: ConnectionUse::New,
        served_model: None,
        fingerprint: None,
        request_id: None,
        rate_limits: RateLimitUnit::ALL.iter().map(|unit| allowance(*unit)).collect(),
        visible_text: None,
    }
}

fn allowance(unit: RateLimitUnit) -> RateLimit {
    RateLimit { unit, limit: Some(60.0), remaining: Some(59.0), reset: Some(ms(1000)) }
}

pub(super) fn failed(outcome: impl Fn(Failure) -> Outcome, class: FailureClass) -> Measurement {
    let failure =
        Failure { class, subclass: None, http_status: None, retry_after: None, message: String::new() };
    Measurement { outcome: outcome(failure), ..good() }
}

pub(super) fn level() -> LevelSummary {
    let percentiles = |p50: f64, p95, p99| {
        Some(Percentiles { count: 40, mean: p50, p50, p95, p99, intervals: PercentileIntervals::default() })
    };
    LevelSummary {
        concurrency: 8,
        requests: 40,
        ok: 40,
        failures: BTreeMap::new(),
        ttft_seconds: percentiles(0.2, 0.3, 0.4),
        first_answer_token_seconds: None,
        tpot_seconds: percentiles(0.02, 0.03, 0.04),
        request_tps: None,
        duration_seconds: None,
        throughput_tokens_per_second: Some(99.5),
        throughput_requests_per_second: Some(1.5),
        prompt_tokens_measured: None,
        cached_ratio: None,
        client_saturated: None,
        engine: Some(EngineView {
            engine: "vLLM",
            requests: Some(41.0),
            own_requests: 41,
            ttft_seconds: 0.2,
            parts: Part::ALL.iter().map(|part| (*part, 0.05)).collect(),
            kv_cache_usage: Some(0.5),
            running: Some(8.0),
            waiting: Some(1.0),
            preemptions: Some(0.0),
            prefix_cache_hit_ratio: Some(0.0),
        }),
        ..LevelSummary::default()
    }
}

/// Samples of an output, by name and labels.
pub(super) struct Seen(Vec<(String, String, f64)>);

impl Seen {
    pub(super) fn of(metrics: &Metrics) -> Self {
        let text = metrics.encode();
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series_name(line).trim_start_matches("tokenprobe_").to_owned();
            (name, series.to_owned(), value.parse().unwrap())
        });
        Self(samples.collect())
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &(String, String, f64)> {
        self.0.iter().filter(move |(each, ..)| each == name)
    }

    /// The value of the only or first series of a name.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        self.all(name).map(|(.., value)| *value).next()
    }

    pub(super) fn labelled(&self, name: &str, labels: &str) -> Option<f64> {
        self.all(name).find(|(_, series, _)| series.contains(labels)).map(|(.., value)| *value)
    }

    pub(super) fn total(&self, name: &str) -> f64 {
        self.all(name).map(|(.., value)| value).sum()
    }

    pub(super) fn count(&self, name: &str) -> usize {
        self.all(name).count()
    }
}

pub(super) fn series_name(line: &str) -> &str {
    line.split(['{', ' ']).next().unwrap()
}

pub(super) fn label_names(line: &str) -> Vec<&str> {
    let Some((_, labels)) = line.split_once('{') else { return Vec::new() };
    labels.split("\",").map(|pair| pair.split('=').next().unwrap()).collect()
}
