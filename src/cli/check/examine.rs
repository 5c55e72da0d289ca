//! Carries out the steps against one model of one target, and stops at the first that fails.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use tokio::task::JoinSet;

use super::{
    base_urls::candidates,
    checklist::{Line, Result, Step},
    request::Request,
};
use crate::{
    cli::suggest,
    config::{BaseUrl, Credential, Redactor, Secret, Target, process_environment},
    measurement::{Failure, FailureClass, Measurement, TokenSource},
    probe::{Endpoint, Inspection},
    prompt::{self, Nonce, Shape},
    protocol::{MaxTokensField, Timeouts},
    sweep::Prepared,
};

/// Few, and yet enough for several reads; and what a model gets that spends them on thinking.
const MAX_TOKENS: u32 = 16;
const MAX_TOKENS_OF_THINKERS: u32 = 1024;
/// So many chunks in at most two reads were held back on the way.
const BUFFERED_CHUNKS_MIN: u64 = 8;
const PROMPT_TOKENS: u32 = 60;
/// Long enough for several blocks of a prefix cache, and cheap.
const CACHED_PROMPT_TOKENS: u32 = 600;
/// A certificate that ends this soon deserves a word.
const EXPIRY_DAYS_MIN: i64 = 21;
/// More of a fresh prompt than this in the cache, and it is not fresh.
const COLD_CACHED_MAX: f64 = 0.2;
/// Less of a repeated prompt than this, and there is no cache to speak of.
const WARM_CACHED_MIN: f64 = 0.5;
/// Variables by which other programs find a proxy. We do not.
const PROXY_VARIABLES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// One model of one target under examination.
pub(super) struct Examination {
    prepared: Prepared,
    redactor: Arc<Redactor>,
    model: Arc<str>,
    timeouts: Timeouts,
    max_tokens: u32,
    lines: Vec<Line>,
}

/// A step failed, and its line is written: go no further.
struct Stop;

impl Examination {
    pub(super) fn new(
        prepared: Prepared,
        redactor: Arc<Redactor>,
        model: Arc<str>,
        timeouts: Timeouts,
    ) -> Self {
        Self { prepared, redactor, model, timeouts, max_tokens: MAX_TOKENS, lines: Vec::new() }
    }

    /// Carries out all steps, or as many as succeed; whether none failed, and what each showed.
    pub(super) async fn run(mut self) -> (bool, Vec<Line>) {
        let ok = self.steps().await.is_ok();
        (ok, self.lines)
    }

    async fn steps(&mut self) -> std::result::Result<(), Stop> {
        self.configuration();
        self.connection().await?;
        self.answer().await?;
        self.cache().await?;
        self.load(2, Step::Concurrency2).await?;
        self.load(4, Step::Concurrency4).await
    }

    fn target(&self) -> &Target {
        self.prepared.endpoint.target()
    }

    fn pass(&mut self, step: Step, detail: impl Into<String>) {
        self.lines.push(Line { step, result: Result::Ok, detail: detail.into(), mend: String::new() });
    }

    fn warn(&mut self, step: Step, detail: impl Into<String>, mend: impl Into<String>) {
        self.lines.push(Line { step, result: Result::Warning, detail: detail.into(), mend: mend.into() });
    }

    fn fail(&mut self, step: Step, detail: impl Into<String>, mend: impl Into<String>) -> Stop {
        self.lines.push(Line { step, result: Result::Failed, detail: detail.into(), mend: mend.into() });
        Stop
    }

