//! argv, logging, runtime, exit code.

mod logging;

use std::process::ExitCode;

use clap::Parser as _;
use tokenprobe::cli::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    logging::start(&cli.log);
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(cli.run()),
        Err(error) => {
            tracing::error!(%error, "cannot start");
            ExitCode::FAILURE
        }
    }
}
