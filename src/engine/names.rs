//! What engines call the same things.
//!
//! From the engines' own documentation and sources: vLLM (its older names behind its present ones), `SGLang`, TGI,
//! llama.cpp, `TensorRT-LLM` (alone, in NIM, and behind Triton), Triton itself. Names of NIM without a prefix come last.

/// A number that engines tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// From a request's arrival at the engine to its first token.
    FirstToken,
    /// Waiting to be scheduled.
    Queue,
    /// From then to the first token.
    Prefill,
    /// Share of the KV cache in use.
    CacheUse,
    /// Requests being worked on.
    Running,
    /// Requests that wait.
    Waiting,
    /// Requests put back because the KV cache was full.
    Preemptions,
    /// Prompt tokens answered by the prefix cache ...
    CacheHits,
    /// ... of so many that were looked up.
    CacheQueries,
}

/// One spelling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Name {
    pub(super) engine: &'static str,
    pub(super) quantity: Quantity,
    pub(super) sum: &'static str,
    /// What the sum is of; none where it stands for itself, or is of the client's own requests.
    pub(super) count: Option<&'static str>,
    /// Only samples with this label.
    pub(super) label: Option<(&'static str, &'static str)>,
    /// Seconds, or whatever is meant, in one of its units.
    pub(super) unit: f64,
}

/// Engines whose metrics are known.
pub const ENGINES: [&str; 6] = [VLLM, SGLANG, TGI, LLAMA, TENSORRT, TRITON];
const VLLM: &str = "vLLM";
const SGLANG: &str = "SGLang";
const TGI: &str = "TGI";
const LLAMA: &str = "llama.cpp";
const TENSORRT: &str = "TensorRT-LLM";
const TRITON: &str = "Triton";

const fn plain(engine: &'static str, quantity: Quantity, sum: &'static str) -> Name {
    Name { engine, quantity, sum, count: None, label: None, unit: 1.0 }
}

const fn of(
    engine: &'static str,
    quantity: Quantity,
    sum: &'static str,
    count: &'static str,
    unit: f64,
) -> Name {
    Name { engine, quantity, sum, count: Some(count), label: None, unit }
}

const fn labelled(name: Name, label: &'static str, value: &'static str) -> Name {
    Name { label: Some((label, value)), ..name }
}

/// A histogram in seconds.
macro_rules! seconds {
    ($engine:expr, $quantity:ident, $name:literal) => {
        of($engine, Quantity::$quantity, concat!($name, "_sum"), concat!($name, "_count"), 1.0)
    };
}

/// Of each quantity the first name that a page holds counts.
pub(super) const NAMES: &[Name] = &[
    seconds!(VLLM, FirstToken, "vllm:time_to_first_token_seconds"),
    seconds!(SGLANG, FirstToken, "sglang:time_to_first_token_seconds"),
    seconds!(TENSORRT, FirstToken, "trtllm_time_to_first_token_seconds"),
    of(
        TRITON,
        Quantity::FirstToken,
        "nv_inference_first_response_histogram_ms_sum",
        "nv_inference_first_response_histogram_ms_count",
        1e-3,
    ),
    seconds!(VLLM, FirstToken, "time_to_first_token_seconds"),
    seconds!(VLLM, Queue, "vllm:request_queue_time_seconds"),
    seconds!(SGLANG, Queue, "sglang:queue_time_seconds"),
    seconds!(TGI, Queue, "tgi_request_queue_duration"),
    seconds!(TENSORRT, Queue, "trtllm_request_queue_time_seconds"),
    of(TRITON, Quantity::Queue, "nv_inference_queue_duration_us", "nv_inference_request_success", 1e-6),
    seconds!(VLLM, Queue, "request_queue_time_seconds"),
    seconds!(VLLM, Prefill, "vllm:request_prefill_time_seconds"),
    labelled(seconds!(SGLANG, Prefill, "sglang:per_stage_req_latency_seconds"), "stage", "prefill_forward"),
    labelled(seconds!(TGI, Prefill, "tgi_batch_inference_duration"), "method", "prefill"),
    // The whole of it, over the requests of the level.
    plain(LLAMA, Quantity::Prefill, "llamacpp:prompt_seconds_total"),
    seconds!(VLLM, Prefill, "request_prefill_time_seconds"),
    plain(VLLM, Quantity::CacheUse, "vllm:kv_cache_usage_perc"),
    plain(VLLM, Quantity::CacheUse, "vllm:gpu_cache_usage_perc"),
    plain(SGLANG, Quantity::CacheUse, "sglang:token_usage"),
    plain(LLAMA, Quantity::CacheUse, "llamacpp:kv_cache_usage_ratio"),
    plain(TENSORRT, Quantity::CacheUse, "trtllm_kv_cache_utilization"),
    labelled(
        plain(TENSORRT, Quantity::CacheUse, "nv_trt_llm_kv_cache_block_metrics"),
        "kv_cache_block_type",
        "fraction",
    ),
    plain(VLLM, Quantity::CacheUse, "gpu_cache_usage_perc"),
    plain(VLLM, Quantity::Running, "vllm:num_requests_running"),
    plain(SGLANG, Quantity::Running, "sglang:num_running_reqs"),
    plain(TGI, Quantity::Running, "tgi_batch_current_size"),
    plain(LLAMA, Quantity::Running, "llamacpp:requests_processing"),
    plain(TENSORRT, Quantity::Running, "trtllm_num_requests_running"),
    labelled(plain(TENSORRT, Quantity::Running, "nv_trt_llm_request_metrics"), "request_type", "scheduled"),
    plain(VLLM, Quantity::Running, "num_requests_running"),
    plain(VLLM, Quantity::Waiting, "vllm:num_requests_waiting"),
    plain(SGLANG, Quantity::Waiting, "sglang:num_queue_reqs"),
    plain(TGI, Quantity::Waiting, "tgi_queue_size"),
    plain(LLAMA, Quantity::Waiting, "llamacpp:requests_deferred"),
    plain(TENSORRT, Quantity::Waiting, "trtllm_num_requests_waiting"),
    labelled(plain(TENSORRT, Quantity::Waiting, "nv_trt_llm_request_metrics"), "request_type", "waiting"),
    plain(TRITON, Quantity::Waiting, "nv_inference_pending_request_count"),
    plain(VLLM, Quantity::Waiting, "num_requests_waiting"),
    plain(VLLM, Quantity::Preemptions, "vllm:num_preemptions_total"),
    plain(SGLANG, Quantity::Preemptions, "sglang:num_retracted_requests_total"),
    plain(VLLM, Quantity::CacheHits, "vllm:prefix_cache_hits_total"),
    plain(VLLM, Quantity::CacheHits, "vllm:gpu_prefix_cache_hits_total"),
    plain(SGLANG, Quantity::CacheHits, "sglang:cached_tokens_total"),
    plain(VLLM, Quantity::CacheQueries, "vllm:prefix_cache_queries_total"),
    plain(VLLM, Quantity::CacheQueries, "vllm:gpu_prefix_cache_queries_total"),
    plain(SGLANG, Quantity::CacheQueries, "sglang:prompt_tokens_total"),
];
