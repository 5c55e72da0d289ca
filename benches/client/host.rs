//! The machine: which process runs where, and what it allows.
//!
//! The server has core 0 to itself and, where allowed, real-time priority, so that its schedule holds while the
//! client works; the client has core 1. What could not be had is said, not passed over.

use std::{
    io::{self, BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdin, Command, Stdio},
};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
/// `SCHED_FIFO` priorities of server and, when asked for, client.
const SERVER_PRIORITY: &str = "50";
const CLIENT_PRIORITY: &str = "10";

/// Who is to have real-time priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RealTime {
    None,
    Server,
    Both,
}

/// What this machine offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    pub(crate) real_time: bool,
    pub(crate) client_real_time: bool,
}

/// A server under way; ends when its standard input is closed.
pub(crate) struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    out: BufReader<std::process::ChildStdout>,
    pub(crate) port: u16,
}

impl Host {
    /// What is wanted and can be had.
    pub(crate) fn look(wanted: RealTime) -> Self {
        let allowed = || Command::new("chrt").args(["-f", SERVER_PRIORITY, "true"]).status();
        let real_time = wanted != RealTime::None && allowed().is_ok_and(|status| status.success());
        Self { real_time, client_real_time: real_time && wanted == RealTime::Both }
    }

    /// One line about the circumstances, for the head of the report.
    pub(crate) fn describe(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let server = if self.real_time {
            "SCHED_FIFO"
        } else {
            "normal priority (no chrt, not allowed, or not wanted)"
        };
        let client = if self.client_real_time { "SCHED_FIFO" } else { "normal priority" };
        let sharing = if cores < 2 { "; ONE core only: server and client share it" } else { "" };
        let limit = open_files().map_or("unknown".into(), |limit| limit.to_string());
        format!(
            "server on core {SERVER_CORE}, {server}; client on core {CLIENT_CORE}, {client}{sharing}; {cores} cores, {limit} open files"
        )
    }

    pub(crate) fn start_server(&self, args: &[String]) -> io::Result<Server> {
        let mut command = Self::command(self.real_time.then_some(SERVER_PRIORITY))?;
        let mut child =
            command.arg("server").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let mut out = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        let port = line.trim().parse().map_err(io::Error::other)?;
        Ok(Server { child, stdin, out, port })
    }

    pub(crate) fn run_client(&self, args: &[String]) -> io::Result<String> {
        let mut command = Self::command(self.client_real_time.then_some(CLIENT_PRIORITY))?;
        let output = command.args(args).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("client {}", output.status)));
        }
        String::from_utf8(output.stdout).map_err(io::Error::other)
    }

    fn command(priority: Option<&str>) -> io::Result<Command> {
        let this = std::env::current_exe()?;
        let Some(priority) = priority else { return Ok(Command::new(this)) };
        let mut command = Command::new("chrt");
        command.args(["-f", priority]).arg(this);
        Ok(command)
    }
}

impl Server {
    /// Ends the server; what it says it did.
    pub(crate) fn finish(mut self) -> io::Result<String> {
        drop(self.stdin.take());
        let mut told = String::new();
        self.out.read_to_string(&mut told)?;
        self.child.wait()?;
        Ok(told)
    }
}

/// Moves this process to the server's core.
pub(crate) fn pin_server() {
    pin(SERVER_CORE);
}

/// Moves this process to the client's core: before its runtime starts, which counts the cores it may use.
pub(crate) fn pin_client() {
    pin(CLIENT_CORE);
}

fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    let allowed = sched_getaffinity(None).is_ok_and(|allowed| allowed.is_set(core));
    if !allowed || sched_setaffinity(None, &cores).is_err() {
        eprintln!("not pinned: core {core} is not to be had");
    }
}

/// Most files this process may open.
pub(crate) fn open_files() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}
