//! The configuration as types that cannot hold a bad value.
//!
//! [`Config::load`] reads one TOML file; what it returns needs no further checking. Domain types here are not
//! the TOML's shape: the file's own types live in `file.rs` and are turned into these.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderName, Uri};
use serde_json::{Map, Value};

use crate::{
    cell::Cell,
    protocol::{MaxTokensField, Protocol, Timeouts},
    schedule::Schedule,
};

/// A whole configuration.
#[derive(Debug)]
pub struct Config {
    /// HTTP surface and shutdown.
    pub server: Server,
    /// Bucket bounds and the series limit.
    pub histograms: Histograms,
    /// Endpoints, in file order.
    pub targets: Vec<Arc<Target>>,
    /// Sweeps, in file order.
    pub sweeps: Vec<Arc<Sweep>>,
    /// What is legal but unwise (a literal key, a run longer than its interval): one line each, for the log.
    pub warnings: Vec<String>,
}

/// `[server]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Where `/metrics` is served.
    pub listen_address: SocketAddr,
    /// How long running probes may go on after SIGTERM.
    pub shutdown_grace: Duration,
}

/// `[histograms]`
#[derive(Debug, Clone, PartialEq)]
pub struct Histograms {
    /// Upper bounds of `time_to_first_*_seconds`, ascending, finite; objectives are merged in.
    pub time_to_first_token_seconds: Vec<f64>,
    /// Upper bounds of `time_per_output_token_seconds` and `chunk_gap_seconds`.
    pub time_per_output_token_seconds: Vec<f64>,
    /// Upper bounds of `request_duration_seconds`.
    pub request_duration_seconds: Vec<f64>,
    /// Upper bounds of `output_tokens_per_second`.
    pub output_tokens_per_second: Vec<f64>,
    /// Most series the configuration may ask for.
    pub max_series: usize,
}

/// `[[targets]]`: one endpoint.
#[derive(Debug)]
pub struct Target {
    /// Unique name; the `target` label.
    pub name: Arc<str>,
    /// Everything before the protocol's own path, joined as written.
    pub base_url: BaseUrl,
    /// Wire format.
    pub protocol: Protocol,
    /// Credential, sent as `Authorization: Bearer`.
    pub api_key: Option<Secret>,
    /// Models, in file order, exactly as written.
    pub models: Vec<Arc<str>>,
    /// Members merged over every request body.
    pub extra_body: Map<String, Value>,
    /// Headers added to every request.
    pub extra_headers: Vec<(HeaderName, Secret)>,
    /// How the output limit is spelled.
    pub max_tokens_field: MaxTokensField,
    /// Which HTTP versions to offer.
    pub http_version: HttpVersion,
    /// Proxy, only when configured: the environment is ignored.
    pub proxy: Option<Uri>,
    /// Certificate checks.
    pub tls: TlsTrust,
    /// Whether two sweeps may load this target at the same time.
    pub allow_overlap: bool,
}

/// A base URL: `http` or `https`, no userinfo, query or fragment; the path is kept as written, less trailing slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(pub(crate) String);

/// Which HTTP version to speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
pub enum HttpVersion {
    /// Over TLS whatever ALPN agrees on; HTTP/1.1 without TLS.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1 only.
    #[serde(rename = "1.1")]
    Http11,
    /// HTTP/2 only; without TLS by prior knowledge.
    #[serde(rename = "2")]
    Http2,
}

/// Which certificates a target is trusted with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsTrust {
    /// Accept any certificate.
    pub insecure_skip_verify: bool,
    /// PEM file of the certificate authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
}

/// `[[sweeps]]`: a named grid on a schedule.
#[derive(Debug)]
pub struct Sweep {
    /// Unique name; the `sweep` label.
    pub name: Arc<str>,
    /// When it starts.
    pub schedule: Schedule,
    /// Start once as soon as the daemon is up.
    pub run_on_start: bool,
    /// Endpoints it covers, each with the models to probe there.
    pub targets: Vec<(Arc<Target>, Vec<Arc<str>>)>,
    /// Wanted prompt lengths, ascending.
    pub prompt_tokens: Vec<u32>,
    /// Concurrency levels, ascending.
    pub concurrency: Vec<u32>,
    /// How a level is run.
    pub level: LevelSettings,
    /// What counts as good.
    pub objectives: Objectives,
    /// When a climb ends early.
    pub abort: Abort,
}

/// How one level is run: what `sweep`'s flags and `[[sweeps]]` have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelSettings {
    /// Measured requests per level.
    pub requests: u32,
    /// Warm-up requests per level at least; every worker sends at least one.
    pub warmup_requests: u32,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// Sampling temperature; left out of the request when unset.
    pub temperature: Option<f64>,
    /// Deadlines of each probe.
    pub timeouts: Timeouts,
    /// Whether measured probes reuse a connection or open one each.
    pub connection: ConnectionPolicy,
    /// Whether prompts share their head.
    pub prefix_cache: PrefixCache,
    /// Language of the prompts.
    pub prompt_language: PromptLanguage,
}

/// `connection`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionPolicy {
    /// Warm-up opens connections, measured probes reuse them.
    #[default]
    Reuse,
    /// Every probe opens its own.
    New,
}

/// `prefix_cache`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixCache {
    /// A fresh nonce at the head of every prompt: no prefix cache can answer.
    #[default]
    Cold,
    /// The same prompt every time.
    Warm,
}

/// `prompt_language`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptLanguage {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
    /// Both, paragraph by paragraph.
    Mixed,
}

/// `objectives`
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Objectives {
    /// Longest good time to first token.
    pub ttft: Option<Duration>,
    /// Longest good time per output token.
    pub tpot: Option<Duration>,
    /// Longest good request.
    pub duration: Option<Duration>,
    /// Share of requests that should succeed, 0 to 1.
    pub success_ratio: Option<f64>,
}

/// `abort`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Abort {
    /// Stop climbing after a level of which at least this share failed.
    pub failure_ratio: f64,
    /// Stop climbing one level after the knee.
    pub after_knee: bool,
}
