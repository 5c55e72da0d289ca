//! `/probe`: one probe for one scrape, of what is configured and within the budget.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::harness::{Daemon, Server, http_client};

fn config(server: &Server, budget: &str) -> String {
    format!(
        r#"
[budget]
{budget}

[[targets]]
name = "sim"
base_url = "{}"
models = ["fixed", "fixed+429", "fixed+stall"]

[[sweeps]]
name = "seldom"
every = "24h"
targets = ["sim"]
prompt_tokens = [50]
concurrency = [1]
max_tokens = 4
"#,
        server.base_url()
    )
}

const PROBE: &str = "/probe?target=sim&model=fixed";

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_on_demand_answers_in_text_format_and_is_accounted_for() {
    let server = Server::start(|_| {}).await;
    let text = config(&server, "requests_per_month = 4");
    let off = Daemon::start(&text, &[], &[]).await;
    let (code, why) = off.get(PROBE).await;
    assert_eq!((code, why.contains("--web.enable-probe")), (403, true), "{why}");
    drop(off);
    let daemon = Daemon::start(&text, &["--web.enable-probe"], &[]).await;
    let (code, answer) = daemon.get(PROBE).await;
    assert_eq!(code, 200, "{answer}");
    let text = |name: &str| {
        let line = answer.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
        line.rsplit(' ').next().unwrap()
    };
    let value = |name: &str| text(name).parse::<f64>().unwrap();
    assert_eq!((text("probe_success"), text("probe_output_tokens")), ("1", "4"));
    assert!(value("probe_time_to_first_token_seconds") >= 0.03, "{answer}");
    assert!(value("probe_duration_seconds") >= value("probe_time_to_first_token_seconds"));
    assert!(answer.contains("probe_phase_duration_seconds{phase=\"tcp\"}"), "{answer}");
    let attempts = r#"tokenprobe_probe_attempts_total{target="sim",model="fixed",role="on_demand"}"#;
    assert_eq!(daemon.metric(attempts).await, Some(1.0));
    // A failure is an answer, with its reason.
    let (code, answer) = daemon.get("/probe?target=sim&model=fixed%2B429").await;
    assert_eq!(code, 200);
    assert!(answer.contains("probe_success 0\n"), "{answer}");
    assert!(answer.contains("probe_failure_info{reason=\"rate_limited\"} 1\n"), "{answer}");
    assert!(!answer.contains("probe_time_to_first_token_seconds"), "{answer}");
    // The target asked to be left alone: nothing is sent meanwhile.
    let sent = server.oracle.requests().len();
    let (code, answer) = daemon.get(PROBE).await;
    assert_eq!((code, answer.contains("left alone")), (503, true), "{answer}");
    assert_eq!(server.oracle.requests().len(), sent);
    // And no more than the budget allows.
    daemon.until("the hold is over", async |daemon| daemon.get(PROBE).await.0 == 200).await;
    daemon
        .until("the budget is spent", async |daemon| daemon.get(PROBE).await.1.contains("budget of requests"))
        .await;
    assert_eq!(server.oracle.requests().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_configured_can_be_asked_for() {
    let server = Server::start(|_| {}).await;
    let daemon = Daemon::start(&config(&server, ""), &["--web.enable-probe"], &[]).await;
    for (path, code) in [
        ("/probe", 400),
        ("/probe?target=sim", 400),
        ("/probe?target=sim&model=fixed&prompt=x", 400),
        ("/probe?target=http://127.0.0.1:1/v1&model=fixed", 404),
        ("/probe?target=sim&model=other", 404),
        ("/probe?target=other&model=fixed", 404),
    ] {
        assert_eq!(daemon.get(path).await.0, code, "{path}");
    }
    let url = format!("http://{}{PROBE}", daemon.address);
    for timeout in ["0.2", "-1", "soon", "nan"] {
        let request = http_client().get(&url).header("x-prometheus-scrape-timeout-seconds", timeout);
        assert_eq!(request.send().await.unwrap().status().as_u16(), 400, "{timeout}");
    }
    let foreign = http_client().get(&url).header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.send().await.unwrap().status().as_u16(), 403);
    assert!(server.oracle.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_probe_ends_before_the_scrape_does_and_many_scrapes_share_one() {
    let server = Server::start(|_| {}).await;
    let daemon = Daemon::start(&config(&server, ""), &["--web.enable-probe"], &[]).await;
    let url = format!("http://{}/probe?target=sim&model=fixed%2Bstall", daemon.address);
    let begun = Instant::now();
    let mut scrapes = JoinSet::new();
    for _ in 0..5 {
        let request = http_client().get(&url).header("X-Prometheus-Scrape-Timeout-Seconds", "2.5");
        scrapes.spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    }
    while let Some(answer) = scrapes.join_next().await {
        let answer = answer.unwrap();
        assert!(answer.contains("probe_failure_info{reason=\"timeout\"} 1\n"), "{answer}");
    }
    assert!(begun.elapsed() >= Duration::from_secs(2), "the whole of its time is used");
    assert_eq!(server.oracle.requests().len(), 1);
}
