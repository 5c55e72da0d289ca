//! Every finding, where it holds and where it does not.

use std::collections::BTreeSet;

use super::{knees::golden, level, ms};
use crate::{
    analysis::{
        Basis, Capacity, Examined, Finding, Found, LengthPoint, LevelSummary, Little, Offered, Percentiles,
        PromptLength, Traits, examine, growth,
    },
    arrivals::Arrivals,
    config::{Objectives, PrefixCache},
    engine::{EngineView, Part},
    measurement::FailureClass,
};

/// A ladder and what was asked of it, to be spoilt.
struct Ladder {
    levels: Vec<LevelSummary>,
    objectives: Objectives,
    length: PromptLength,
    reuses_connections: bool,
    prefix_cache: PrefixCache,
    other_lengths: Vec<LengthPoint>,
    control: Option<(u32, LevelSummary)>,
}

/// 40 samples around a median, the highest `tail` times as long.
fn around(median: f64, tail: f64) -> Option<Percentiles> {
    let spread = |i: u32| 1.0 + 0.05 * (f64::from(i) / 19.5 - 1.0);
    let sample = |i| if i >= 36 { median * tail } else { median * spread(i) };
    Percentiles::of((0..40).map(sample).collect())
}

/// An endpoint about which there is nothing to say: linear throughput, steady latencies, honest answers.
fn healthy() -> Ladder {
    let fine = |concurrency: u32| LevelSummary {
        ttft_seconds: around(0.2, 1.05),
        tpot_seconds: around(0.02, 1.05),
        duration_seconds: around(1.5, 1.05),
        throughput_standard_error: Some(1.0),
        prompt_tokens_measured: Some(1_003.0),
        cached_ratio: Some(0.016),
        client_saturated: Some(false),
        little: Some(Little { in_flight: f64::from(concurrency), holds: true }),
        traits: Traits {
            output_tokens_p50: Some(64.0),
            served_models: BTreeSet::from([1]),
            fingerprints: BTreeSet::from([2]),
            ..Traits::default()
        },
        ..level(concurrency, 40, 0, 50.0 * f64::from(concurrency), 210.0)
    };
    Ladder {
        levels: [1, 2, 4, 8].map(fine).into(),
        objectives: Objectives { ttft: Some(ms(500)), ..Objectives::default() },
        length: PromptLength::Calibrated,
        reuses_connections: true,
        prefix_cache: PrefixCache::Cold,
        other_lengths: Vec::new(),
        control: None,
    }
}

impl Ladder {
    fn examine(&self) -> Vec<Found> {
        let capacity = Capacity::of(&self.levels, &self.objectives);
        examine(&Examined {
            levels: &self.levels,
            capacity: &capacity,
            objectives: &self.objectives,
            prompt_tokens: 1_000,
            length: self.length,
            max_tokens: 64,
            reuses_connections: self.reuses_connections,
            prefix_cache: self.prefix_cache,
            other_lengths: &self.other_lengths,
            max_tokens_control: self.control.as_ref().map(|(max_tokens, level)| (*max_tokens, level)),
        })
    }
}

/// Spoils the healthy ladder and says at which levels the finding shows then.
fn at(finding: Finding, spoil: impl FnOnce(&mut Ladder)) -> Vec<Option<u32>> {
    let mut ladder = healthy();
    spoil(&mut ladder);
    let found = ladder.examine();
    found.iter().filter(|found| found.finding == finding).map(|found| found.level).collect()
}

/// The findings that were shown to hold, and not to.
#[derive(Default)]
struct Pairs(BTreeSet<Finding>);

impl Pairs {
    /// The finding shows at this level (`None`: of the ladder as a whole), and it does not with a milder spoiling.
    fn check(
        &mut self,
        finding: Finding,
        level: Option<u32>,
        spoil: impl FnOnce(&mut Ladder),
        milder: impl FnOnce(&mut Ladder),
    ) {
        assert_eq!(at(finding, spoil), [level], "{finding} should hold");
        assert_eq!(at(finding, milder), [], "{finding} should not hold");
        self.0.insert(finding);
    }
}

