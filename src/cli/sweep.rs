//! `tokenprobe sweep`: runs sweeps once, now, and prints the table.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use chrono::Utc;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    FAILED, Refused,
    adhoc::{EndpointArgs, TimeoutArgs, arrivals, prefix_cache, prompt_language, temperature},
    compare::{FailOn, compare_runs, is_met, whole},
    history::failed,
    load, print, suggest, tell, terminated,
};
use crate::{
    analysis::compare::CHANGE_MIN,
    archive::{self, Keeper, Owner, Part, Recalled, Selector, SweepRecord, baseline_name},
    arrivals::{Arrivals, Rate},
    budget::Governor,
    config::{
        ArchiveSettings, Histograms, LevelSettings, PrefixCache, PromptLanguage, Redactor, Sweep, Target,
        metrics_url, model_name, read_prompts,
    },
    measurement::FailureClass,
    probe::Endpoint,
    prompt::Prompts,
    report::{Named, Style, comparison, comparison_json, csv, legend, sweep_json, table},
    sweep::{Event, Fleet, Prepared, Register, Role, Run, Stop, SweepReport, SweepResult, brake},
};

/// Events that may wait for the progress bar.
const EVENTS_MAX: usize = 1024;
/// How long the end waits for what is not archived yet.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Flags of `sweep`.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// Sweeps of the configuration file to run; all of them when none is named
    #[arg(value_name = "NAME", conflicts_with = "base_url")]
    names: Vec<String>,
    /// Configuration file
    #[arg(long = "config.file", id = "config_file", value_name = "FILE")]
    config_file: Option<PathBuf>,
    #[command(flatten)]
    endpoint: EndpointArgs,
    /// Model of the ad-hoc ladder; may be given more than once
    #[arg(long = "model", value_name = "MODEL", requires = "base_url", value_parser = model_name)]
    models: Vec<String>,
    /// Concurrency levels, ascending
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: Vec<u32>,
    /// An open loop in place of the closed one: rates, ascending, like 1/s,5/s or 30/m
    #[arg(
        long = "rate",
        value_name = "RATE,RATE",
        value_delimiter = ',',
        conflicts_with = "concurrency",
        requires = "base_url"
    )]
    rates: Vec<Rate>,
    /// How arrivals of an open loop are spaced: poisson or constant
    #[arg(long, value_name = "poisson|constant", default_value = "poisson", requires = "rates", value_parser = arrivals)]
    arrivals: Arrivals,
    /// Most requests in flight in an open loop; arrivals beyond are counted, not sent
    #[arg(long, value_name = "N", default_value_t = 256, requires = "rates",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_in_flight: u32,
    /// Measured requests per level
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Wanted prompt lengths in tokens
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    prompt_tokens: Vec<u32>,
    /// Language of the prompts: en, zh, mixed
    #[arg(long, value_name = "LANGUAGE", default_value = "en", value_parser = prompt_language)]
    prompt_language: PromptLanguage,
    /// Whether a prefix cache may answer: cold (a fresh prompt each time), warm, or shared:0.5 (a common half)
    #[arg(long, value_name = "cold|warm|shared:N", default_value = "cold", value_parser = prefix_cache)]
    prefix_cache: PrefixCache,
    /// Text to cut prompts from or, with the ending .jsonl, whole prompts, one a line
    #[arg(long, value_name = "FILE", requires = "base_url")]
    prompts: Option<PathBuf>,
    /// Do not ask first how the model counts prompts: they have about the wanted length
    #[arg(long)]
    no_calibration: bool,
    /// Where the engine behind the endpoint shows its own metrics, for example `http://vllm:8000/metrics`
    #[arg(long, value_name = "URL", requires = "base_url", value_parser = metrics_url)]
    engine_metrics_url: Option<http::Uri>,
    /// Run one more level between the knee and the level after it
    #[arg(long)]
    refine: bool,
    /// Run the lowest level once more with this output limit, to see whether it changes the time to first token
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens_control: Option<u32>,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Sampling temperature; left out when not given
    #[arg(long, value_name = "T", value_parser = temperature)]
    temperature: Option<f64>,
    #[command(flatten)]
    timeouts: TimeoutArgs,
    /// File to keep what is measured in; else that of the configuration file, if it names one
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Compare each run with this baseline (see `tokenprobe baseline`) of the archive
    #[arg(long, value_name = "NAME", value_parser = baseline_name)]
    baseline: Option<String>,
    /// Exit with 1 when any cell has this verdict; may be given more than once
    #[arg(long, value_name = "VERDICT", value_delimiter = ',', requires = "baseline")]
    fail_on: Vec<FailOn>,
    /// Shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Csv,
    Markdown,
}