    fn configuration(&mut self) {
        let target = self.target();
        let url = target.base_url.join(&target.protocol.path(&self.model));
        let credential = match &target.credential {
            Credential::None => "no key".to_owned(),
            Credential::Keys(keys) => match keys.as_slice() {
                [key] => format!("key from {}", key.source()),
                keys => format!("{} keys in turn", keys.len()),
            },
            Credential::OAuth2(_) => "OAuth 2 token".to_owned(),
            Credential::Command(_) => "token from a command".to_owned(),
            Credential::Aws(_) => "AWS signature".to_owned(),
        };
        let padded =
            matches!(&target.credential, Credential::Keys(keys) if keys.iter().any(Secret::was_padded));
        let ignored =
            PROXY_VARIABLES.iter().find(|name| process_environment(name).is_ok_and(|v| !v.is_empty()));
        let ignored = ignored.filter(|_| target.proxy.is_none());
        let proxy = if target.proxy.is_some() { ", through a proxy" } else { "" };
        let detail = format!("POST {url}, {credential}{proxy}");
        if padded {
            let mend = "the stored key has white space (a space or line break) around it; it is sent without, but mend it at its source";
            self.warn(Step::Configuration, detail, mend);
        } else if let Some(name) = ignored {
            let mend =
                format!("{name} is set and ignored: set `proxy` of the target (--proxy) if it is needed");
            self.warn(Step::Configuration, detail, mend);
        } else {
            self.pass(Step::Configuration, detail);
        }
    }

    /// DNS, TCP and TLS, by opening a connection.
    async fn connection(&mut self) -> std::result::Result<(), Stop> {
        let seen = self.prepared.endpoint.inspect(self.timeouts.connect).await;
        let failed = seen.failure.clone();
        let failed = failed.map(|failure| (failing_step(&failure, seen.tcp, seen.tls), failure.message));
        for step in [Step::Dns, Step::Tcp, Step::Tls] {
            if let Some((at, message)) = failed.as_ref().filter(|(at, _)| *at == step) {
                let (detail, mend) = split_hint(message);
                return Err(self.fail(*at, detail, mend));
            }
            if step == Step::Tls {
                self.security(&seen);
            } else if step == Step::Tcp {
                self.pass(step, format!("connected in {}", seen.tcp.map(millis).unwrap_or_default()));
            } else {
                let resolved = seen.dns.map(|took| format!("resolved in {}", millis(took)));
                self.pass(step, resolved.unwrap_or_else(|| "not needed: the host is an address".to_owned()));
            }
        }
        Ok(())
    }

    fn security(&mut self, seen: &Inspection) {
        let Some(security) = &seen.security else {
            self.pass(Step::Tls, "not used: the base URL is http");
            return;
        };
        let http = if security.http2 { "h2" } else { "http/1.1" };
        let chain = match security.certificates {
            1 => "1 certificate".to_owned(),
            more => format!("chain of {more} certificates"),
        };
        let trust = if self.target().tls.insecure_skip_verify { ", not verified" } else { "" };
        let version = security.version.replace("TLSv1_", "TLS 1.");
        let days = security.not_after.map(|end| (end, (end - Utc::now()).num_days()));
        let until = days.map_or_else(String::new, |(end, days)| {
            format!(" until {} ({days} days)", end.format("%Y-%m-%d"))
        });
        let took = seen.tls.map(millis).unwrap_or_default();
        let detail = format!("{version}, {http}, {chain}{until}{trust}, in {took}");
        match days {
            Some((_, days)) if days < EXPIRY_DAYS_MIN => {
                self.warn(Step::Tls, detail, "the certificate ends soon: renew it");
            }
            _ => self.pass(Step::Tls, detail),
        }
    }

