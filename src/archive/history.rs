//! What became of a cell over time, and what failed: the questions of the status page, answered from indexes alone.

use rusqlite::{OptionalExtension as _, Result, Row, named_params, params, params_from_iter, types::Value};
use serde::Serialize;

use super::{
    read,
    row::{LevelRow, ProbeRow},
    store::{Store, column},
};
use crate::cell::Cell;

/// One level of a cell, or several that were put together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Moment {
    /// When it ended, in milliseconds since the Unix epoch.
    pub at: i64,
    /// How many levels.
    pub levels: u32,
    /// Measured requests.
    pub requests: u32,
    /// How many got a whole answer.
    pub ok: u32,
    /// Median time to first token, seconds.
    pub ttft_p50_seconds: Option<f64>,
    /// 95th percentile of the time to first token, seconds.
    pub ttft_p95_seconds: Option<f64>,
    /// Median time per output token, seconds.
    pub tpot_p50_seconds: Option<f64>,
    /// 95th percentile of the time per output token, seconds.
    pub tpot_p95_seconds: Option<f64>,
    /// Tokens per second of the whole level.
    pub throughput_tokens_per_second: Option<f64>,
}

/// A probe that failed, and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// Number of its run.
    pub run: i64,
    /// Name of the sweep.
    pub sweep: String,
    /// The probe.
    pub probe: ProbeRow,
}

/// Which failures.
#[derive(Debug, Clone, Default)]
pub struct FailureFilter {
    /// Only of this target and model.
    pub model: Option<(String, String)>,
    /// Only of this run.
    pub run: Option<i64>,
    /// The latest so many.
    pub limit: u32,
}

const MOMENTS: &str = "
    SELECT levels.ended_at, requests, ok, ttft_p50, ttft_p95, tpot_p50, tpot_p95, throughput_tokens_per_second
    FROM levels CROSS JOIN runs
    WHERE target = :target AND model = :model AND prompt_tokens = :prompt_tokens AND concurrency = :concurrency
      AND levels.ended_at >= :from AND levels.ended_at < :to AND NOT incomplete
      AND runs.id = run_id AND sweep = :sweep
    ORDER BY levels.ended_at DESC LIMIT :limit";

