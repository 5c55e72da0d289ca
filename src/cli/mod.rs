//! The command line: one file per subcommand. stdout is the result, stderr everything else.
//!
//! Exit codes: 0 fine; 1 ran, and something failed; 2 usage (clap's own); 78 bad configuration.

mod adhoc;
mod baseline;
mod check;
mod compare;
mod demo;
mod election;
mod history;
mod load;
mod report;
mod request;
mod serve;
mod simulate;
mod sweep;

use std::{
    io::{ErrorKind, Write as _},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    config::{nearest, process_environment},
    probe::Endpoint,
};

/// Ran, and something failed.
const FAILED: u8 = 1;
/// Bad usage that clap cannot see.
const USAGE: u8 = 2;
/// Most models named in a suggestion.
const SUGGESTIONS_MAX: usize = 12;
/// Bad configuration (`EX_CONFIG` of sysexits).
const CONFIG: u8 = 78;

/// Probes LLM endpoints on a schedule and exports TTFT, TPOT and TPS to Prometheus.
#[derive(Debug, Parser)]
#[command(name = "tokenprobe", version, about, max_term_width = 110, arg_required_else_help = true)]
pub struct Cli {
    /// How logs are written to stderr.
    #[command(flatten)]
    pub log: LogArgs,
    #[command(subcommand)]
    command: Command,
}

/// Logging flags.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Least severe level that is logged: error, warn, info, debug, trace
    #[arg(long = "log.level", id = "log_level", global = true, default_value = "info", value_name = "LEVEL")]
    pub level: tracing::Level,
    /// Shape of a log line
    #[arg(
        long = "log.format",
        id = "log_format",
        global = true,
        default_value = "logfmt",
        value_name = "FORMAT"
    )]
    pub format: LogFormat,
}

/// Shape of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `ts=... level=info msg="..." key=value`
    Logfmt,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon: sweeps on schedule, /metrics for Prometheus
    Serve(serve::ServeArgs),
    /// Run sweeps once, now, and print the table
    Sweep(Box<sweep::SweepArgs>),
    /// Send one probe and print its timeline
    Request(Box<request::RequestArgs>),
    /// Check each target step by step, down to a streamed answer; say what to change
    Check(Box<check::CheckArgs>),
    /// Show what the archive holds: a list of runs, or one run's table; export, import
    History(Box<history::HistoryArgs>),
    /// Compare two runs of the archive cell by cell
    ///
    /// Of comparisons of equals, at most one in a hundred calls anything changed. What can be found depends on how many
    /// samples a cell has and how much they scatter: with 200 a cell, a time to first token that is 10% longer is found in
    /// 94 of 100 cells where P99 is up to 1.5 times the median, in 67 where it is 1.7 times, in 34 where it is twice
    /// the median, and hardly ever beyond; taken together, four cells show it up to twice the median. With fewer samples,
    /// only larger changes are found; below 20 nothing is said. `unchanged` is no proof that nothing changed: whatever lies
    /// in the interval is not ruled out.
    Compare(Box<compare::CompareArgs>),
    /// Write one self-contained document of a run, or of a comparison of two
    Report(Box<report::ReportArgs>),
    /// Runs that others are compared with: save, list, delete
    Baseline(Box<baseline::BaselineArgs>),
    /// Run the simulated model server alone
    Simulate(simulate::Args),
}

impl Cli {
    /// Runs the chosen command to its end.
    pub async fn run(self) -> ExitCode {
        let code = Box::pin(self.command.run()).await;
        if RESULT_LOST.load(Ordering::Relaxed) { ExitCode::from(FAILED) } else { code }
    }
}

impl Command {
    async fn run(self) -> ExitCode {
        match self {
            Self::Serve(args) => serve::run(args).await,
            Self::Sweep(args) => Box::pin(sweep::run(*args)).await,
            Self::Request(args) => request::run(*args).await,
            Self::Check(args) => check::run(*args).await,
            Self::History(args) => history::run(*args),
            Self::Compare(args) => compare::run(&args),
            Self::Report(args) => report::run(&args),
            Self::Baseline(args) => baseline::run(&args),
            Self::Simulate(args) => {
                let environment = |name: &str| process_environment(name).ok();
                simulate::run(args, environment, terminated()).await
            }
        }
    }
}

/// A command line or configuration that cannot be carried out: what to tell, and how to exit.
struct Refused {
    code: u8,
    text: String,
}

impl Refused {
    fn usage(text: impl std::fmt::Display) -> Self {
        Self { code: USAGE, text: format!("error: {text}") }
    }

    fn config(text: String) -> Self {
        Self { code: CONFIG, text }
    }

    fn exit(self) -> ExitCode {
        tell(&self.text);
        ExitCode::from(self.code)
    }
}

/// Resolves when the process is told to stop: SIGTERM, or Ctrl-C.
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut term) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// What an endpoint that does not know a model offers instead: one line, or nothing when it does not say.
async fn suggest(endpoint: &Endpoint, model: &str) -> Option<String> {
    let served = endpoint.served_models().await.ok().filter(|served| !served.is_empty())?;
    let more = served.len().saturating_sub(SUGGESTIONS_MAX);
    let list = served.iter().take(SUGGESTIONS_MAX).map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let near = nearest(model, served.iter().map(String::as_str));
    match (near, list.as_slice()) {
        (Some(near), [_]) => Some(format!("did you mean \"{near}\"? The endpoint lists no other")),
        (Some(near), list) => {
            Some(format!("did you mean \"{near}\"? The endpoint lists {}{more}", list.join(", ")))
        }
        (None, list) => Some(format!("the endpoint lists {}{more}", list.join(", "))),
    }
}

/// Set when a result could not be written.
static RESULT_LOST: AtomicBool = AtomicBool::new(false);

/// Prints a result to stdout. A closed pipe (`| head`) is no failure; a full disk is one of the whole command.
fn print(text: &str) {
    let lost = write_result(text).err().filter(|error| error.kind() != ErrorKind::BrokenPipe);
    if let Some(error) = lost {
        RESULT_LOST.store(true, Ordering::Relaxed);
        tell(&format!("error: the result cannot be written: {error}"));
    }
}

fn write_result(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Tells the person at the terminal something that is not the result.
///
/// A stderr that is closed or full must not cost the result: what cannot be told is not.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
