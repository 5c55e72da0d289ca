//! The engine's own statistics, under vLLM's metric names, in the text exposition format.
//!
//! Knows nothing of HTTP; times come in as the engine's, scaled to what a client sees.

use std::{fmt::Write as _, time::Duration};

use super::engine::{Finish, Load};

/// Counters and histograms of one engine since its start.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) load: Load,
    requests: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    generation_tokens: u64,
    stopped: u64,
    cut_at_length: u64,
    aborted: u64,
    queue: Histogram<RequestScale>,
    prefill: Histogram<RequestScale>,
    decode: Histogram<RequestScale>,
    end_to_end: Histogram<RequestScale>,
    first_token: Histogram<FirstTokenScale>,
    per_output_token: Histogram<GapScale>,
    inter_token: Histogram<GapScale>,
}

/// How far one request has come.
#[derive(Debug)]
pub(super) struct Progress {
    submitted: Duration,
    prompt_tokens: u32,
    admitted: Duration,
    first: Duration,
    last: Duration,
    tokens: u32,
}

impl Progress {
    pub(super) fn new(submitted: Duration, prompt_tokens: u32) -> Self {
        Self { submitted, prompt_tokens, admitted: submitted, first: submitted, last: submitted, tokens: 0 }
    }
}

impl Stats {
    pub(super) fn admit(
        &mut self,
        progress: &mut Progress,
        at: Duration,
        cached_tokens: u32,
        time_scale: f64,
    ) {
        progress.admitted = at;
        self.requests += 1;
        self.prompt_tokens += u64::from(progress.prompt_tokens);
        self.cached_tokens += u64::from(cached_tokens);
        self.queue.observe(since(progress.submitted, at, time_scale));
    }

    pub(super) fn token(
        &mut self,
        progress: &mut Progress,
        at: Duration,
        finish: Option<Finish>,
        time_scale: f64,
    ) {
        self.generation_tokens += 1;
        progress.tokens += 1;
        if progress.tokens == 1 {
            progress.first = at;
            self.first_token.observe(since(progress.submitted, at, time_scale));
            self.prefill.observe(since(progress.admitted, at, time_scale));
        } else {
            self.inter_token.observe(since(progress.last, at, time_scale));
        }
        progress.last = at;
        let Some(finish) = finish else { return };
        match finish {
            Finish::Stop => self.stopped += 1,
            Finish::Length => self.cut_at_length += 1,
        }
        let decode = since(progress.first, at, time_scale);
        self.decode.observe(decode);
        self.end_to_end.observe(since(progress.submitted, at, time_scale));
        if progress.tokens > 1 {
            self.per_output_token.observe(decode / f64::from(progress.tokens - 1));
        }
    }

    pub(super) fn abort(&mut self) {
        self.aborted += 1;
    }

    /// Whether anything was ever asked of the engine.
    pub(super) fn is_untouched(&self) -> bool {
        self.requests == 0 && self.aborted == 0 && self.load == Load::default()
    }
}

fn since(start: Duration, end: Duration, time_scale: f64) -> f64 {
    end.saturating_sub(start).as_secs_f64() * time_scale
}

/// Writes all of `models` (name and statistics), family by family.
pub(super) fn encode(models: &[(&str, &Stats)]) -> String {
    let mut page = Page { models, text: String::new() };
    page.plain("num_requests_running", "gauge", "Number of requests in model execution batches.", |stats| {
        stats.load.running as f64
    });
    page.plain("num_requests_waiting", "gauge", "Number of requests waiting to be processed.", |stats| {
        stats.load.waiting as f64
    });
    page.plain("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", |stats| {
        stats.load.kv_usage
    });
    page.plain(
        "num_preemptions_total",
        "counter",
        "Cumulative number of preemption from the engine.",
        |_| 0.0,
    );
    page.plain("prompt_tokens_total", "counter", "Number of prefill tokens processed.", |stats| {
        stats.prompt_tokens as f64
    });
    page.plain("generation_tokens_total", "counter", "Number of generation tokens processed.", |stats| {
        stats.generation_tokens as f64
    });
    page.plain("prefix_cache_queries_total", "counter", "Prefix cache queries, in tokens.", |stats| {
        stats.prompt_tokens as f64
    });
    page.plain("prefix_cache_hits_total", "counter", "Prefix cache hits, in tokens.", |stats| {
        stats.cached_tokens as f64
    });
    page.successes();
    page.histogram("time_to_first_token_seconds", "Time to first token.", |stats| stats.first_token.view());
    page.histogram("inter_token_latency_seconds", "Time between tokens.", |stats| stats.inter_token.view());
    page.histogram("request_time_per_output_token_seconds", "Time per output token of a request.", |stats| {
        stats.per_output_token.view()
    });
    page.histogram("e2e_request_latency_seconds", "Request latency from end to end.", |stats| {
        stats.end_to_end.view()
    });
    page.histogram("request_queue_time_seconds", "Time spent waiting by a request.", |stats| {
        stats.queue.view()
    });
    page.histogram("request_prefill_time_seconds", "Time spent in prefill by a request.", |stats| {
        stats.prefill.view()
    });
    page.histogram("request_decode_time_seconds", "Time spent in decode by a request.", |stats| {
        stats.decode.view()
    });
    page.text
}

