//! Levels, ladders and sweeps against the simulator, which knows what it really did.

use std::sync::Arc;

use tokenprobe::{
    analysis::Knee,
    budget::Governor,
    config::{BaseUrl, Redactor, Sweep, Target},
    measurement::{ConnectionUse, FailureClass, Measurement},
    probe::Endpoint,
    protocol::Protocol,
    simulator::Oracle,
    sweep::{Event, Fleet, Prepared, Register, Role, Run, Stop, SweepReport, SweepResult, brake},
};
use tokio::sync::mpsc;

use crate::harness::{Server, fixed};

async fn overlapping(server: &Server, allowed: bool) {
    let mut target = Target::ad_hoc(
        BaseUrl::parse(&server.base_url()).unwrap(),
        Protocol::OpenAiChat,
        vec![Arc::from("fixed")],
    );
    target.allow_overlap = allowed;
    let target = Arc::new(target);
    let mut fleet = Fleet::default();
    let endpoint = Endpoint::new(target.clone(), Arc::new(Redactor::default())).unwrap();
    fleet.insert(Prepared::new(endpoint), &Fleet::default());
    let (_brake, halt) = brake();
    let (events, mut inbox) = mpsc::channel(64);
    let mut runs = tokio::task::JoinSet::new();
    for name in ["one", "other"] {
        let mut sweep = Sweep::ad_hoc(target.clone(), vec![60], vec![1]);
        sweep.name = Arc::from(name);
        sweep.level.requests = 6;
        sweep.level.max_tokens = 10;
        sweep.level.calibrate = false;
        let run = Run {
            sweep: Arc::new(sweep),
            fleet: fleet.clone(),
            gap_bounds: Arc::from([1.0]),
            events: events.clone(),
            halt: halt.clone(),
            register: Register::default(),
            governor: Governor::unlimited(),
            paused: Arc::default(),
        };
        runs.spawn(run.run());
    }
    drop(events);
    while inbox.recv().await.is_some() {}
    while let Some(report) = runs.join_next().await {
        assert_eq!(report.unwrap().result, SweepResult::Completed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sweeps_never_load_one_target_at_once_unless_allowed_to() {
    for (allowed, at_once) in [(false, 1), (true, 2)] {
        let server = Server::start(|_| {}).await;
        overlapping(&server, allowed).await;
        assert_eq!(most_at_once(&server.oracle), at_once, "overlap allowed: {allowed}");
    }
}

pub(crate) struct Ran {
    pub(crate) report: SweepReport,
    pub(crate) probes: Vec<(Role, Measurement)>,
    not_run: Vec<String>,
}

pub(crate) fn sweep(server: &Server, models: &[&str], concurrency: &[u32]) -> Sweep {
    let models = models.iter().map(|model| Arc::from(*model)).collect();
    let base_url = BaseUrl::parse(&server.base_url()).unwrap();
    let target = Arc::new(Target::ad_hoc(base_url, Protocol::OpenAiChat, models));
    let mut sweep = Sweep::ad_hoc(target, vec![60], concurrency.to_vec());
    sweep.level.requests = 8;
    sweep.level.max_tokens = 6;
    sweep.level.calibrate = false;
    sweep
}

pub(crate) async fn run(sweep: Sweep) -> Ran {
    let (_brake, halt) = brake();
    run_until(sweep, halt).await
}

async fn run_until(sweep: Sweep, halt: tokenprobe::sweep::Halt) -> Ran {
    let mut fleet = Fleet::default();
    for (target, _) in &sweep.targets {
        let endpoint = Endpoint::new(target.clone(), Arc::new(Redactor::default())).unwrap();
        fleet.insert(Prepared::new(endpoint), &Fleet::default());
    }
    let (events, mut inbox) = mpsc::channel(16);
    let register = Register::default();
    let run = Run {
        sweep: Arc::new(sweep),
        fleet,
        gap_bounds: Arc::from([0.01, 0.1, 1.0]),
        events,
        halt,
        register: register.clone(),
        governor: Governor::unlimited(),
        paused: Arc::default(),
    };
    let listen = async {
        let (mut probes, mut not_run) = (Vec::new(), Vec::new());
        while let Some(event) = inbox.recv().await {
            match event {
                Event::Probed { role, measurement, .. } => probes.push((role, *measurement)),
                Event::LevelNotRun { cause, .. } => not_run.push(cause.to_string()),
                Event::LevelStarted { .. }
                | Event::LevelEnded { .. }
                | Event::LadderEnded { .. }
                | Event::Advanced { .. } => {}
            }
        }
        (probes, not_run)
    };
    let (report, (probes, not_run)) = tokio::join!(run.run(), listen);
    assert_eq!(register.in_flight(), 0, "every probe in flight has landed");
    Ran { report, probes, not_run }
}

/// Most requests the server had in hand at one instant.
pub(crate) fn most_at_once(oracle: &Oracle) -> usize {
    let seen = oracle.requests();
    let at_once = |instant| {
        let open = |other: &&tokenprobe::simulator::Seen| {
            other.received <= instant && other.last_token_written.is_some_and(|last| last >= instant)
        };
        seen.iter().filter(open).count()
    };
    seen.iter().map(|request| at_once(request.received)).max().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_measures_what_it_was_asked_to_after_a_warm_up_per_worker() {
    let server = Server::start(|_| {}).await;
    let ran = run(sweep(&server, &["fixed"], &[4])).await;
    let measured: Vec<_> = ran.probes.iter().filter(|(role, _)| *role == Role::Measured).collect();
    assert_eq!(measured.len(), 8);
    assert!(measured.iter().all(|(_, m)| m.is_ok() && m.connection == ConnectionUse::Reused));
    let opened = ran.probes.iter().filter(|(_, m)| m.connection == ConnectionUse::New).count();
    assert_eq!(opened, 4, "the warm-up opens one connection per worker");
    assert_eq!(most_at_once(&server.oracle), 4);
    let level = &ran.report.ladders[0].levels[0];
    assert_eq!((level.requests, level.ok, level.incomplete), (8, 8, false));
    assert!(level.throughput_tokens_per_second.unwrap() > 0.0);
    assert_eq!(ran.report.result, SweepResult::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_never_earlier_than_the_servers_own_and_tokens_are_its_usage() {
    let server = Server::start(|_| {}).await;
    let ran = run(sweep(&server, &["fixed"], &[1])).await;
    for (_, measurement) in &ran.probes {
        assert_eq!(measurement.tokens.output, Some(6));
        assert!(measurement.timeline.first_token().unwrap().as_millis() >= 30);
        // Five gaps of 5 ms on an absolute schedule.
        assert!(measurement.timeline.last_token.unwrap().as_millis() >= 55);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_prompt_has_its_own_head_so_that_no_prefix_cache_answers() {
    let server = Server::start(|_| {}).await;
    let ran = run(sweep(&server, &["qwen3-8b"], &[2])).await;
    let mut heads: Vec<Vec<u8>> = server
        .oracle
        .requests()
        .iter()
        .map(|seen| {
            let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
            body["messages"][0]["content"].as_str().unwrap().as_bytes()[..24].to_vec()
        })
        .collect();
    let sent = heads.len();
    heads.sort();
    heads.dedup();
    assert_eq!(heads.len(), sent);
    assert_eq!(ran.report.ladders[0].levels[0].cached_ratio, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_prefix_cache_is_warm_when_asked_for() {
    let server = Server::start(|_| {}).await;
    let mut sweep = sweep(&server, &["qwen3-8b"], &[1]);
    sweep.level.prefix_cache = tokenprobe::config::PrefixCache::Warm;
    let ran = run(sweep).await;
    assert!(ran.report.ladders[0].levels[0].cached_ratio.unwrap() > 0.5);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_new_opens_one_for_every_probe() {
    let server = Server::start(|_| {}).await;
    let mut sweep = sweep(&server, &["fixed"], &[1]);
    sweep.level.connection = tokenprobe::config::ConnectionPolicy::New;
    let ran = run(sweep).await;
    assert!(ran.probes.iter().all(|(_, m)| m.connection == ConnectionUse::New && m.timeline.tcp.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_model_stops_its_ladder_at_once_and_the_next_model_still_has_its_turn() {
    let server = Server::start(|_| {}).await;
    let ran = run(sweep(&server, &["no-such", "fixed"], &[1, 2, 4])).await;
    let [wrong, right] = ran.report.ladders.as_slice() else { panic!("two ladders") };
    assert_eq!(wrong.levels.len(), 1);
    assert_eq!(wrong.levels[0].requests, 1, "one request is enough to know");
    assert_eq!(wrong.levels[0].failures[&FailureClass::ModelNotFound], 1);
    assert_eq!(wrong.not_run.len(), 2);
    assert_eq!(wrong.knee, Knee::Failed);
    assert_eq!(ran.not_run, ["model_not_found at concurrency 1"; 2]);
    assert!(right.levels.iter().all(|level| level.ok == 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_does_not_stream_is_timed_as_a_whole_and_no_further() {
    let server = Server::start(|_| {}).await;
    let mut sweep = sweep(&server, &["fixed+json"], &[1, 2, 4]);
    sweep.abort.failure_ratio = 1.0;
    let ran = run(sweep).await;
    let ladder = &ran.report.ladders[0];
    assert_eq!(ladder.levels.len(), 1);
    assert_eq!(ladder.levels[0].failures[&FailureClass::NotStreaming], 8);
    assert_eq!(ladder.levels[0].ttft_seconds, None);
    assert!(ladder.levels[0].duration_seconds.is_some_and(|duration| duration.p50 > 0.03));
    assert!(ladder.not_run[0].reason.starts_with("the endpoint does not stream"), "{:?}", ladder.not_run);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_after_thinking_has_its_own_clock() {
    let server = Server::start(|_| {}).await;
    let mut sweep = sweep(&server, &["fixed+reasoning"], &[1]);
    let short = run(sweep.clone()).await;
    let failures = &short.report.ladders[0].levels[0].failures;
    assert!(failures.contains_key(&FailureClass::EmptyOutput), "thinking uses up {failures:?}");
    sweep.level.reasoning_budget = 100;
    let ran = run(sweep).await;
    let level = &ran.report.ladders[0].levels[0];
    let answer = level.first_answer_token_seconds.unwrap();
    assert!(answer.p50 > level.ttft_seconds.unwrap().p50, "{level:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_failures_end_the_climb() {
    let server = Server::start(|_| {}).await;
    let ran = run(sweep(&server, &["fixed+500"], &[1, 2])).await;
    let ladder = &ran.report.ladders[0];
    assert_eq!(ladder.levels.len(), 1);
    assert_eq!(ladder.levels[0].failures[&FailureClass::UpstreamError], 8);
    assert_eq!(ladder.levels[0].ttft_seconds, None);
    assert_eq!(ladder.not_run[0].reason, "8 of 8 requests failed at concurrency 1");
    assert_eq!(ran.report.result, SweepResult::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_stream_options_is_found_out_in_the_warm_up() {
    let server = Server::start(|_| {}).await;
    let ran = run(sweep(&server, &["fixed+usage-rejected"], &[1, 2])).await;
    let levels = &ran.report.ladders[0].levels;
    assert!(levels.iter().all(|level| level.ok == 8 && level.tpot_seconds.is_none()));
    let refused = server.oracle.requests().iter().filter(|seen| seen.status == 400).count();
    assert_eq!(refused, 1, "asked once, then remembered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sweep_reports_what_it_has_and_cancelled_probes_are_no_failures() {
    let server = Server::start(|settings| {
        settings.models.push(tokenprobe::simulator::ModelProfile::fixed(
            "slow",
            std::time::Duration::from_millis(10),
            std::time::Duration::from_secs(3600),
        ));
    })
    .await;
    let (brake, halt) = brake();
    let oracle = server.oracle.clone();
    let stopper = async {
        while oracle.requests().iter().filter(|seen| seen.tokens_sent > 0).count() < 1 {
            tokio::task::yield_now().await;
        }
        brake.pull(Stop::Cancel);
    };
    let (ran, ()) = tokio::join!(run_until(sweep(&server, &["slow", "fixed"], &[1, 2]), halt), stopper);
    assert_eq!(ran.report.result, SweepResult::Aborted);
    assert!(ran.probes.is_empty(), "nothing ended, so nothing was measured");
    let level = &ran.report.ladders[0].levels[0];
    assert!(level.incomplete && level.failures.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_answers_are_failures_and_their_latencies_stay_out() {
    let server = Server::start(|settings| settings.models.push(fixed("other"))).await;
    for (model, class) in [
        ("fixed+truncate", FailureClass::StreamTruncated),
        ("fixed+error-in-stream", FailureClass::UpstreamError),
        ("fixed+empty", FailureClass::EmptyOutput),
        ("fixed+json", FailureClass::NotStreaming),
    ] {
        let ran = run(sweep(&server, &[model], &[1])).await;
        let level = &ran.report.ladders[0].levels[0];
        assert_eq!(level.failures.get(&class), Some(&8), "{model}: {:?}", level.failures);
        assert_eq!(level.ttft_seconds, None, "{model}");
    }
}