impl Store {
    /// Whole levels of a cell that ended in `from..to` (milliseconds since the Unix epoch): the latest `limit`,
    /// ascending.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn moments(&self, cell: &Cell, (from, to): (i64, i64), limit: u32) -> Result<Vec<Moment>> {
        let mut select = self.connection.prepare_cached(MOMENTS)?;
        let rows = select.query_map(
            named_params! {
                ":target": cell.target, ":model": cell.model, ":prompt_tokens": cell.prompt_tokens,
                ":concurrency": column(cell.load()), ":from": from, ":to": to, ":sweep": cell.sweep, ":limit": limit,
            },
            moment,
        )?;
        let mut moments = rows.collect::<Result<Vec<_>>>()?;
        moments.reverse();
        Ok(moments)
    }

    /// Probes that failed, the latest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn failures(&self, filter: &FailureFilter) -> Result<Vec<Failed>> {
        let (condition, mut values): (&str, Vec<Value>) = match (&filter.model, filter.run) {
            (Some((target, model)), _) => {
                ("target = ?2 AND model = ?3", vec![target.clone().into(), model.clone().into()])
            }
            (None, Some(run)) => ("run_id = ?2", vec![run.into()]),
            (None, None) => ("TRUE", Vec::new()),
        };
        values.insert(0, filter.limit.into());
        let mut select = self.connection.prepare_cached(&format!(
            "SELECT probes.*, sweep FROM probes CROSS JOIN runs
             WHERE runs.id = run_id AND class IS NOT NULL AND {condition} ORDER BY at DESC LIMIT ?1"
        ))?;
        let mut rows = select.query(params_from_iter(values))?;
        let mut failures = Vec::new();
        while let Some(row) = rows.next()? {
            if let Some(probe) = read::probe(row)? {
                failures.push(Failed { run: row.get("run_id")?, sweep: row.get("sweep")?, probe });
            }
        }
        Ok(failures)
    }

    /// The last whole level of a cell, with its distributions.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn latest_level(&self, cell: &Cell) -> Result<Option<LevelRow>> {
        self.last_level(cell)
    }

    /// The longest measured probes of a run that went well, with the longest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn slowest(&self, run_id: i64, limit: u32) -> Result<Vec<ProbeRow>> {
        let mut select = self.connection.prepare_cached(
            "SELECT * FROM probes WHERE run_id = ?1 AND class IS NULL AND role = 'measured'
             ORDER BY json_extract(record, '$.time_to_first_token_seconds') DESC LIMIT ?2",
        )?;
        let mut rows = select.query(params![run_id, limit])?;
        let mut probes = Vec::new();
        while let Some(row) = rows.next()? {
            probes.extend(read::probe(row)?);
        }
        Ok(probes)
    }

    /// Saves a run under a name that it can be compared with; another run of that name is one no longer.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_baseline(&mut self, name: &str, run_id: i64, now: i64) -> Result<()> {
        let insert = "INSERT OR REPLACE INTO baselines (name, run_id, saved_at) VALUES (?1, ?2, ?3)";
        self.connection.execute(insert, params![name, run_id, now])?;
        Ok(())
    }

    /// Forgets a baseline; its run stays. `false`: there is none of that name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn delete_baseline(&mut self, name: &str) -> Result<bool> {
        Ok(self.connection.execute("DELETE FROM baselines WHERE name = ?1", [name])? > 0)
    }

    /// Every baseline: its name, the number of its run, and when it was saved.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn baselines(&self) -> Result<Vec<(String, i64, i64)>> {
        let mut select =
            self.connection.prepare_cached("SELECT name, run_id, saved_at FROM baselines ORDER BY name")?;
        select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
    }

    /// The number of a baseline's run.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn baseline(&self, name: &str) -> Result<Option<i64>> {
        let select = "SELECT run_id FROM baselines WHERE name = ?1";
        self.connection.query_row(select, [name], |row| row.get(0)).optional()
    }
}

fn moment(row: &Row<'_>) -> Result<Moment> {
    Ok(Moment {
        at: row.get(0)?,
        levels: 1,
        requests: row.get(1)?,
        ok: row.get(2)?,
        ttft_p50_seconds: row.get(3)?,
        ttft_p95_seconds: row.get(4)?,
        tpot_p50_seconds: row.get(5)?,
        tpot_p95_seconds: row.get(6)?,
        throughput_tokens_per_second: row.get(7)?,
    })
}

/// At most about `moments_max` moments: those of equal spans of time are put together, each number the median of
/// theirs. Ascending in, ascending out.
#[must_use]
pub fn thin(moments: &[Moment], moments_max: usize) -> Vec<Moment> {
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return Vec::new() };
    if moments.len() <= moments_max {
        return moments.to_vec();
    }
    let span = (last.at - first.at).max(1) / i64::try_from(moments_max.max(1)).unwrap_or(i64::MAX) + 1;
    let bucket = |moment: &Moment| (moment.at - first.at) / span;
    moments.chunk_by(|one, other| bucket(one) == bucket(other)).filter_map(together).collect()
}

fn together(moments: &[Moment]) -> Option<Moment> {
    let middle = |value: fn(&Moment) -> Option<f64>| {
        let mut values: Vec<f64> = moments.iter().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let sum = |value: fn(&Moment) -> u32| moments.iter().map(value).fold(0, u32::saturating_add);
    Some(Moment {
        at: moments.get(moments.len() / 2)?.at,
        levels: sum(|moment| moment.levels),
        requests: sum(|moment| moment.requests),
        ok: sum(|moment| moment.ok),
        ttft_p50_seconds: middle(|moment| moment.ttft_p50_seconds),
        ttft_p95_seconds: middle(|moment| moment.ttft_p95_seconds),
        tpot_p50_seconds: middle(|moment| moment.tpot_p50_seconds),
        tpot_p95_seconds: middle(|moment| moment.tpot_p95_seconds),
        throughput_tokens_per_second: middle(|moment| moment.throughput_tokens_per_second),
    })
}