    /// HTTP, credential, model, stream and usage, by one small request.
    async fn answer(&mut self) -> std::result::Result<(), Stop> {
        let mut measurement = self.probe(Nonce::Fresh(fastrand::u64(..)), PROMPT_TOKENS).await;
        if measurement.is_empty() {
            self.max_tokens = MAX_TOKENS_OF_THINKERS;
            measurement = self.probe(Nonce::Fresh(fastrand::u64(..)), PROMPT_TOKENS).await;
        }
        if came_at_once(&measurement) && measurement.is_ok() {
            // A machine that was busy for a moment reads late; what holds a stream back does it every time.
            measurement = self.probe(Nonce::Fresh(fastrand::u64(..)), PROMPT_TOKENS).await;
        }
        let listed = self.prepared.endpoint.served_models().await;
        let headers_came = measurement.timeline.headers.is_some();
        let step_of = |failure| if headers_came { answering_step(failure) } else { Step::Http };
        let failing = measurement.outcome.failure().map(|failure| (step_of(failure), failure.clone()));
        for step in [Step::Http, Step::Credential, Step::Model, Step::Stream] {
            if let Some((at, failure)) = failing.as_ref().filter(|(at, _)| *at == step) {
                let (detail, hint) = split_hint(&failure.message);
                let mend = self.mend(failure, listed.is_ok()).await.unwrap_or(hint);
                return Err(self.fail(*at, detail, mend));
            }
            if step == Step::Stream {
                self.stream(&measurement);
            } else if step == Step::Model {
                let detail = self.model_line(listed.as_deref().ok(), &measurement);
                self.pass(step, detail);
            } else if step == Step::Credential {
                let none = matches!(self.target().credential, Credential::None);
                self.pass(step, if none { "none was asked for" } else { "accepted" });
            } else {
                let headers = measurement.timeline.headers.map(millis).unwrap_or_default();
                self.pass(step, format!("answered after {headers}"));
            }
        }
        self.usage(&measurement);
        Ok(())
    }

    fn model_line(&self, listed: Option<&[String]>, measurement: &Measurement) -> String {
        let listed = match listed {
            Some(listed) if listed.iter().any(|name| **name == *self.model) => {
                format!("one of {} listed", listed.len())
            }
            Some(listed) => format!("served, though not among the {} listed", listed.len()),
            None => "served; the endpoint has no list".to_owned(),
        };
        match measurement.served_model.as_deref().filter(|served| *served != &*self.model) {
            Some(served) => format!("{listed}; answers call it \"{served}\""),
            None => listed,
        }
    }

    fn stream(&mut self, measurement: &Measurement) {
        let (line, tokens) = (&measurement.timeline, &measurement.tokens);
        let first = line.first_token().map(millis).unwrap_or_default();
        let reasoning = if line.first_reasoning_token.is_some() { " (of thinking)" } else { "" };
        let (chunks, end) = (tokens.chunks, millis(line.end));
        let reads = if tokens.reads == 1 { "1 read".to_owned() } else { format!("{} reads", tokens.reads) };
        let detail =
            format!("first token after {first}{reasoning}, {chunks} chunks in {reads}, {end} in all");
        if came_at_once(measurement) {
            let mend = "something holds the stream back: switch off buffering in the proxy (nginx: proxy_buffering off)";
            self.warn(Step::Stream, detail, mend);
        } else if self.max_tokens > MAX_TOKENS {
            let mend =
                "it thinks before it answers: set reasoning_budget, or turn thinking off by extra_body";
            self.warn(Step::Stream, detail, mend);
        } else {
            self.pass(Step::Stream, detail);
        }
    }

    fn usage(&mut self, measurement: &Measurement) {
        let tokens = &measurement.tokens;
        let counted = !matches!(tokens.source, TokenSource::ChunkCount | TokenSource::None);
        match (tokens.prompt, tokens.output) {
            (Some(prompt), Some(output)) if counted => {
                self.pass(Step::Usage, format!("{prompt} prompt tokens, {output} output tokens"));
            }
            _ => self.warn(
                Step::Usage,
                "the server does not count its tokens",
                "time per output token stays unknown: enable usage in streams (stream_options.include_usage)",
            ),
        }
    }

    /// What the prefix cache does with a fresh prompt, and with one that repeats.
    async fn cache(&mut self) -> std::result::Result<(), Stop> {
        let nonce = Nonce::Fresh(fastrand::u64(..));
        let mut ratios = Vec::new();
        for _ in 0..2 {
            let measurement = self.probe(nonce, CACHED_PROMPT_TOKENS).await;
            if let Some(failure) = measurement.outcome.failure() {
                let (detail, hint) = split_hint(&failure.message);
                let detail = format!("with {CACHED_PROMPT_TOKENS} prompt tokens: {detail}");
                // A model with a short context is no broken endpoint.
                if failure.is_context_length() {
                    self.warn(Step::Cache, detail, hint);
                    return Ok(());
                }
                return Err(self.fail(Step::Cache, detail, hint));
            }
            ratios.push(cached_ratio(&measurement));
        }
        match ratios.as_slice() {
            [Some(cold), Some(warm)] => {
                let detail =
                    format!("fresh prompt {:.0}% cached, repeated {:.0}%", cold * 100.0, warm * 100.0);
                if *cold > COLD_CACHED_MAX {
                    let mend = "a fresh prompt should not be cached: something answers in the model's place";
                    self.warn(Step::Cache, detail, mend);
                } else if *warm < WARM_CACHED_MIN {
                    self.pass(Step::Cache, format!("{detail}: there is no prefix cache to speak of"));
                } else {
                    self.pass(Step::Cache, detail);
                }
            }
            _ => self.pass(Step::Cache, "unknown: the server does not say what it cached"),
        }
        Ok(())
    }

