//! `tokenprobe simulate`: the simulated model server alone, until told to stop.
//!
//! Knows nothing of probes; where the environment and the stop signal come from is its caller's business.

use std::{net::SocketAddr, process::ExitCode, str::FromStr, time::Duration};

use tokio::net::TcpListener;

use crate::simulator::{self, ModelProfile, Settings, fault::Faults};

/// Serve simulated models over the OpenAI API, with the latency of real ones and faults by name
///
/// A fault is asked for behind a model's name: `qwen3-8b+429`, `qwen3-8b+stall`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Faults: {}", Faults::names()))]
pub struct Args {
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:18999")]
    pub listen_address: SocketAddr,
    /// Seed of all jitter.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Length of a simulated second: 0.1 is ten times faster than real.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = time_scale)]
    pub time_scale: f64,
    /// Environment variable that holds the key which requests must bear.
    #[arg(long, value_name = "VAR")]
    pub api_key_env: Option<String>,
    /// A model with an exact time to first token and gap, as `demo:150ms:20ms`, instead of the two demo models.
    #[arg(long = "model", value_name = "NAME:TTFT:GAP")]
    pub models: Vec<FixedModel>,
    /// Let `POST /-/fault` switch faults on while running.
    #[arg(long)]
    pub allow_faults: bool,
}

/// A model of exactly known timing, as written on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedModel {
    /// Its name; may hold colons.
    pub name: String,
    /// Time to first token.
    pub ttft: Duration,
    /// Time between tokens.
    pub gap: Duration,
}

impl FromStr for FixedModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || format!("`{text}` is not NAME:TTFT:GAP, for example demo:150ms:20ms");
        let mut parts = text.rsplitn(3, ':');
        let (gap, ttft, name) = (parts.next(), parts.next(), parts.next());
        let (Some(gap), Some(ttft), Some(name)) = (gap, ttft, name.filter(|name| !name.is_empty())) else {
            return Err(shape());
        };
        let duration =
            |text: &str| humantime::parse_duration(text).map_err(|why| format!("{}: {why}", shape()));
        Ok(Self { name: name.to_owned(), ttft: duration(ttft)?, gap: duration(gap)? })
    }
}

fn time_scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=1000.0).contains(&scale) { Ok(scale) } else { Err("must be from 0.001 to 1000".to_owned()) }
}

/// Serves until `shutdown` completes. `environment` looks a variable up.
pub async fn run(
    args: Args,
    environment: impl Fn(&str) -> Option<String>,
    shutdown: impl Future<Output = ()> + Send,
) -> ExitCode {
    let settings = match settings(&args, environment) {
        Ok(settings) => settings,
        Err(why) => {
            super::tell(&format!("error: {why}"));
            return ExitCode::from(2);
        }
    };
    let served = async {
        let listener = TcpListener::bind(args.listen_address).await?;
        super::tell(&welcome(listener.local_addr()?, &settings));
        simulator::serve(listener, settings, shutdown).await
    };
    match served.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            super::tell(&format!("error: cannot serve on {}: {why}", args.listen_address));
            ExitCode::FAILURE
        }
    }
}

fn settings(args: &Args, environment: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
    let fixed = args.models.iter().map(|model| ModelProfile::fixed(&model.name, model.ttft, model.gap));
    let defaults = Settings::default();
    let api_key = args
        .api_key_env
        .as_ref()
        .map(|variable| environment(variable).ok_or_else(|| format!("--api-key-env: {variable} is not set")))
        .transpose()?;
    Ok(Settings {
        models: if args.models.is_empty() { defaults.models } else { fixed.collect() },
        seed: args.seed,
        time_scale: args.time_scale,
        api_key,
        allow_fault_api: args.allow_faults,
        ..defaults
    })
}

fn welcome(address: SocketAddr, settings: &Settings) -> String {
    let models: Vec<_> = settings.models.iter().map(|model| model.name.as_str()).collect();
    let model = models.first().copied().unwrap_or_default();
    let key = if settings.api_key.is_some() { " -H \"Authorization: Bearer $KEY\"" } else { "" };
    format!(
        "simulating {} at http://{address}/v1 (engine metrics at http://{address}/metrics)\n\
         faults by suffix of the model's name, for example {model}+429: {}\n\
         try: curl -N http://{address}/v1/chat/completions{key} -H 'Content-Type: application/json' \\\n  \
         -d '{{\"model\":\"{model}\",\"stream\":true,\"max_tokens\":16,\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}'",
        models.join(", "),
        Faults::names(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_model_is_read_from_its_end() {
        let check = |text: &str, expect: Option<(&str, u64, u64)>| {
            let expect = expect.map(|(name, ttft, gap)| FixedModel {
                name: name.to_owned(),
                ttft: Duration::from_millis(ttft),
                gap: Duration::from_millis(gap),
            });
            assert_eq!(text.parse::<FixedModel>().ok(), expect, "{text}");
        };
        check("demo:150ms:20ms", Some(("demo", 150, 20)));
        check("org/model:latest:1s:5ms", Some(("org/model:latest", 1000, 5)));
        check("demo:150ms", None);
        check(":150ms:20ms", None);
        check("demo:fast:20ms", None);
    }

    #[test]
    fn an_unset_key_is_an_error_that_names_the_variable() {
        let args = Args {
            listen_address: ([127, 0, 0, 1], 0).into(),
            seed: 1,
            time_scale: 1.0,
            api_key_env: Some("SIM_KEY".to_owned()),
            models: Vec::new(),
            allow_faults: false,
        };
        assert!(settings(&args, |_| None).is_err_and(|why| why.contains("SIM_KEY")));
        assert!(settings(&args, |_| Some("sk".to_owned())).is_ok_and(|settings| settings.api_key.is_some()));
    }
}
