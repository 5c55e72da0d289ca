//! `tokenprobe request`: one probe and its whole timeline.

use std::{fmt::Write as _, process::ExitCode, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use tokio::time::Instant;

use super::{
    FAILED, Refused,
    adhoc::{EndpointArgs, TimeoutArgs, prompt_language, temperature},
    load, print, suggest, tell, terminated,
};
use crate::{
    config::{ConnectionPolicy, Histograms, PromptLanguage, Redactor, Target, model_name},
    measurement::{
        ConnectionUse, FailureClass, Measurement, TokenSource,
        record::{Record, Subject},
    },
    probe::{Endpoint, Lane, Shot, TraceId},
    prompt::{self, Nonce, Shape},
    protocol::Ask,
    sweep::Prepared,
};

/// Flags of `request`.
#[derive(Debug, Args)]
pub(super) struct RequestArgs {
    /// Configuration file that --target is looked up in
    #[arg(long = "config.file", id = "config_file", value_name = "FILE")]
    config_file: Option<std::path::PathBuf>,
    /// Target of the configuration file
    #[arg(long, value_name = "NAME", conflicts_with = "base_url")]
    target: Option<String>,
    /// Model, exactly as the server names it
    #[arg(long, value_name = "MODEL", value_parser = model_name)]
    model: Option<String>,
    #[command(flatten)]
    endpoint: EndpointArgs,
    /// Prompt, sent exactly as given
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_tokens")]
    prompt: Option<String>,
    /// Make up a prompt of about this many tokens
    #[arg(long, value_name = "N", default_value_t = 100)]
    prompt_tokens: u32,
    /// Language of the made-up prompt: en, zh, mixed
    #[arg(long, value_name = "LANGUAGE", default_value = "en", value_parser = prompt_language)]
    prompt_language: PromptLanguage,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Sampling temperature; left out when not given
    #[arg(long, value_name = "T", value_parser = temperature)]
    temperature: Option<f64>,
    #[command(flatten)]
    timeouts: TimeoutArgs,
    /// Shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Print the answer's visible text, too
    #[arg(long)]
    show_text: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Sends the probe and prints what it observed; exit 1 when it failed.
pub(super) async fn run(args: RequestArgs) -> ExitCode {
    let Chosen { target, redactor, model } = match choose(&args) {
        Ok(chosen) => chosen,
        Err(refused) => return refused.exit(),
    };
    let prepared = match Endpoint::new(target, redactor) {
        Ok(endpoint) => Prepared::new(endpoint),
        Err(error) => {
            tell(&format!("error: {error}"));
            return ExitCode::from(FAILED);
        }
    };
    let started_at = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let begun = Instant::now();
    let (measurement, trace_id) = tokio::select! {
        // Polled in this order: from the first byte on, an interruption is heard.
        biased;
        () = terminated() => {
            tell(&format!("interrupted after {}: what came until then is not shown", millis(begun.elapsed())));
            return ExitCode::from(FAILED);
        }
        sent = send(&args, &prepared, &model) => sent,
    };
    if measurement.outcome.failure().is_some_and(|failure| failure.class == FailureClass::ModelNotFound)
        && let Some(suggestion) = suggest(&prepared.endpoint, &model).await
    {
        tell(&suggestion);
    }
    let target = &prepared.endpoint.target().name;
    match args.format {
        Format::Json => {
            let trace_id = trace_id.to_string();
            let subject =
                Subject { target, model: &model, started_at: &started_at, trace_id: Some(&trace_id) };
            let record = Record::new(&measurement, subject);
            print(&serde_json::to_string(&record).unwrap_or_default());
        }
        Format::Text => print(&timeline(&measurement, target, &model, trace_id)),
    }
    ExitCode::from(if measurement.is_ok() { 0 } else { FAILED })
}

async fn send(args: &RequestArgs, prepared: &Prepared, model: &Arc<str>) -> (Measurement, TraceId) {
    let prompt = args.prompt.clone().unwrap_or_else(|| {
        prompt::build(Nonce::Fresh(fastrand::u64(..)), Shape::new(args.prompt_tokens, args.prompt_language))
    });
    let target = prepared.endpoint.target();
    let mut lane = Lane::new(prepared.endpoint.clone(), ConnectionPolicy::New);
    loop {
        let trace_id = TraceId::random();
        let shot = Shot {
            ask: Ask {
                model,
                prompt: &prompt,
                max_tokens: args.max_tokens,
                max_tokens_field: target.max_tokens_field,
                temperature: args.temperature,
                include_usage: prepared.asks_usage(model),
                extra_body: &target.extra_body,
            },
            timeouts: args.timeouts.timeouts(),
            keep_text: args.show_text,
            gap_bounds: Histograms::default().time_per_output_token_seconds.into(),
            trace_id,
            due: None,
            again: None,
        };
        let measurement = lane.probe(&shot).await;
        // A server that refuses to count tokens is asked once more, without.
        if !prepared.learn(model, &measurement) {
            return (measurement, trace_id);
        }
    }
}

/// What the flags ask for.
struct Chosen {
    target: Arc<Target>,
    redactor: Arc<Redactor>,
    model: Arc<str>,
}

fn choose(args: &RequestArgs) -> Result<Chosen, Refused> {
    if let Some(base_url) = &args.endpoint.base_url {
        let model =
            args.model.as_deref().ok_or_else(|| Refused::usage("--model is needed beside --base-url"))?;
        let models = [model.to_owned()];
        let (target, redactor) = args.endpoint.target(base_url, &models).map_err(Refused::usage)?;
        return Ok(Chosen {
            target: Arc::new(target),
            redactor: Arc::new(redactor),
            model: Arc::from(model),
        });
    }
    let name = args.target.as_deref().ok_or_else(|| {
        Refused::usage(
            "which endpoint? give --base-url URL --model M, or --target NAME of the configuration file \
             (--config.file)",
        )
    })?;
    let config = load::config(args.config_file.as_deref()).map_err(Refused::config)?;
    let target = config.targets.iter().find(|target| *target.name == *name).ok_or_else(|| {
        let known: Vec<&str> = config.targets.iter().map(|target| &*target.name).collect();
        Refused::usage(format!("no target \"{name}\" in the configuration; it has: {}", known.join(", ")))
    })?;
    let model = match &args.model {
        Some(model) => Arc::from(model.as_str()),
        None => target.models.first().cloned().ok_or_else(|| Refused::usage("--model is needed"))?,
    };
    Ok(Chosen { target: target.clone(), redactor: Arc::new(config.redactor()), model })
}

/// The timeline as a person reads it.
fn timeline(measurement: &Measurement, target: &str, model: &str, trace_id: TraceId) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{target}  {model}  trace {trace_id}");
    let outcome = measurement.outcome.as_str();
    match (measurement.outcome.failure(), &measurement.finish_reason) {
        (Some(failure), _) => {
            let subclass = failure.subclass.as_ref().map(|s| format!("/{s}")).unwrap_or_default();
            let status = failure.http_status.map(|s| format!(", HTTP {s}")).unwrap_or_default();
            let _ = writeln!(out, "outcome {outcome}: {}{subclass}{status}", failure.class);
            let _ = writeln!(out, "  {}", failure.message);
            if let Some(wait) = failure.retry_after {
                let _ = writeln!(out, "  the server asks to wait {:.1} s", wait.as_secs_f64());
            }
        }
        (None, Some(reason)) => {
            let _ = writeln!(out, "outcome {outcome} (finish reason {reason})");
        }
        (None, None) => {
            let _ = writeln!(out, "outcome {outcome}");
        }
    }
    out.push('\n');
    instants(&mut out, measurement);
    out.push('\n');
    latencies(&mut out, measurement);
    if let Some(text) = &measurement.visible_text {
        let _ = write!(out, "\n{text}\n");
    }
    out
}

fn instants(out: &mut String, measurement: &Measurement) {
    let line = &measurement.timeline;
    let span = |name: &str, span: Option<Duration>| span.map(|span| format!("{name} {}", millis(span)));
    let spans: Vec<String> =
        [span("dns", line.dns), span("tcp", line.tcp), span("tls", line.tls)].into_iter().flatten().collect();
    let connection = match measurement.connection {
        ConnectionUse::New if spans.is_empty() => "new connection".to_owned(),
        ConnectionUse::New => format!("new connection: {}", spans.join(", ")),
        ConnectionUse::Reused => "reused connection".to_owned(),
    };
    let first_answer =
        if line.first_reasoning_token.is_some() { "first answer token" } else { "first token" };
    let kind = measurement.first_token_kind.map(|kind| format!("{kind:?}").to_lowercase());
    let rows = [
        (line.sent, "request sent", connection),
        (line.headers, "headers", String::new()),
        (line.first_event, "first event", String::new()),
        (line.first_reasoning_token, "first token", "reasoning".to_owned()),
        (line.first_answer_token, first_answer, kind.unwrap_or_default()),
        (line.last_token, "last token", format!("{} chunks", measurement.tokens.chunks)),
        (Some(line.end), "end", String::new()),
    ];
    for (at, what, note) in rows {
        if let Some(at) = at {
            let _ = writeln!(out, "{:>12}  {what:<20}{note}", millis(at)).map(|()| trim_line(out));
        }
    }
}

fn trim_line(out: &mut String) {
    let kept = out.trim_end().len();
    out.truncate(kept);
    out.push('\n');
}

fn latencies(out: &mut String, measurement: &Measurement) {
    let known = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
    let line = &measurement.timeline;
    let _ = writeln!(out, "time to first token     {}", known(line.first_token().map(millis)));
    if line.first_reasoning_token.is_some() {
        let _ = writeln!(out, "to first answer token   {}", known(line.first_answer_token.map(millis)));
    }
    // Chunks are not tokens: what is made of their count is no more than an estimate.
    let estimate =
        if measurement.tokens.source == TokenSource::ChunkCount { " (estimated from chunks)" } else { "" };
    let tpot = measurement.time_per_output_token().map(|tpot| format!("{}{estimate}", millis(tpot)));
    let _ = writeln!(out, "time per output token   {}", known(tpot));
    let tps = measurement.output_tokens_per_second().map(|tps| format!("{tps:.1}{estimate}"));
    let _ = writeln!(out, "output tokens / second  {}", known(tps));
    let _ = writeln!(out, "longest chunk gap       {}", known(measurement.gaps.max().map(millis)));
    let tokens = &measurement.tokens;
    let count = |count: Option<u64>| count.map_or("?".into(), |count| count.to_string());
    let _ = writeln!(
        out,
        "tokens                  prompt {} ({} cached), output {} ({} reasoning), source {}",
        count(tokens.prompt),
        count(tokens.cached_prompt),
        count(tokens.output),
        count(tokens.reasoning),
        tokens.source.as_str()
    );
    if !measurement.flags.is_empty() {
        let flags: Vec<&str> = measurement.flags.iter().map(|flag| flag.as_str()).collect();
        let _ = writeln!(out, "flags                   {}", flags.join(", "));
    }
    for limit in &measurement.rate_limits {
        let amount = |number: Option<f64>| number.map_or("?".into(), |number| number.to_string());
        let reset = limit.reset.map(|reset| format!(", whole in {:.1} s", reset.as_secs_f64()));
        let _ = writeln!(
            out,
            "rate limit              {} of {} {} left{}",
            amount(limit.remaining),
            amount(limit.limit),
            limit.unit,
            reset.unwrap_or_default()
        );
    }
    if let Some(id) = &measurement.request_id {
        let _ = writeln!(out, "request id              {id}");
    }
}

fn millis(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.1} ms") }
}
