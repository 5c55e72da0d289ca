//! Prompts have the length that was asked for, as the server counts it: its tokenizer is not our estimator.

use std::sync::Arc;

use tokenprobe::{
    analysis::{Basis, Finding},
    budget::Governor,
    config::{BaseUrl, PrefixCache, PromptLanguage, Redactor, Sweep, Target},
    engine::Part,
    probe::Endpoint,
    prompt::{Prompts, book::Real},
    protocol::Protocol,
    sweep::{Event, Fleet, Prepared, Register, Remembered, Role, Run, SweepReport, brake},
};
use tokio::sync::mpsc;

use crate::harness::Server;

struct Site {
    _server: Server,
    target: Arc<Target>,
    fleet: Fleet,
}

impl Site {
    async fn new(model: &str) -> Self {
        let server = Server::start(|_| {}).await;
        let base_url = BaseUrl::parse(&server.base_url()).unwrap();
        let mut target = Target::ad_hoc(base_url, Protocol::OpenAiChat, vec![Arc::from(model)]);
        let metrics = server.base_url().replace("/v1", "/metrics");
        target.engine_metrics_url = Some(metrics.parse().unwrap());
        let target = Arc::new(target);
        Self { _server: server, fleet: fleet(&target), target }
    }

    /// As after a restart: what is known of the target is what was kept of it.
    fn restarted(self) -> Self {
        let fleet = fleet(&self.target);
        let kept = serde_json::to_string(&self.fleet.calibrations()).unwrap();
        fleet.remember(&serde_json::from_str::<Vec<Remembered>>(&kept).unwrap());
        Self { fleet, ..self }
    }

    /// Runs a sweep; also says how many requests it took to calibrate.
    async fn sweep(&self, prompt_tokens: &[u32], change: impl FnOnce(&mut Sweep)) -> (SweepReport, usize) {
        let mut sweep = Sweep::ad_hoc(self.target.clone(), prompt_tokens.to_vec(), vec![1, 2]);
        sweep.level.requests = 6;
        sweep.level.max_tokens = 4;
        change(&mut sweep);
        let (_brake, halt) = brake();
        let (events, mut inbox) = mpsc::channel(16);
        let run = Run {
            sweep: Arc::new(sweep),
            fleet: self.fleet.clone(),
            gap_bounds: Arc::from([1.0]),
            events,
            halt,
            register: Register::default(),
            governor: Governor::unlimited(),
            paused: Arc::default(),
        };
        let count = async {
            let mut calibrating = 0;
            while let Some(event) = inbox.recv().await {
                calibrating += usize::from(matches!(event, Event::Probed { role: Role::Calibration, .. }));
            }
            calibrating
        };
        tokio::join!(run.run(), count)
    }
}

