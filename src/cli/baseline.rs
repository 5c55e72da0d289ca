//! `tokenprobe baseline`: runs that others are compared with, by name.

use std::process::ExitCode;

use chrono::Utc;
use clap::{Args, Subcommand};

use super::{
    Refused,
    history::{ArchiveArgs, failed, instant},
    print, tell,
};
use crate::archive::{self, Selector, baseline_name};

/// Flags of `baseline`.
#[derive(Debug, Args)]
pub(super) struct BaselineArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Save a run under a name; it is kept until the name is deleted
    Save {
        /// Name, such as main or before-upgrade
        #[arg(value_name = "NAME", value_parser = baseline_name)]
        name: String,
        /// The run: its number, latest, previous, a date, "last week"
        #[arg(value_name = "RUN", default_value = "latest")]
        run: Selector,
        /// A run that is named by its time is looked for in this sweep
        #[arg(long, value_name = "NAME")]
        sweep: Option<String>,
        #[command(flatten)]
        place: ArchiveArgs,
    },
    /// Show what is saved
    List {
        #[command(flatten)]
        place: ArchiveArgs,
    },
    /// Forget a name; the run stays as long as others
    Delete {
        /// Which
        #[arg(value_name = "NAME", value_parser = baseline_name)]
        name: String,
        #[command(flatten)]
        place: ArchiveArgs,
    },
}

/// Saves, lists or deletes.
pub(super) fn run(args: &BaselineArgs) -> ExitCode {
    let done = match &args.action {
        Action::Save { name, run, sweep, place } => save(name, run, sweep.as_deref(), place),
        Action::List { place } => list(place),
        Action::Delete { name, place } => delete(name, place),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refused) => refused.exit(),
    }
}

fn save(name: &str, run: &Selector, sweep: Option<&str>, place: &ArchiveArgs) -> Result<(), Refused> {
    // Opened to be read first: a file that is not there must not be made by a mistyped path.
    let run = run.find(&place.open()?, sweep, Utc::now()).map_err(failed)?;
    let mut store = archive::open(&place.path()?).map_err(failed)?;
    store.save_baseline(name, run.id, Utc::now().timestamp_millis()).map_err(failed)?;
    let (sweep, started_at) = (&run.run.sweep, instant(run.run.started_at));
    print(&format!("baseline {name}: run {} of sweep {sweep}, started {started_at}", run.id));
    Ok(())
}

fn list(place: &ArchiveArgs) -> Result<(), Refused> {
    let store = place.open()?;
    let baselines = store.baselines().map_err(failed)?;
    if baselines.is_empty() {
        print("no baselines; `tokenprobe baseline save NAME` makes one of the latest run");
        return Ok(());
    }
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["baseline", "run", "sweep", "started (UTC)", "saved (UTC)"]);
    for (name, id, saved_at) in baselines {
        let Some(record) = store.run(id).map_err(failed)? else { continue };
        let run = &record.listing.run;
        table.add_row([name, id.to_string(), run.sweep.clone(), instant(run.started_at), instant(saved_at)]);
    }
    print(&table.trim_fmt());
    Ok(())
}

fn delete(name: &str, place: &ArchiveArgs) -> Result<(), Refused> {
    place.open()?;
    let mut store = archive::open(&place.path()?).map_err(failed)?;
    if !store.delete_baseline(name).map_err(failed)? {
        return Err(failed(format!(
            "there is no baseline {name}; `tokenprobe baseline list` shows what there is"
        )));
    }
    tell(&format!("baseline {name} is deleted; its run stays"));
    Ok(())
}
