//! `tokenprobe compare A B`: what changed between two runs, and whether that can be told from chance.

use std::process::ExitCode;

use chrono::Utc;
use clap::{Args, ValueEnum};

use super::{
    FAILED, Refused,
    history::{ArchiveArgs, failed, instant},
    print, tell,
};
use crate::{
    analysis::compare::{CHANGE_MIN, Verdict, compare},
    archive::{Part, RunListing, Selector, Store, SweepRecord, differences, pair},
    report::{Compared, RunName, Style, comparison, comparison_json},
};

/// Flags of `compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// The run to compare with: its number, latest, previous, a date, "last week", baseline:NAME
    #[arg(value_name = "A")]
    before: Selector,
    /// The run that is judged; A itself when two of its models or targets are compared
    #[arg(value_name = "B")]
    after: Option<Selector>,
    #[command(flatten)]
    place: ArchiveArgs,
    /// Runs that are named by their time are looked for in this sweep; else in that of the other run
    #[arg(long, value_name = "NAME")]
    sweep: Option<String>,
    /// Compare the first model (of A) with the second (of B)
    #[arg(long, value_name = "MODEL,MODEL", value_parser = two)]
    models: Option<(String, String)>,
    /// Compare the first target (of A) with the second (of B)
    #[arg(long, value_name = "TARGET,TARGET", value_parser = two)]
    targets: Option<(String, String)>,
    /// Smallest change of a latency or speed that is called one, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = CHANGE_MIN * 100.0)]
    min_change: f64,
    /// Exit with 1 when any cell has this verdict; may be given more than once
    #[arg(long, value_name = "VERDICT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
    /// Leave out what did not change
    #[arg(long)]
    changed_only: bool,
    /// Shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    format: Format,
}

/// A verdict that a pipeline is to stop at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOn {
    Worse,
    Improved,
    TooFewSamples,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Markdown,
    Json,
}

fn two(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((one, other)) if !one.is_empty() && !other.is_empty() && !other.contains(',') => {
            Ok((one.to_owned(), other.to_owned()))
        }
        _ => Err("takes two names with a comma between them".to_owned()),
    }
}

/// Compares; exit 1 when a verdict of `--fail-on` was met.
pub(super) fn run(args: &CompareArgs) -> ExitCode {
    let compared = match compared(args) {
        Ok(compared) => compared,
        Err(refused) => return refused.exit(),
    };
    match args.format {
        Format::Table => print(&comparison(&compared, Style::Text, args.changed_only)),
        Format::Markdown => print(&comparison(&compared, Style::Markdown, args.changed_only)),
        Format::Json => print(&comparison_json(&compared).unwrap_or_default()),
    }
    if is_met(&args.fail_on, &compared) { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

/// Whether any cell has one of these verdicts; says so.
pub(super) fn is_met(fail_on: &[FailOn], compared: &Compared) -> bool {
    let met = fail_on.iter().any(|verdict| {
        let verdict = match verdict {
            FailOn::Worse => Verdict::Worse,
            FailOn::Improved => Verdict::Improved,
            FailOn::TooFewSamples => Verdict::TooFewSamples,
        };
        compared.comparison.has(verdict)
    });
    if met {
        tell("exit 1: a cell, or all of them together, has a verdict of --fail-on");
    }
    met
}

fn compared(args: &CompareArgs) -> Result<Compared, Refused> {
    if args.after.is_none() && args.models.is_none() && args.targets.is_none() {
        return Err(Refused::usage("name a second run, or two models of this one with --models A,B"));
    }
    let store = args.place.open()?;
    let (before, after) = find(args, &store)?;
    let (before, after) = (whole(&store, &before)?, whole(&store, &after)?);
    let part = |second: bool| {
        let choose = |names: &Option<(String, String)>| {
            names.as_ref().map(|(one, other)| if second { other } else { one }.clone())
        };
        Part { model: choose(&args.models), target: choose(&args.targets) }
    };
    compare_runs((&before, &part(false)), (&after, &part(true)), args.min_change)
}

/// Two runs, or parts of them, cell by cell.
///
/// # Errors
/// They have nothing in common.
pub(super) fn compare_runs(
    before: (&SweepRecord, &Part),
    after: (&SweepRecord, &Part),
    min_change_percent: f64,
) -> Result<Compared, Refused> {
    let (pairs, unmatched_levels) = pair(before, after);
    let (before, after) = (before.0, after.0);
    if pairs.is_empty() {
        return Err(failed(format!(
            "the runs have no like cells (target, model, prompt tokens, concurrency or rate)\n  run {}: {}\n  run {}: {}\n\
             to compare different models or targets, name both: `tokenprobe compare A B --models ONE,OTHER`",
            before.listing.id,
            held(before),
            after.listing.id,
            held(after)
        )));
    }
    Ok(Compared {
        schema: "tokenprobe.comparison/1",
        before: named(&before.listing),
        after: named(&after.listing),
        differences: differences(before, after),
        comparison: compare(pairs, min_change_percent / 100.0),
        min_change_percent,
        unmatched_levels,
    })
}

/// Both runs. One that is named by its time is one of the sweep of the other, so that like is compared with like.
fn find(args: &CompareArgs, store: &Store) -> Result<(RunListing, RunListing), Refused> {
    let now = Utc::now();
    let find = |selector: &Selector, sweep: Option<&str>| selector.find(store, sweep, now).map_err(failed);
    let given = args.sweep.as_deref();
    let Some(after) = &args.after else {
        let run = find(&args.before, given)?;
        return Ok((run.clone(), run));
    };
    if matches!(args.before, Selector::Id(_) | Selector::Baseline(_)) {
        let before = find(&args.before, None)?;
        let after = find(after, given.or(Some(&before.run.sweep)))?;
        return Ok((before, after));
    }
    let after = find(after, given)?;
    let before = find(&args.before, given.or(Some(&after.run.sweep)))?;
    Ok((before, after))
}

pub(super) fn whole(store: &Store, listing: &RunListing) -> Result<SweepRecord, Refused> {
    store.run(listing.id).map_err(failed)?.ok_or_else(|| failed("the run was given up just now"))
}

fn named(listing: &RunListing) -> RunName {
    let run = &listing.run;
    RunName { run: listing.id, sweep: run.sweep.clone(), started_at: instant(run.started_at) }
}

fn held(record: &SweepRecord) -> String {
    let mut cells: Vec<String> = record
        .levels
        .iter()
        .map(|level| {
            format!("{} {} {} {}", level.target, level.model, level.prompt_tokens, level.load().short())
        })
        .collect();
    let more = cells.len().saturating_sub(8);
    cells.truncate(8);
    if more > 0 {
        cells.push(format!("and {more} more"));
    }
    if cells.is_empty() { "no whole level".to_owned() } else { cells.join("; ") }
}
