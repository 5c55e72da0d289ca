//! Runaway attempts against a server that counts far more tokens than it was asked for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::State, response::IntoResponse};
use tokio::{net::TcpListener, task::JoinSet};

use crate::harness::{Daemon, serve_router};

/// What the server says each request used, whatever was asked for.
const TOKENS: u64 = 5_004;

async fn answer(State(requests): State<Arc<AtomicU64>>) -> impl IntoResponse {
    requests.fetch_add(1, Ordering::SeqCst);
    // So that as many as may are in flight at a time.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let chunk = r#"data: {"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let end = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let usage =
        r#"data: {"choices":[],"usage":{"prompt_tokens":5000,"completion_tokens":4,"total_tokens":5004}}"#;
    let body = format!("{chunk}\n\n{chunk}\n\n{end}\n\n{usage}\n\ndata: [DONE]\n\n");
    ([("content-type", "text/event-stream")], body)
}

fn config(base_url: &str, name: &str, cap: u64) -> String {
    format!(
        r#"
[budget]
tokens_per_month = {cap}
requests_per_month = 1000

[[targets]]
name = "dear"
base_url = "{base_url}"
models = ["m"]

[[sweeps]]
name = "{name}"
every = "1s"
run_on_start = true
targets = ["dear"]
prompt_tokens = [50]
concurrency = [1, 4, 8]
requests_per_level = 4
max_tokens = 4
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_counts_more_than_it_can_surprises_the_budget_once() {
    let requests = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    let router = Router::new().fallback(answer).with_state(requests.clone());
    serving.spawn(serve_router(listener, router));
    // Every answer is worth forty of the estimates. The cap lies where a level would reach it with all its requests in flight.
    for cap in [60_000, 100_000, 137_000] {
        requests.store(0, Ordering::SeqCst);
        let daemon = Daemon::start(&config(&base_url, "often", cap), &["--web.enable-lifecycle"], &[]).await;
        for round in 0..10 {
            // What was learned about the model survives reloads, and another name of the sweep.
            std::fs::write(daemon.config_file(), config(&base_url, &format!("often-{round}"), cap)).unwrap();
            assert_eq!(daemon.post("/-/reload").await.0, 200);
            let _ = daemon.post(&format!("/api/v1/sweeps/often-{round}/run")).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        let skips = r#"tokenprobe_sweep_skips_total{sweep="often-9",reason="budget"}"#;
        daemon.until("starts are skipped", async |daemon| daemon.metric(skips).await >= Some(2.0)).await;
        let used = requests.load(Ordering::SeqCst) * TOKENS;
        assert!(used <= cap, "{used} tokens used under a budget of {cap}");
        assert!(used >= 2 * TOKENS, "{used}");
        // A surprise each for the two requests of the calibration, and one for a shorter prompt than theirs.
        let surprises = daemon.log().matches("uses more tokens than its requests can").count();
        assert!((1..=3).contains(&surprises), "{surprises}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_years_ladder_is_not_begun_when_it_does_not_fit() {
    let requests = Arc::new(AtomicU64::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    let router = Router::new().fallback(answer).with_state(requests.clone());
    serving.spawn(serve_router(listener, router));
    let text = config(&base_url, "year", 1_000_000_000)
        .replace("requests_per_level = 4", "requests_per_level = 1000000");
    let daemon = Daemon::start(&text, &[], &[]).await;
    let skips = r#"tokenprobe_sweep_skips_total{sweep="year",reason="budget"}"#;
    daemon.until("starts are skipped", async |daemon| daemon.metric(skips).await >= Some(2.0)).await;
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}
