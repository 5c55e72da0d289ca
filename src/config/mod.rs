//! The configuration as types that cannot hold a bad value.
//!
//! [`Config::load`] reads one TOML file; what it returns needs no further checking. Domain types here are not
//! the TOML's shape: the file's own values live in `file.rs` and are turned into these, table by table, by
//! `document.rs`, `target.rs`, `sweep.rs` and `histograms.rs`.

mod aws;
mod base_url;
mod bounded;
mod budget;
mod credential;
mod diagnostic;
mod document;
mod file;
mod histograms;
mod load;
mod nearest;
mod plan;
mod prefix_cache;
mod prompts;
mod redact;
mod secret;
mod section;
mod series;
mod shard;
mod sweep;
mod target;
mod written_secret;

use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use http::{HeaderName, Uri};
use serde_json::{Map, Value};

use crate::{
    arrivals::{Arrivals, Rate},
    budget::{Caps, Period, Price, Unit},
    cell::{Cell, Load},
    prompt::Prompts,
    protocol::{MaxTokensField, Protocol, Timeouts},
    schedule::{QuietHours, Schedule},
};

pub use aws::{Aws, AwsIssuer, AwsKeys, AwsSource};
pub use base_url::{BaseUrl, BaseUrlError};
pub use credential::{ClientAuth, ClientCertificate, Credential, OAuth2, TokenCommand};
pub use diagnostic::ConfigError;
pub(crate) use document::read_file;
pub(crate) use file::{metrics_url, model_name};
pub(crate) use nearest::nearest;
pub use plan::{Plan, SweepPlan};
pub use prefix_cache::{PrefixCache, Share};
pub(crate) use prompts::read_prompts;
pub use redact::Redactor;
pub use secret::{Environment, REDACTED, Secret, SecretError, process_environment};
#[cfg(test)]
pub(crate) use series::FINDINGS_MAX;
pub use series::SeriesCount;
pub use shard::Shard;

#[cfg(test)]
mod tests;

/// A whole configuration.
#[derive(Debug)]
pub struct Config {
    /// HTTP surface and shutdown.
    pub server: Server,
    /// Where the history is kept.
    pub archive: ArchiveSettings,
    /// Bucket bounds and the series limit.
    pub histograms: Histograms,
    /// Caps on the whole, on targets and on sweeps.
    pub budget: Budget,
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

/// `[archive]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// The file; none when nothing is to be kept.
    pub path: Option<PathBuf>,
    /// How long single good measurements are kept. Failures stay as long as their run.
    pub measurements: Duration,
    /// How long runs are kept, with their levels and failures.
    pub runs: Duration,
    /// Size that the file is held below, by giving up the oldest measurements, then the oldest runs. Bytes.
    pub size_max: u64,
}

/// `[budget]`, with the caps of targets and sweeps.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// What may be spent.
    pub caps: Caps,
    /// Whether no cap on the whole is written, so that the built-in ceiling applies.
    pub is_ceiling: bool,
    /// Most requests in flight over everything.
    pub max_in_flight: u32,
}

/// Servers that put models to sleep do so after five minutes or more of nothing.
const COLD_AFTER: Duration = Duration::from_secs(10 * 60);

/// Caps of one target or sweep: the most of a unit over a period.
pub type Limits = Vec<(Unit, Period, f64)>;

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

/// `[[targets]]`: one endpoint. `Debug` shows no credential.
#[derive(Clone)]
pub struct Target {
    /// Unique name; the `target` label.
    pub name: Arc<str>,
    /// Everything before the protocol's own path, joined as written.
    pub base_url: BaseUrl,
    /// Wire format.
    pub protocol: Protocol,
    /// What proves who asks.
    pub credential: Credential,
    /// Header that carries it as it is; the protocol's own when unset.
    pub auth_header: Option<HeaderName>,
    /// Parameters added to every URL.
    pub query: Vec<(String, Secret)>,
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
    /// Where the engine behind it shows its own Prometheus metrics.
    pub engine_metrics_url: Option<Uri>,
    /// Proxy, only when configured: the environment is ignored.
    pub proxy: Option<Uri>,
    /// Certificate checks.
    pub tls: TlsTrust,
    /// Whether two sweeps may load this target at the same time.
    pub allow_overlap: bool,
    /// Most requests in flight, over all sweeps.
    pub max_in_flight: Option<u32>,
    /// How long a model must have been left alone for its next probe to count as a cold one.
    pub cold_after: Duration,
    /// Asked before a model is probed: only one that the answer names is not woken by that.
    pub awake_url: Option<BaseUrl>,
    /// What models cost, where that is known.
    pub prices: BTreeMap<Arc<str>, Price>,
    /// What may be spent here.
    pub budget: Limits,
}

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
    /// The certificate shown to the target.
    pub client_certificate: Option<ClientCertificate>,
}

