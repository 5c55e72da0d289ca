//! End to end: how far tokenprobe's times are from the truth under load, and what measuring costs.
//!
//! `cargo bench --bench client` takes about five minutes; `-- --quick` about half of one. What is asked of tokenprobe stands
//! below the table, beside what was measured.
//!
//! # Method
//!
//! Three processes. A reference server (`server`) streams on an exact schedule (50 ms to the first token, 10 ms
//! between tokens, 64 tokens; 100 ms at concurrency 4096, for more than that one core cannot read) and says
//! afterwards, request by request, when it had read the request and when it wrote the first and the last token. A
//! client sends a closed loop with staggered starts: `subject` is tokenprobe's own sweep, the code the daemon runs,
//! on the runtime the daemon has; `floor` is a bare hyper client that only stamps. Each client is a process of its
//! own, so that CPU time and peak memory are its alone. Server and client are pinned to a core each.
//!
//! The error of a request's time to first token is the measured one (from the client's t0) minus the server's
//! (request read to first token written): it holds the network both ways, the client's own work before sending, and
//! whatever delays its stamp. CPU is the whole process, prompts and statistics included, over all chunks the server
//! wrote. Every figure is the median of three runs. Only the ratio to the floor of the same run carries over to
//! other machines.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a report on standard output is what a benchmark is for"
)]
#![allow(
    clippy::trivially_copy_pass_by_ref,
    clippy::unchecked_time_subtraction,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small and short-lived: plain arithmetic and references read best here"
)]

mod floor;
mod host;
mod limits;
mod record;
mod server;
mod subject;
mod summary;

use std::{future::Future, io, time::Duration};

use bytes::Bytes;
use clap::{Args, Parser, Subcommand};

use self::{
    host::{Host, RealTime},
    limits::Limits,
    server::Script,
    summary::Figures,
};

/// Flags of the benchmark, and the parts it plays when it starts itself.
#[derive(Debug, Parser)]
struct Options {
    /// Cargo's, and of no meaning
    #[arg(long, hide = true)]
    bench: bool,
    #[command(flatten)]
    plan: Plan,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Args)]
struct Plan {
    /// One run per client, at 1, 64 and 256 only
    #[arg(long)]
    quick: bool,
    /// Concurrency levels
    #[arg(long, value_delimiter = ',')]
    levels: Vec<u32>,
    /// Runs per client and level
    #[arg(long)]
    runs: Option<usize>,
    /// Prompt length of tokenprobe's requests, and about that of the floor's
    #[arg(long, default_value_t = 1000)]
    prompt_tokens: u32,
    /// The server sends a role-only chunk along with the headers
    #[arg(long)]
    role_first: bool,
    /// Who gets real-time priority: both on a machine that is not idle; some sandboxes stop such processes
    #[arg(long, value_enum, default_value = "server")]
    real_time: RealTime,
}

#[derive(Debug, Subcommand)]
enum Part {
    #[command(hide = true)]
    Server(Script),
    #[command(hide = true)]
    Floor(Load),
    #[command(hide = true)]
    Tokenprobe(Load),
}

/// What a client is to do.
#[derive(Debug, Args)]
struct Load {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    concurrency: u32,
    /// Measured requests per worker, after a warm-up
    #[arg(long)]
    rounds: u32,
    #[arg(long)]
    prompt_tokens: u32,
    #[command(flatten)]
    script: Script,
}

impl Load {
    /// As long as tokenprobe's, near enough.
    fn body(&self) -> Bytes {
        const BYTES_PER_TOKEN: usize = 5;
        Bytes::from(vec![b' '; self.prompt_tokens as usize * BYTES_PER_TOKEN])
    }
}

impl Script {
    /// How long an answer takes.
    fn length(&self) -> Duration {
        Duration::from_micros(self.ttft + self.gap * u64::from(self.tokens - 1))
    }

    fn flags(&self) -> Vec<String> {
        let mut flags: Vec<String> =
            [("ttft", self.ttft), ("gap", self.gap), ("tokens", u64::from(self.tokens))]
                .iter()
                .map(|(name, value)| format!("--{name}={value}"))
                .collect();
        flags.extend(self.role_first.then(|| "--role-first".to_owned()));
        flags
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    match options.part {
        None => report(&options.plan),
        Some(Part::Server(script)) => {
            host::pin_server();
            server::serve(script)
        }
        Some(Part::Floor(load)) => client(load, floor::run),
        Some(Part::Tokenprobe(load)) => client(load, subject::run),
    }
}

/// Longest time a client may take.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(90);

/// Runs a client's part on a runtime as the program has one.
fn client<F>(load: Load, run: impl FnOnce(Load) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<Vec<String>>>,
{
    host::pin_client();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let lines = runtime.block_on(async { tokio::time::timeout(CLIENT_TIME_MAX, run(load)).await })??;
    let usage = record::Usage::of_this_process();
    println!("{}\n{usage}", lines.join("\n"));
    Ok(())
}

fn report(plan: &Plan) -> io::Result<()> {
    let host = Host::look(plan.real_time);
    let (levels, runs): (&[u32], usize) =
        if plan.quick { (&[1, 64, 256], 1) } else { (&[1, 64, 256, 1024, 4096], 3) };
    let levels = if plan.levels.is_empty() { levels } else { &plan.levels };
    let runs = plan.runs.unwrap_or(runs);
    println!("{}", host.describe());
    println!("medians of {runs}; prompts of about {} tokens\n\n{}", plan.prompt_tokens, Figures::HEADINGS);
    let mut verdicts = Vec::new();
    for &concurrency in levels {
        let needed = u64::from(concurrency) + 64;
        if host::open_files().is_some_and(|limit| limit < needed) {
            println!("{concurrency:>11}  left out: needs {needed} open files (ulimit -n)");
            continue;
        }
        let (mut floor, mut subject) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            floor.push(run(&host, plan, concurrency, "floor")?);
            subject.push(run(&host, plan, concurrency, "tokenprobe")?);
        }
        let (floor, subject) = (Figures::median(&floor), Figures::median(&subject));
        println!("{}", floor.row(concurrency, "floor", &floor));
        println!("{}", subject.row(concurrency, "tokenprobe", &floor));
        let of_level = Limits::at(concurrency).verdicts(&subject, &floor);
        verdicts.extend(of_level.into_iter().map(|verdict| (concurrency, verdict)));
    }
    println!("\nconcurrency  figure of tokenprobe");
    for (concurrency, verdict) in &verdicts {
        println!("{concurrency:>11}  {verdict}");
    }
    let held = verdicts.iter().filter(|(_, verdict)| verdict.holds()).count();
    println!("{held} of {} within their limits", verdicts.len());
    Ok(())
}

fn run(host: &Host, plan: &Plan, concurrency: u32, client: &str) -> io::Result<Figures> {
    // Tokens every 10 ms for 4096 streams are more than one core can read.
    let gap = if concurrency > 2048 { 100_000 } else { 10_000 };
    let script = Script { ttft: 50_000, gap, tokens: 64, role_first: plan.role_first };
    let rounds = match concurrency {
        0..=7 => 8,
        8..=255 => 4,
        256..=1023 => 3,
        1024..=2048 => 2,
        _ => 1,
    };
    let server = host.start_server(&script.flags())?;
    let mut args = vec![
        client.to_owned(),
        format!("--port={}", server.port),
        format!("--concurrency={concurrency}"),
        format!("--rounds={rounds}"),
        format!("--prompt-tokens={}", plan.prompt_tokens),
    ];
    args.extend(script.flags());
    let measured = host.run_client(&args)?;
    Ok(Figures::of(&measured, &server.finish()?))
}
