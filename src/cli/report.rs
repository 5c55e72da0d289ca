//! `tokenprobe report`: a run or a comparison as one document that opens anywhere.

use std::{fs, path::PathBuf, process::ExitCode};

use chrono::Utc;
use clap::{Args, ValueEnum};

use super::{
    Refused,
    compare::{compare_runs, whole},
    history::{ArchiveArgs, failed, instant},
    print, tell,
};
use crate::{
    analysis::compare::CHANGE_MIN,
    archive::{FailureFilter, Part, Selector, Store},
    report::{RunReport, Style, comparison, comparison_body, document, run_body, run_markdown},
};

/// Probes shown of a run, slowest and failed.
const PROBES_MAX: u32 = 10;

/// Flags of `report`.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The run: its number, latest, previous, a date, "last week", baseline:NAME
    #[arg(value_name = "RUN", default_value = "latest")]
    run: Selector,
    /// A second run: the report is a comparison of the first with it
    #[arg(value_name = "AFTER")]
    after: Option<Selector>,
    #[command(flatten)]
    place: ArchiveArgs,
    /// Runs that are named by their time are looked for in this sweep
    #[arg(long, value_name = "NAME")]
    sweep: Option<String>,
    /// Shape of the report
    #[arg(long, value_name = "FORMAT", default_value = "html")]
    format: Format,
    /// File to write; else stdout
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Html,
    Markdown,
}

/// Writes the report.
pub(super) fn run(args: &ReportArgs) -> ExitCode {
    let written = text(args).and_then(|text| match &args.output {
        None => {
            print(&text);
            Ok(())
        }
        Some(path) => {
            fs::write(path, &text).map_err(|error| failed(format!("{}: {error}", path.display())))?;
            tell(&format!("written to {}", path.display()));
            Ok(())
        }
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(refused) => refused.exit(),
    }
}

fn text(args: &ReportArgs) -> Result<String, Refused> {
    let store = args.place.open()?;
    match &args.after {
        None => of_run(args, &store),
        Some(after) => of_comparison(args, after, &store),
    }
}

fn of_run(args: &ReportArgs, store: &Store) -> Result<String, Refused> {
    let listing = args.run.find(store, args.sweep.as_deref(), Utc::now()).map_err(failed)?;
    let record = whole(store, &listing)?;
    let slowest = store.slowest(listing.id, PROBES_MAX).map_err(failed)?;
    let filter = FailureFilter { run: Some(listing.id), limit: PROBES_MAX, ..FailureFilter::default() };
    let failures = store.failures(&filter).map_err(failed)?;
    let run = RunReport { record: &record, slowest: &slowest, failures: &failures };
    Ok(match args.format {
        Format::Html => {
            document(&format!("Run {} of sweep {}", listing.id, listing.run.sweep), &run_body(&run))
        }
        Format::Markdown => run_markdown(&run, &instant(listing.run.started_at)),
    })
}

fn of_comparison(args: &ReportArgs, after: &Selector, store: &Store) -> Result<String, Refused> {
    let find =
        |selector: &Selector, sweep: Option<&str>| selector.find(store, sweep, Utc::now()).map_err(failed);
    let after = find(after, args.sweep.as_deref())?;
    let before = find(&args.run, args.sweep.as_deref().or(Some(&after.run.sweep)))?;
    let (before, after) = (whole(store, &before)?, whole(store, &after)?);
    let all = Part::default();
    let compared = compare_runs((&before, &all), (&after, &all), CHANGE_MIN * 100.0)?;
    let title = format!("Run {} and run {}", compared.before.run, compared.after.run);
    Ok(match args.format {
        Format::Html => document(&title, &comparison_body(&compared)),
        Format::Markdown => comparison(&compared, Style::Markdown, false),
    })
}