/// What is to be run, wherever it came from.
struct Plan {
    sweeps: Vec<Arc<Sweep>>,
    fleet: Fleet,
    histograms: Histograms,
    archive: ArchiveSettings,
    redactor: Redactor,
    governor: Governor,
}

/// Runs the sweeps; exit 1 when a request failed or the run was interrupted.
pub(super) async fn run(args: SweepArgs) -> ExitCode {
    let plan = match plan(&args) {
        Ok(plan) => plan,
        Err(refused) => return refused.exit(),
    };
    let started = Keeping::start(&plan.archive, &plan).and_then(|keeping| {
        let baseline = args.baseline.as_deref().map(|name| baseline(name, &plan.archive)).transpose()?;
        Ok((keeping, baseline))
    });
    let (mut keeping, baseline) = match started {
        Ok(started) => started,
        Err(refused) => return refused.exit(),
    };
    let code = run_all(&args, &plan, &mut keeping).await;
    let Some(keeping) = keeping else { return code };
    let numbers = keeping.finish().await;
    match baseline.map(|baseline| against(&args, &plan.archive, &baseline, &numbers)) {
        Some(Err(refused)) => refused.exit(),
        Some(Ok(true)) => ExitCode::from(FAILED),
        Some(Ok(false)) | None => code,
    }
}

/// The run that the new ones are compared with: looked for before anything is measured.
fn baseline(name: &str, archive: &ArchiveSettings) -> Result<SweepRecord, Refused> {
    let path = archive.path.as_ref().ok_or_else(|| {
        Refused::usage("--baseline needs an archive: give --archive FILE, or set path in [archive]")
    })?;
    let store = archive::open_existing(path).map_err(failed)?;
    let listing = Selector::Baseline(name.to_owned()).find(&store, None, Utc::now()).map_err(failed)?;
    whole(&store, &listing)
}

/// Compares the new runs with the baseline; whether a verdict of `--fail-on` was met.
fn against(
    args: &SweepArgs,
    archive: &ArchiveSettings,
    baseline: &SweepRecord,
    numbers: &[i64],
) -> Result<bool, Refused> {
    let Some(path) = &archive.path else { return Ok(false) };
    let store = archive::open_existing(path).map_err(failed)?;
    let mut met = false;
    for number in numbers {
        let Some(record) = store.run(*number).map_err(failed)? else { continue };
        let all = Part::default();
        let compared = compare_runs((baseline, &all), (&record, &all), CHANGE_MIN * 100.0)?;
        match args.format {
            Format::Table => print(&format!("\n{}", comparison(&compared, Style::Text, false))),
            Format::Markdown => print(&format!("\n{}", comparison(&compared, Style::Markdown, false))),
            Format::Json => print(&comparison_json(&compared).unwrap_or_default()),
            // Another table would not fit below the first.
            Format::Csv => {}
        }
        met |= is_met(&args.fail_on, &compared);
    }
    Ok(met)
}

async fn run_all(args: &SweepArgs, plan: &Plan, keeping: &mut Option<Keeping>) -> ExitCode {
    let mut failed = false;
    let (brake, halt) = brake();
    // The first Ctrl-C ends the run and prints what there is.
    let mut watcher = JoinSet::new();
    watcher.spawn(async move {
        terminated().await;
        brake.pull(Stop::Cancel);
        std::future::pending::<()>().await;
        drop(brake);
    });
    for sweep in &plan.sweeps {
        let started_at = Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let (events, inbox) = mpsc::channel(EVENTS_MAX);
        let run = Run {
            sweep: sweep.clone(),
            fleet: plan.fleet.clone(),
            gap_bounds: plan.histograms.time_per_output_token_seconds.clone().into(),
            events,
            halt: halt.clone(),
            register: Register::default(),
            governor: plan.governor.clone(),
            paused: Arc::default(),
        };
        if let Some(keeping) = keeping {
            let uid = keeping.keeper.started(sweep, &plan.redactor, Utc::now());
            keeping.uids.push(uid);
        }
        let (report, ()) = tokio::join!(run.run(), follow(inbox, sweep, plan, keeping.as_mut()));
        if let Some(keeping) = keeping {
            keeping.keeper.ended(&sweep.name, report.result, Utc::now());
            keeping.spent(&plan.governor);
        }
        let named = Named { sweep: &sweep.name, started_at: &started_at, report: &report };
        show(&named, args.format);
        failed |= has_failures(&report);
        if report.result == SweepResult::Aborted {
            tell("interrupted: the numbers above are incomplete");
            return ExitCode::from(FAILED);
        }
    }
    ExitCode::from(if failed { FAILED } else { 0 })
}