fn fleet(target: &Arc<Target>) -> Fleet {
    let mut fleet = Fleet::default();
    let endpoint = Endpoint::new(target.clone(), Arc::new(Redactor::default())).unwrap();
    fleet.insert(Prepared::new(endpoint), &Fleet::default());
    fleet
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_within_two_percent_after_at_most_four_small_requests() {
    for language in [PromptLanguage::En, PromptLanguage::Zh, PromptLanguage::Mixed] {
        let site = Site::new("fixed").await;
        let (report, requests) =
            site.sweep(&[300, 1_000, 8_000, 32_000], |sweep| sweep.level.prompt_language = language).await;
        assert!((1..=4).contains(&requests), "{requests} requests to calibrate");
        for ladder in &report.ladders {
            for level in &ladder.levels {
                let counted = level.prompt_tokens_measured.unwrap();
                let off = counted / f64::from(ladder.prompt_tokens) - 1.0;
                println!("{language:?} {} at {}: {counted:.1}", ladder.prompt_tokens, level.concurrency);
                assert!(off.abs() <= 0.02, "{language:?} {}: {counted}", ladder.prompt_tokens);
            }
        }
        // What was learned is remembered.
        let (_, again) = site.sweep(&[2_000], |sweep| sweep.level.prompt_language = language).await;
        assert_eq!(again, 0);
        // Over a restart, too.
        let site = site.restarted();
        let (_, again) = site.sweep(&[2_000], |sweep| sweep.level.prompt_language = language).await;
        assert_eq!(again, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_is_cold_and_warm_is_warm_and_neither_is_a_finding() {
    let site = Site::new("qwen3-8b").await;
    let shared = PrefixCache::parse("shared:0.5").unwrap();
    for (prefix_cache, ratio) in
        [(PrefixCache::Cold, 0.0..0.05), (PrefixCache::Warm, 0.9..1.0), (shared, 0.4..0.55)]
    {
        let (report, _) = site.sweep(&[1_000], |sweep| sweep.level.prefix_cache = prefix_cache).await;
        let ladder = &report.ladders[0];
        for level in &ladder.levels {
            assert!(
                ratio.contains(&level.cached_ratio.unwrap()),
                "{prefix_cache:?} {:?}",
                level.cached_ratio
            );
        }
        let of_cache = [Finding::PrefixCacheHitThoughCold, Finding::CacheMissedThoughWarm];
        assert!(
            !ladder.findings.iter().any(|found| of_cache.contains(&found.finding)),
            "{:?}",
            ladder.findings
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_asked_first_when_calibration_is_off_or_prompts_are_real() {
    let site = Site::new("fixed").await;
    let (report, requests) = site.sweep(&[1_000], |sweep| sweep.level.calibrate = false).await;
    assert_eq!(requests, 0);
    assert!(report.ladders[0].levels[0].prompt_tokens_measured.is_some());
    let Prompts::Real(real) = Real::parse("\"Say why the sea is salt.\"\n\"And the sky blue?\"").unwrap()
    else {
        panic!()
    };
    let tokens = real.nominal_tokens();
    let (report, requests) =
        site.sweep(&[tokens], |sweep| sweep.level.prompts = Prompts::Real(real.clone())).await;
    assert_eq!(requests, 0);
    let findings = &report.ladders[0].findings;
    assert!(!findings.iter().any(|found| found.finding == Finding::PromptTruncated), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_account_adds_up_to_what_the_client_saw_and_names_the_queue() {
    let site = Site::new("qwen3-8b").await;
    let (report, _) = site
        .sweep(&[2_000], |sweep| {
            sweep.concurrency = vec![1, 4, 64];
            sweep.level.requests = 64;
        })
        .await;
    let ladder = &report.ladders[0];
    for level in &ladder.levels {
        let view = level.engine.as_ref().unwrap();
        println!("{view:?}");
        assert_eq!(view.engine, "vLLM");
        assert!((0.9..=1.1).contains(&view.balance()), "{}: {}", level.concurrency, view.balance());
        assert!(view.part(Part::Prefill).unwrap() > 0.0);
    }
    let queueing = ladder.findings.iter().find(|found| found.finding == Finding::Queueing);
    if let Some(queueing) = queueing {
        println!("{queueing:?}");
    }
    let waits = |index: usize| ladder.levels[index].engine.as_ref().unwrap().part(Part::Queue).unwrap();
    assert!(waits(2) > waits(0), "{} {}", waits(2), waits(0));
    assert!(ladder.findings.iter().all(|found| found.finding != Finding::OtherLoad), "{:?}", ladder.findings);
    assert!(queueing.is_none_or(|found| found.basis != Basis::Observed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refined_ladder_probes_beside_the_knee_and_a_control_stays_out_of_it() {
    let site = Site::new("qwen3-8b").await;
    let (report, _) = site
        .sweep(&[500], |sweep| {
            sweep.concurrency = vec![1, 16, 64];
            sweep.level.requests = 64;
            sweep.level.max_tokens = 16;
            sweep.refine = true;
            sweep.max_tokens_control = Some(4);
        })
        .await;
    let ladder = &report.ladders[0];
    let levels: Vec<u32> = ladder.levels.iter().map(|level| level.concurrency).collect();
    println!("{:?} at {levels:?}", ladder.knee);
    assert!(levels.is_sorted() && levels.len() >= 3, "{levels:?}");
    if ladder.knee.concurrency().is_some() {
        assert_eq!(levels.len(), 4, "{levels:?}");
    }
    let (max_tokens, control) = ladder.control.as_ref().unwrap();
    assert_eq!((*max_tokens, control.concurrency, control.ok), (4, 1, 64));
    assert_eq!(control.traits.output_tokens_p50, Some(4.0));
    assert_eq!(ladder.levels[0].traits.output_tokens_p50, Some(16.0));
    assert!(
        !ladder.findings.iter().any(|found| found.finding == Finding::Preallocation),
        "{:?}",
        ladder.findings
    );
}
