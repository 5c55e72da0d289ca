//! What keeps the prober from doing harm, over real sockets: budgets, the target's own wishes, pauses, quiet hours.

use std::time::Duration;

use crate::harness::{Daemon, Server, run, stderr, stdout};

/// A sweep every second over one simulated model, with whatever else a test wants.
fn config(server: &Server, model: &str, budget: &str, target: &str, sweep: &str) -> String {
    format!(
        r#"
{budget}

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
prompt_tokens = [50]
concurrency = [1, 2]
requests_per_level = 2
max_tokens = 4
{sweep}
"#,
        server.base_url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_schedule_with_reloads_never_sends_more_than_the_budget() {
    let server = Server::start(|_| {}).await;
    let budget = "[budget]\nrequests_per_month = 40\n";
    // Were it to start again at every reload, it would send hundreds.
    let daemon =
        Daemon::start(&config(&server, "fixed", budget, "", ""), &["--web.enable-lifecycle"], &[]).await;
    for round in 0..20 {
        // Another name each time: a budget is not one name's.
        let text = config(&server, "fixed", budget, "", "").replace("often", &format!("often-{round}"));
        std::fs::write(daemon.config_file(), text).unwrap();
        assert_eq!(daemon.post("/-/reload").await.0, 200);
        let _ = daemon.post(&format!("/api/v1/sweeps/often-{round}/run")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let skips = r#"tokenprobe_sweep_skips_total{sweep="often-19",reason="budget"}"#;
    daemon.until("a start is skipped", async |daemon| daemon.metric(skips).await > Some(1.0)).await;
    let sent = server.oracle.requests().len();
    assert!((30..=40).contains(&sent), "{sent} requests sent under a budget of 40");
    let left =
        daemon.metric(r#"tokenprobe_budget_remaining{scope="all",unit="requests",period="month"}"#).await;
    assert!(left.unwrap() < 10.0, "{left:?}");
    let told = daemon.log().matches("a budget is spent").count();
    assert_eq!(told, 1, "told once: {}", daemon.log());
    let page = daemon.get("/").await.1;
    assert!(page.contains("<h2>Budget</h2>"), "{page}");
    let status: serde_json::Value = serde_json::from_str(&daemon.get("/api/v1/status").await.1).unwrap();
    assert_eq!(status["budgets"][0]["limit"], 40.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_that_does_not_fit_is_not_run_and_money_is_counted() {
    let server = Server::start(|_| {}).await;
    let prices = "prices = { fixed = { input_per_million = 1000, output_per_million = 2000 } }";
    // The lower level's worst case is 3 requests of at most 113 tokens in and 4 out; the upper one's is 5.
    let budget = "[budget]\ncost_per_day = 0.5\ncurrency = \"EUR\"\n";
    let text = config(&server, "fixed", budget, prices, "").replace("every = \"1s\"", "every = \"1h\"");
    let daemon = Daemon::start(&text, &[], &[]).await;
    let skipped = r#"tokenprobe_level_skips_total{sweep="often",target="sim",model="fixed",prompt_tokens="50",reason="budget"}"#;
    daemon.until("a level is skipped", async |daemon| daemon.metric(skipped).await == Some(1.0)).await;
    let sent = server.oracle.requests().len();
    assert_eq!(sent, 3, "the lower level's requests");
    let cost = r#"tokenprobe_cost_total{target="sim",model="fixed",currency="EUR"}"#;
    let cost = daemon.metric(cost).await.unwrap();
    let prompt = r#"tokenprobe_prompt_tokens_total{sweep="often",target="sim",model="fixed"}"#;
    let prompt = daemon.metric(prompt).await.unwrap();
    assert!((cost - (prompt * 1e-3 + 12.0 * 2e-3)).abs() < 1e-6, "{cost} for {prompt} prompt tokens");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_budget_the_ceiling_is_shown_and_a_plan_beyond_it_warns() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokenprobe.toml");
    std::fs::write(&file, config(&server, "fixed", "", "", "")).unwrap();
    let output = run(&["serve", "--config.check", "--config.file", file.to_str().unwrap()], &[]).await;
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.contains("budget: 100,000 requests per day of all (built in"), "{text}");
    assert!(
        text.contains("the plan needs 691,200 requests per day of all, more than the budget's 100,000"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_configurations_stay_below_their_budgets() {
    for file in ["config/tokenprobe.toml", "config/examples/gateway.toml"] {
        let args = ["serve", "--config.check", "--config.file", file];
        let output = run(&args, &[("GATEWAY_API_KEY", "sk-0123456789")]).await;
        assert_eq!(output.status.code(), Some(0), "{file}: {}", stderr(&output));
        assert!(!stdout(&output).contains("more than the budget"), "{file}: {}", stdout(&output));
    }
    let output = run(&["serve", "--demo", "--config.check"], &[]).await;
    assert!(!stdout(&output).contains("more than the budget"), "{}", stdout(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_asks_to_be_left_alone_is() {
    let server = Server::start(|_| {}).await;
    let daemon = Daemon::start(&config(&server, "fixed+429", "", "", ""), &[], &[]).await;
    let skipped = r#"tokenprobe_level_skips_total{sweep="often",target="sim",model="fixed+429",prompt_tokens="50",reason="retry_after"}"#;
    daemon.until("levels are skipped", async |daemon| daemon.metric(skipped).await >= Some(3.0)).await;
    let seen = server.oracle.requests();
    let gaps: Vec<Duration> =
        seen.windows(2).map(|pair| pair[1].received.duration_since(pair[0].received)).collect();
    // The simulator says Retry-After: 1.
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(990)), "{gaps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_sweep_starts_no_more_until_it_is_resumed() {
    let server = Server::start(|_| {}).await;
    let text = config(&server, "fixed", "", "", "");
    let locked = Daemon::start(&text, &[], &[]).await;
    assert_eq!(locked.post("/api/v1/sweeps/often/pause").await.0, 403, "changes are off by default");
    drop(locked);
    let daemon = Daemon::start(&text, &["--web.enable-lifecycle"], &[]).await;
    assert_eq!(daemon.post("/api/v1/sweeps/none/pause").await.0, 404);
    assert_eq!(daemon.post("/api/v1/sweeps/often/pause").await.0, 200);
    let skips = r#"tokenprobe_sweep_skips_total{sweep="often",reason="paused"}"#;
    daemon.until("starts are skipped", async |daemon| daemon.metric(skips).await >= Some(2.0)).await;
    let sent = server.oracle.requests().len();
    // A pause outlives a reload, and refuses to run.
    daemon.signal("-HUP");
    assert_eq!(daemon.post("/api/v1/sweeps/often/run").await.0, 409);
    daemon.until("another is skipped", async |daemon| daemon.metric(skips).await >= Some(4.0)).await;
    assert_eq!(server.oracle.requests().len(), sent, "nothing is sent while paused");
    assert!(daemon.get("/").await.1.contains("(paused)"));
    assert_eq!(daemon.post("/api/v1/sweeps/often/resume").await.0, 200);
    daemon.until("it starts again", async |_| server.oracle.requests().len() > sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_in_quiet_hours() {
    let server = Server::start(|_| {}).await;
    let quiet = "quiet_hours = [\"00:00-24:00\"]";
    let daemon = Daemon::start(&config(&server, "fixed", "", "", quiet), &[], &[]).await;
    let skips = r#"tokenprobe_sweep_skips_total{sweep="often",reason="quiet"}"#;
    daemon.until("starts are skipped", async |daemon| daemon.metric(skips).await >= Some(2.0)).await;
    assert_eq!(server.oracle.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_traffic_can_be_recognised() {
    let server = Server::start(|_| {}).await;
    let args = ["request", "--base-url", &server.base_url(), "--model", "fixed", "--max-tokens", "2"];
    assert_eq!(run(&args, &[]).await.status.code(), Some(0));
    let seen = server.oracle.requests();
    let header = |name: &str| seen[0].headers.get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(header("x-tokenprobe"), "probe");
    assert!(header("user-agent").starts_with("tokenprobe/"));
}
