//! Rules of what is counted where, and the text that comes out.

#![allow(clippy::float_cmp, reason = "counts and values that were set come out as they went in")]

mod fixture;

use std::{collections::BTreeSet, time::Duration};

use chrono::DateTime;

use super::*;
use crate::{
    analysis::{Knee, LevelSummary},
    config::{Config, FINDINGS_MAX, SeriesCount},
    measurement::{Failure, Measurement, Outcome, Timeline, TokenSource},
};
use fixture::{
    Seen, after, at_rate, cell, failed, good, label_names, layout, level, metrics, ms, series_name,
};

#[test]
fn a_good_probe_enters_every_histogram_once() {
    let seen = after(&[good()]);
    for (name, sum) in [
        ("time_to_first_token_seconds", 0.1),
        ("time_to_first_answer_token_seconds", 0.3),
        ("time_per_output_token_seconds", 0.1),
        ("request_duration_seconds", 1.2),
        ("output_tokens_per_second", 10.0),
    ] {
        assert_eq!(seen.value(&format!("{name}_count")), Some(1.0), "{name}");
        let found = seen.value(&format!("{name}_sum")).unwrap();
        assert!((found - sum).abs() < 1e-9, "{name}: {found}");
    }
    assert_eq!(seen.value("chunk_gap_seconds_count"), Some(2.0));
    assert_eq!(seen.value("chunk_gap_seconds_sum"), Some(0.75));
    assert_eq!(seen.value("requests_total"), Some(1.0));
    assert_eq!(seen.total("request_failures_total"), 0.0);
}

#[test]
fn a_failed_probe_enters_no_latency_but_its_duration_and_stays_in_the_denominator() {
    let outcomes: [fn(Failure) -> Outcome; 4] =
        [Outcome::Partial, Outcome::Empty, Outcome::Unmeasurable, Outcome::Error];
    for outcome in outcomes {
        let seen = after(&[failed(outcome, FailureClass::StreamTruncated)]);
        for name in [
            "time_to_first_token_seconds",
            "time_to_first_answer_token_seconds",
            "time_per_output_token_seconds",
            "chunk_gap_seconds",
            "output_tokens_per_second",
        ] {
            assert_eq!(seen.value(&format!("{name}_count")), Some(0.0), "{name}");
        }
        assert_eq!(seen.value("request_duration_seconds_count"), Some(1.0));
        assert_eq!(seen.value("requests_total"), Some(1.0));
        assert_eq!(seen.total("request_failures_total"), 1.0);
        assert_eq!(seen.labelled("request_failures_total", "reason=\"stream_truncated\""), Some(1.0));
        assert_eq!(seen.total("requests_within_objective_total"), 0.0, "a failure never counts as good");
    }
}

#[test]
fn without_the_servers_token_count_no_time_per_token_is_claimed() {
    for (source, observed) in [
        (TokenSource::Usage, 1.0),
        (TokenSource::UsageCumulative, 1.0),
        (TokenSource::Vendor("timings.predicted_n"), 1.0),
        (TokenSource::ChunkCount, 0.0),
        (TokenSource::None, 0.0),
    ] {
        let mut probe = good();
        probe.tokens.source = source;
        let seen = after(&[probe]);
        for name in ["time_per_output_token_seconds_count", "output_tokens_per_second_count"] {
            assert_eq!(seen.value(name), Some(observed), "{source:?} {name}");
        }
        assert_eq!(seen.value("time_to_first_token_seconds_count"), Some(1.0));
    }
}