/// `[[sweeps]]`: a named grid on a schedule.
#[derive(Debug, Clone)]
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
    /// Concurrency levels, ascending. With `rates`: one, the most requests in flight.
    pub concurrency: Vec<u32>,
    /// Rates of an open loop, ascending; then they are the levels. Empty for a closed loop.
    pub rates: Vec<Rate>,
    /// How a level is run.
    pub level: LevelSettings,
    /// What counts as good.
    pub objectives: Objectives,
    /// When a climb ends early.
    pub abort: Abort,
    /// Whether to run one more level between the knee and the level after it.
    pub refine: bool,
    /// Run the lowest level once more with this output limit, to see whether it changes the time to first token.
    pub max_tokens_control: Option<u32>,
    /// When nothing is started.
    pub quiet_hours: Vec<QuietHours>,
    /// What may be spent by it.
    pub budget: Limits,
}

/// How one level is run: what `sweep`'s flags and `[[sweeps]]` have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelSettings {
    /// Measured requests per level.
    pub requests: u32,
    /// Warm-up requests per level at least; every worker sends at least one.
    pub warmup_requests: u32,
    /// How arrivals of an open loop are spaced.
    pub arrivals: Arrivals,
    /// Most tokens to generate.
    pub max_tokens: u32,
    /// Tokens to generate on top of those: what a model may spend on thinking before it answers.
    pub reasoning_budget: u32,
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
    /// Whether to learn first how the model counts prompts, so that they have the wanted length.
    pub calibrate: bool,
    /// Where prompts come from.
    pub prompts: Prompts,
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

/// `prompt_language`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
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

impl Config {
    /// Every cell, in the order sweeps run them: target by target, model by model, prompt lengths and then
    /// concurrency ascending.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        self.sweeps.iter().flat_map(|sweep| sweep.cells()).collect()
    }

    /// The target of a name.
    #[must_use]
    pub fn target(&self, name: &str) -> Option<&Arc<Target>> {
        self.targets.iter().find(|target| target.name.as_ref() == name)
    }

    /// The sweep of a name.
    #[must_use]
    pub fn sweep(&self, name: &str) -> Option<&Arc<Sweep>> {
        self.sweeps.iter().find(|sweep| sweep.name.as_ref() == name)
    }

    /// What a probe on demand of a configured target and model asks: what the first sweep asks that names them, at its
    /// shortest prompt; `None` when they are not configured.
    #[must_use]
    pub fn demanded(&self, target: &str, model: &str) -> Option<(Cell, LevelSettings)> {
        const PROMPT_TOKENS: u32 = 100;
        let target = self.target(target)?;
        let model = target.models.iter().find(|known| known.as_ref() == model)?;
        let names = |sweep: &&Arc<Sweep>| {
            sweep.targets.iter().any(|(each, models)| each.name == target.name && models.contains(model))
        };
        let sweep = self.sweeps.iter().find(names);
        let shortest = sweep.and_then(|sweep| sweep.prompt_tokens.first().copied());
        let cell = Cell {
            sweep: Arc::default(),
            target: target.name.clone(),
            model: model.clone(),
            prompt_tokens: shortest.unwrap_or(PROMPT_TOKENS),
            concurrency: 1,
            rate: None,
        };
        Some((cell, sweep.map(|sweep| sweep.level.clone()).unwrap_or_default()))
    }

    /// Every credential it holds.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        self.targets.iter().flat_map(|target| target.secrets()).collect()
    }

    /// Takes these credentials out of texts.
    #[must_use]
    pub fn redactor(&self) -> Redactor {
        Redactor::new(self.secrets())
    }
}

