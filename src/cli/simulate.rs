use clap::Args; #[derive(Debug, Args)] pub(super) struct SimulateArgs {} pub(super) async fn run(_: SimulateArgs) -> std::process::ExitCode { std::process::ExitCode::SUCCESS }