    /// So many requests at once.
    async fn load(&mut self, concurrency: u32, step: Step) -> std::result::Result<(), Stop> {
        let mut probes = JoinSet::new();
        for _ in 0..concurrency {
            let request = self.request(Nonce::Fresh(fastrand::u64(..)), PROMPT_TOKENS);
            probes.spawn(request.send());
        }
        let measurements = probes.join_all().await;
        let failures: Vec<&Failure> =
            measurements.iter().filter_map(|measurement| measurement.outcome.failure()).collect();
        if let Some(first) = failures.first() {
            let (detail, hint) = split_hint(&first.message);
            let detail = format!("{} of {concurrency} failed: {detail}", failures.len());
            return Err(self.fail(step, detail, hint));
        }
        let slowest = measurements.iter().filter_map(|measurement| measurement.timeline.first_token()).max();
        let slowest =
            slowest.map_or_else(String::new, |slowest| format!(", first tokens within {}", millis(slowest)));
        self.pass(step, format!("all answered{slowest}"));
        Ok(())
    }

    async fn probe(&self, nonce: Nonce, prompt_tokens: u32) -> Measurement {
        self.request(nonce, prompt_tokens).send().await
    }

    fn request(&self, nonce: Nonce, prompt_tokens: u32) -> Request {
        Request {
            prepared: self.prepared.clone(),
            model: self.model.clone(),
            prompt: prompt::build(nonce, Shape::new(prompt_tokens, crate::config::PromptLanguage::En)),
            timeouts: self.timeouts,
            max_tokens: self.max_tokens,
        }
    }

    /// What would mend a failure, where more can be found out than its own words say.
    async fn mend(&self, failure: &Failure, base_url_is_right: bool) -> Option<String> {
        match failure.class {
            FailureClass::ModelNotFound => suggest(&self.prepared.endpoint, &self.model).await,
            FailureClass::EndpointNotFound | FailureClass::Edge | FailureClass::Protocol
                if !base_url_is_right =>
            {
                self.better_base_url().await
            }
            FailureClass::Auth if matches!(self.target().credential, Credential::None) => {
                Some("no key is configured: set api_key of the target (--api-key-env VAR)".to_owned())
            }
            FailureClass::UpstreamError => Some(upstream_mend(&failure.message, &self.model)),
            FailureClass::BadRequest => {
                let subclass = failure.subclass.as_deref()?;
                let other = match self.target().max_tokens_field {
                    MaxTokensField::MaxTokens => "max_completion_tokens",
                    MaxTokensField::MaxCompletionTokens => "max_tokens",
                };
                subclass
                    .starts_with("unsupported_param:max_")
                    .then(|| format!("set max_tokens_field = \"{other}\" (--max-tokens-field {other})"))
            }
            FailureClass::Connect
            | FailureClass::Tls
            | FailureClass::Edge
            | FailureClass::EndpointNotFound
            | FailureClass::Protocol
            | FailureClass::Timeout
            | FailureClass::Auth
            | FailureClass::Quota
            | FailureClass::RateLimited
            | FailureClass::Overloaded
            | FailureClass::ContentFilter
            | FailureClass::StreamTruncated
            | FailureClass::EmptyOutput
            | FailureClass::NotStreaming => None,
        }
    }

