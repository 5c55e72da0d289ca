//! What the last program knew, for the one that starts: last levels, ladders and runs, each with its own time.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use chrono::{DateTime, Utc};
use rusqlite::{OptionalExtension as _, Result, params};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    read,
    row::{LadderRow, LevelRow},
    schema::{ArchiveError, open_existing},
    store::{Store, column},
};
use crate::{analysis::LevelSummary, budget::Spent, cell::Cell, config::Sweep};

/// Name of the note on spent budgets.
pub(super) const SPENT: &str = "spent";

/// Everything that comes back.
#[derive(Debug, Default)]
pub struct Recalled {
    /// The last whole level of every cell that still tells of it.
    pub cells: Vec<RecalledCell>,
    /// The last whole run of every ladder.
    pub ladders: Vec<RecalledLadder>,
    /// The last runs of every sweep.
    pub sweeps: Vec<RecalledSweep>,
    /// The latest note of every name.
    pub notes: BTreeMap<String, Value>,
}

/// A cell's last whole level.
#[derive(Debug)]
pub struct RecalledCell {
    /// Which.
    pub cell: Cell,
    /// Its statistics.
    pub summary: LevelSummary,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
}

/// A ladder's last whole run.
#[derive(Debug)]
pub struct RecalledLadder {
    /// Any cell of it: what it shares with the others names the ladder.
    pub cell: Cell,
    /// What it came to.
    pub row: LadderRow,
}

/// A sweep's last runs.
#[derive(Debug)]
pub struct RecalledSweep {
    /// Its name.
    pub sweep: Arc<str>,
    /// When it last started.
    pub last_start: DateTime<Utc>,
    /// Start, end and result of the last one that ended in order.
    pub last_ended: Option<(DateTime<Utc>, DateTime<Utc>, String)>,
    /// When it last ended completed.
    pub last_success: Option<DateTime<Utc>>,
}

impl Recalled {
    /// What an archive says of these sweeps; nothing when there is no archive yet.
    ///
    /// # Errors
    /// The archive is there and cannot be read.
    pub fn from_file(path: &Path, sweeps: &[Arc<Sweep>]) -> std::result::Result<Self, ArchiveError> {
        let store = match open_existing(path) {
            Ok(store) => store,
            Err(ArchiveError::Missing(_)) => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        store.recall(sweeps).map_err(|error| ArchiveError::Sqlite(path.to_owned(), error))
    }

    /// What was spent of the budgets.
    #[must_use]
    pub fn spent(&self) -> Vec<Spent> {
        self.noted(SPENT)
    }

    /// A note; nothing when there is none that can be read.
    #[must_use]
    pub fn noted<T: DeserializeOwned + Default>(&self, name: &str) -> T {
        let note = self.notes.get(name).cloned();
        note.and_then(|note| serde_json::from_value(note).ok()).unwrap_or_default()
    }
}

impl Store {
    pub(super) fn recall(&self, sweeps: &[Arc<Sweep>]) -> Result<Recalled> {
        let mut recalled = Recalled { notes: self.notes()?, ..Recalled::default() };
        for sweep in sweeps {
            recalled.sweeps.extend(self.recall_sweep(&sweep.name)?);
            let mut seen = BTreeSet::new();
            let mut ladder: Option<LadderRow> = None;
            for cell in sweep.cells() {
                // Cells come ladder by ladder.
                if seen.insert((cell.target.clone(), cell.model.clone(), cell.prompt_tokens)) {
                    ladder = self.last_ladder(&cell)?;
                    let recall = |row| RecalledLadder { cell: cell.clone(), row };
                    recalled.ladders.extend(ladder.clone().map(recall));
                }
                let Some(level) = self.last_level(&cell)? else { continue };
                if ladder.as_ref().is_some_and(|ladder| gave_up(ladder, &level)) {
                    continue;
                }
                let Some(ended_at) = DateTime::from_timestamp_millis(level.ended_at) else { continue };
                recalled.cells.push(RecalledCell { cell, summary: level.summary(), ended_at });
            }
        }
        Ok(recalled)
    }

    fn notes(&self) -> Result<BTreeMap<String, Value>> {
        let mut select = self.connection.prepare_cached("SELECT name, value FROM notes")?;
        let notes = select.query_map([], |row| {
            let value: String = row.get(1)?;
            Ok((row.get(0)?, serde_json::from_str(&value).unwrap_or_default()))
        })?;
        notes.collect()
    }

    pub(super) fn last_level(&self, cell: &Cell) -> Result<Option<LevelRow>> {
        let mut select = self.connection.prepare_cached(
            "SELECT levels.* FROM levels JOIN runs ON runs.id = run_id
             WHERE target = ?1 AND model = ?2 AND prompt_tokens = ?3 AND concurrency = ?4 AND sweep = ?5
               AND NOT incomplete
             ORDER BY levels.ended_at DESC LIMIT 1",
        )?;
        let Cell { sweep, target, model, prompt_tokens, .. } = cell;
        let load = column(cell.load());
        select.query_row(params![target, model, prompt_tokens, load, sweep], read::level).optional()
    }

    fn last_ladder(&self, cell: &Cell) -> Result<Option<LadderRow>> {
        let mut select = self.connection.prepare_cached(
            "SELECT ladders.* FROM ladders JOIN runs ON runs.id = run_id
             WHERE target = ?1 AND model = ?2 AND prompt_tokens = ?3 AND sweep = ?4 AND whole
             ORDER BY ladders.ended_at DESC LIMIT 1",
        )?;
        let Cell { sweep, target, model, prompt_tokens, .. } = cell;
        select.query_row(params![target, model, prompt_tokens, sweep], read::ladder).optional()
    }

    fn recall_sweep(&self, sweep: &Arc<str>) -> Result<Option<RecalledSweep>> {
        let last = |condition: &str| {
            let select = format!(
                "SELECT started_at, coalesce(ended_at, 0), coalesce(result, '') FROM runs
                 WHERE sweep = ?1 AND {condition} ORDER BY started_at DESC LIMIT 1"
            );
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let found: Option<(i64, i64, String)> =
                self.connection.prepare_cached(&select)?.query_row([sweep], read).optional()?;
            Ok::<_, rusqlite::Error>(found.and_then(|(started, ended, result)| {
                let at = DateTime::from_timestamp_millis;
                Some((at(started)?, at(ended)?, result))
            }))
        };
        let Some((last_start, ..)) = last("TRUE")? else { return Ok(None) };
        Ok(Some(RecalledSweep {
            sweep: sweep.clone(),
            last_start,
            last_ended: last("result IS NOT NULL")?,
            last_success: last("result = 'completed'")?.map(|(_, ended_at, _)| ended_at),
        }))
    }
}

/// Whether a ladder that ended later left this level out, so that what it said no longer holds.
fn gave_up(ladder: &LadderRow, level: &LevelRow) -> bool {
    let left_out = ladder.not_run().into_iter().find(|not_run| not_run.load() == level.load());
    ladder.ended_at > level.ended_at && left_out.is_some_and(|not_run| not_run.reason != "stopped")
}
