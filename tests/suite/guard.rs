//! What keeps the prober from doing harm, over real sockets: budgets, the target's own wishes, pauses, quiet hours.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};

use crate::harness::{Daemon, Server, http_client, run, stderr, stdout};

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
    assert!(page.contains(">Budget</h2>"), "{page}");
    let status: serde_json::Value = serde_json::from_str(&daemon.get("/api/v1/status").await.1).unwrap();
    assert_eq!(status["budgets"][0]["limit"], 40.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_that_does_not_fit_is_not_run_and_money_is_counted() {
    let server = Server::start(|_| {}).await;
    let prices = "prices = { fixed = { input_per_million = 1000, output_per_million = 2000 } }";
    // The two requests of the calibration cost about 0.4. The lower level's worst case is 3 requests of at most 113
    // tokens in and 4 out; the upper one's is 5.
    let budget = "[budget]\ncost_per_day = 1\ncurrency = \"EUR\"\n";
    let text = config(&server, "fixed", budget, prices, "").replace("every = \"1s\"", "every = \"1h\"");
    let daemon = Daemon::start(&text, &[], &[]).await;
    let skipped = r#"tokenprobe_level_skips_total{sweep="often",target="sim",model="fixed",prompt_tokens="50",reason="budget"}"#;
    daemon.until("a level is skipped", async |daemon| daemon.metric(skipped).await == Some(1.0)).await;
    let sent = server.oracle.requests().len();
    assert_eq!(sent, 2 + 3, "the calibration's and the lower level's requests");
    let cost = r#"tokenprobe_cost_total{target="sim",model="fixed",currency="EUR"}"#;
    let cost = daemon.metric(cost).await.unwrap();
    let prompt = r#"tokenprobe_prompt_tokens_total{sweep="often",target="sim",model="fixed"}"#;
    let prompt = daemon.metric(prompt).await.unwrap();
    let output = r#"tokenprobe_output_tokens_total{sweep="often",target="sim",model="fixed"}"#;
    let output = daemon.metric(output).await.unwrap();
    assert!(output >= 12.0, "{output}");
    assert!((cost - (prompt * 1e-3 + output * 2e-3)).abs() < 1e-6, "{cost} for {prompt} and {output} tokens");
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
    assert!(daemon.get("/").await.1.contains(">paused<"));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_gets_no_new_budget() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive.db");
    let budget =
        format!("[archive]\npath = \"{}\"\n\n[budget]\nrequests_per_month = 20\n", archive.display());
    let text = config(&server, "fixed", &budget, "", "");
    let left = r#"tokenprobe_budget_remaining{scope="all",unit="requests",period="month"}"#;
    for round in 0..4 {
        let mut daemon = Daemon::start(&text, &[], &[]).await;
        let sent = || server.oracle.requests().len() as f64;
        // What is written stands in the file or its log as it is.
        let kept = || {
            let files = ["archive.db", "archive.db-wal"]
                .map(|name| std::fs::read(dir.path().join(name)).unwrap_or_default());
            String::from_utf8_lossy(&files.concat()).into_owned()
        };
        let known = async |daemon: &Daemon| {
            // A level that was killed counts whole, so it may be more.
            daemon.metric(left).await.is_some_and(|left| 20.0 - left > sent() - 0.5)
        };
        daemon.until("the budget knows what was sent", known).await;
        daemon.until("it is kept", async |_| kept().contains("\"requests\":")).await;
        if round % 2 == 0 {
            daemon
                .until("the run is kept", async |_| {
                    let kept = kept();
                    let counts = kept.split("\"requests\":").skip(1).filter_map(|text| {
                        text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<f64>().ok()
                    });
                    counts.fold(0.0, f64::max) >= sent()
                })
                .await;
            daemon.signal("-KILL");
        } else {
            daemon.signal("-TERM");
        }
        daemon.exit_code().await;
    }
    let sent = server.oracle.requests().len();
    assert!((10..=20).contains(&sent), "{sent} requests sent under a budget of 20, over four starts");
}

/// What a scrape shows of a sweep's counters, to see that a reload loses none.
async fn counted(daemon: &Daemon) -> f64 {
    daemon.metric(r#"tokenprobe_sweep_runs_total{sweep="often",result="completed"}"#).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reloads_in_a_row_under_load_lose_no_series_and_no_count() {
    let server = Server::start(|_| {}).await;
    let text = config(&server, "fixed", "", "", "");
    let daemon = Daemon::start(&text, &["--web.enable-lifecycle"], &[]).await;
    daemon.until("a sweep ended", async |daemon| counted(daemon).await >= 1.0).await;
    let client = http_client();
    let mut runs = 0.0;
    let mut names = Vec::new();
    for round in 0..1000 {
        // Every other one is broken, or brings a sweep that the next one takes away.
        let text = match round % 4 {
            0 => text.replace("[[sweeps]]", "[[sweeps]"),
            1 => format!(
                "{text}\n[[sweeps]]\nname = \"extra\"\nevery = \"1h\"\ntargets = [\"sim\"]\nprompt_tokens = [9]\nconcurrency = [1]\n"
            ),
            _ => text.clone(),
        };
        std::fs::write(daemon.config_file(), text).unwrap();
        let answer = client.post(format!("http://{}/-/reload", daemon.address)).send().await.unwrap();
        assert_eq!(answer.status().is_success(), round % 4 != 0, "round {round}");
        if round % 50 == 3 {
            let metrics = daemon.get("/metrics").await.1;
            let series: Vec<String> = metrics
                .lines()
                .filter(|line| line.starts_with("tokenprobe_") && line.contains("sweep=\"often\""))
                .filter(|line| line.contains("_total{"))
                .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
                .collect();
            assert!(series.len() > 20, "{}", series.len());
            assert!(names.is_empty() || names == series, "round {round}");
            names = series;
            let now = counted(&daemon).await;
            assert!(now >= runs, "round {round}: {now} after {runs}");
            runs = now;
        }
    }
    daemon.until("sweeps still run", async |daemon| counted(daemon).await > runs).await;
    let requests = |role: &str| {
        format!(
            "tokenprobe_{role}{{sweep=\"often\",target=\"sim\",model=\"fixed\",prompt_tokens=\"50\",concurrency=\"1\"}}"
        )
    };
    let asked = daemon.metric(&requests("requests_total")).await.unwrap();
    assert!(asked >= 2.0 * runs, "{asked} requests in {runs} runs: counts are kept over reloads");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_taken_over_by_itself_when_asked_to() {
    let server = Server::start(|_| {}).await;
    let text = config(&server, "fixed", "", "", "");
    let daemon = Daemon::start(&text, &["--config.auto-reload"], &[]).await;
    let other = text.replace("\"often\"", "\"seldom\"");
    // A swap by renaming, as editors and Kubernetes do it.
    let fresh = daemon.dir().join("fresh");
    std::fs::write(&fresh, &other).unwrap();
    std::fs::rename(&fresh, daemon.config_file()).unwrap();
    let runs = r#"tokenprobe_sweep_runs_total{sweep="seldom",result="completed"}"#;
    daemon.until("the new sweep is there", async |daemon| daemon.metric(runs).await.is_some()).await;
    std::fs::write(daemon.config_file(), "not = a = file").unwrap();
    let failed = "tokenprobe_config_last_reload_successful";
    daemon.until("the bad file is refused", async |daemon| daemon.metric(failed).await == Some(0.0)).await;
    assert!(daemon.metric(runs).await.is_some(), "the old one stays");
}

/// A certificate of an authority, for a name and as client or server.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// Certificate and key, PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A client that trusts an authority and may show a certificate of its own.
fn tls_client(authority: &Authority, identity: Option<&(String, String)>) -> reqwest::Client {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        }
    };
    reqwest::Client::builder().no_proxy().tls_backend_preconfigured(config).build().unwrap()
}

const QUIET: &str = "[[targets]]\nname = \"t\"\nbase_url = \"http://127.0.0.1:9\"\nmodels = [\"m\"]\n\n[[sweeps]]\nname = \"s\"\nevery = \"24h\"\ntargets = [\"t\"]\nprompt_tokens = [9]\nconcurrency = [1]\n";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_shows_no_credential_sees_only_the_health() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "token-0123456789abcdef\n").unwrap();
    // The hash of "secret".
    let hash = "$2b$08$OBEgMRLwOCTxMRLwODTwOOJ7qDsgxqb0fNMEAt7WsBLLL.13UZDTm";
    let web = dir.path().join("web.yml");
    std::fs::write(&web, format!("basic_auth_users:\n  ops: {hash}\nbearer_token_files: [token]\n")).unwrap();
    let daemon = Daemon::start(QUIET, &["--web.config.file", web.to_str().unwrap()], &[]).await;
    for (path, expect) in [
        ("/-/healthy", 200),
        ("/-/ready", 200),
        ("/", 401),
        ("/metrics", 401),
        ("/api/v1/status", 401),
        ("/-/ready/../../metrics", 401),
        ("/-/healthy/", 401),
        ("//-/healthy", 401),
        ("/nowhere", 401),
    ] {
        assert_eq!(daemon.get(path).await.0, expect, "{path}");
    }
    let client = http_client();
    let url = |path: &str| format!("http://{}{path}", daemon.address);
    let scrape = client.get(url("/metrics")).bearer_auth("token-0123456789abcdef").send().await.unwrap();
    assert_eq!(scrape.status().as_u16(), 200);
    for header in ["x-content-type-options", "x-frame-options", "referrer-policy", "content-security-policy"]
    {
        assert!(scrape.headers().contains_key(header), "{header}");
    }
    let wrong = client.get(url("/metrics")).basic_auth("ops", Some("wrong")).send().await.unwrap();
    assert_eq!(wrong.status().as_u16(), 401);
    assert!(wrong.headers()["www-authenticate"].to_str().unwrap().starts_with("Basic "));
    // With a credential, what changes something needs no further flag; without one it is refused before it is looked at.
    let pause = client.post(url("/api/v1/sweeps/s/pause"));
    let paused = pause.try_clone().unwrap().bearer_auth("token-0123456789abcdef").send().await.unwrap();
    assert_eq!(paused.status().as_u16(), 200);
    assert_eq!(pause.send().await.unwrap().status().as_u16(), 401);
    // A token that is rotated in its file is known within seconds, and the old one no more.
    std::fs::write(dir.path().join("token"), "token-fedcba9876543210\n").unwrap();
    let asks =
        async |token: &str| client.get(url("/")).bearer_auth(token).send().await.unwrap().status().as_u16();
    daemon.until("the new token is known", async |_| asks("token-fedcba9876543210").await == 200).await;
    assert_eq!(asks("token-0123456789abcdef").await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_client_certificates_and_a_certificate_that_is_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let (cert, key) = authority.issue("localhost");
    put("cert.pem", &cert);
    put("key.pem", &key);
    put("clients.pem", &authority.pem);
    put(
        "web.yml",
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.pem\n  min_version: TLS13\nhttp_server_config:\n  headers:\n    Strict-Transport-Security: max-age=31536000\n",
    );
    let web = dir.path().join("web.yml");
    let daemon = Daemon::start_unready(QUIET, &["--web.config.file", web.to_str().unwrap()], &[]).await;
    let url = format!("https://localhost:{}/metrics", daemon.address.port());
    let scraper = authority.issue("prometheus");
    let good = tls_client(&authority, Some(&scraper));
    let answer = good.get(&url).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(answer.headers()["strict-transport-security"], "max-age=31536000");
    assert!(tls_client(&authority, None).get(&url).send().await.is_err(), "no certificate, no answer");
    let stranger = other.issue("prometheus");
    assert!(tls_client(&authority, Some(&stranger)).get(&url).send().await.is_err(), "another authority's");
    let plain = http_client().get(format!("http://{}/metrics", daemon.address)).send().await;
    assert!(plain.is_err(), "plain HTTP is not spoken");
    // Renewed by another authority: a client that trusts only that one gets through without a restart.
    let (cert, key) = other.issue("localhost");
    put("key.pem", &key);
    put("cert.pem", &cert);
    let renewed = async || tls_client(&other, Some(&scraper)).get(&url).send().await.is_ok();
    daemon.until("the new certificate is shown", async |_| renewed().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_configuration_that_cannot_be_used_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (config, web) = (dir.path().join("tokenprobe.toml"), dir.path().join("web.yml"));
    std::fs::write(&config, QUIET).unwrap();
    std::fs::write(&web, "basic_auth_users: { ops: plain-text }\n").unwrap();
    let args =
        ["serve", "--config.file", config.to_str().unwrap(), "--web.config.file", web.to_str().unwrap()];
    let output = run(&args, &[]).await;
    assert_eq!(output.status.code(), Some(78));
    let error = stderr(&output);
    assert!(error.contains("ops: is no bcrypt hash") && !error.contains("plain-text"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_amid_its_first_level_has_spent_it() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let budget = format!(
        "[archive]\npath = \"{}\"\n\n[budget]\nrequests_per_month = 20\n",
        dir.path().join("archive.db").display()
    );
    let text = config(&server, "fixed", &budget, "", "");
    let mut sent = 0;
    for _ in 0..12 {
        let mut daemon = Daemon::start_unready(&text, &[], &[]).await;
        let more = async |daemon: &Daemon| {
            let skipped = r#"tokenprobe_sweep_skips_total{sweep="often",reason="budget"}"#;
            server.oracle.requests().len() > sent || daemon.metric(skipped).await > Some(0.0)
        };
        daemon.until("a request is sent, or none may be", more).await;
        daemon.signal("-KILL");
        daemon.exit_code().await;
        sent = server.oracle.requests().len();
    }
    assert!((4..=20).contains(&sent), "{sent} requests sent under a budget of 20, over twelve starts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_does_not_get_the_archive_of_the_first() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive.db");
    let text = config(&server, "fixed", &format!("[archive]\npath = \"{}\"\n", archive.display()), "", "");
    let first = Daemon::start(&text, &[], &[]).await;
    let file = dir.path().join("second.toml");
    std::fs::write(&file, &text).unwrap();
    let args = ["serve", "--config.file", file.to_str().unwrap(), "--web.listen-address", "127.0.0.1:0"];
    let second = run(&args, &[]).await;
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("another tokenprobe keeps its archive in"), "{}", stderr(&second));
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_by_hand_count_into_the_budget_of_their_archive() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let budget = format!(
        "[archive]\npath = \"{}\"\n\n[budget]\nrequests_per_month = 20\n",
        dir.path().join("archive.db").display()
    );
    let file = dir.path().join("tokenprobe.toml");
    std::fs::write(&file, config(&server, "fixed", &budget, "", "")).unwrap();
    for _ in 0..6 {
        run(&["sweep", "--config.file", file.to_str().unwrap()], &[]).await;
    }
    let sent = server.oracle.requests().len();
    assert!((8..=20).contains(&sent), "{sent} requests sent under a budget of 20, in six runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_wrong_passwords_keeps_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token"), "token-0123456789abcdef\n").unwrap();
    // Dear enough that a queue of them would take minutes.
    let hash = "$2b$12$OBEgMRLwOCTxMRLwODTwOOJ7qDsgxqb0fNMEAt7WsBLLL.13UZDTm";
    let web = dir.path().join("web.yml");
    std::fs::write(&web, format!("basic_auth_users:\n  ops: {hash}\nbearer_token_files: [token]\n")).unwrap();
    let daemon = Daemon::start(QUIET, &["--web.config.file", web.to_str().unwrap()], &[]).await;
    let mut flood = tokio::task::JoinSet::new();
    let url = format!("http://{}/metrics", daemon.address);
    for guess in 0..300 {
        let request = http_client().get(&url).basic_auth("ops", Some(format!("guess-{guess}")));
        flood.spawn(async move { request.send().await.map(|response| response.status().as_u16()) });
    }
    let mut turned_away = 0;
    while turned_away < 100 {
        // Those that are left stay in the queue meanwhile.
        turned_away += u32::from(flood.join_next().await.unwrap().unwrap().is_ok_and(|status| status == 503));
    }
    assert_eq!(daemon.get("/-/healthy").await.0, 200);
    let scrape = http_client().get(&url).bearer_auth("token-0123456789abcdef").send().await.unwrap();
    assert_eq!(scrape.status().as_u16(), 200);
    assert!(!flood.is_empty(), "the flood is still on");
}

/// Answers the first request of a connection and takes the second without a word, as if it had been closing just then;
/// counts both.
async fn swallows_every_second(listener: TcpListener, seen: Arc<AtomicUsize>) {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"Oak\"}}]}\n\n\
                data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length";
    let answer = format!("{head}: {}\r\n\r\n{body}", body.len());
    let mut streams = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let (seen, answer) = (seen.clone(), answer.clone());
        streams.spawn(async move {
            // A request is small: it comes in one read.
            let mut request = vec![0; 64 * 1024];
            for is_first in [true, false] {
                if stream.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                if is_first && stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_again_is_paid_for_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let seen = Arc::<AtomicUsize>::default();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut stage = JoinSet::new();
    stage.spawn(swallows_every_second(listener, seen.clone()));
    let server = Server::start(|_| {}).await;
    let text = config(&server, "m", "[budget]\nrequests_per_month = 30\n", "", "calibrate = false");
    let daemon = Daemon::start(&text.replace(&server.base_url(), &url), &[], &[]).await;
    let skipped = r#"tokenprobe_sweep_skips_total{sweep="often",reason="budget"}"#;
    daemon.until("a start is skipped", async |daemon| daemon.metric(skipped).await > Some(0.0)).await;
    let seen = seen.load(Ordering::Relaxed);
    assert!((15..=30).contains(&seen), "{seen} requests seen under a budget of 30");
}
