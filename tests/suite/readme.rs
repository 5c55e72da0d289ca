//! The README's commands and configuration, run as they stand there, with the simulator as the endpoint.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::harness::{Server, http_client, stderr, stdout};

const README: &str = include_str!("../../README.md");
const ENDPOINT: &str = "https://llm.example.com/v1";
const KEY: (&str, &str) = ("GATEWAY_API_KEY", "sk-readme");

/// The contents of the README's code blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = README.split(&fence).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The command lines that start with `tokenprobe`, comments and line continuations resolved.
fn commands() -> Vec<Vec<String>> {
    let text = blocks("sh").join("\n").replace("\\\n", " ");
    let commands = text.lines().filter_map(|line| line.trim().strip_prefix("tokenprobe "));
    commands
        .map(|line| line.split('#').next().unwrap().split_whitespace().map(str::to_owned).collect())
        .collect()
}

async fn run_in(dir: &Path, args: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokenprobe"));
    command.args(args).env(KEY.0, KEY.1).current_dir(dir).stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_readme_does_what_it_says() {
    let server = Server::start(|settings| {
        settings.api_key = Some(KEY.1.into());
        settings.time_scale = 0.02;
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let config = blocks("toml").remove(0).replace(ENDPOINT, &server.base_url());
    std::fs::write(dir.path().join("tokenprobe.toml"), config).unwrap();
    let commands = commands();
    assert!(commands.len() >= 4, "{commands:?}");
    for args in commands {
        let args: Vec<String> = args.iter().map(|arg| arg.replace(ENDPOINT, &server.base_url())).collect();
        if args == ["serve"] {
            serve(dir.path()).await;
            continue;
        }
        let output = run_in(dir.path(), &args).await;
        assert_eq!(output.status.code(), Some(0), "{args:?}\n{}{}", stdout(&output), stderr(&output));
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

/// `tokenprobe serve` on the file beside it, at the address it documents or, where that is taken, says so.
async fn serve(dir: &Path) {
    let log = std::fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokenprobe"));
    command.args(["serve", "--web.listen-address", "127.0.0.1:0"]).env(KEY.0, KEY.1).current_dir(dir);
    let mut child = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
    let address = loop {
        let log = std::fs::read_to_string(dir.join("log")).unwrap();
        if let Some(rest) = log.split("address=").nth(1).filter(|rest| rest.contains(' ')) {
            break rest.split(' ').next().unwrap().to_owned();
        }
        assert!(child.try_wait().unwrap().is_none(), "{log}");
        tokio::task::yield_now().await;
    };
    let url = format!("http://{address}/metrics");
    let metrics = http_client().get(url).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("tokenprobe_time_to_first_token_seconds_bucket"));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn every_finding_is_documented_as_it_is_told() {
    for finding in tokenprobe::analysis::Finding::ALL {
        let row = format!("| `{finding}` | {} | {} |", finding.meaning(), finding.mend());
        assert!(README.contains(&row), "the README should have the row\n{row}");
    }
}
