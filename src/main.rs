//! argv, logging, limits, runtime, exit code.

mod logging;

use std::{process::ExitCode, time::Duration};

use clap::Parser as _;
use tokenprobe::cli::Cli;

/// How long threads may go on after the command has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Every probe in flight needs a file descriptor: takes all that the system grants anyway.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "the limit of open files stays as it is");
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(&cli.log);
    raise_open_files();
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(cli.run());
            // A thread that hangs in a file system, as one of a network can, must not keep the process.
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            code
        }
        Err(error) => {
            tracing::error!(%error, "cannot start");
            ExitCode::FAILURE
        }
    }
}
