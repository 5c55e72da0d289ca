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
//! | [`credential`] | keys, tokens and signatures as headers of a request | token endpoints, programs |
//! | [`schedule`] | cron and periods to instants | pure |
//! | [`arrivals`] | when the requests of an open loop are due | pure |
//! | [`budget`] | what probes may spend; what they spent | pure, wall clock |
//! | [`election`] | which of several replicas probes | API server, monotonic clock |
//! | [`sweep`] | the grid, the ladder, the level's workers, the guard that ends a climb | tasks |
//! | [`prompt`] | prompts of a wanted length with a fresh head | pure |
//! | [`probe`] | one request: connect, send, read, stamp, give up in time | network, monotonic clock |
//! | [`protocol`] | wire formats: request out, tokens with times in | pure |
//! | [`measurement`] | what one probe observed, and the latencies derived from it | pure |
//! | [`engine`] | what an inference engine says of itself; where the time to first token went | pure |
//! | [`analysis`] | level statistics, knee, safe concurrency, findings | pure |
//! | [`report`] | a sweep's report as table, Markdown, CSV, JSON, HTML | pure |
//! | [`html`] | charts and tables that the status page and the report are made of | pure |
//! | [`archive`] | runs, levels and failures on disk; what comes back after a restart | file |
//! | [`metrics`] | every metric and label name; observe; encode | memory |
//! | [`server`] | the HTTP surface: metrics, the pages, their JSON | listener, archive's file |
//! | [`simulator`] | a model server with queue, prefill, batched decode, and faults | listener |
//! | [`cell`] | the labels every latency metric carries | pure |
//! | [`version`] | which program this is | pure |
//!
//! The way of one probe: a due start (`daemon`) runs a sweep, which climbs ladders, which run levels, whose workers
//! send probes (`probe`, every network read stamped before it is parsed); `protocol` turns bytes into tokens with
//! times; the resulting `measurement` goes through one bounded channel to whoever listens: the daemon's metrics, or
//! the terminal's progress bar and table.
//!
//! # How it measures
//!
//! - **Clock.** Monotonic. t0 is read before a connection is acquired. Every network read is stamped when it returns,
//!   beneath TLS and HTTP, before anything is parsed; a chunk arrived with the read that brought its last data byte.
//! - **First token.** The first chunk with a non-empty generated string: content, reasoning, refusal, tool name or
//!   arguments. Role-only, empty, null, usage, comment, ping and finish frames are never tokens. Time to first token
//!   is the first of any kind; time to first *answer* token is the first that is not reasoning.
//! - **Output tokens.** The server's usage (its last value, when it repeats), else a count of chunks, marked as such;
//!   never the length asked for.
//! - **TPOT.** `(last token - first token) / (output tokens - 1)`, for two or more tokens in two or more reads. Visible
//!   tokens and visible times when reasoning was billed but not shown. Without usage it enters no histogram.
//! - **Chunk gap.** The time between consecutive reads that carried tokens. A metric of its own: a chunk is no token.
//! - **TPS.** Of a request: `(output tokens - 1) / (last - first)`. Of a level: tokens that arrived while as many
//!   requests were in flight as its concurrency says, divided by the length of that window.
//! - **Percentiles.** Linear interpolation, with the number of samples; marked when they rest on fewer than
//!   `1 / (1 - q)` of them.
//! - **Failures.** A probe that fails is a measurement like any other: it enters no latency histogram except the
//!   request duration's, and it stays in every denominator. Nothing is retried inside a measurement, with one
//!   exception: a request that met an idle connection which the server had closed goes out once more, on the same
//!   clock. A probe that we cancel ourselves (shutdown, a filler no longer needed, a lost
//!   lease) is no measurement; it is counted as cancelled.
//! - **Deadlines.** Connect, headers, first token, stall between tokens, total. Comments, pings, role-only and empty
//!   frames do not put off the first token's.
//! - **Load.** A closed loop: as many workers as the level's concurrency, each starting its next probe when its last
//!   one ended. Every worker's first probe is a warm-up and excluded; starts are spread over the length of one
//!   request. While the last measured probes end, idle workers keep up the load with one filler each.
//! - **Open loop.** Where levels are rates, requests are due at instants fixed beforehand, whatever becomes of those
//!   before them, and every time counts from the instant at which a request was due: a server that stalls is charged
//!   for all who came meanwhile. How late a request really left is part of its measurement. In flight are no more
//!   than a bound; who arrives beyond it is not sent and counted.
//! - **Prompts.** Every prompt begins with a fresh nonce, so that no prefix cache can answer it.
//! - **The prober itself.** A timer that runs while probing measures how late this process is scheduled; a level is
//!   `client_saturated` when that delay is more than 5% of its median time to first token, or 5 ms if that is more: in
//!   one of twenty samples, or, where the kernel's account says that others took the core, more than half of that in
//!   one of a hundred.

pub mod cli;
pub mod daemon;

pub mod config;
pub mod credential;
pub mod schedule;

pub mod analysis;
pub mod arrivals;
pub mod budget;
pub mod election;
pub mod engine;
pub mod html;
pub mod measurement;
pub mod probe;
pub mod prompt;
pub mod protocol;
pub mod report;
pub mod sweep;

pub mod archive;
pub mod metrics;
pub mod server;
pub mod simulator;

pub mod cell;
pub mod version;