    /// Another base URL of the same host under which there is a list of models.
    async fn better_base_url(&self) -> Option<String> {
        for candidate in candidates(self.target().base_url.as_str()) {
            let Ok(base_url) = BaseUrl::parse(&candidate) else { continue };
            let target = Target { base_url, ..self.target().clone() };
            let Ok(endpoint) = Endpoint::new(Arc::new(target), self.redactor.clone()) else { continue };
            if endpoint.served_models().await.is_ok_and(|models| !models.is_empty()) {
                return Some(format!("models are listed under {candidate}: make that the base URL"));
            }
        }
        None
    }
}

/// It was reached, let the key pass and knew the model: what failed is behind it.
fn upstream_mend(message: &str, model: &str) -> String {
    let message = message.to_ascii_lowercase();
    let unreachable = ["connection error", "connection refused", "cannot connect", "connect call failed"];
    if unreachable.iter().any(|words| message.contains(words)) {
        return format!(
            "the gateway is fine, its upstream of \"{model}\" cannot be reached: check its address there (api_base), and that it is up"
        );
    }
    "it was reached and then failed on its own side: look into its log, and of a gateway at the model's upstream".to_owned()
}

/// Whether many chunks came in one or two reads.
fn came_at_once(measurement: &Measurement) -> bool {
    measurement.tokens.chunks >= BUFFERED_CHUNKS_MIN && measurement.tokens.reads <= 2
}

/// The step of opening a connection at which it failed.
fn failing_step(failure: &Failure, tcp: Option<Duration>, tls: Option<Duration>) -> Step {
    let resolving = failure.class == FailureClass::Connect && failure.subclass.as_deref() == Some("dns");
    // A deadline that passed after the TCP handshake passed in the TLS one.
    let late = failure.class == FailureClass::Timeout && tcp.is_some();
    if resolving {
        Step::Dns
    } else if failure.class == FailureClass::Tls || tls.is_some() || late {
        Step::Tls
    } else {
        Step::Tcp
    }
}

/// The step of answering at which it failed.
fn answering_step(failure: &Failure) -> Step {
    match failure.class {
        FailureClass::Auth | FailureClass::Quota => Step::Credential,
        FailureClass::ModelNotFound => Step::Model,
        FailureClass::Connect | FailureClass::Tls | FailureClass::Edge | FailureClass::EndpointNotFound => {
            Step::Http
        }
        FailureClass::Timeout if failure.subclass.as_deref() == Some("headers") => Step::Http,
        FailureClass::Timeout
        | FailureClass::RateLimited
        | FailureClass::Overloaded
        | FailureClass::BadRequest
        | FailureClass::ContentFilter
        | FailureClass::UpstreamError
        | FailureClass::StreamTruncated
        | FailureClass::Protocol
        | FailureClass::EmptyOutput
        | FailureClass::NotStreaming => Step::Stream,
    }
}

/// A failure's words and its hint, which stands in brackets at their end.
fn split_hint(message: &str) -> (String, String) {
    match message.strip_suffix(')').and_then(|message| message.rsplit_once(" (")) {
        Some((words, hint)) => (words.to_owned(), hint.to_owned()),
        None => (message.to_owned(), String::new()),
    }
}

fn cached_ratio(measurement: &Measurement) -> Option<f64> {
    let (cached, prompt) = (measurement.tokens.cached_prompt?, measurement.tokens.prompt?);
    (prompt > 0).then(|| cached as f64 / prompt as f64)
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_without_its_upstream_is_told_from_a_server_that_fails() {
        let dead = upstream_mend("HTTP 500: InternalServerError: OpenAIException - Connection error.", "m");
        assert!(dead.contains("its upstream of \"m\" cannot be reached"), "{dead}");
        assert!(upstream_mend("HTTP 500: out of memory", "m").contains("look into its log"));
    }

    #[test]
    fn a_hint_is_told_apart_from_the_words() {
        let (words, hint) = split_hint("HTTP 401: no (really) (check the key)");
        assert_eq!((words.as_str(), hint.as_str()), ("HTTP 401: no (really)", "check the key"));
        assert_eq!(split_hint("plain"), ("plain".to_owned(), String::new()));
    }
}
