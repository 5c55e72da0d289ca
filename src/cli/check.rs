//! `tokenprobe check`: is each target reachable, and does it answer as it should? The first step that fails, with its
//! likely cause and what to change.

mod base_urls;
mod checklist;
mod examine;
mod request;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, ValueEnum};

use self::{
    checklist::{Checked, Checklist},
    examine::Examination,
};
use super::{
    FAILED, Refused,
    adhoc::{EndpointArgs, TimeoutArgs},
    load, print, tell,
};
use crate::{
    config::{Redactor, Target},
    probe::Endpoint,
    sweep::Prepared,
};

/// Flags of `check`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Configuration file whose targets are checked
    #[arg(long = "config.file", id = "config_file", value_name = "FILE")]
    config_file: Option<PathBuf>,
    /// Only this target of the configuration file; may be given more than once
    #[arg(long = "target", value_name = "NAME", conflicts_with = "base_url")]
    targets: Vec<String>,
    /// Only this model; may be given more than once
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    #[command(flatten)]
    endpoint: EndpointArgs,
    #[command(flatten)]
    timeouts: TimeoutArgs,
    /// Shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Checks every model of every target; exit 1 when a step failed.
pub(super) async fn run(args: CheckArgs) -> ExitCode {
    let (targets, redactor) = match choose(&args) {
        Ok(chosen) => chosen,
        Err(refused) => return refused.exit(),
    };
    let mut checks = Vec::new();
    for target in targets {
        let models = target.models.clone();
        let prepared = match Endpoint::new(target.clone(), redactor.clone()) {
            Ok(endpoint) => Prepared::new(endpoint),
            Err(error) => {
                return Refused::config(format!("error: target \"{}\": {error}", target.name)).exit();
            }
        };
        for model in models.iter().filter(|model| is_wanted(&args, model)) {
            let list = check(&args, &prepared, &redactor, model).await;
            if args.format == Format::Text {
                print(&list.text());
            }
            checks.push(list);
        }
    }
    let ok = checks.iter().all(|list| list.ok);
    match args.format {
        Format::Json => {
            let checked = Checked { schema: "tokenprobe.check/1", ok, checks: &checks };
            print(&serde_json::to_string(&checked).unwrap_or_default());
        }
        Format::Text => tell(&verdict(&checks)),
    }
    ExitCode::from(if ok { 0 } else { FAILED })
}

async fn check(
    args: &CheckArgs,
    prepared: &Prepared,
    redactor: &Arc<Redactor>,
    model: &Arc<str>,
) -> Checklist {
    let examination =
        Examination::new(prepared.clone(), redactor.clone(), model.clone(), args.timeouts.timeouts());
    let (ok, steps) = examination.run().await;
    let target = prepared.endpoint.target();
    Checklist {
        target: target.name.to_string(),
        base_url: target.base_url.as_str().to_owned(),
        model: model.to_string(),
        ok,
        steps,
    }
}

/// The last line: how it stands, and what to do next.
fn verdict(checks: &[Checklist]) -> String {
    let failed = checks.iter().filter(|check| !check.ok).count();
    let warned = checks.iter().flat_map(|check| &check.steps).filter(|line| line.is_warning()).count();
    match (failed, warned) {
        (0, 0) => "all is well; measure it with `tokenprobe sweep` and the same flags".to_owned(),
        (0, _) => "it works; what is marked with ! is worth a look before `tokenprobe sweep`".to_owned(),
        (1, _) if checks.len() == 1 => "change what the arrow says and check again".to_owned(),
        (failed, _) => {
            format!("{failed} of {} failed: change what the arrows say and check again", checks.len())
        }
    }
}

fn is_wanted(args: &CheckArgs, model: &str) -> bool {
    args.models.is_empty() || args.models.iter().any(|wanted| wanted == model)
}

/// What the flags ask for.
fn choose(args: &CheckArgs) -> Result<(Vec<Arc<Target>>, Arc<Redactor>), Refused> {
    if let Some(base_url) = &args.endpoint.base_url {
        if args.models.is_empty() {
            return Err(Refused::usage("--model is needed beside --base-url"));
        }
        let (target, redactor) = args.endpoint.target(base_url, &args.models).map_err(Refused::usage)?;
        return Ok((vec![Arc::new(target)], Arc::new(redactor)));
    }
    let config = load::config(args.config_file.as_deref()).map_err(Refused::config)?;
    let mut targets = Vec::new();
    for name in &args.targets {
        targets.push(config.targets.iter().find(|target| *target.name == **name).cloned().ok_or_else(
            || {
                let known: Vec<&str> = config.targets.iter().map(|target| &*target.name).collect();
                Refused::usage(format!(
                    "no target \"{name}\" in the configuration; it has: {}",
                    known.join(", ")
                ))
            },
        )?);
    }
    if targets.is_empty() {
        targets.clone_from(&config.targets);
    }
    let known = |wanted: &String| targets.iter().any(|target| target.models.iter().any(|m| **m == **wanted));
    if let Some(unknown) = args.models.iter().find(|wanted| !known(wanted)) {
        return Err(Refused::usage(format!("no target has a model \"{unknown}\" in the configuration")));
    }
    Ok((targets, Arc::new(config.redactor())))
}
