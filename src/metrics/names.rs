//! Every metric's name, type, labels and help text: public API, and the only place where they are written.
//!
//! Dashboards, alert rules and documents are tested against [`CATALOGUE`]. Knows nothing of values: what is
//! counted into a metric, and when, is its parent's business.

/// What is known of a metric before it has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Full name, prefix included.
    pub name: &'static str,
    /// Prometheus type.
    pub kind: Kind,
    /// Label names, in the order in which they are written.
    pub labels: &'static [&'static str],
    /// Formula, unit and origin.
    pub help: &'static str,
}

/// The types of the text format that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, and starts again at zero with the process.
    Counter,
    /// Goes up and down; absent while unknown.
    Gauge,
    /// Cumulative buckets, sum and count.
    Histogram,
    /// Gauges with a `quantile` label, which promtool allows to no other type; without sum and count, since a
    /// level's are no counters.
    Summary,
}

impl Kind {
    /// The word of the `# TYPE` line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// Labels of a cell: one point of a sweep's grid. A level has a concurrency (closed loop) or a rate (open loop).
const CELL: &[&str] = &["sweep", "target", "model", "prompt_tokens", "concurrency", "rate"];
/// Labels of a ladder: the cells that differ only in their load.
const LADDER: &[&str] = &["sweep", "target", "model", "prompt_tokens"];
const SWEEP_MODEL: &[&str] = &["sweep", "target", "model"];
const SWEEP: &[&str] = &["sweep"];

/// Marks a help text of a quantity that the prober measured itself.
macro_rules! own {
    ($text:literal) => {
        concat!($text, " From tokenprobe's own probes on its schedule, not from user traffic.")
    };
}

macro_rules! catalogue {
    ($($id:ident: $kind:ident $name:literal $labels:expr, $help:expr;)+) => {
        $(
            #[doc = concat!("`", $name, "`")]
            pub const $id: Spec = Spec { name: $name, kind: Kind::$kind, labels: $labels, help: $help };
        )+
        /// Every metric that `/metrics` can show, in the order in which it shows them.
        pub const CATALOGUE: &[Spec] = &[$($id),+];
    };
}

catalogue! {
    TIME_TO_FIRST_TOKEN: Histogram "tokenprobe_time_to_first_token_seconds" CELL,
        own!("Time from just before a connection was acquired (at a rate: from when the request was due) to the arrival of the first token of any kind \
              (answer, reasoning, refusal, tool call), in seconds; good probes only.");
    TIME_TO_FIRST_ANSWER_TOKEN: Histogram "tokenprobe_time_to_first_answer_token_seconds" CELL,
        own!("Time from just before a connection was acquired (at a rate: from when the request was due) to the arrival of the first token that is not \
              reasoning, in seconds; good probes only.");
    TIME_PER_OUTPUT_TOKEN: Histogram "tokenprobe_time_per_output_token_seconds" CELL,
        own!("(last token - first token) / (output tokens - 1) of one request, in seconds per token; good probes \
              with two or more tokens in two or more reads whose token count comes from the server's usage.");
    CHUNK_GAP: Histogram "tokenprobe_chunk_gap_seconds" CELL,
        own!("Time between consecutive network reads that carried tokens, in seconds; good probes only. A read may \
              carry several tokens: this is not inter-token latency.");
    REQUEST_DURATION: Histogram "tokenprobe_request_duration_seconds" CELL,
        own!("Time from just before a connection was acquired (at a rate: from when the request was due) until the answer was complete or the probe failed, \
              in seconds; failed probes included.");
    OUTPUT_TOKENS_PER_SECOND: Histogram "tokenprobe_output_tokens_per_second" CELL,
        own!("Request TPS: (output tokens - 1) / (last token - first token) of one request, in tokens per second; \
              the same probes as time_per_output_token_seconds.");
    REQUESTS: Counter "tokenprobe_requests_total" CELL,
        own!("Measured probes that ended, good and failed; warm-up excluded.");
    ARRIVALS_NOT_SENT: Counter "tokenprobe_arrivals_not_sent_total" CELL,
        own!("Requests of a rate that were due and not sent, because as many as load.max_in_flight allows were in \
              flight; in no other metric. Only where levels are rates.");
    REQUEST_FAILURES: Counter "tokenprobe_request_failures_total"
        &["sweep", "target", "model", "prompt_tokens", "concurrency", "rate", "reason"],
        own!("Measured probes that failed, by error class; an answer that broke off or was empty is a failure.");
    REQUESTS_WITHIN_OBJECTIVE: Counter "tokenprobe_requests_within_objective_total"
        &["sweep", "target", "model", "prompt_tokens", "concurrency", "rate", "objective"],
        own!("Measured probes that got a whole answer within the objective (ttft, tpot, duration; all: within every \
              configured one). Failures never count as good: divide by requests_total. A request without a time per output \
              token (one token, or all in one read) kept that objective.");
    PROMPT_TOKENS: Counter "tokenprobe_prompt_tokens_total" SWEEP_MODEL,
        own!("Prompt tokens of all probes that ended, warm-up and failed ones included, by the server's usage; a filler that \
              is cancelled has no usage.");
    CACHED_PROMPT_TOKENS: Counter "tokenprobe_cached_prompt_tokens_total" SWEEP_MODEL,
        own!("Prompt tokens that the server took from its prefix cache, by the server's usage, warm-up included.");
    OUTPUT_TOKENS: Counter "tokenprobe_output_tokens_total" SWEEP_MODEL,
        own!("Output tokens of all probes, reasoning, warm-up and failed ones included, by the server's usage; \
              where it gives none, chunks are counted, a lower bound.");
    REASONING_TOKENS: Counter "tokenprobe_reasoning_tokens_total" SWEEP_MODEL,
        own!("Reasoning tokens within output_tokens_total, by the server's usage.");
    COST: Counter "tokenprobe_cost_total" &["target", "model", "currency"],
        own!("Price of the tokens spent on probes: tokens by the server's usage times the configured price, in \
              units of the currency.");
    LEVEL_THROUGHPUT_TOKENS: Gauge "tokenprobe_level_throughput_tokens_per_second" CELL,
        own!("Total TPS of the last level: tokens that arrived while the level was full (in flight = concurrency; \
              at a rate: while measured requests arrived) / length of that window, in tokens per second.");
    LEVEL_THROUGHPUT_REQUESTS: Gauge "tokenprobe_level_throughput_requests_per_second" CELL,
        own!("Requests that ended while the last level was full (in flight = concurrency; at a rate: while measured \
              requests arrived) / length of that window, in requests per second.");
    LEVEL_TTFT: Summary "tokenprobe_level_ttft_seconds"
        &["sweep", "target", "model", "prompt_tokens", "concurrency", "rate", "quantile"],
        own!("Exact quantile of the time to first token over the last level's good probes, in seconds, by linear \
              interpolation; absent when the level failed.");
    LEVEL_TPOT: Summary "tokenprobe_level_tpot_seconds"
        &["sweep", "target", "model", "prompt_tokens", "concurrency", "rate", "quantile"],
        own!("Exact quantile of the time per output token over the last level's good probes, in seconds, by linear \
              interpolation; absent when the level failed.");
    LEVEL_TTFT_PART: Gauge "tokenprobe_level_ttft_part_seconds"
        &["sweep", "target", "model", "prompt_tokens", "concurrency", "rate", "part"],
        "Part of the last level's mean time to first token by the engine's own metrics, in seconds: outside (network and \
         gateway), queue, prefill, rest; absent without engine_metrics_url, or where the engine does not tell it.";
    LEVEL_KV_CACHE: Gauge "tokenprobe_level_kv_cache_usage_ratio" CELL,
        "Share of the engine's KV cache in use under the last level's load, 0 to 1, by its own metrics; absent without \
         engine_metrics_url.";
    LADDER_KNEE: Gauge "tokenprobe_ladder_knee_concurrency" LADDER,
        own!("Concurrency beyond which total TPS of the last ladder stopped growing; absent when unknown.");
    LADDER_SAFE: Gauge "tokenprobe_ladder_safe_concurrency" LADDER,
        own!("Concurrency that is safe to run at by the last ladder: 70% of the knee with the TTFT objective kept; \
              absent when unknown.");
    LADDER_KNEE_RATE: Gauge "tokenprobe_ladder_knee_requests_per_second" LADDER,
        own!("Highest rate of the last ladder of rates below the first at which answers surely came more slowly than \
              requests, in requests per second; absent when unknown.");
    LADDER_SAFE_RATE: Gauge "tokenprobe_ladder_safe_requests_per_second" LADDER,
        own!("Rate that is safe to run at by the last ladder of rates: 70% of the knee with every objective kept, in \
              requests per second; absent when unknown.");
    LADDER_STATE: Gauge "tokenprobe_ladder_state" &["sweep", "target", "model", "prompt_tokens", "state"],
        own!("1 for the state of the knee in the last ladder (found, not_reached, unstable, failed), 0 for the \
              others; absent before the first.");
    FINDING: Gauge "tokenprobe_finding" &["sweep", "target", "model", "prompt_tokens", "finding"],
        own!("1 when the last ladder supports the finding, 0 when it does not; absent before the first.");
    LEVEL_SKIPS: Counter "tokenprobe_level_skips_total" &["sweep", "target", "model", "prompt_tokens", "reason"],
        "Levels of a ladder that were not run because the climb had ended: failure_ratio (too many failures), \
         after_knee, fatal (credential, model or URL is wrong, or the endpoint does not stream), budget (it would not \
         fit into what may still be spent), retry_after (the target asked to be left alone), quiet, paused, \
         lighter_fails (the model fails already at shorter prompts), asleep (it is not to be woken).";
    UP: Gauge "tokenprobe_up" &["target", "model"],
        own!("1 when the latest probe generated visible text, whole or broken off, 0 when it did not; absent before \
              the first.");
    FAILING: Gauge "tokenprobe_failing" &["target", "model", "reason"],
        own!("1 for the error class by which the latest probe failed, 0 for the others and when it did not fail; absent \
              before the first.");
    COLD_TTFT: Gauge "tokenprobe_cold_time_to_first_token_seconds" &["target", "model"],
        own!("Time to first token of the latest good probe that came after the model was left alone for cold_after, in \
              seconds: what waking it costs. Such probes are in no histogram; absent before the first.");
    CONNECTION_PHASE: Histogram "tokenprobe_connection_phase_seconds" &["target", "phase"],
        own!("Time that one phase (dns, tcp, tls) of opening a connection took, in seconds; only probes that opened \
              one, warm-up included.");
    RATE_LIMIT: Gauge "tokenprobe_rate_limit" &["target", "model", "unit"],
        "What the target allows this client when nothing is used, by the rate-limit headers of the latest answer, in \
         units of the unit label (requests, tokens, input_tokens, output_tokens); absent when it does not say.";
    RATE_LIMIT_REMAINING: Gauge "tokenprobe_rate_limit_remaining" &["target", "model", "unit"],
        "What is left of that, by the rate-limit headers of the latest answer, in units of the unit label; absent when \
         the target does not say.";
    RATE_LIMIT_RESET: Gauge "tokenprobe_rate_limit_reset_seconds" &["target", "model", "unit"],
        "How long until it is whole again, by the rate-limit headers of the latest answer, in seconds; absent when the \
         target does not say.";
    OBJECTIVE_SECONDS: Gauge "tokenprobe_objective_seconds" &["sweep", "objective"],
        "Longest good time of a request, as configured, in seconds (ttft, duration) or seconds per token (tpot).";
    OBJECTIVE_RATIO: Gauge "tokenprobe_objective_ratio" SWEEP,
        "Share of requests that should be within every objective, as configured (success_ratio), 0 to 1.";
    SWEEP_RUNS: Counter "tokenprobe_sweep_runs_total" &["sweep", "result"],
        "Runs of a sweep that ended: completed (every level ran or was skipped for a stated reason), aborted (by \
         shutdown or reload), failed (no probe got an answer).";
    SWEEP_SKIPS: Counter "tokenprobe_sweep_skips_total" &["sweep", "reason"],
        "Due starts of a sweep that did not happen: overlap (it or another one was running), budget, quiet, paused, \
         standby (another replica probes), late (passed by while the machine slept or was too busy, or the clock was set ahead).";
    SWEEP_LAST_START: Gauge "tokenprobe_sweep_last_start_timestamp_seconds" SWEEP,
        "When the sweep last started, in seconds since the Unix epoch; absent before the first start.";
    SWEEP_LAST_END: Gauge "tokenprobe_sweep_last_end_timestamp_seconds" SWEEP,
        "When the sweep last ended, in seconds since the Unix epoch; absent before the first end.";
    SWEEP_LAST_SUCCESS: Gauge "tokenprobe_sweep_last_success_timestamp_seconds" SWEEP,
        "When the sweep last completed, in seconds since the Unix epoch; absent before it first did.";
    SWEEP_NEXT_START: Gauge "tokenprobe_sweep_next_start_timestamp_seconds" SWEEP,
        "When the sweep is due next, in seconds since the Unix epoch; absent when its schedule has ended.";
    SWEEP_DURATION: Gauge "tokenprobe_sweep_duration_seconds" SWEEP,
        "How long the sweep's last run took, in seconds; absent before the first end.";
    SWEEP_INTERVAL: Gauge "tokenprobe_sweep_interval_seconds" SWEEP,
        "Time between the sweep's next two due starts, in seconds.";
    SWEEP_START_DELAY: Gauge "tokenprobe_sweep_start_delay_seconds" SWEEP,
        "How long after its due time the sweep last started, in seconds; absent before the first scheduled start.";
    BUDGET_LIMIT: Gauge "tokenprobe_budget_limit" &["scope", "unit", "period"],
        "What probes may spend in one period, as configured, in units of the unit label (requests, tokens, cost), on \
         everything (all), a target (target:NAME) or a sweep (sweep:NAME).";
    BUDGET_REMAINING: Gauge "tokenprobe_budget_remaining" &["scope", "unit", "period"],
        "What probes may still spend within the current period, in units of the unit label (requests, tokens, cost), of \
         everything (all), a target (target:NAME) or a sweep (sweep:NAME); what running probes may use at most is \
         taken off.";
    PROBE_ATTEMPTS: Counter "tokenprobe_probe_attempts_total" &["target", "model", "role"],
        "Probes that were sent, whatever for (cold, warm_up, calibration, measured, filler, on_demand): the sum of \
         probe_results_total and probes_in_flight, at every scrape.";
    PROBE_RESULTS: Counter "tokenprobe_probe_results_total" &["target", "model", "role", "result"],
        "What became of the probes in probe_attempts_total: success (a whole answer), failure, cancelled (given up by us: a \
         filler that was no longer needed, a shutdown, a lost lease).";
    PROBES_IN_FLIGHT: Gauge "tokenprobe_probes_in_flight" &[],
        "Probes that are running now, warm-up included.";
    CLIENT_DELAY: Histogram "tokenprobe_client_delay_seconds" &[],
        "How late the prober's own timers fired while probes were running, in seconds: the part of a latency that may \
         be the prober's own.";
    ARCHIVE_UP: Gauge "tokenprobe_archive_up" &[],
        "1 when the last write to the archive succeeded, 0 when it failed and is tried again; absent without an archive.";
    ARCHIVE_DROPPED: Counter "tokenprobe_archive_dropped_total" &["reason"],
        "Entries (a run, level, ladder or probe) that are missing in the archive: queue_full (written too slowly or not at \
         all), unwritten (given up).";
    ARCHIVE_WRITE_FAILURES: Counter "tokenprobe_archive_write_failures_total" &[],
        "Attempts to write to the archive that failed; they are repeated.";
    ARCHIVE_SIZE: Gauge "tokenprobe_archive_size_bytes" &[],
        "Size of the archive's file, without its write-ahead log, in bytes; absent without an archive.";
    HTTP_CONNECTIONS_REFUSED: Counter "tokenprobe_http_connections_refused_total" &[],
        "Connections to tokenprobe's own HTTP surface that were refused because too many were open.";
    LEADER: Gauge "tokenprobe_leader" &[],
        "1 while this replica holds the lease and probes, 0 while it stands by; absent without leader election.";
    LEASE_REQUEST_FAILURES: Counter "tokenprobe_lease_request_failures_total" &[],
        "Requests about the lease that the Kubernetes API server did not grant: errors, no answer in time, conflicts with \
         another replica's write.";
    BUILD_INFO: Gauge "tokenprobe_build_info" &["version", "revision", "rustc"],
        "Always 1; the labels say what is running.";
    CONFIG_LAST_RELOAD_SUCCESSFUL: Gauge "tokenprobe_config_last_reload_successful" &[],
        "1 when the last attempt to load the configuration succeeded, 0 when the old one was kept.";
    CONFIG_LAST_RELOAD_SUCCESS: Gauge "tokenprobe_config_last_reload_success_timestamp_seconds" &[],
        "When the configuration was last loaded successfully, in seconds since the Unix epoch.";
    PROCESS_CPU: Counter "process_cpu_seconds_total" &[],
        "Total user and system CPU time spent in seconds.";
    PROCESS_MAX_FDS: Gauge "process_max_fds" &[],
        "Maximum number of open file descriptors.";
    PROCESS_OPEN_FDS: Gauge "process_open_fds" &[],
        "Number of open file descriptors.";
    PROCESS_RESIDENT_MEMORY: Gauge "process_resident_memory_bytes" &[],
        "Resident memory size in bytes.";
    PROCESS_START_TIME: Gauge "process_start_time_seconds" &[],
        "Start time of the process since unix epoch in seconds.";
    PROCESS_THREADS: Gauge "process_threads" &[],
        "Number of OS threads in the process.";
    PROCESS_VIRTUAL_MEMORY: Gauge "process_virtual_memory_bytes" &[],
        "Virtual memory size in bytes.";
}
