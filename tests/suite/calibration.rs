//! Prompts have the length that was asked for, as the server counts it: its tokenizer is not our estimator.

use std::sync::Arc;

use tokenprobe::{
    analysis::Finding,
    budget::Governor,
    config::{BaseUrl, PrefixCache, PromptLanguage, Redactor, Sweep, Target},
    probe::Endpoint,
    protocol::Protocol,
    sweep::{Event, Fleet, Prepared, Register, Role, Run, SweepReport, brake},
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
        let target = Arc::new(Target::ad_hoc(base_url, Protocol::OpenAiChat, vec![Arc::from(model)]));
        let mut fleet = Fleet::default();
        let endpoint = Endpoint::new(target.clone(), Arc::new(Redactor::default())).unwrap();
        fleet.insert(Prepared::new(endpoint), &Fleet::default());
        Self { _server: server, target, fleet }
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
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_is_cold_and_warm_is_warm_and_neither_is_a_finding() {
    let site = Site::new("qwen3-8b").await;
    for (prefix_cache, ratio) in [(PrefixCache::Cold, 0.0..0.05), (PrefixCache::Warm, 0.9..1.0)] {
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
