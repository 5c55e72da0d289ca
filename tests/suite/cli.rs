//! The program as its users start it.

use crate::harness::{Daemon, Server, run, stderr, stdout};

/// A key that must never be seen again.
const CANARY: &str = "sk-canary-7f3a91c2";

fn config(server: &Server, models: &str, rest: &str) -> String {
    format!(
        r#"
[[targets]]
name = "sim"
base_url = "{}"
models = [{models}]

[[sweeps]]
name = "often"
every = "1s"
run_on_start = true
targets = ["sim"]
prompt_tokens = [50]
concurrency = [1, 2]
requests_per_level = 2
max_tokens = 4
{rest}
"#,
        server.base_url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn request_prints_one_object_with_the_whole_measurement() {
    let server = Server::start(|_| {}).await;
    let base_url = server.base_url();
    let args =
        ["request", "--base-url", &base_url, "--model", "fixed", "--format", "json", "--max-tokens", "5"];
    let output = run(&args, &[]).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let record: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(record["schema"], "tokenprobe.measurement/1");
    assert_eq!(record["outcome"], "ok");
    assert_eq!(record["error"], serde_json::Value::Null);
    assert_eq!(record["output_tokens"], 5);
    assert_eq!(record["output_tokens_source"], "usage");
    assert_eq!(record["connection"], "new");
    assert!(record["time_to_first_token_seconds"].as_f64().unwrap() >= 0.030);
    assert!(record["phases"]["tcp"].is_f64());
    assert!(record.get("visible_text").is_none_or(serde_json::Value::is_null), "text only with --show-text");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_request_still_prints_its_object_and_exits_1() {
    let server = Server::start(|_| {}).await;
    let base_url = server.base_url();
    let args = ["request", "--base-url", &base_url, "--model", "fixed+429", "--format", "json"];
    let output = run(&args, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    let record: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(record["outcome"], "error");
    assert_eq!(record["error"]["class"], "rate_limited");
    assert_eq!(record["error"]["http_status"], 429);
    assert!(record["error"]["retry_after_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(record["time_to_first_token_seconds"], serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_says_what_is_missing() {
    for (args, words) in [
        (vec!["request"], "--base-url"),
        (vec!["request", "--base-url", "http://127.0.0.1:9/v1"], "--model"),
        (vec!["request", "--base-url", "127.0.0.1:9", "--model", "m"], "http"),
        (
            vec![
                "request",
                "--base-url",
                "http://127.0.0.1:9/v1",
                "--model",
                "m",
                "--api-key-env",
                "NO_SUCH",
            ],
            "NO_SUCH",
        ),
    ] {
        let output = run(&args, &[]).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_port_is_a_connect_failure_in_words() {
    let args = ["request", "--base-url", "http://127.0.0.1:1/v1", "--model", "m"];
    let output = run(&args, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("outcome error: connect/refused"), "{}", stdout(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_prints_its_table_in_every_shape() {
    let server = Server::start(|_| {}).await;
    let base_url = server.base_url();
    let common = [
        "sweep",
        "--base-url",
        &base_url,
        "--model",
        "fixed",
        "--concurrency",
        "2,1",
        "--requests",
        "3",
        "--prompt-tokens",
        "50",
        "--max-tokens",
        "4",
    ];
    for (format, start) in [
        ("table", " target"),
        ("markdown", "| target"),
        ("csv", "sweep,started_at,target"),
        ("json", "{\"schema\":\"tokenprobe.sweep/1\""),
    ] {
        let args: Vec<&str> = common.iter().copied().chain(["--format", format]).collect();
        let output = run(&args, &[]).await;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).starts_with(start), "{format}: {}", stdout(&output));
        assert!(output.stderr.is_empty(), "silent in a pipe: {}", stderr(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_exits_1_when_a_request_failed_and_names_the_reason() {
    let server = Server::start(|_| {}).await;
    let base_url = server.base_url();
    let args =
        ["sweep", "--base-url", &base_url, "--model", "fixed+401", "--concurrency", "1", "--requests", "2"];
    let output = run(&args, &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("auth"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_cannot_be_written_is_a_failure() {
    let server = Server::start(|_| {}).await;
    let request = ["request", "--base-url", &server.base_url(), "--model", "fixed", "--max-tokens", "2"];
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_tokenprobe"))
        .args(request)
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the result cannot be written: No space left"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_request_says_so() {
    let server = Server::start(|_| {}).await;
    let child = tokio::process::Command::new(env!("CARGO_BIN_EXE_tokenprobe"))
        .args(["request", "--base-url", &server.base_url(), "--model", "fixed+stall"])
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    while server.oracle.requests().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("interrupted after "), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_sweep_prints_what_it_has_and_says_that_it_is_incomplete() {
    let server = Server::start(|_| {}).await;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tokenprobe"));
    command.args(["sweep", "--base-url", &server.base_url(), "--model", "fixed", "--concurrency", "1,2"]);
    command.args(["--requests", "100000", "--prompt-tokens", "50", "--max-tokens", "2", "--format", "json"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    while server.oracle.requests().iter().filter(|seen| seen.completed).count() < 5 {
        tokio::task::yield_now().await;
    }
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["incomplete"], true);
    let level = &report["ladders"][0]["levels"][0];
    assert!(
        level["ok"].as_u64().unwrap() >= 1 && level["failed"] == 0 && level["incomplete"] == true,
        "{level}"
    );
    assert!(stderr(&output).contains("incomplete"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_configuration_exits_78_with_the_place_and_sends_nothing() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    std::fs::write(&file, config(&server, "\"fixed\"", "retries = 3")).unwrap();
    for args in [vec!["serve"], vec!["serve", "--config.check"], vec!["sweep"]] {
        let mut args = args;
        args.extend(["--config.file", file.to_str().unwrap()]);
        let output = run(&args, &[]).await;
        assert_eq!(output.status.code(), Some(78), "{args:?}");
        assert!(stderr(&output).contains("bad.toml:"), "{}", stderr(&output));
        assert!(stderr(&output).contains("retries"), "{}", stderr(&output));
    }
    assert!(server.oracle.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn config_check_prints_the_plan() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/config/tokenprobe.toml");
    let output = run(&["serve", "--config.check", "--config.file", file], &[]).await;
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for word in ["requests", "tokens", "series"] {
        assert!(stdout(&output).contains(word), "{word}: {}", stdout(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_measures_on_schedule_and_leaves_in_order() {
    let server = Server::start(|_| {}).await;
    let mut daemon = Daemon::start(&config(&server, "\"fixed\"", ""), &[], &[]).await;
    let labels = "{sweep=\"often\",target=\"sim\",model=\"fixed\",prompt_tokens=\"50\",concurrency=\"2\"}";
    let count = format!("tokenprobe_time_to_first_token_seconds_count{labels}");
    daemon
        .until("two levels were measured", async |d| d.metric(&count).await.is_some_and(|n| n >= 4.0))
        .await;
    assert_eq!(daemon.metric("tokenprobe_up{target=\"sim\",model=\"fixed\"}").await, Some(1.0));
    assert_eq!(daemon.get("/-/healthy").await.0, 200);
    daemon.signal("-TERM");
    assert_eq!(daemon.exit_code().await, Some(0));
    let log = daemon.log();
    // A busy machine may say so.
    let complaint = |line: &&str| {
        !line.contains("too busy to measure") && (line.contains("level=warn") || line.contains("level=error"))
    };
    assert_eq!(log.lines().find(complaint), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_running_probes_end_within_the_grace_and_then_cancels_them_without_a_failure() {
    let server = Server::start(|settings| {
        settings.models.push(tokenprobe::simulator::ModelProfile::fixed(
            "endless",
            std::time::Duration::from_millis(1),
            std::time::Duration::from_secs(60),
        ));
    })
    .await;
    let text = format!("[server]\nshutdown_grace = \"300ms\"\n{}", config(&server, "\"endless\"", ""));
    let mut daemon = Daemon::start(&text, &[], &[]).await;
    daemon
        .until("a probe is in flight", async |d| d.metric("tokenprobe_probes_in_flight").await == Some(1.0))
        .await;
    daemon.signal("-TERM");
    assert_eq!(daemon.exit_code().await, Some(0));
    assert!(daemon.log().contains("cancelling running probes"), "{}", daemon.log());
    assert!(!daemon.log().contains("failures"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_is_all_or_nothing() {
    let server = Server::start(|_| {}).await;
    let good = config(&server, "\"fixed\"", "");
    let daemon = Daemon::start(&good, &["--web.enable-lifecycle"], &[]).await;
    let requests = "tokenprobe_requests_total{sweep=\"often\",target=\"sim\",model=\"fixed\",prompt_tokens=\"50\",\
                    concurrency=\"1\"}";
    daemon.until("something was measured", async |d| d.metric(requests).await.is_some_and(|n| n > 0.0)).await;
    let before = daemon.metric(requests).await;

    std::fs::write(daemon.config_file(), good.replace("max_tokens = 4", "max_tokens = 0")).unwrap();
    let (status, text) = daemon.post("/-/reload").await;
    assert_eq!(status, 500);
    assert!(text.contains("max_tokens"), "{text}");
    assert_eq!(daemon.metric("tokenprobe_config_last_reload_successful").await, Some(0.0));
    assert!(daemon.metric(requests).await >= before, "the old configuration goes on");

    let two = good
        .replace("\"fixed\"", "\"fixed\", \"fixed+500\"")
        .replace("concurrency = [1, 2]", "concurrency = [1]");
    std::fs::write(daemon.config_file(), &two).unwrap();
    assert_eq!(daemon.post("/-/reload").await.0, 200);
    assert_eq!(daemon.metric("tokenprobe_config_last_reload_successful").await, Some(1.0));
    assert!(daemon.metric(requests).await >= before, "unchanged cells keep their counts");
    assert_eq!(daemon.metric(&requests.replace("concurrency=\"1\"", "concurrency=\"2\"")).await, None);
    let failures = "tokenprobe_request_failures_total{sweep=\"often\",target=\"sim\",model=\"fixed+500\",\
                    prompt_tokens=\"50\",concurrency=\"1\",reason=\"upstream_error\"}";
    daemon
        .until("the new model is probed", async |d| d.metric(failures).await.is_some_and(|n| n > 0.0))
        .await;

    std::fs::write(daemon.config_file(), &good).unwrap();
    daemon.signal("-HUP");
    daemon.until("SIGHUP reloads, too", async |d| d.metric(failures).await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_by_http_takes_a_flag() {
    let server = Server::start(|_| {}).await;
    let daemon = Daemon::start(&config(&server, "\"fixed\"", ""), &[], &[]).await;
    let (status, text) = daemon.post("/-/reload").await;
    assert_eq!(status, 403);
    assert!(text.contains("--web.enable-lifecycle"), "{text}");
}

/// Answers every request with what it was sent, key included.
async fn echo(status: &'static str, as_content: bool) -> (std::net::SocketAddr, tokio::task::JoinSet<()>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 8192];
            let read = socket.read(&mut request).await.unwrap();
            let sent = serde_json::Value::from(String::from_utf8_lossy(&request[..read]).into_owned());
            let body = if as_content {
                format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{sent}}},\"finish_reason\":{sent}}}]}}\n\n")
            } else {
                format!("{{\"error\":{{\"message\":\"no such key: {CANARY}\",\"param\":{sent}}}}}")
            };
            let head = format!("HTTP/1.1 {status}\r\nx-request-id: {CANARY}\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    (address, tasks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_echoes_the_key_does_not_make_us_show_it() {
    for (status, as_content) in [("401 Unauthorized", false), ("400 Bad Request", false), ("200 OK", true)] {
        let (address, _tasks) = echo(status, as_content).await;
        let base_url = format!("http://{address}/v1");
        for format in ["json", "text"] {
            let args = [
                "request",
                "--base-url",
                &base_url,
                "--model",
                "m",
                "--api-key-env",
                "CANARY",
                "--format",
                format,
                "--show-text",
                "--log.level",
                "trace",
            ];
            let output = run(&args, &[("CANARY", CANARY)]).await;
            assert!(
                !stdout(&output).contains(CANARY) && !stderr(&output).contains(CANARY),
                "{}",
                stdout(&output)
            );
            assert!(stdout(&output).contains("[redacted]"), "{status}: {}", stdout(&output));
        }
        let args = [
            "sweep",
            "--base-url",
            &base_url,
            "--model",
            "m",
            "--api-key-env",
            "CANARY",
            "--requests",
            "1",
            "--concurrency",
            "1",
        ];
        let output = run(&args, &[("CANARY", CANARY)]).await;
        assert!(
            !stdout(&output).contains(CANARY) && !stderr(&output).contains(CANARY),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_panic_that_shows_a_target_does_not_show_its_key() {
    let text = format!(
        "[[targets]]\nname = \"t\"\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key = \"{CANARY}\"\nmodels = [\"m\"]\n\
         extra_headers = {{ \"x-key\" = \"{CANARY}\" }}\n\
         [[sweeps]]\nname = \"s\"\nevery = \"1m\"\ntargets = [\"t\"]\nprompt_tokens = [9]\nconcurrency = [1]\n"
    );
    let nothing = |_: &str| Err(std::env::VarError::NotPresent);
    let config = tokenprobe::config::Config::parse(&text, std::path::Path::new("t.toml"), &nothing).unwrap();
    let panic = std::panic::catch_unwind(|| panic!("{config:?}")).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("127.0.0.1") && !message.contains(CANARY), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_seen_nowhere() {
    let server = Server::start(|settings| settings.api_key = Some("another".into())).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("key");
    std::fs::write(&file, CANARY).unwrap();
    let target = |name: &str, key: &str| {
        format!(
            "[[targets]]\nname = \"{name}\"\nbase_url = \"{}\"\nmodels = [\"fixed\"]\n{key}\n",
            server.base_url()
        )
    };
    let text = format!(
        "{}{}{}\n[[sweeps]]\nname = \"often\"\nevery = \"1s\"\nrun_on_start = true\n\
         targets = [\"environment\", \"file\", \"header\"]\nprompt_tokens = [50]\nconcurrency = [1]\n\
         requests_per_level = 1\n",
        target("environment", "api_key = { env = \"CANARY\" }"),
        target("file", &format!("api_key = {{ file = \"{}\" }}", file.display())),
        target("header", "extra_headers = { \"x-secret\" = { env = \"CANARY\" } }"),
    );
    let environment = [("CANARY", CANARY)];
    let daemon = Daemon::start(&text, &["--log.level", "trace"], &environment).await;
    let up = "tokenprobe_up{target=\"header\",model=\"fixed\"}";
    daemon.until("all three targets were probed", async |d| d.metric(up).await == Some(0.0)).await;
    let sent = server.oracle.requests();
    let used = |seen: &&tokenprobe::simulator::Seen| {
        seen.headers.values().any(|value| value.to_str().is_ok_and(|value| value.contains(CANARY)))
    };
    assert!(sent.iter().filter(used).count() >= 3, "the key is really used");
    for path in ["/metrics", "/", "/api/v1/status"] {
        assert!(!daemon.get(path).await.1.contains(CANARY), "{path}");
    }
    assert!(!daemon.log().contains(CANARY));
    assert!(daemon.log().contains("level=trace"), "the log is at trace level");

    let base_url = server.base_url();
    for format in ["json", "text"] {
        let args = [
            "request",
            "--base-url",
            &base_url,
            "--model",
            "fixed",
            "--api-key-env",
            "CANARY",
            "--format",
            format,
            "--log.level",
            "trace",
        ];
        let output = run(&args, &environment).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(!stdout(&output).contains(CANARY) && !stderr(&output).contains(CANARY));
    }
    assert!(daemon.dir().exists());
}

#[tokio::test]
async fn every_example_passes_the_check_with_its_secrets_set() {
    let mut checked = 0;
    for entry in std::fs::read_dir("config/examples").unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let words = text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let secrets = words.filter(|word| word.contains('_')).map(|word| (word, "a-dummy-secret"));
        let secrets: Vec<_> = secrets.collect();
        let output =
            run(&["serve", "--config.check", "--config.file", path.to_str().unwrap()], &secrets).await;
        assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
        assert!(stdout(&output).contains("requests"), "{}", stdout(&output));
        checked += 1;
    }
    assert!(checked >= 16, "{checked} examples");
}