/// The archive of this command.
struct Keeping {
    keeper: Keeper,
    path: PathBuf,
    uids: Vec<String>,
    /// Whether what is spent is noted down here: a daemon that has the file does that itself.
    notes: bool,
}

impl Keeping {
    fn start(settings: &ArchiveSettings, plan: &Plan) -> Result<Option<Self>, Refused> {
        let Some(path) = settings.path.clone() else { return Ok(None) };
        // Somebody watches: a file that cannot be used is told before anything is measured.
        archive::open(&path).map_err(Refused::usage)?;
        let keeper = Keeper::start(path.clone(), settings.clone()).map_err(Refused::usage)?;
        let spends = !plan.governor.remaining().is_empty();
        if spends {
            let recalled = Recalled::from_file(&path, &plan.sweeps).map_err(Refused::usage)?;
            plan.governor.import(&recalled.spent());
        }
        let is_free = Owner::claim(&path).is_ok();
        if spends && !is_free {
            tell("a daemon keeps its archive here: its budget holds this run, and does not count it");
        }
        Ok(Some(Self { keeper, path, uids: Vec::new(), notes: spends && is_free }))
    }

    fn spent(&self, governor: &Governor) {
        if self.notes {
            self.keeper.spent(&governor.export(), Utc::now());
        }
    }

    /// Writes what is waiting and says under which numbers.
    async fn finish(self) -> Vec<i64> {
        let standing = self.keeper.close(CLOSE_TIMEOUT).await;
        let dropped = standing.dropped_queue_full + standing.dropped_unwritten;
        if dropped > 0 {
            tell(&format!("warning: {dropped} entries could not be written to {}", self.path.display()));
        }
        let Ok(store) = archive::open_existing(&self.path) else { return Vec::new() };
        let numbers = self.uids.iter().filter_map(|uid| store.run_number(uid).ok().flatten());
        let numbers: Vec<i64> = numbers.collect();
        let told: Vec<String> = numbers.iter().map(i64::to_string).collect();
        tell(&format!("archived in {} as run {}", self.path.display(), told.join(", ")));
        numbers
    }
}

fn show(named: &Named<'_>, format: Format) {
    match format {
        Format::Table | Format::Markdown => {
            let style = if format == Format::Table { Style::Text } else { Style::Markdown };
            print(&table(named, style));
            let legend = legend(named);
            if !legend.is_empty() {
                print(&format!("\n{}", legend.join("\n")));
            }
        }
        Format::Json => print(&sweep_json(named).unwrap_or_default()),
        Format::Csv => print(&csv(named).unwrap_or_default()),
    }
}

fn has_failures(report: &SweepReport) -> bool {
    let not_run = report.ladders.iter().any(|ladder| !ladder.not_run.is_empty() && ladder.levels.is_empty());
    let failed = |level: &crate::analysis::LevelSummary| level.ok < level.requests || level.requests == 0;
    not_run || report.ladders.iter().flat_map(|ladder| &ladder.levels).any(failed)
}

/// Shows progress on a terminal and the reason of the first failure of each level; silent in a pipe otherwise.
async fn follow(
    mut inbox: mpsc::Receiver<Event>,
    sweep: &Sweep,
    plan: &Plan,
    mut keeping: Option<&mut Keeping>,
) {
    let levels: u64 = sweep
        .targets
        .iter()
        .map(|(_, models)| (models.len() * sweep.prompt_tokens.len() * sweep.levels()) as u64)
        .sum();
    let bar = ProgressBar::new(levels * u64::from(sweep.level.requests));
    let style = ProgressStyle::with_template("{msg}  [{bar:30}] {pos}/{len} requests  {elapsed} (eta {eta})");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    let mut told = false;
    while let Some(event) = inbox.recv().await {
        if let Some(keeping) = &mut keeping {
            keeping.keeper.observe(&event, Utc::now());
        }
        match event {
            Event::LevelStarted { cell, .. } => {
                told = false;
                bar.set_message(format!("{} {} tokens, {}", cell.model, cell.prompt_tokens, cell.load()));
            }
            Event::Probed { role: Role::Measured, measurement, cell, .. } => {
                bar.inc(1);
                if let Some(failure) = measurement.outcome.failure().filter(|_| !told) {
                    told = true;
                    let line =
                        format!("{} at {}: {}: {}", cell.model, cell.load(), failure.class, failure.message);
                    bar.suspend(|| tell(&line));
                    let unknown = failure.class == FailureClass::ModelNotFound;
                    if let Some(endpoint) = plan.fleet.endpoint(&cell.target).filter(|_| unknown)
                        && let Some(suggestion) = suggest(endpoint, &cell.model).await
                    {
                        bar.suspend(|| tell(&suggestion));
                    }
                }
            }
            Event::LevelNotRun { .. } => bar.inc(u64::from(sweep.level.requests)),
            Event::Advanced { noted } => {
                if let Some(keeping) = &keeping {
                    keeping.spent(&plan.governor);
                    keeping.keeper.mark(noted);
                }
            }
            Event::Probed { .. } | Event::LevelEnded { .. } | Event::LadderEnded { .. } => {}
        }
    }
    bar.finish_and_clear();
}

