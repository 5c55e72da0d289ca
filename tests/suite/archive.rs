//! The archive as its users meet it: history and comparison from the command line, a restart, a crash, a file that
//! cannot be written.

use std::{path::Path, time::Duration};

use tokenprobe::archive::{RunFilter, open_existing};

use crate::harness::{Daemon, Server, run, stderr, stdout};

const LEVEL: &str = "{sweep=\"s\",target=\"sim\",model=\"fixed\",prompt_tokens=\"50\",concurrency=\"2\"}";

fn config(server: &Server, archive: &Path, schedule: &str) -> String {
    format!(
        r#"
[archive]
path = "{}"

[[targets]]
name = "sim"
base_url = "{}"
models = ["fixed"]

[[sweeps]]
name = "s"
{schedule}
targets = ["sim"]
prompt_tokens = [50]
concurrency = [1, 2]
requests_per_level = 6
max_tokens = 4
"#,
        archive.display(),
        server.base_url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_is_kept_listed_exported_and_compared() {
    let server = Server::start(|_| {}).await;
    let (base_url, dir) = (server.base_url(), tempfile::tempdir().unwrap());
    let file = dir.path().join("a.db");
    let file = file.to_str().unwrap();
    for requests in ["25", "30"] {
        let args = [
            "sweep",
            "--base-url",
            &base_url,
            "--model",
            "fixed",
            "--model",
            "fixed+500",
            "--concurrency",
            "2",
            "--requests",
            requests,
            "--prompt-tokens",
            "50",
            "--max-tokens",
            "4",
            "--archive",
            file,
        ];
        let output = run(&args, &[]).await;
        assert!(stderr(&output).contains("archived in"), "{}", stderr(&output));
    }
    let output = run(&["history", "--archive", file], &[]).await;
    assert_eq!(stdout(&output).lines().count(), 3, "{}", stdout(&output));
    let output = run(&["history", "latest", "--archive", file, "--format", "json"], &[]).await;
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["schema"], "tokenprobe.sweep/1");
    assert_eq!(report["ladders"][0]["levels"][0]["ok"], 30);

    let args = ["compare", "previous", "latest", "--archive", file, "--format", "json", "--fail-on", "worse"];
    let output = run(&args, &[]).await;
    let compared: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(compared["differences"][0]["setting"], "requests_per_level", "{compared}");
    assert_eq!(compared["cells"].as_array().unwrap().len(), 2);
    let args = ["compare", "1", "--models", "fixed,fixed+500", "--archive", file, "--fail-on", "worse"];
    let output = run(&args, &[]).await;
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("worse") && stdout(&output).contains("two parts of one run"),
        "{}",
        stdout(&output)
    );
    assert!(stderr(&output).contains("verdict of --fail-on"), "{}", stderr(&output));

    let lines = run(&["history", "export", "--archive", file], &[]).await;
    let (copy, lines_file) = (dir.path().join("b.db"), dir.path().join("runs.jsonl"));
    std::fs::write(&lines_file, &lines.stdout).unwrap();
    let copy = copy.to_str().unwrap();
    let output = run(&["history", "import", lines_file.to_str().unwrap(), "--archive", copy], &[]).await;
    assert!(stderr(&output).contains("2 runs imported"), "{}", stderr(&output));
    let again = run(&["history", "export", "--archive", copy], &[]).await;
    for (again, line) in stdout(&again).lines().zip(stdout(&lines).lines()) {
        assert_eq!(again, line);
    }
    assert_eq!(again.stdout.len(), lines.stdout.len());
    let output = run(&["history", "--archive", "no/such.db"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no archive"), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_shows_what_was_measured_before_with_its_time() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.db");
    let p50 = format!("tokenprobe_level_ttft_seconds{}", LEVEL.replace('}', ",quantile=\"0.5\"}"));
    let (end, runs) = (
        "tokenprobe_sweep_last_success_timestamp_seconds{sweep=\"s\"}",
        "tokenprobe_sweep_runs_total{sweep=\"s\",result=\"completed\"}",
    );
    let once = "every = \"1d\"\nrun_on_start = true";
    let mut first = Daemon::start(&config(&server, &file, once), &[], &[]).await;
    first.until("the sweep ended", async |d| d.metric(end).await.is_some()).await;
    let before = (first.metric(&p50).await, first.metric(end).await);
    assert!(before.0.is_some());
    first.until("it is written", async |d| d.metric("tokenprobe_archive_up").await == Some(1.0)).await;
    first.signal("-TERM");
    assert_eq!(first.exit_code().await, Some(0));

    let second = Daemon::start(&config(&server, &file, "every = \"1d\""), &[], &[]).await;
    assert_eq!((second.metric(&p50).await, second.metric(end).await), before);
    assert_eq!(second.metric(runs).await, Some(0.0), "shown, not counted");
    let count = format!("tokenprobe_time_to_first_token_seconds_count{LEVEL}");
    assert_eq!(second.metric(&count).await, Some(0.0));
    let state = "tokenprobe_ladder_state{sweep=\"s\",target=\"sim\",model=\"fixed\",prompt_tokens=\"50\"";
    let text = second.get("/metrics").await.1;
    assert_eq!(text.lines().filter(|line| line.starts_with(state)).count(), 4, "{text}");
    let status: serde_json::Value = serde_json::from_str(&second.get("/api/v1/status").await.1).unwrap();
    assert_eq!(status["sweeps"][0]["last_result"], "completed", "{status}");
    assert_eq!(status["cells"][1]["ok"], 6, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_gives_no_budget_back() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let capped = |schedule: &str| {
        let text = config(&server, &dir.path().join("a.db"), schedule);
        format!("[budget]\nrequests_per_month = 1000\n{text}")
    };
    let left = "tokenprobe_budget_remaining{scope=\"all\",unit=\"requests\",period=\"month\"}";
    let end = "tokenprobe_sweep_last_success_timestamp_seconds{sweep=\"s\"}";
    let mut first = Daemon::start(&capped("every = \"1d\"\nrun_on_start = true"), &[], &[]).await;
    first.until("the sweep ended", async |d| d.metric(end).await.is_some()).await;
    first.until("it is counted", async |d| d.metric(left).await.is_some_and(|n| n < 1000.0)).await;
    first.signal("-TERM");
    assert_eq!(first.exit_code().await, Some(0));
    let second = Daemon::start(&capped("every = \"1d\""), &[], &[]).await;
    second.until("it is known again", async |d| d.metric(left).await.is_some_and(|n| n < 1000.0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_cannot_be_written_stops_nothing_and_heals() {
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("not-there-yet").join("a.db");
    let daemon = Daemon::start(&config(&server, &file, "every = \"1s\""), &[], &[]).await;
    let requests = format!("tokenprobe_requests_total{LEVEL}");
    daemon.until("it probes", async |d| d.metric(&requests).await.is_some_and(|n| n >= 12.0)).await;
    assert_eq!(daemon.metric("tokenprobe_archive_up").await, Some(0.0));
    assert!(daemon.metric("tokenprobe_archive_write_failures_total").await > Some(0.0));
    assert_eq!(daemon.log().matches("cannot write the archive").count(), 1, "{}", daemon.log());
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    daemon.until("it is healed", async |d| d.metric("tokenprobe_archive_up").await == Some(1.0)).await;
    assert_eq!(daemon.metric("tokenprobe_archive_dropped_total{reason=\"queue_full\"}").await, Some(0.0));
    let runs = open_existing(&file).unwrap().runs(&RunFilter::default()).unwrap();
    assert!(runs.iter().any(|run| run.ok == 12), "what waited is there: {runs:?}");
}

/// Kills the daemon at random moments; `TOKENPROBE_CRASHES` says how often.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_at_any_moment_loses_the_level_in_progress_at_most() {
    let crashes: u32 = std::env::var("TOKENPROBE_CRASHES").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let server = Server::start(|_| {}).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.db");
    let text = config(&server, &file, "every = \"1s\"\nrun_on_start = true")
        .replace("concurrency = [1, 2]", "concurrency = [4, 8, 16]")
        .replace("requests_per_level = 6", "requests_per_level = 20");
    let mut random = fastrand::Rng::with_seed(9);
    let (mut archived, mut ended, mut kept) = (0, 0, 0);
    for crash in 0..crashes {
        let mut daemon = Daemon::start(&text, &["--log.level", "debug"], &[]).await;
        tokio::time::sleep(Duration::from_millis(random.u64(0..2000))).await;
        daemon.signal("-KILL");
        daemon.exit_code().await;
        let log = daemon.log();
        archived += log.matches("msg=\"level archived\"").count();
        let ended_now = log.matches("msg=\"level ended\"").count();
        ended += ended_now;
        let Ok(store) = open_existing(&file) else {
            assert_eq!(archived, 0, "crash {crash}: what was archived is gone");
            continue;
        };
        let levels: u32 = store.runs(&RunFilter::default()).unwrap().iter().map(|run| run.levels).sum();
        drop(store);
        let connection = rusqlite::Connection::open(&file).unwrap();
        let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok", "crash {crash}");
        let kept_now = levels as usize - kept;
        kept = levels as usize;
        assert!(kept >= archived, "crash {crash}: {kept} levels of {archived} that were archived");
        assert!(kept_now + 1 >= ended_now, "crash {crash}: {kept_now} levels of {ended_now} that ended");
    }
    println!("{crashes} crashes: {ended} levels ended, {archived} said to be archived, {kept} in the file");
    assert!(kept > 0);
    let entries = std::fs::read_dir(dir.path()).unwrap();
    let names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("corrupt")), "{names:?}");
}