impl Target {
    /// A target that stands in no file. Everything else is as if unset, and public.
    #[must_use]
    pub fn ad_hoc(base_url: BaseUrl, protocol: Protocol, models: Vec<Arc<str>>) -> Self {
        Self {
            name: base_url.host().into(),
            base_url,
            protocol,
            credential: Credential::None,
            auth_header: None,
            query: Vec::new(),
            models,
            extra_body: Map::new(),
            extra_headers: Vec::new(),
            max_tokens_field: MaxTokensField::default(),
            http_version: HttpVersion::default(),
            engine_metrics_url: None,
            proxy: None,
            tls: TlsTrust::default(),
            allow_overlap: false,
            max_in_flight: None,
            cold_after: COLD_AFTER,
            awake_url: None,
            prices: BTreeMap::new(),
            budget: Limits::new(),
        }
    }

    /// Every credential of this target: keys and tokens, values of headers and parameters, the proxy's userinfo.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        let headers = self.extra_headers.iter().map(|(_, value)| value.clone());
        let query = self.query.iter().map(|(_, value)| value.clone());
        let proxy = self.proxy.as_ref().and_then(proxy_password);
        self.credential.secrets().into_iter().chain(headers).chain(query).chain(proxy).collect()
    }
}

fn proxy_password(proxy: &Uri) -> Option<Secret> {
    let (userinfo, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    let password = userinfo.split_once(':').map_or(userinfo, |(_, password)| password);
    Secret::literal(password).ok()
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("base_url", &self.base_url.as_str())
            .field("protocol", &self.protocol)
            .field("models", &self.models)
            .field("credential", &self.credential)
            .field("auth_header", &self.auth_header)
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}

impl Sweep {
    /// A sweep that stands in no file and never starts on its own: one target, all its models.
    #[must_use]
    pub fn ad_hoc(target: Arc<Target>, mut prompt_tokens: Vec<u32>, mut concurrency: Vec<u32>) -> Self {
        for numbers in [&mut prompt_tokens, &mut concurrency] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let models = target.models.clone();
        Self {
            name: "ad-hoc".into(),
            schedule: Schedule::manual(),
            run_on_start: false,
            targets: vec![(target, models)],
            prompt_tokens,
            concurrency,
            rates: Vec::new(),
            level: LevelSettings::default(),
            objectives: Objectives::default(),
            abort: Abort::default(),
            refine: false,
            max_tokens_control: None,
            quiet_hours: Vec::new(),
            budget: Limits::new(),
        }
    }

    /// Makes it an open loop at these rates.
    pub fn open(&mut self, mut rates: Vec<Rate>, max_in_flight: u32) {
        rates.sort_unstable();
        rates.dedup();
        self.rates = rates;
        self.concurrency = vec![max_in_flight];
    }

    /// Levels that a ladder may run beside those of its grid, at worst: concurrency and output limit of each.
    #[must_use]
    pub fn extra_levels(&self) -> Vec<(u32, u32)> {
        let limit = self.level.output_tokens_max();
        let control = self.max_tokens_control.zip(self.concurrency.first().copied());
        let between = self.concurrency.windows(2).filter_map(|pair| match pair {
            [low, high] => midpoint(*low, *high),
            _ => None,
        });
        let refined = between.max().filter(|_| self.refine);
        control
            .map(|(control, lowest)| (lowest, control))
            .into_iter()
            .chain(refined.map(|n| (n, limit)))
            .collect()
    }

    /// Whether `now` lies in its quiet hours, by its own time zone.
    #[must_use]
    pub fn is_quiet(&self, now: DateTime<Utc>) -> bool {
        let local = now.with_timezone(&self.schedule.timezone()).naive_local();
        self.quiet_hours.iter().any(|hours| hours.contains(local))
    }

    /// The levels of each of its ladders, lowest first: requests in flight, at most when there is a rate.
    pub fn loads(&self) -> impl Iterator<Item = (u32, Option<Rate>)> + '_ {
        let closed = self.concurrency.iter().filter(|_| self.rates.is_empty()).map(|level| (*level, None));
        let most = self.concurrency.last().copied();
        closed.chain(self.rates.iter().filter_map(move |rate| Some((most?, Some(*rate)))))
    }

    /// How many levels each of its ladders has.
    #[must_use]
    pub fn levels(&self) -> usize {
        if self.rates.is_empty() { self.concurrency.len() } else { self.rates.len() }
    }

    /// Its cells, in the order they are run.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        let models = self.targets.iter().flat_map(|(target, models)| {
            models.iter().map(move |model| (Arc::clone(&target.name), Arc::clone(model)))
        });
        models.flat_map(move |(target, model)| {
            self.prompt_tokens.iter().flat_map(move |prompt_tokens| {
                let (target, model) = (Arc::clone(&target), Arc::clone(&model));
                self.loads().map(move |(concurrency, rate)| Cell {
                    sweep: Arc::clone(&self.name),
                    target: Arc::clone(&target),
                    model: Arc::clone(&model),
                    prompt_tokens: *prompt_tokens,
                    concurrency,
                    rate,
                })
            })
        })
    }
}