/// Walks the vocabulary: a finding that was never shown to hold, and not to, fails here.
#[test]
fn every_finding_of_the_vocabulary_holds_where_it_should_and_nowhere_else() {
    let mut pairs = Pairs::default();
    latencies(&mut pairs);
    load(&mut pairs);
    conduct(&mut pairs);
    lengths_and_caches(&mut pairs);
    growth_with_length(&mut pairs);
    by_the_engine(&mut pairs);
    at_rates(&mut pairs);
    let missing: Vec<_> = Finding::ALL.iter().filter(|finding| !pairs.0.contains(finding)).collect();
    assert!(missing.is_empty(), "never shown: {missing:?}");
}

/// Makes the ladder an open loop of one more request per second at each level.
fn offer(ladder: &mut Ladder, change: impl Fn(usize, &mut Offered)) {
    each(ladder, |index, level| {
        let mut offered = Offered {
            rate: format!("{}/s", index + 1).parse().unwrap(),
            arrivals: Arrivals::Constant,
            overflow: 0,
            growth: Some(0.0),
            keeps_up: Some(true),
            late_p95_seconds: Some(0.001),
        };
        change(index, &mut offered);
        level.concurrency = 256;
        level.offered = Some(offered);
    });
}

fn at_rates(pairs: &mut Pairs) {
    let behind = |growth: f64| {
        move |ladder: &mut Ladder| {
            offer(ladder, |index, offered| {
                if index == 3 {
                    (offered.growth, offered.keeps_up) = (Some(growth), Some(growth < 0.1));
                }
            });
        }
    };
    pairs.check(Finding::FallsBehind, None, behind(0.5), behind(0.0));
    let refused = |overflow: u32| {
        move |ladder: &mut Ladder| {
            offer(ladder, |index, offered| offered.overflow = if index == 3 { overflow } else { 0 });
        }
    };
    pairs.check(Finding::ArrivalsNotSent, None, refused(7), refused(0));
}

fn fail(level: &mut LevelSummary, class: FailureClass, count: u32) {
    level.ok -= count;
    level.failures.insert(class, count);
}

fn each(ladder: &mut Ladder, change: impl Fn(usize, &mut LevelSummary)) {
    for (index, level) in ladder.levels.iter_mut().enumerate() {
        change(index, level);
    }
}

#[test]
fn nothing_is_found_where_there_is_nothing() {
    assert_eq!(healthy().examine(), []);
}

