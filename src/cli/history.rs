//! `tokenprobe history`: what the archive holds; one run's table; export and import.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::{FAILED, Refused, load, print, tell};
use crate::{
    archive::{self, ExportFormat, RunFilter, RunListing, Selector, Store, SweepRecord},
    report::{Named, Style, legend, sweep_json, table},
};

/// Flags of `history`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct HistoryArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Show this run: its number, latest, previous, a date, "3 days ago", "last week"
    #[arg(value_name = "RUN")]
    run: Option<Selector>,
    #[command(flatten)]
    place: ArchiveArgs,
    /// Only runs of this sweep
    #[arg(long, value_name = "NAME")]
    sweep: Option<String>,
    /// Show the latest so many runs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write runs as lines of JSON, or their levels as CSV, to stdout (or as Parquet)
    Export(ExportArgs),
    /// Take in what `history export --format jsonl` wrote
    Import(ImportArgs),
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// Runs to write; all of them when none is named
    #[arg(value_name = "RUN")]
    runs: Vec<Selector>,
    #[command(flatten)]
    place: ArchiveArgs,
    /// Only runs of this sweep
    #[arg(long, value_name = "NAME")]
    sweep: Option<String>,
    /// Leave the single measurements out
    #[arg(long)]
    no_probes: bool,
    /// Shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: ExportShape,
}

#[derive(Debug, Args)]
struct ImportArgs {
    /// File to read; stdin when it is "-"
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: ArchiveArgs,
}

/// Which archive.
#[derive(Debug, Args)]
pub(super) struct ArchiveArgs {
    /// The archive; else that of the configuration file
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
    /// Configuration file
    #[arg(long = "config.file", id = "config_file", value_name = "FILE")]
    config_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportShape {
    Jsonl,
    Csv,
    Parquet,
}

/// Shows, exports or imports.
pub(super) fn run(args: HistoryArgs) -> ExitCode {
    let done = match args.action {
        None => show(&args),
        Some(Action::Export(export)) => self::export(&export),
        Some(Action::Import(import)) => self::import(&import),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refused) => refused.exit(),
    }
}

impl ArchiveArgs {
    /// The archive's file.
    ///
    /// # Errors
    /// Neither a flag nor the configuration names one.
    pub(super) fn path(&self) -> Result<PathBuf, Refused> {
        if let Some(path) = &self.archive {
            return Ok(path.clone());
        }
        let config = load::config(self.config_file.as_deref()).map_err(|text| {
            Refused::config(format!(
                "{text}\nname the archive with --archive FILE to do without a configuration"
            ))
        })?;
        config.archive.path.ok_or_else(|| {
            Refused::usage(
                "the configuration names no archive: set path in [archive], or give --archive FILE",
            )
        })
    }

    /// The archive, to be read.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(super) fn open(&self) -> Result<Store, Refused> {
        archive::open_existing(&self.path()?).map_err(failed)
    }
}

/// A command that was understood and could not be carried out.
pub(super) fn failed(error: impl std::fmt::Display) -> Refused {
    Refused { code: FAILED, text: format!("error: {error}") }
}

fn show(args: &HistoryArgs) -> Result<(), Refused> {
    let store = args.place.open()?;
    let Some(selector) = &args.run else {
        let filter = RunFilter { sweep: args.sweep.clone(), limit: Some(args.limit), ..RunFilter::default() };
        let runs = store.runs(&filter).map_err(failed)?;
        match args.format {
            Format::Table => print(&list(&runs)),
            Format::Json => runs.iter().for_each(|run| print(&listing_json(run).to_string())),
        }
        return Ok(());
    };
    let listing = selector.find(&store, args.sweep.as_deref(), Utc::now()).map_err(failed)?;
    let record = store.run(listing.id).map_err(failed)?;
    let record = record.ok_or_else(|| failed("the run was given up just now"))?;
    match args.format {
        Format::Table => print(&one(&record)),
        Format::Json => {
            let report = record.report();
            let started_at = instant(record.listing.run.started_at);
            let named = Named { sweep: &record.listing.run.sweep, started_at: &started_at, report: &report };
            print(&sweep_json(&named).map_err(failed)?);
        }
    }
    Ok(())
}