struct Page<'a> {
    models: &'a [(&'a str, &'a Stats)],
    text: String,
}

impl Page<'_> {
    fn plain(&mut self, name: &str, kind: &str, help: &str, value: impl Fn(&Stats) -> f64) {
        self.head(name, kind, help);
        for (model, stats) in self.models {
            let _ = writeln!(
                self.text,
                "vllm:{name}{{engine=\"0\",model_name=\"{}\"}} {:?}",
                escape(model),
                value(stats)
            );
        }
    }

    fn successes(&mut self) {
        self.head("request_success_total", "counter", "Count of successfully processed requests.");
        for (model, stats) in self.models {
            for (reason, count) in
                [("stop", stats.stopped), ("length", stats.cut_at_length), ("abort", stats.aborted)]
            {
                let _ = writeln!(
                    self.text,
                    "vllm:request_success_total{{engine=\"0\",finished_reason=\"{reason}\",model_name=\"{}\"}} {count}.0",
                    escape(model)
                );
            }
        }
    }

    fn histogram(&mut self, name: &str, help: &str, view: impl Fn(&Stats) -> View<'_>) {
        self.head(name, "histogram", help);
        for (model, stats) in self.models {
            let model = escape(model);
            let View { bounds, counts, count, sum } = view(stats);
            for (bound, below) in bounds.iter().zip(counts) {
                let _ = writeln!(
                    self.text,
                    "vllm:{name}_bucket{{engine=\"0\",le=\"{bound:?}\",model_name=\"{model}\"}} {below}.0"
                );
            }
            let labels = format!("engine=\"0\",model_name=\"{model}\"");
            let _ = writeln!(
                self.text,
                "vllm:{name}_bucket{{engine=\"0\",le=\"+Inf\",model_name=\"{model}\"}} {count}.0\n\
                 vllm:{name}_count{{{labels}}} {count}.0\nvllm:{name}_sum{{{labels}}} {sum:?}"
            );
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}");
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// vLLM's bucket bounds, one set for each kind of duration.
trait Scale {
    const BOUNDS: &'static [f64];
}

#[derive(Debug)]
struct RequestScale;
impl Scale for RequestScale {
    const BOUNDS: &'static [f64] = &[
        0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
        480.0, 960.0, 1920.0, 7680.0,
    ];
}

#[derive(Debug)]
struct FirstTokenScale;
impl Scale for FirstTokenScale {
    const BOUNDS: &'static [f64] = &[
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
        40.0, 80.0, 160.0, 640.0, 2560.0,
    ];
}

#[derive(Debug)]
struct GapScale;
impl Scale for GapScale {
    const BOUNDS: &'static [f64] = &[
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
        80.0,
    ];
}

#[derive(Debug)]
struct Histogram<S: Scale> {
    /// Cumulative, one for each bound.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
    scale: std::marker::PhantomData<S>,
}

struct View<'a> {
    bounds: &'static [f64],
    counts: &'a [u64],
    count: u64,
    sum: f64,
}

impl<S: Scale> Default for Histogram<S> {
    fn default() -> Self {
        Self { counts: vec![0; S::BOUNDS.len()], count: 0, sum: 0.0, scale: std::marker::PhantomData }
    }
}

impl<S: Scale> Histogram<S> {
    fn observe(&mut self, seconds: f64) {
        self.count += 1;
        self.sum += seconds;
        for (below, bound) in self.counts.iter_mut().zip(S::BOUNDS) {
            *below += u64::from(seconds <= *bound);
        }
    }

    fn view(&self) -> View<'_> {
        View { bounds: S::BOUNDS, counts: &self.counts, count: self.count, sum: self.sum }
    }
}
