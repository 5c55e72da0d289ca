//! A target from flags alone: what `request` and `sweep` take without a configuration file.

use std::{sync::Arc, time::Duration};

use clap::Args;

use crate::{
    arrivals::Arrivals,
    config::{
        BaseUrl, Credential, PrefixCache, PromptLanguage, Redactor, Secret, Target, TlsTrust,
        process_environment,
    },
    protocol::{MaxTokensField, Protocol, Timeouts},
};

/// Which endpoint, without a file.
#[derive(Debug, Args)]
pub(super) struct EndpointArgs {
    /// Everything before the protocol's own path, for example `https://llm.example.com/v1`
    #[arg(long, value_name = "URL", conflicts_with = "config_file")]
    pub(super) base_url: Option<String>,
    /// Wire format: openai-chat, openai-completions, openai-responses, anthropic, gemini, ollama, dashscope, bedrock
    #[arg(long, value_name = "PROTOCOL", default_value = "openai-chat", value_parser = protocol)]
    pub(super) protocol: Protocol,
    /// Environment variable that holds the API key
    #[arg(long, value_name = "VAR")]
    pub(super) api_key_env: Option<String>,
    /// Header that carries the key, in place of the protocol's own
    #[arg(long, value_name = "NAME", requires = "api_key_env")]
    pub(super) auth_header: Option<http::HeaderName>,
    /// Accept any TLS certificate
    #[arg(long)]
    pub(super) insecure: bool,
    /// Go through this HTTP proxy; the environment's proxies are ignored
    #[arg(long, value_name = "URL")]
    pub(super) proxy: Option<http::Uri>,
    /// Name of the field that carries the output limit
    #[arg(long, value_name = "FIELD", default_value = "max_tokens", value_parser = max_tokens_field)]
    pub(super) max_tokens_field: MaxTokensField,
}

/// Deadlines.
#[derive(Debug, Args)]
pub(super) struct TimeoutArgs {
    /// Connection established
    #[arg(long = "timeout.connect", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    connect: Duration,
    /// Status line and headers
    #[arg(long = "timeout.headers", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    headers: Duration,
    /// First token
    #[arg(long = "timeout.first-token", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    first_token: Duration,
    /// Longest silence between tokens
    #[arg(long = "timeout.stall", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    stall: Duration,
    /// The whole request
    #[arg(long = "timeout.total", value_name = "DURATION", default_value = "120s", value_parser = duration)]
    total: Duration,
}

impl TimeoutArgs {
    pub(super) fn timeouts(&self) -> Timeouts {
        Timeouts {
            connect: self.connect,
            headers: self.headers,
            first_token: self.first_token,
            stall: self.stall,
            total: self.total,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be longer than zero".into()) } else { Ok(duration) }
}

fn protocol(text: &str) -> Result<Protocol, String> {
    named(text)
}

fn max_tokens_field(text: &str) -> Result<MaxTokensField, String> {
    named(text)
}

/// A flag's value by the name the configuration file uses for it.
pub(super) fn named<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|error| error.to_string())
}

impl EndpointArgs {
    /// The target these flags describe.
    ///
    /// # Errors
    /// One line that names the flag and the mend.
    pub(super) fn target(&self, base_url: &str, models: &[String]) -> Result<(Target, Redactor), String> {
        let base_url = BaseUrl::parse(base_url).map_err(|error| format!("--base-url: {error}"))?;
        let api_key = match &self.api_key_env {
            Some(variable) => {
                let secret = Secret::from_variable(variable, &process_environment);
                Some(secret.map_err(|_| {
                    format!(
                        "--api-key-env: \"{variable}\" is not set or empty: give the name of a variable that holds the key"
                    )
                })?)
            }
            None => None,
        };
        let redactor = Redactor::new(api_key.iter().cloned().collect());
        let mut named = std::collections::HashSet::new();
        let models = models.iter().filter(|model| named.insert(model.as_str()));
        let models = models.map(|model| Arc::from(model.as_str())).collect();
        let mut target = Target::ad_hoc(base_url, self.protocol, models);
        target.credential = api_key.map_or(Credential::None, |key| Credential::Keys(vec![key]));
        target.auth_header.clone_from(&self.auth_header);
        target.max_tokens_field = self.max_tokens_field;
        target.proxy.clone_from(&self.proxy);
        target.tls = TlsTrust { insecure_skip_verify: self.insecure, ..TlsTrust::default() };
        Ok((target, redactor))
    }
}

/// `--prompt-language`
pub(super) fn prompt_language(text: &str) -> Result<PromptLanguage, String> {
    named(text)
}

/// `--temperature`
pub(super) fn temperature(text: &str) -> Result<f64, String> {
    let temperature: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=100.0).contains(&temperature) { Ok(temperature) } else { Err("must be from 0 to 100".into()) }
}

/// `--prefix-cache`
pub(super) fn prefix_cache(text: &str) -> Result<PrefixCache, String> {
    PrefixCache::parse(text)
}

/// `--arrivals`
pub(super) fn arrivals(text: &str) -> Result<Arrivals, String> {
    named(text)
}