#[test]
fn the_vocabulary_is_closed_and_documented() {
    let names: BTreeSet<&str> = Finding::ALL.iter().map(|finding| finding.as_str()).collect();
    assert_eq!(names.len(), Finding::ALL.len());
    for finding in Finding::ALL {
        assert!(finding.as_str().chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{finding}");
        assert!(!finding.meaning().ends_with('.') && finding.meaning().len() < 100, "{finding}");
        assert!(finding.mend().ends_with('.') && finding.mend().len() < 110, "{finding}");
    }
}

#[test]
fn the_golden_ladder_queues_decodes_slower_and_has_a_knee() {
    let tpot = [(18.3, 22.1), (19.8, 25.4), (23.6, 31.2), (31.5, 45.8), (48.9, 72.3)];
    let ttft = [(420.5, 510.2), (455.1, 620.7), (530.9, 810.3), (720.4, 1250.6), (1180.2, 2400.9)];
    let mut ladder = healthy();
    ladder.levels = golden();
    ladder.objectives = Objectives { ttft: Some(ms(1000)), ..Objectives::default() };
    let seconds = |(p50, p95): (f64, f64)| {
        let (p50, p95) = (p50 / 1e3, p95 / 1e3);
        Some(Percentiles { count: 8, mean: p50, p50, p95, p99: p95, intervals: <_>::default() })
    };
    for ((level, ttft), tpot) in ladder.levels.iter_mut().zip(ttft).zip(tpot) {
        (level.ttft_seconds, level.tpot_seconds) = (seconds(ttft), seconds(tpot));
    }
    let found: Vec<_> = ladder.examine().iter().map(|found| (found.finding, found.level)).collect();
    let expect = [
        (Finding::Queueing, Some(16)),
        (Finding::DecodeBound, Some(16)),
        (Finding::ThroughputKnee, Some(8)),
        (Finding::SafeConcurrency, Some(4)),
    ];
    assert_eq!(found, expect);
}

fn latencies(pairs: &mut Pairs) {
    let stalls = |tail| move |l: &mut Ladder| l.levels[2].ttft_seconds = around(0.2, tail);
    pairs.check(Finding::OccasionalStalls, Some(4), stalls(4.0), stalls(2.0));
    // Two slow ones in forty may be chance.
    let two = |l: &mut Ladder| {
        let sample = |i| if i >= 38 { 2.0 } else { 0.2 };
        l.levels[2].ttft_seconds = Percentiles::of((0..40).map(sample).collect());
    };
    assert_eq!(at(Finding::OccasionalStalls, two), []);

    let slow = |median| move |l: &mut Ladder| each(l, |_, level| level.ttft_seconds = around(median, 1.05));
    pairs.check(Finding::PrefillBound, Some(1), slow(0.6), slow(0.4));
    pairs.check(Finding::NoSafeConcurrency, Some(1), slow(0.6), slow(0.4));

    let tail = |tails: [f64; 4]| {
        move |l: &mut Ladder| each(l, |i, level| level.ttft_seconds = around(0.2, tails[i]))
    };
    pairs.check(Finding::Queueing, Some(8), tail([1.1, 1.2, 1.5, 2.0]), tail([1.5, 1.1, 1.6, 1.3]));

    let decode = |medians: [f64; 4]| {
        move |l: &mut Ladder| each(l, |i, level| level.tpot_seconds = around(medians[i] / 1e3, 1.05))
    };
    pairs.check(
        Finding::DecodeBound,
        Some(8),
        decode([20.0, 21.0, 24.0, 30.0]),
        decode([20.0, 30.0, 22.0, 30.0]),
    );

    let beyond = |median| move |l: &mut Ladder| l.levels[3].ttft_seconds = around(median, 1.05);
    pairs.check(Finding::LatencyBeyondObjective, Some(8), beyond(0.6), beyond(0.45));
}

fn load(pairs: &mut Pairs) {
    let knee = |last| move |l: &mut Ladder| l.levels[3].throughput_tokens_per_second = Some(last);
    pairs.check(Finding::ThroughputKnee, Some(4), knee(220.0), knee(300.0));
    pairs.check(Finding::SafeConcurrency, Some(2), knee(220.0), knee(300.0));

    let failing = |index: usize, class, count| move |l: &mut Ladder| fail(&mut l.levels[index], class, count);
    pairs.check(
        Finding::FailsUnloaded,
        Some(1),
        failing(0, FailureClass::UpstreamError, 10),
        failing(0, FailureClass::UpstreamError, 2),
    );
    pairs.check(
        Finding::FailsUnderLoad,
        Some(8),
        failing(3, FailureClass::Timeout, 10),
        failing(3, FailureClass::Timeout, 2),
    );
    assert_eq!(at(Finding::FailsUnderLoad, failing(3, FailureClass::RateLimited, 20)), []);
    assert_eq!(at(Finding::FailsUnderLoad, failing(3, FailureClass::Auth, 20)), []);
    assert_eq!(at(Finding::FailsUnderLoad, failing(0, FailureClass::Timeout, 20)), []);
    pairs.check(
        Finding::RateLimited,
        Some(8),
        failing(3, FailureClass::RateLimited, 1),
        failing(3, FailureClass::Overloaded, 1),
    );

    let saturated = |is| move |l: &mut Ladder| l.levels[1].client_saturated = Some(is);
    pairs.check(Finding::ClientSaturated, Some(2), saturated(true), saturated(false));
    let little = |holds| move |l: &mut Ladder| l.levels[1].little = Some(Little { in_flight: 1.1, holds });
    pairs.check(Finding::LevelUnsteady, Some(2), little(false), little(true));
}

#[test]
fn a_saturated_client_accuses_nobody_else() {
    let spoil = |ladder: &mut Ladder| {
        let last = &mut ladder.levels[3];
        last.client_saturated = Some(true);
        (last.ttft_seconds, last.tpot_seconds) = (around(3.0, 9.0), around(0.9, 9.0));
        fail(last, FailureClass::Timeout, 20);
    };
    let mut ladder = healthy();
    spoil(&mut ladder);
    let found: Vec<_> = ladder.examine().iter().map(|found| found.finding).collect();
    assert_eq!(found, [Finding::ClientSaturated]);
}

fn conduct(pairs: &mut Pairs) {
    let measured = |ttft, tpot| {
        move |l: &mut Ladder| {
            each(l, |_, level| {
                (level.ttft_seconds, level.tpot_seconds) = (around(ttft, 1.05), around(tpot, 1.05));
            });
        }
    };
    pairs.check(Finding::WrongMeasuringPoint, Some(1), measured(0.003, 0.02), measured(0.2, 0.02));
    // A tiny model is fast at both.
    assert_eq!(at(Finding::WrongMeasuringPoint, measured(0.003, 0.001)), []);
    // Half a millisecond for 1003 tokens of prompt is no prefill.
    assert_eq!(at(Finding::WrongMeasuringPoint, measured(0.0005, 0.0005)), [Some(1)]);

    let bursts = |count| move |l: &mut Ladder| each(l, |_, level| level.traits.bursts = count);
    pairs.check(Finding::BufferedPath, Some(1), bursts(40), bursts(3));
    let opened = |count| move |l: &mut Ladder| each(l, |_, level| level.traits.connections_opened = count);
    pairs.check(Finding::ConnectionsNotReused, Some(1), opened(40), opened(1));
    let on_purpose = |l: &mut Ladder| {
        opened(40)(l);
        l.reuses_connections = false;
    };
    assert_eq!(at(Finding::ConnectionsNotReused, on_purpose), []);

    let served = |model| move |l: &mut Ladder| l.levels[3].traits.served_models = BTreeSet::from([model]);
    pairs.check(Finding::ServedModelChanged, None, served(9), served(1));
    let build = |build| move |l: &mut Ladder| l.levels[3].traits.fingerprints = BTreeSet::from([build]);
    pairs.check(Finding::ServedModelChanged, None, build(9), build(2));

    let hidden = |count| move |l: &mut Ladder| each(l, |_, level| level.traits.hidden_reasoning = count);
    pairs.check(Finding::HiddenReasoning, Some(1), hidden(40), hidden(0));
}

fn lengths_and_caches(pairs: &mut Pairs) {
    let counted = |tokens, length| {
        move |l: &mut Ladder| {
            l.length = length;
            each(l, |_, level| level.prompt_tokens_measured = Some(tokens));
        }
    };
    pairs.check(
        Finding::PromptTruncated,
        Some(1),
        counted(512.0, PromptLength::Calibrated),
        counted(980.0, PromptLength::Calibrated),
    );
    // A prompt of estimated length may well be so much shorter.
    pairs.check(
        Finding::PromptTruncated,
        Some(1),
        counted(256.0, PromptLength::Estimated),
        counted(700.0, PromptLength::Estimated),
    );

    assert_eq!(at(Finding::PromptTruncated, counted(20.0, PromptLength::Real)), []);

    let output = |tokens| move |l: &mut Ladder| l.levels[1].traits.output_tokens_p50 = Some(tokens);
    pairs.check(Finding::OutputShorterThanAsked, Some(2), output(20.0), output(63.0));

    let cached = |prefix_cache, ratio| {
        move |l: &mut Ladder| {
            l.prefix_cache = prefix_cache;
            each(l, |_, level| level.cached_ratio = ratio);
        }
    };
    let cold = |ratio| cached(PrefixCache::Cold, ratio);
    pairs.check(Finding::PrefixCacheHitThoughCold, Some(1), cold(Some(0.9)), cold(Some(0.06)));
    assert_eq!(at(Finding::PrefixCacheHitThoughCold, cold(None)), []);
    let warm = |ratio| cached(PrefixCache::Warm, ratio);
    pairs.check(Finding::CacheMissedThoughWarm, Some(1), warm(Some(0.0)), warm(Some(0.98)));
    assert_eq!(at(Finding::CacheMissedThoughWarm, warm(None)), []);
    let shared = |ratio| cached(PrefixCache::parse("shared:0.5").unwrap(), Some(ratio));
    pairs.check(Finding::CacheMissedThoughWarm, Some(1), shared(0.1), shared(0.48));
    pairs.check(Finding::PrefixCacheHitThoughCold, Some(1), shared(0.9), shared(0.52));

    let refused = |refusals| {
        move |l: &mut Ladder| {
            l.levels.truncate(1);
            l.levels[0] = level(1, 0, 1, 0.0, 0.0);
            l.levels[0].failures.insert(FailureClass::BadRequest, 1);
            l.levels[0].traits.context_refusals = refusals;
        }
    };
    pairs.check(Finding::ContextTooSmall, Some(1), refused(1), refused(0));
    pairs.check(Finding::FailsUnloaded, Some(1), refused(0), refused(1));

    let control = |median| {
        move |l: &mut Ladder| {
            let control = LevelSummary { ttft_seconds: around(median, 1.05), ..l.levels[0].clone() };
            l.control = Some((1024, control));
        }
    };
    pairs.check(Finding::Preallocation, Some(1), control(0.3), control(0.204));
}

/// The healthy ladder's 1003 tokens take 0.2 s; longer prompts take that times the power of their length.
fn grown(exponent: f64) -> impl Fn(&mut Ladder) {
    move |ladder| {
        ladder.other_lengths = [4.0_f64, 16.0]
            .map(|factor| LengthPoint {
                prompt_tokens: 1_003.0 * factor,
                ttft_seconds: 0.2 * factor.powf(exponent),
                relative_error: 0.03,
                concurrency: 1,
            })
            .into();
    }
}

fn growth_with_length(pairs: &mut Pairs) {
    pairs.check(Finding::PrefillCompute, None, grown(1.0), grown(0.2));
    pairs.check(Finding::KvCacheGrowth, None, grown(1.6), grown(1.0));
    let mut ladder = healthy();
    grown(1.6)(&mut ladder);
    let found = ladder.examine();
    let evidence = &found[0].evidence;
    assert!((evidence["exponent"] - 1.6).abs() < 0.05, "{evidence:?}");
    assert!(evidence["exponent_low"] < 1.6 && evidence["exponent_high"] > 1.6);
    // Lengths too much alike say nothing, and neither do other concurrencies.
    let point = |prompt_tokens, concurrency| LengthPoint {
        prompt_tokens,
        ttft_seconds: prompt_tokens,
        relative_error: 0.03,
        concurrency,
    };
    assert_eq!(growth(&[point(1000.0, 1), point(1200.0, 1)]), None);
    assert_eq!(growth(&[point(1000.0, 1), point(9000.0, 2)]), None);
    assert!(growth(&[point(1000.0, 2), point(9000.0, 2)]).is_some());
}

#[test]
fn noise_alone_is_no_queueing_and_no_stall() {
    let mut random = fastrand::Rng::with_seed(5);
    for (requests, noise) in [(40, 0.1), (40, 0.3), (8, 0.1)] {
        let mut deceived = 0;
        for _ in 0..500 {
            let mut ladder = healthy();
            for level in &mut ladder.levels {
                let samples = (0..requests).map(|_| 0.2 * (noise * super::knees::normal(&mut random)).exp());
                level.ttft_seconds = Percentiles::of(samples.collect());
            }
            let wrong =
                |found: &Found| matches!(found.finding, Finding::Queueing | Finding::OccasionalStalls);
            deceived += i32::from(ladder.examine().iter().any(wrong));
        }
        println!("{requests} requests that differ by {noise}: deceived {deceived} times of 500");
        assert!(deceived <= 10, "{requests} {noise}: {deceived}");
    }
}

/// The healthy ladder's 0.2 s as an engine accounts for them.
fn view(outside: f64, queue: f64, prefill: f64) -> EngineView {
    let ttft = 0.2;
    EngineView {
        engine: "vLLM",
        requests: Some(41.0),
        own_requests: 41,
        ttft_seconds: ttft,
        parts: vec![
            (Part::Outside, outside * ttft),
            (Part::Queue, queue * ttft),
            (Part::Prefill, prefill * ttft),
            (Part::Rest, (1.0 - outside - queue - prefill) * ttft),
        ],
        kv_cache_usage: Some(0.4),
        running: Some(4.0),
        waiting: Some(0.0),
        preemptions: Some(0.0),
        prefix_cache_hit_ratio: Some(0.0),
    }
}

fn by_the_engine(pairs: &mut Pairs) {
    let told = |view: EngineView| move |l: &mut Ladder| l.levels[2].engine = Some(view);
    pairs.check(Finding::OutsideEngine, Some(4), told(view(0.7, 0.1, 0.1)), told(view(0.3, 0.1, 0.5)));
    pairs.check(Finding::Queueing, Some(4), told(view(0.1, 0.7, 0.1)), told(view(0.1, 0.3, 0.5)));
    let full = |usage| EngineView { kv_cache_usage: Some(usage), ..view(0.1, 0.1, 0.7) };
    pairs.check(Finding::KvCacheExhausted, Some(4), told(full(0.99)), told(full(0.7)));
    let put_back = |preemptions| EngineView { preemptions: Some(preemptions), ..view(0.1, 0.1, 0.7) };
    pairs.check(Finding::KvCacheExhausted, Some(4), told(put_back(1.0)), told(put_back(0.0)));
    let shared = |requests| EngineView { requests: Some(requests), ..view(0.1, 0.8, 0.1) };
    pairs.check(Finding::OtherLoad, Some(4), told(shared(60.0)), told(shared(42.0)));
    // What others wait is no conclusion about this level.
    assert_eq!(at(Finding::Queueing, told(shared(60.0))), []);
}

#[test]
fn what_was_concluded_is_confirmed_or_taken_back_by_the_engine() {
    let slow = |view: Option<EngineView>| {
        move |l: &mut Ladder| {
            each(l, |_, level| level.ttft_seconds = around(0.6, 1.05));
            l.levels[0].engine = view.map(|view| EngineView {
                ttft_seconds: 0.6,
                parts: view.parts.iter().map(|(part, seconds)| (*part, seconds * 3.0)).collect(),
                ..view
            });
        }
    };
    let basis = |finding: Finding, spoil: &dyn Fn(&mut Ladder)| {
        let mut ladder = healthy();
        spoil(&mut ladder);
        ladder.examine().iter().find(|found| found.finding == finding).map(|found| found.basis)
    };
    let prefill = Finding::PrefillBound;
    assert_eq!(basis(prefill, &|l| slow(None)(l)), Some(Basis::Inferred));
    assert_eq!(basis(prefill, &|l| slow(Some(view(0.1, 0.1, 0.7)))(l)), Some(Basis::Measured));
    // The engine says that they waited, or that it was not the engine at all.
    assert_eq!(basis(prefill, &|l| slow(Some(view(0.1, 0.7, 0.1)))(l)), None);
    assert_eq!(basis(Finding::Queueing, &|l| slow(Some(view(0.1, 0.7, 0.1)))(l)), Some(Basis::Measured));
    assert_eq!(basis(prefill, &|l| slow(Some(view(0.7, 0.1, 0.1)))(l)), None);
    // It does not say.
    assert_eq!(basis(prefill, &|l| slow(Some(view(0.3, 0.3, 0.3)))(l)), Some(Basis::Inferred));
}