/// The level between two others, in proportion; `None` when there is none.
#[must_use]
pub fn midpoint(low: u32, high: u32) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between two u32")]
    let middle = (f64::from(low) * f64::from(high)).sqrt().round() as u32;
    (middle > low && middle < high).then_some(middle)
}

impl LevelSettings {
    /// The longest prompt a probe may carry where `wanted` tokens are asked for, as far as that is known.
    #[must_use]
    pub fn prompt_tokens_max(&self, wanted: u32) -> f64 {
        match &self.prompts {
            Prompts::Generated | Prompts::Text(_) => f64::from(wanted),
            Prompts::Real(real) => real.longest_tokens(),
        }
    }

    /// Warm-up requests of a closed level: as many as wanted, and one per worker at least.
    #[must_use]
    pub fn warmup(&self, concurrency: u32) -> u32 {
        self.warmup_requests.max(concurrency)
    }

    /// Arrivals before and after the measured ones of an open level, each: enough to fill the pipeline, and no more
    /// than a quarter of them.
    #[must_use]
    pub fn margin(&self) -> u32 {
        self.requests.div_ceil(4)
    }

    /// Most requests of a level that are sent beside the measured ones.
    #[must_use]
    pub fn excluded(&self, cell: &Cell) -> u32 {
        match cell.load() {
            Load::Concurrency(concurrency) => self.warmup(concurrency) + Self::fillers(concurrency),
            // One goes ahead, alone.
            Load::Rate(_) => 1 + self.warmup_requests.max(self.margin()) + self.margin(),
        }
    }

    /// Most tokens of a whole answer, thinking included.
    #[must_use]
    pub fn output_tokens_max(&self) -> u32 {
        self.max_tokens.saturating_add(self.reasoning_budget)
    }

    /// Requests that keep a level's load while its last measured ones end: one per other worker at most.
    #[must_use]
    pub fn fillers(concurrency: u32) -> u32 {
        concurrency.saturating_sub(1)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { caps: Caps::ceiling(), is_ceiling: true, max_in_flight: 1024 }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen_address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9877)),
            shutdown_grace: Duration::from_secs(20),
        }
    }
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self { path: None, measurements: DAY * 14, runs: DAY * 400, size_max: 2 << 30 }
    }
}

impl Default for LevelSettings {
    fn default() -> Self {
        Self {
            requests: 40,
            warmup_requests: 1,
            arrivals: Arrivals::default(),
            max_tokens: 64,
            reasoning_budget: 0,
            temperature: None,
            timeouts: Timeouts {
                connect: Duration::from_secs(5),
                headers: Duration::from_secs(60),
                first_token: Duration::from_secs(60),
                stall: Duration::from_secs(30),
                total: Duration::from_secs(120),
            },
            connection: ConnectionPolicy::default(),
            prefix_cache: PrefixCache::default(),
            prompt_language: PromptLanguage::default(),
            calibrate: true,
            prompts: Prompts::default(),
        }
    }
}

impl Default for Abort {
    fn default() -> Self {
        Self { failure_ratio: 0.5, after_knee: false }
    }
}