fn list(runs: &[RunListing]) -> String {
    if runs.is_empty() {
        return "no runs".to_owned();
    }
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header([
        "run",
        "started (UTC)",
        "took",
        "sweep",
        "levels",
        "requests",
        "failed",
        "result",
        "version",
    ]);
    for run in runs {
        let row = &run.run;
        let took = row.ended_at.and_then(|ended| u64::try_from(ended - row.started_at).ok());
        let took = took.map(|millis| std::time::Duration::from_secs(millis.div_ceil(1000)));
        table.add_row([
            run.id.to_string(),
            instant(row.started_at).chars().take(19).collect::<String>().replace('T', " "),
            took.map_or_else(|| "-".into(), |took| humantime::format_duration(took).to_string()),
            row.sweep.clone(),
            run.levels.to_string(),
            run.requests.to_string(),
            run.requests.saturating_sub(run.ok).to_string(),
            row.result.clone().unwrap_or_else(|| "unfinished".into()),
            row.version.clone(),
        ]);
    }
    table.trim_fmt()
}

fn one(record: &SweepRecord) -> String {
    let RunListing { id, run, .. } = &record.listing;
    let report = record.report();
    let started_at = instant(run.started_at);
    let named = Named { sweep: &run.sweep, started_at: &started_at, report: &report };
    let mut parts = vec![format!(
        "run {id} of sweep {}, started {started_at}, {}, tokenprobe {} ({})",
        run.sweep,
        run.result.as_deref().unwrap_or("unfinished"),
        run.version,
        run.revision
    )];
    let mut served: Vec<String> = record.levels.iter().filter_map(served_as).collect();
    served.dedup();
    parts.extend(served);
    parts.push(String::new());
    parts.push(table(&named, Style::Text));
    let legend = legend(&named);
    if !legend.is_empty() {
        parts.push(String::new());
        parts.extend(legend);
    }
    parts.join("\n")
}

/// What the server said it is, where that is more than what was asked for.
fn served_as(level: &archive::LevelRow) -> Option<String> {
    let served = level.served_model.as_deref().filter(|served| *served != level.model);
    let fingerprint = level.fingerprint.as_ref().map(|fingerprint| format!("fingerprint {fingerprint}"));
    let said: Vec<String> =
        served.map(|served| format!("served as {served}")).into_iter().chain(fingerprint).collect();
    (!said.is_empty()).then(|| format!("{} {}: {}", level.target, level.model, said.join(", ")))
}

fn listing_json(listing: &RunListing) -> serde_json::Value {
    let run = &listing.run;
    json!({
        "run": listing.id,
        "uid": run.uid,
        "sweep": run.sweep,
        "started_at": instant(run.started_at),
        "ended_at": run.ended_at.map(instant),
        "result": run.result,
        "version": run.version,
        "revision": run.revision,
        "levels": listing.levels,
        "requests": listing.requests,
        "ok": listing.ok,
        "plan": run.plan,
    })
}

pub(super) fn instant(millis: i64) -> String {
    let at: Option<DateTime<Utc>> = DateTime::from_timestamp_millis(millis);
    at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)).unwrap_or_default()
}

fn export(args: &ExportArgs) -> Result<(), Refused> {
    let store = args.place.open()?;
    let sweep = args.sweep.as_deref();
    let mut runs = Vec::new();
    for selector in &args.runs {
        runs.push(selector.find(&store, sweep, Utc::now()).map_err(failed)?);
    }
    if args.runs.is_empty() {
        let filter = RunFilter { sweep: args.sweep.clone(), ..RunFilter::default() };
        runs = store.runs(&filter).map_err(failed)?;
    }
    runs.sort_by_key(|run| std::cmp::Reverse((run.run.started_at, run.id)));
    runs.dedup_by_key(|run| run.id);
    let format = match args.format {
        ExportShape::Jsonl => ExportFormat::Jsonl,
        ExportShape::Csv => ExportFormat::Csv,
        ExportShape::Parquet => ExportFormat::Parquet,
    };
    let mut out = BufWriter::new(io::stdout());
    let written = archive::export(&store, &runs, format, !args.no_probes, &mut out);
    let written = written.and_then(|()| out.flush().map_err(archive::ImportError::Io));
    match written {
        // `| head` has seen enough.
        Err(archive::ImportError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(failed),
    }
}

fn import(args: &ImportArgs) -> Result<(), Refused> {
    let mut store = archive::open(&args.place.path()?).map_err(failed)?;
    let mut lines: Box<dyn io::BufRead> = if args.file.as_os_str() == "-" {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let file = File::open(&args.file);
        Box::new(BufReader::new(file.map_err(|error| failed(format!("{}: {error}", args.file.display())))?))
    };
    let imported = archive::import(&mut store, &mut lines);
    let archive::Imported { runs, known, levels, probes } = imported
        .map_err(|error| failed(format!("{}: {error}; nothing was imported", args.file.display())))?;
    let word = if runs == 1 { "run" } else { "runs" };
    tell(&format!("{runs} {word} imported ({levels} levels, {probes} probes); there already: {known}"));
    Ok(())
}
