//! Open loops over real sockets, against a model that answers one request at a time.

use std::time::Duration;

use tokenprobe::{
    analysis::{Finding, Knee},
    arrivals::{Arrivals, Rate},
    config::Sweep,
    measurement::ConnectionUse,
    simulator::{
        ModelProfile,
        profile::{Batching, Timing},
    },
    sweep::Role,
};

use crate::{
    harness::{self, Server, stdout},
    levels::{most_at_once, run, sweep},
};

const STEP: Duration = Duration::from_millis(10);
const TOKENS: u32 = 6;
/// Whoever is answered keeps all others waiting for at least so long.
const HELD: Duration = Duration::from_millis(50);

/// One slot, and nothing that is left to chance.
fn one_at_a_time() -> ModelProfile {
    let batching = Batching {
        slots: 1,
        chunk_tokens: 100_000,
        admission: Duration::ZERO,
        prefill_per_token: Duration::ZERO,
        prefill_contention: 0.0,
        prefill_interference: 0.0,
        step: STEP,
        step_per_sequence: Duration::ZERO,
        crowd: 1,
        step_per_crowding: Duration::ZERO,
        step_contention: 0.0,
        request_spread: 0.0,
        request_spread_growth: 0.0,
        step_spread: 0.0,
    };
    ModelProfile { timing: Timing::Batched(batching), ..ModelProfile::fixed("queue", STEP, STEP) }
}

fn rates(server: &Server, rates: &[&str], in_flight_max: u32) -> Sweep {
    let mut sweep = sweep(server, &["queue"], &[1]);
    sweep.open(rates.iter().map(|rate| rate.parse().unwrap()).collect(), in_flight_max);
    sweep.level.arrivals = Arrivals::Constant;
    sweep.level.requests = 24;
    sweep.level.max_tokens = TOKENS;
    sweep
}

async fn queue() -> Server {
    Server::start(|settings| settings.models.push(one_at_a_time())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_beyond_capacity_is_told_by_its_growing_line() {
    let server = queue().await;
    let ran = run(rates(&server, &["8/s", "40/s"], 100)).await;
    let ladder = &ran.report.ladders[0];
    let [carried, beyond] = ladder.levels.as_slice() else { panic!("{:?}", ladder.not_run) };
    assert_eq!((carried.ok, beyond.ok), (24, 24));
    assert_eq!(beyond.offered.unwrap().keeps_up, Some(false), "{beyond:?}");
    let rate = |text: &str| text.parse::<Rate>().unwrap();
    if ladder.levels.iter().any(|level| level.client_saturated == Some(true)) {
        // A machine that was too busy to measure claims no capacity.
        assert_eq!((ladder.knee, ladder.safe_rate), (Knee::Unstable, None), "{carried:?}");
        return;
    }
    assert_eq!(ladder.knee, Knee::AtRate(rate("8/s")), "{carried:?}");
    assert_eq!(ladder.safe_rate, Some(rate("5.6/s")));
    assert_eq!((ladder.safe_concurrency, ladder.scaling), (None, None));
    let found: Vec<_> =
        ladder.findings.iter().map(|found| (found.finding, found.level, found.rate)).collect();
    assert!(found.contains(&(Finding::FallsBehind, None, Some(rate("40/s")))), "{found:?}");
    let closed =
        [Finding::ThroughputKnee, Finding::SafeConcurrency, Finding::Queueing, Finding::LevelUnsteady];
    assert!(
        found.iter().all(|(finding, level, _)| !closed.contains(finding) && level.is_none()),
        "{found:?}"
    );
}

/// D/D/1: the k-th request leaves no sooner than k + 1 services after the first was due.
#[tokio::test(flavor = "multi_thread")]
async fn latency_counts_from_when_a_request_was_due() {
    let server = queue().await;
    let ran = run(rates(&server, &["40/s"], 100)).await;
    let measured: Vec<_> = ran.probes.iter().filter(|(role, _)| *role == Role::Measured).collect();
    assert_eq!(measured.len(), 24);
    // They leave in the order in which they came.
    for (k, (_, probe)) in (0_u32..).zip(measured) {
        let (due, end) = (Duration::from_millis(25) * k, probe.timeline.end);
        assert!(due + end >= HELD * (k + 1), "request {k} took {end:?}");
        let late = probe.timeline.late.unwrap();
        assert!(probe.timeline.sent.unwrap() >= late && probe.timeline.first_token().unwrap() > late);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_while_as_many_as_may_be_are_in_flight_is_counted_and_not_sent() {
    let server = queue().await;
    let ran = run(rates(&server, &["100/s"], 2)).await;
    let ladder = &ran.report.ladders[0];
    let level = &ladder.levels[0];
    let not_sent = level.offered.unwrap().overflow;
    assert!(not_sent > 0 && level.requests > 0, "{level:?}");
    assert_eq!(level.requests + not_sent, 24);
    assert!(!level.incomplete);
    assert!(most_at_once(&server.oracle) <= 2);
    assert!(ladder.findings.iter().any(|found| found.finding == Finding::ArrivalsNotSent));
    assert_eq!(ladder.knee, Knee::Unstable, "who was not sent says nothing of the target");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_used_again_at_a_rate() {
    let server = queue().await;
    let ran = run(rates(&server, &["8/s"], 100)).await;
    let opened = ran.probes.iter().filter(|(_, probe)| probe.connection == ConnectionUse::New).count();
    assert!(opened <= ran.probes.len() / 2, "{opened} of {}", ran.probes.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ladder_of_rates_from_the_command_line() {
    let server = queue().await;
    let base_url = server.base_url();
    let args = [
        "sweep",
        "--base-url",
        &base_url,
        "--model",
        "queue",
        "--rate",
        "20/s,600/m",
        "--arrivals",
        "constant",
    ];
    let more = ["--requests", "4", "--max-tokens", "2", "--prompt-tokens", "60", "--format", "json"];
    let output = harness::run(&[args.as_slice(), &more].concat(), &[]).await;
    let sweep: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let levels = sweep["ladders"][0]["levels"].as_array().unwrap();
    let loads: Vec<_> = levels.iter().map(|level| (&level["concurrency"], level["rate"].as_f64())).collect();
    assert_eq!(loads, [(&serde_json::Value::Null, Some(10.0)), (&serde_json::Value::Null, Some(20.0))]);
    assert_eq!((&levels[0]["arrivals"], &levels[0]["not_sent"]), (&"constant".into(), &0.into()));
    assert!(levels[0]["late_p95_seconds"].as_f64().is_some());

    for wrong in [["--rate", "5"], ["--rate", "5/d"], ["--arrivals", "constant"]] {
        let output = harness::run(&[&args[..5], &wrong].concat(), &[]).await;
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
