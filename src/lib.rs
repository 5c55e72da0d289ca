//! tokenprobe measures TTFT, TPOT and TPS of LLM endpoints on a schedule and exports them to Prometheus.
//!
//! # Layout
//!
//! Modules are declared in reading order. Pure ones never meet a socket, a file or a clock: they take bytes and
//! durations.
//!
//! | module | what it is for | meets |
//! |---|---|---|
//! | [`cli`] | one file per subcommand | terminal, signals |
//! | [`daemon`] | one event loop that owns it all: due starts, results, reload, shutdown | tasks, wall clock |
//! | [`config`] | TOML as types that cannot hold a bad value; secrets | files, environment |
//! | [`schedule`] | cron and periods to instants | pure |
//! | [`sweep`] | the grid, the ladder, the level's workers, the guard that ends a climb | tasks |
//! | [`prompt`] | prompts of a wanted length with a fresh head | pure |
//! | [`probe`] | one request: connect, send, read, stamp, give up in time | network, monotonic clock |
//! | [`protocol`] | wire formats: request out, tokens with times in | pure |
//! | [`measurement`] | what one probe observed, and the latencies derived from it | pure |
//! | [`analysis`] | level statistics, knee, safe concurrency | pure |
//! | [`report`] | a sweep's report as table, Markdown, CSV, JSON | pure |
//! | [`metrics`] | every metric and label name; observe; encode | memory |
//! | [`server`] | the HTTP surface and the page | listener |
//! | [`simulator`] | a model server with queue, prefill, batched decode, and faults | listener |
//! | [`cell`] | the labels every latency metric carries | pure |
//! | [`version`] | which program this is | pure |
//!
//! The way of one probe: a due start (`daemon`) runs a sweep, which climbs ladders, which run levels, whose workers
//! send probes (`probe`, every network read stamped before it is parsed); `protocol` turns bytes into tokens with
//! times; the resulting `measurement` goes through one bounded channel to whoever listens: the daemon's metrics, or
//! the terminal's progress bar and table.

pub mod cli;
pub mod daemon;

pub mod config;
pub mod schedule;

pub mod analysis;
pub mod measurement;
pub mod probe;
pub mod prompt;
pub mod protocol;
pub mod report;
pub mod sweep;

pub mod metrics;
pub mod server;
pub mod simulator;

pub mod cell;
pub mod version;
