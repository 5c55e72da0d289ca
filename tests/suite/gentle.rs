//! What is not asked of a model that fails, sleeps or was paused.

use crate::harness::{Daemon, Server, serve_router};

fn config(server: &Server, model: &str, head: &str, target: &str) -> String {
    format!(
        r#"
{head}

[[targets]]
name = "sim"
base_url = "{}"
models = ["{model}"]
{target}

[[sweeps]]
name = "often"
every = "1s"
run_on_start = true
targets = ["sim"]
prompt_tokens = [50, 200]
concurrency = [1, 2]
requests_per_level = 2
max_tokens = 4
"#,
        server.base_url()
    )
}

fn skips(model: &str, prompt_tokens: u32, reason: &str) -> String {
    format!(
        "tokenprobe_level_skips_total{{sweep=\"often\",target=\"sim\",model=\"{model}\",prompt_tokens=\"{prompt_tokens}\",reason=\"{reason}\"}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_at_short_prompts_is_not_asked_long_ones() {
    let server = Server::start(|_| {}).await;
    let daemon = Daemon::start(&config(&server, "fixed+500", "", ""), &[], &[]).await;
    let skipped = skips("fixed+500", 200, "lighter_fails");
    daemon.until("long prompts are skipped", async |daemon| daemon.metric(&skipped).await >= Some(4.0)).await;
    let longest = server.oracle.requests().iter().map(|seen| seen.body.len()).max().unwrap();
    assert!(longest < 1000, "no prompt of 200 tokens was sent: {longest} bytes");
    assert_eq!(daemon.metric(&skips("fixed+500", 50, "lighter_fails")).await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_sleeps_is_not_woken_and_the_first_probe_after_it_wakes_is_cold() {
    use std::sync::{Arc, Mutex};
    let loaded = Arc::new(Mutex::new("{\"models\":[]}"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let awake_url = format!("awake_url = \"http://{}/api/ps\"", listener.local_addr().unwrap());
    let answer = loaded.clone();
    let router = axum::Router::new().fallback(move || {
        let answer = *answer.lock().unwrap();
        async move { answer }
    });
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(serve_router(listener, router));
    let server = Server::start(|_| {}).await;
    let daemon = Daemon::start(&config(&server, "fixed", "", &awake_url), &[], &[]).await;
    let skipped = skips("fixed", 50, "asleep");
    daemon.until("levels are skipped", async |daemon| daemon.metric(&skipped).await >= Some(4.0)).await;
    assert!(server.oracle.requests().is_empty());
    *loaded.lock().unwrap() = "{\"models\":[{\"name\":\"fixed\"}]}";
    let measured =
        r#"tokenprobe_probe_results_total{target="sim",model="fixed",role="measured",result="success"}"#;
    daemon.until("it is probed", async |daemon| daemon.metric(measured).await >= Some(8.0)).await;
    let cold = r#"tokenprobe_probe_attempts_total{target="sim",model="fixed",role="cold"}"#;
    assert_eq!(daemon.metric(cold).await, Some(1.0), "one probe may have woken it");
    let time =
        daemon.metric(r#"tokenprobe_cold_time_to_first_token_seconds{target="sim",model="fixed"}"#).await;
    assert!(time >= Some(0.03), "{time:?}");
    // Whoever cannot be asked does not know: nothing is woken.
    drop(serving);
    let before = daemon.metric(&skipped).await;
    daemon.until("levels are skipped again", async |daemon| daemon.metric(&skipped).await > before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_outlives_a_restart() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let head = format!("[archive]\npath = \"{}\"\n", dir.path().join("archive.db").display());
    let text = config(&server, "fixed", &head, "");
    let mut daemon = Daemon::start(&text, &["--web.enable-lifecycle"], &[]).await;
    assert_eq!(daemon.post("/api/v1/sweeps/often/pause").await.0, 200);
    daemon.signal("-TERM");
    daemon.exit_code().await;
    let sent = server.oracle.requests().len();
    let mut daemon = Daemon::start(&text, &["--web.enable-lifecycle"], &[]).await;
    let skips = r#"tokenprobe_sweep_skips_total{sweep="often",reason="paused"}"#;
    daemon.until("starts are skipped", async |daemon| daemon.metric(skips).await >= Some(2.0)).await;
    assert_eq!(server.oracle.requests().len(), sent);
    assert!(daemon.get("/").await.1.contains(">paused<"));
    assert_eq!(daemon.post("/api/v1/sweeps/often/resume").await.0, 200);
    daemon.signal("-TERM");
    daemon.exit_code().await;
    let daemon = Daemon::start(&text, &[], &[]).await;
    daemon.until("it runs again", async |_| server.oracle.requests().len() > sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_probe_is_accounted_for_also_those_that_are_cut_off() {
    let server = Server::start(|_| {}).await;
    let text =
        config(&server, "fixed", "[server]\nshutdown_grace = \"0s\"\n", "").replace("[1, 2]", "[1, 4, 8]");
    let daemon = Daemon::start(&text, &[], &[]).await;
    let runs = r#"tokenprobe_sweep_runs_total{sweep="often",result="completed"}"#;
    daemon.until("sweeps ran", async |daemon| daemon.metric(runs).await >= Some(2.0)).await;
    // At every scrape, in the midst of it all.
    for _ in 0..20 {
        let text = daemon.get("/metrics").await.1;
        let sum = |name: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
        };
        let attempts = sum("tokenprobe_probe_attempts_total{");
        let ended = sum("tokenprobe_probe_results_total{");
        // Counts, which are exact.
        assert!((attempts - ended - sum("tokenprobe_probes_in_flight ")).abs() < 0.5, "{text}");
        assert!(attempts > 0.0);
    }
    let cancelled =
        r#"tokenprobe_probe_results_total{target="sim",model="fixed",role="filler",result="cancelled"}"#;
    assert!(daemon.metric(cancelled).await >= Some(1.0), "fillers that are no longer needed");
}