#[test]
fn objectives_count_what_is_within_them_edges_included() {
    let within = |seen: &Seen| {
        ["ttft", "tpot", "duration", "all"].map(|kind| {
            seen.labelled("requests_within_objective_total", &format!("objective=\"{kind}\"")).unwrap()
        })
    };
    assert_eq!(within(&after(&[good()])), [1.0; 4], "the objectives are this probe's own times");
    let change = |change: fn(&mut Measurement)| {
        let mut probe = good();
        change(&mut probe);
        within(&after(&[probe]))
    };
    assert_eq!(change(|probe| probe.timeline.first_reasoning_token = Some(ms(101))), [0.0, 1.0, 1.0, 0.0]);
    assert_eq!(change(|probe| probe.timeline.last_token = Some(ms(1200))), [1.0, 0.0, 1.0, 0.0]);
    assert_eq!(change(|probe| probe.timeline.end = ms(1201)), [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(
        change(|probe| probe.tokens.output = Some(1)),
        [1.0; 4],
        "one token: nobody waited between tokens"
    );
}

#[test]
fn objectives_that_are_not_set_have_no_series() {
    let mut layout = layout();
    layout.sweeps[0].objectives = Objectives { ttft: Some(ms(100)), ..Objectives::default() };
    let metrics = metrics(&layout);
    metrics.cell(&cell(), layout.sweeps[0].objectives).observe(&good());
    let seen = Seen::of(&metrics);
    let name = "requests_within_objective_total";
    assert_eq!(seen.labelled(name, "objective=\"ttft\""), Some(1.0));
    assert_eq!(seen.labelled(name, "objective=\"all\""), Some(1.0));
    assert_eq!(seen.labelled(name, "objective=\"tpot\""), None);
    assert_eq!(seen.labelled(name, "objective=\"duration\""), None);
}

#[test]
fn tokens_and_connection_phases_count_excluded_and_failed_probes_too() {
    let layout = layout();
    let metrics = metrics(&layout);
    let writer = metrics.cell(&cell(), layout.sweeps[0].objectives);
    writer.observe_excluded(&good());
    writer.observe(&failed(Outcome::Partial, FailureClass::Timeout));
    let seen = Seen::of(&metrics);
    assert_eq!(seen.value("requests_total"), Some(1.0), "only the measured one");
    assert_eq!(seen.value("time_to_first_token_seconds_count"), Some(0.0));
    for (name, value) in [
        ("prompt_tokens_total", 200.0),
        ("cached_prompt_tokens_total", 20.0),
        ("output_tokens_total", 22.0),
        ("reasoning_tokens_total", 4.0),
    ] {
        assert_eq!(seen.value(name), Some(value), "{name}");
    }
    for (phase, count) in [("dns", 0.0), ("tcp", 2.0), ("tls", 0.0)] {
        let found = seen.labelled("connection_phase_seconds_count", &format!("phase=\"{phase}\""));
        assert_eq!(found, Some(count), "{phase}");
    }
}

#[test]
fn up_is_what_the_latest_probe_said_and_absent_before_the_first() {
    assert_eq!(after(&[]).value("up"), None);
    for (outcome, up) in [
        (None, 1.0),
        (Some(Outcome::Partial as fn(_) -> _), 1.0),
        (Some(Outcome::Unmeasurable), 1.0),
        (Some(Outcome::Empty), 0.0),
        (Some(Outcome::Error), 0.0),
    ] {
        let latest = outcome.map_or_else(good, |outcome| failed(outcome, FailureClass::Connect));
        assert_eq!(after(&[good(), latest.clone()]).value("up"), Some(up), "{:?}", latest.outcome);
    }
}

#[test]
fn failing_names_the_class_of_the_latest_failure_only() {
    assert_eq!(after(&[]).count("failing"), 0);
    let auth = failed(Outcome::Error, FailureClass::Auth);
    let seen = after(&[good(), auth.clone()]);
    assert_eq!((seen.count("failing"), seen.total("failing")), (FailureClass::ALL.len(), 1.0));
    assert_eq!(seen.labelled("failing", "reason=\"auth\""), Some(1.0));
    assert_eq!(after(&[auth, good()]).total("failing"), 0.0);
}

#[test]
fn objectives_are_shown_as_configured() {
    let seen = after(&[]);
    assert_eq!(seen.labelled("objective_seconds", "objective=\"duration\""), Some(1.2));
    assert_eq!((seen.count("objective_seconds"), seen.value("objective_ratio")), (3, Some(0.99)));
}

#[test]
fn known_series_stand_at_zero_and_unknown_gauges_are_absent() {
    let seen = after(&[]);
    assert_eq!(seen.value("requests_total"), Some(0.0));
    assert_eq!(
        seen.count("request_failures_total"),
        FailureClass::ALL.len(),
        "or the first failure is no increase"
    );
    assert_eq!(seen.total("request_failures_total"), 0.0);
    assert_eq!(seen.labelled("sweep_skips_total", "reason=\"overlap\""), Some(0.0));
    assert_eq!(seen.value("probes_in_flight"), Some(3.0));
    for name in [
        "level_throughput_tokens_per_second",
        "level_ttft_seconds",
        "ladder_knee_concurrency",
        "ladder_state",
        "finding",
        "budget_limit",
        "budget_remaining",
        "sweep_last_success_timestamp_seconds",
        "config_last_reload_successful",
    ] {
        assert_eq!(seen.count(name), 0, "{name}");
    }
}

#[test]
fn a_level_shows_its_quantiles_until_one_fails() {
    let layout = layout();
    let metrics = metrics(&layout);
    let writer = metrics.cell(&cell(), layout.sweeps[0].objectives);
    writer.level(&level());
    let seen = Seen::of(&metrics);
    for (quantile, ttft, tpot) in [("0.5", 0.2, 0.02), ("0.95", 0.3, 0.03), ("0.99", 0.4, 0.04)] {
        let label = format!("quantile=\"{quantile}\"");
        assert_eq!(seen.labelled("level_ttft_seconds", &label), Some(ttft));
        assert_eq!(seen.labelled("level_tpot_seconds", &label), Some(tpot));
    }
    assert_eq!(seen.value("level_throughput_tokens_per_second"), Some(99.5));

    writer.level(&LevelSummary { ttft_seconds: None, incomplete: true, ..level() });
    assert_eq!(Seen::of(&metrics).count("level_ttft_seconds"), 3, "a stopped level says nothing");

    let nothing = LevelSummary {
        ok: 0,
        ttft_seconds: None,
        tpot_seconds: None,
        throughput_tokens_per_second: None,
        throughput_requests_per_second: None,
        ..level()
    };
    writer.level(&nothing);
    let seen = Seen::of(&metrics);
    for name in ["level_ttft_seconds", "level_tpot_seconds", "level_throughput_tokens_per_second"] {
        assert_eq!(seen.count(name), 0, "{name}");
    }
}

#[test]
fn a_ladder_shows_one_state_and_forgets_a_knee_that_is_no_longer_known() {
    let metrics = metrics(&layout());
    let ladder = metrics.ladder(&Ladder::from(&cell()));
    ladder.concluded(Knee::Found(8), Some(5));
    ladder.found(|finding| finding == "queueing");
    ladder.levels_skipped(LevelSkip::AfterKnee, 2);
    let seen = Seen::of(&metrics);
    assert_eq!(seen.value("ladder_knee_concurrency"), Some(8.0));
    assert_eq!(seen.value("ladder_safe_concurrency"), Some(5.0));
    assert_eq!((seen.count("ladder_state"), seen.total("ladder_state")), (4, 1.0));
    assert_eq!(seen.labelled("ladder_state", "state=\"found\""), Some(1.0));
    assert_eq!(seen.labelled("finding", "finding=\"queueing\""), Some(1.0));
    assert_eq!(seen.labelled("finding", "finding=\"prefill_bound\""), Some(0.0));
    assert_eq!(seen.labelled("level_skips_total", "reason=\"after_knee\""), Some(2.0));

    ladder.concluded(Knee::NotReached, None);
    let seen = Seen::of(&metrics);
    assert_eq!(seen.count("ladder_knee_concurrency") + seen.count("ladder_safe_concurrency"), 0);
    assert_eq!(seen.labelled("ladder_state", "state=\"found\""), Some(0.0));
    assert_eq!(seen.labelled("ladder_state", "state=\"not_reached\""), Some(1.0));
}

#[test]
fn a_ladder_of_rates_has_gauges_of_its_own_and_counts_what_was_not_sent() {
    let mut layout = layout();
    layout.sweeps.push(SweepLayout {
        name: "open".into(),
        objectives: Objectives::default(),
        cells: vec![at_rate()],
    });
    let metrics = metrics(&layout);
    metrics.cell(&at_rate(), Objectives::default()).not_sent(3);
    let ladder = metrics.ladder(&Ladder::from(&at_rate()));
    ladder.concluded(Knee::AtRate("5/s".parse().unwrap()), None);
    ladder.safe_at(Some("3.5/s".parse().unwrap()));
    let seen = Seen::of(&metrics);
    assert_eq!(seen.value("ladder_knee_requests_per_second"), Some(5.0));
    assert_eq!(seen.value("ladder_safe_requests_per_second"), Some(3.5));
    assert_eq!(seen.count("ladder_knee_concurrency"), 0);
    assert_eq!(seen.count("arrivals_not_sent_total"), 1, "closed loops send everything");
    assert_eq!(seen.labelled("arrivals_not_sent_total", "prompt_tokens=\"1000\",rate=\"2.5\""), Some(3.0));
    assert_eq!(seen.labelled("requests_total", "prompt_tokens=\"1000\",concurrency=\"8\""), Some(0.0));
}

#[test]
fn a_sweep_tells_its_schedules_truth() {
    let metrics = metrics(&layout());
    let sweep = metrics.sweep(&"s".into());
    let at = |millis| DateTime::from_timestamp_millis(millis).unwrap();
    sweep.scheduled(Some(at(1_000_000)), Some(Duration::from_mins(1)));
    sweep.started(at(1_000_250), Some(ms(250)));
    sweep.ended(at(1_030_250), Duration::from_secs(30), SweepResult::Failed);
    sweep.skipped(SkipReason::Overlap);
    let seen = Seen::of(&metrics);
    for (name, value) in [
        ("sweep_next_start_timestamp_seconds", 1000.0),
        ("sweep_interval_seconds", 60.0),
        ("sweep_last_start_timestamp_seconds", 1000.25),
        ("sweep_start_delay_seconds", 0.25),
        ("sweep_last_end_timestamp_seconds", 1030.25),
        ("sweep_duration_seconds", 30.0),
    ] {
        assert_eq!(seen.value(name), Some(value), "{name}");
    }
    assert_eq!(seen.value("sweep_last_success_timestamp_seconds"), None);
    assert_eq!(seen.labelled("sweep_runs_total", "result=\"failed\""), Some(1.0));
    assert_eq!(seen.labelled("sweep_skips_total", "reason=\"overlap\""), Some(1.0));

    sweep.ended(at(1_090_000), Duration::from_secs(30), SweepResult::Completed);
    assert_eq!(Seen::of(&metrics).value("sweep_last_success_timestamp_seconds"), Some(1090.0));
}

#[test]
fn a_reload_keeps_what_stays_and_drops_what_goes() {
    let mut layout = layout();
    let other = Cell { concurrency: 4, ..cell() };
    layout.sweeps[0].cells.push(other.clone());
    let metrics = metrics(&layout);
    let objectives = layout.sweeps[0].objectives;
    let (stays, goes) = (metrics.cell(&cell(), objectives), metrics.cell(&other, objectives));
    stays.observe(&good());
    goes.observe(&good());
    layout.sweeps[0].cells.pop();
    metrics.apply(&layout);
    goes.observe(&good());
    goes.level(&level());
    let seen = Seen::of(&metrics);
    assert_eq!((seen.count("requests_total"), seen.value("requests_total")), (1, Some(1.0)));
    assert_eq!(seen.value("time_to_first_token_seconds_count"), Some(1.0));
    assert_eq!(seen.count("level_ttft_seconds"), 0, "a level that outlives its cell does not bring it back");

    layout.buckets.time_to_first_token = [0.5, 1.0].into();
    metrics.apply(&layout);
    let seen = Seen::of(&metrics);
    assert_eq!(seen.value("time_to_first_token_seconds_count"), Some(0.0), "other buckets start anew");
    assert_eq!(seen.value("request_duration_seconds_count"), Some(1.0));
    assert_eq!(seen.value("requests_total"), Some(1.0));
}

#[test]
fn cells_whose_labels_read_alike_when_joined_have_their_own_series() {
    let mut layout = layout();
    let alike =
        [(1, 64), (16, 4)].map(|(prompt_tokens, concurrency)| Cell { prompt_tokens, concurrency, ..cell() });
    layout.sweeps[0].cells = alike.to_vec();
    let metrics = metrics(&layout);
    metrics.cell(&alike[0], Objectives::default()).observe(&good());
    let seen = Seen::of(&metrics);
    assert_eq!(seen.labelled("requests_total", "prompt_tokens=\"1\",concurrency=\"64\""), Some(1.0));
    assert_eq!(seen.labelled("requests_total", "prompt_tokens=\"16\",concurrency=\"4\""), Some(0.0));
}

#[test]
fn the_number_of_series_is_the_number_of_lines_once_everything_is_known() {
    let mut layout = layout();
    let second = Cell { sweep: "t".into(), target: "other".into(), ..cell() };
    layout.sweeps.push(SweepLayout {
        name: "t".into(),
        objectives: Objectives::default(),
        cells: vec![second.clone(), Cell { prompt_tokens: 7, ..second }],
    });
    layout.sweeps.push(SweepLayout {
        name: "open".into(),
        objectives: Objectives::default(),
        cells: vec![at_rate()],
    });
    let metrics = metrics(&layout);
    for sweep in &layout.sweeps {
        let writer = metrics.sweep(&sweep.name);
        let now = DateTime::from_timestamp_millis(1).unwrap();
        writer.scheduled(Some(now), Some(ms(1)));
        writer.started(now, Some(ms(1)));
        writer.ended(now, ms(1), SweepResult::Completed);
        for cell in &sweep.cells {
            let writer = metrics.cell(cell, sweep.objectives);
            writer.observe(&good());
            writer.observe_cold(&good());
            writer.level(&level());
            let ladder = metrics.ladder(&Ladder::from(cell));
            ladder.concluded(cell.rate.map_or(Knee::Found(8), Knee::AtRate), Some(5));
            ladder.safe_at(cell.rate);
            ladder.found(|_| true);
        }
    }
    metrics.set_budget(&layout.budgets[0], 2.0, 1.0);
    metrics.set_leader(true);
    metrics.reload_succeeded(DateTime::from_timestamp_millis(1).unwrap());
    metrics.set_archive(&Standing {
        dropped_queue_full: 1,
        dropped_unwritten: 0,
        write_failures: 2,
        up: Some(true),
        size_bytes: Some(1),
    });
    let text = metrics.encode();
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(lines, layout.series(), "{text}");
    let capacity: usize = metrics.families().iter().map(|family| family.capacity()).sum();
    assert_eq!(capacity + 7, layout.series());

    let shown: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let catalogue = names::CATALOGUE.iter().map(|spec| format!("{} {}", spec.name, spec.kind.as_str()));
    assert_eq!(shown, catalogue.collect::<Vec<_>>(), "what is shown is the catalogue, in its order");
}

#[test]
fn a_replica_that_stands_by_shows_no_latest_result() {
    let layout = layout();
    let metrics = metrics(&layout);
    let writer = metrics.cell(&cell(), Objectives::default());
    writer.observe(&good());
    writer.level(&level());
    metrics.ladder(&Ladder::from(&cell())).concluded(Knee::Found(8), Some(5));
    metrics.set_leader(true);
    let latest =
        ["up", "failing", "level_ttft_seconds", "level_throughput_tokens_per_second", "ladder_state"];
    let seen = Seen::of(&metrics);
    assert!(latest.iter().all(|name| seen.count(name) > 0));
    metrics.set_leader(false);
    let seen = Seen::of(&metrics);
    assert_eq!(latest.map(|name| seen.count(name)), [0; 5]);
    assert_eq!(seen.total("requests_total"), 1.0, "counts stay");
}

#[test]
fn the_configuration_counts_as_many_series_as_are_laid_out() {
    let file = std::path::Path::new("tests/config/valid/every_key.toml");
    let text = std::fs::read_to_string(file).unwrap();
    let environment = |_: &str| Ok("key".to_owned());
    let config = Config::parse(&text, file, &environment).unwrap();
    let mut layout = Layout::of(&config, &[0.0; 18]);
    layout.findings = (0..FINDINGS_MAX).map(|finding| finding.to_string().into()).collect();
    let count = SeriesCount::of(&config.histograms, &config.budget, config.sweeps.iter().map(AsRef::as_ref));
    assert_eq!(count.total, layout.series());
    assert_eq!(count.cells, layout.cells().count());
}

#[test]
fn what_is_shown_has_the_labels_and_the_help_of_the_catalogue() {
    let closed = metrics(&layout());
    closed.cell(&cell(), Objectives::default()).level(&level());
    check_labels(&closed.encode(), "rate");
    let mut layout = layout();
    layout.sweeps[0].cells = vec![at_rate()];
    let open = metrics(&layout);
    open.cell(&at_rate(), Objectives::default()).level(&level());
    check_labels(&open.encode(), "concurrency");
}

/// Every line has the labels of its metric, but for one whose value is empty.
fn check_labels(text: &str, empty: &str) {
    for spec in names::CATALOGUE {
        let help = format!("# HELP {} {}\n", spec.name, spec.help);
        if !text.contains(&format!("# TYPE {} ", spec.name)) {
            continue;
        }
        assert!(text.contains(&help), "{help}");
        let suffix = if spec.kind == names::Kind::Histogram { "_count" } else { "" };
        let sample = format!("{}{suffix}", spec.name);
        let line = text.lines().find(|line| series_name(line) == sample).unwrap();
        let names: Vec<&str> = label_names(line);
        let expected: Vec<&str> = spec.labels.iter().copied().filter(|name| *name != empty).collect();
        assert_eq!(names, expected, "{line}");
    }
}

#[test]
fn names_follow_the_conventions() {
    for spec in names::CATALOGUE {
        let (name, help) = (spec.name, spec.help);
        assert!(name.starts_with("tokenprobe_") || name.starts_with("process_"), "{name}");
        assert_eq!(name.ends_with("_total"), spec.kind == names::Kind::Counter, "{name}");
        for reserved in ["_count", "_sum", "_bucket", "_milliseconds", "_ms"] {
            assert!(!name.ends_with(reserved), "{name}");
        }
        assert!(help.ends_with('.') && !help.contains("  "), "{name}: {help}");
    }
    let duplicates: BTreeSet<_> = names::CATALOGUE.iter().map(|spec| spec.name).collect();
    assert_eq!(duplicates.len(), names::CATALOGUE.len());
}

#[test]
fn text_is_escaped_and_bounds_are_floats() {
    let mut layout = layout();
    let odd = Cell { model: "a\\b\"c\nd/e:f".into(), ..cell() };
    layout.sweeps[0].cells = vec![odd.clone()];
    let text = metrics(&layout).encode();
    assert!(text.contains(r#"model="a\\b\"c\nd/e:f""#), "{text}");
    assert!(text.contains(r#"le="1.0""#) && !text.contains(r#"le="1""#));
    assert!(text.contains(r#"le="+Inf""#) && text.ends_with('\n'));
    let mut header = String::new();
    text::header(&mut header, "n", "gauge", "a \\ \"b\"\nc");
    assert_eq!(header, "# HELP n a \\\\ \"b\"\\nc\n# TYPE n gauge\n");
}

#[test]
fn a_value_on_a_bound_belongs_to_its_bucket() {
    let histogram = Histogram::new(&[0.1, 0.2].into());
    for value in [0.1, 0.100_000_001, 0.2, 0.3] {
        histogram.observe(value);
    }
    assert_eq!(*histogram.content().counts, [1, 2, 1]);
}

#[test]
fn the_whole_output_for_one_cell() {
    let layout = layout();
    let metrics = metrics(&layout);
    let writer = metrics.cell(&cell(), layout.sweeps[0].objectives);
    writer.observe(&good());
    writer.observe(&failed(Outcome::Error, FailureClass::RateLimited));
    writer.level(&level());
    let text = metrics.encode();
    let stable = text
        .lines()
        .filter(|line| !line.contains("process_") && !line.starts_with("tokenprobe_build_info"))
        .map(|line| format!("{line}\n"));
    insta::assert_snapshot!(stable.collect::<String>());
}

/// Ten thousand series, in microseconds per encoding: run by hand, in release.
#[test]
#[ignore = "a measurement"]
fn encoding_takes() {
    let mut layout = layout();
    let cells = (0..).map(|concurrency| Cell { concurrency, ..cell() });
    layout.buckets.time_to_first_token = (1..=22).map(f64::from).collect();
    layout.sweeps[0].cells = cells.take(150).collect();
    let metrics = metrics(&layout);
    let started = tokio::time::Instant::now();
    let bytes: usize = (0..20).map(|_| metrics.encode().len()).sum();
    println!("{} series, {} bytes: {:?}", layout.series(), bytes / 20, started.elapsed() / 20);
}

#[test]
fn rate_limits_are_shown_as_far_as_the_target_tells_of_them() {
    use crate::measurement::rate_limit::{RateLimit, RateLimitUnit};
    let metrics = metrics(&layout());
    let cell = metrics.cell(&cell(), Objectives::default());
    let told = |rate_limits, headers| Measurement {
        rate_limits,
        timeline: Timeline { headers, ..good().timeline },
        ..good()
    };
    let requests = RateLimit {
        unit: RateLimitUnit::Requests,
        limit: None,
        remaining: Some(59.0),
        reset: Some(ms(1500)),
    };
    cell.observe(&told(vec![requests], Some(ms(5))));
    let shown = |text: &str| text.lines().filter(|line| line.starts_with("tokenprobe_rate_limit")).count();
    let text = metrics.encode();
    assert!(
        text.contains(
            "tokenprobe_rate_limit_remaining{target=\"gateway\",model=\"org/model:1\",unit=\"requests\"} 59"
        ),
        "{text}"
    );
    assert!(text.contains("unit=\"requests\"} 1.5"), "{text}");
    assert_eq!(shown(&text), 2, "{text}");
    // A probe without an answer changes nothing; an answer without the headers makes them unknown.
    cell.observe(&told(Vec::new(), None));
    assert_eq!(shown(&metrics.encode()), 2);
    cell.observe(&told(Vec::new(), Some(ms(5))));
    assert_eq!(shown(&metrics.encode()), 0);
}
