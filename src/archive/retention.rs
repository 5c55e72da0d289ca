//! What is given up, and when: good measurements by their age, runs by theirs, and the oldest of both when the file
//! would grow too large. Works in small steps, so that what is waiting to be written never waits long.

use rusqlite::{Result, params};

use super::store::Store;
use crate::config::ArchiveSettings;

/// Measurements given up in one step.
const PROBES_PER_STEP: u32 = 2_000;
/// Runs given up in one step.
const RUNS_PER_STEP: u32 = 20;
/// Pages returned to the file system in one step.
const PAGES_PER_STEP: u32 = 4_000;

/// What one step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Size of the file in bytes.
    pub(super) size: u64,
    /// There may be more to give up.
    pub(super) more: bool,
}

/// Takes one step at `now` (milliseconds since the Unix epoch).
pub(super) fn step(store: &Store, settings: &ArchiveSettings, now: i64) -> Result<Step> {
    let before = |age: std::time::Duration| now - i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    let probes = give_up_probes(store, before(settings.measurements))?;
    let runs = give_up_runs(store, before(settings.runs), RUNS_PER_STEP)?;
    let mut given_up = probes + runs;
    if used(store)? > settings.size_max {
        given_up += match give_up_probes(store, i64::MAX)? {
            0 => give_up_runs(store, i64::MAX, 1)?,
            probes => probes,
        };
    }
    if given_up > 0 {
        let orphans = "DELETE FROM plans WHERE id NOT IN (SELECT plan_id FROM runs)";
        store.connection.execute(orphans, [])?;
    }
    return_pages(store)?;
    Ok(Step { size: size(store)?, more: given_up > 0 })
}

/// The oldest good measurements that are older.
fn give_up_probes(store: &Store, before: i64) -> Result<usize> {
    let mut delete = store.connection.prepare_cached(
        "DELETE FROM probes WHERE id IN (
             SELECT id FROM probes WHERE class IS NULL AND at < ?1 ORDER BY at LIMIT ?2)",
    )?;
    delete.execute(params![before, PROBES_PER_STEP])
}

/// The oldest runs that are older; never the latest, which may be running, nor one that others are compared with.
fn give_up_runs(store: &Store, before: i64, runs_max: u32) -> Result<usize> {
    let mut delete = store.connection.prepare_cached(
        "DELETE FROM runs WHERE id IN (
             SELECT id FROM runs WHERE started_at < ?1 AND id < (SELECT max(id) FROM runs)
               AND id NOT IN (SELECT run_id FROM baselines)
             ORDER BY started_at LIMIT ?2)",
    )?;
    delete.execute(params![before, runs_max])
}

fn return_pages(store: &Store) -> Result<()> {
    let mut vacuum = store.connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_PER_STEP})"))?;
    let mut rows = vacuum.query([])?;
    // One row a page.
    while rows.next()?.is_some() {}
    Ok(())
}

/// Bytes of the file that hold something.
fn used(store: &Store) -> Result<u64> {
    let pages = pragma(store, "page_count")?.saturating_sub(pragma(store, "freelist_count")?);
    Ok(pages * pragma(store, "page_size")?)
}

/// Bytes of the file.
pub(super) fn size(store: &Store) -> Result<u64> {
    Ok(pragma(store, "page_count")? * pragma(store, "page_size")?)
}

fn pragma(store: &Store, name: &str) -> Result<u64> {
    let number: i64 = store.connection.pragma_query_value(None, name, |row| row.get(0))?;
    Ok(u64::try_from(number).unwrap_or_default())
}