fn plan(args: &SweepArgs) -> Result<Plan, Refused> {
    match &args.endpoint.base_url {
        Some(base_url) => ad_hoc(args, base_url),
        None => from_file(args),
    }
}

fn prepare(target: &Arc<Target>, redactor: &Arc<Redactor>) -> Result<Prepared, Refused> {
    let endpoint = Endpoint::new(target.clone(), redactor.clone());
    endpoint
        .map(Prepared::new)
        .map_err(|error| Refused::config(format!("error: target \"{}\": {error}", target.name)))
}

fn from_file(args: &SweepArgs) -> Result<Plan, Refused> {
    let config = load::config(args.config_file.as_deref()).map_err(Refused::config)?;
    let redactor = Arc::new(config.redactor());
    let mut fleet = Fleet::under(config.budget.max_in_flight, &Fleet::default());
    for target in &config.targets {
        fleet.insert(prepare(target, &redactor)?, &Fleet::default());
    }
    let mut sweeps = Vec::new();
    for name in &args.names {
        let found = config.sweeps.iter().find(|sweep| *sweep.name == **name);
        sweeps.push(found.cloned().ok_or_else(|| {
            let known: Vec<&str> = config.sweeps.iter().map(|sweep| &*sweep.name).collect();
            Refused::usage(format!("no sweep \"{name}\" in the configuration; it has: {}", known.join(", ")))
        })?);
    }
    if sweeps.is_empty() {
        sweeps.clone_from(&config.sweeps);
    }
    let path = args.archive.clone().or(config.archive.path.clone());
    let archive = ArchiveSettings { path, ..config.archive };
    let governor = Governor::new(config.budget.caps);
    Ok(Plan {
        sweeps,
        fleet,
        histograms: config.histograms,
        archive,
        redactor: (*redactor).clone(),
        governor,
    })
}

fn ad_hoc(args: &SweepArgs, base_url: &str) -> Result<Plan, Refused> {
    if args.models.is_empty() {
        return Err(Refused::usage("--model is needed beside --base-url; give it once per model"));
    }
    let (target, redactor) = args.endpoint.target(base_url, &args.models).map_err(Refused::usage)?;
    let target = Arc::new(Target { engine_metrics_url: args.engine_metrics_url.clone(), ..target });
    let prompts = args
        .prompts
        .as_deref()
        .map(|path| read_prompts(path).map_err(|error| Refused::usage(format!("--prompts: {error}"))));
    let prompts = prompts.transpose()?.unwrap_or_default();
    let prompt_tokens = match &prompts {
        Prompts::Real(_) if matches!(args.prefix_cache, PrefixCache::Shared(_)) => {
            return Err(Refused::usage(
                "--prefix-cache shared needs prompts that are written for it, not real ones",
            ));
        }
        Prompts::Real(real) => vec![real.nominal_tokens()],
        Prompts::Generated | Prompts::Text(_) => args.prompt_tokens.clone(),
    };
    let mut sweep = Sweep::ad_hoc(target.clone(), prompt_tokens, args.concurrency.clone());
    if !args.rates.is_empty() {
        sweep.open(args.rates.clone(), args.max_in_flight);
    }
    sweep.refine = args.refine;
    sweep.max_tokens_control = args.max_tokens_control;
    sweep.level = LevelSettings {
        arrivals: args.arrivals,
        requests: args.requests,
        max_tokens: args.max_tokens,
        temperature: args.temperature,
        timeouts: args.timeouts.timeouts(),
        prefix_cache: args.prefix_cache,
        prompt_language: args.prompt_language,
        calibrate: !args.no_calibration,
        prompts,
        ..LevelSettings::default()
    };
    let mut fleet = Fleet::default();
    fleet.insert(prepare(&target, &Arc::new(redactor.clone()))?, &Fleet::default());
    let archive = ArchiveSettings { path: args.archive.clone(), ..ArchiveSettings::default() };
    // Started by hand and watched: there is no cap but the flags.
    let governor = Governor::unlimited();
    let histograms = Histograms::default();
    Ok(Plan { sweeps: vec![Arc::new(sweep)], fleet, histograms, archive, redactor, governor })
}
