//! Writes entries into the file. What is written together is one transaction: all of it or nothing.
//!
//! Knows nothing of queues, threads or clocks. A level or ladder that is written again takes its own place.

use rusqlite::{Connection, OptionalExtension as _, Result, Transaction, named_params, params, types::Value};

use super::{
    details::Details,
    row::{Entry, LadderRow, LevelRow, ProbeRow, RunRow, Spread},
};
use crate::cell::Load;

/// An open archive.
#[derive(Debug)]
pub struct Store {
    pub(super) connection: Connection,
}

impl Store {
    pub(super) fn new(connection: Connection) -> Self {
        connection.set_prepared_statement_cache_capacity(64);
        Self { connection }
    }

    /// Writes entries in their order, as one transaction.
    pub(super) fn write(&mut self, entries: &[Entry]) -> Result<()> {
        let transaction = self.connection.transaction()?;
        write_all(&transaction, entries)?;
        transaction.commit()
    }
}

/// Writes entries in their order into a transaction.
pub(super) fn write_all(transaction: &Transaction<'_>, entries: &[Entry]) -> Result<()> {
    let mut current: Option<(&str, i64)> = None;
    for entry in entries {
        let id = match (entry.run(), current) {
            (None, _) => 0,
            (Some(run), Some((uid, id))) if uid == run.uid => id,
            (Some(run), _) => run_id(transaction, run)?,
        };
        current = entry.run().map(|run| (run.uid.as_str(), id)).or(current);
        match entry {
            Entry::RunStarted(_) | Entry::Mark(_) => {}
            Entry::Note { name, at, value } => write_note(transaction, name, *at, &value.to_string())?,
            Entry::Probe(_, probe) => insert_probe(transaction, id, probe)?,
            Entry::Level(_, level) => insert_level(transaction, id, level)?,
            Entry::Ladder(_, ladder) => insert_ladder(transaction, id, ladder)?,
            Entry::RunEnded { ended_at, result, .. } => end_run(transaction, id, *ended_at, result)?,
        }
    }
    Ok(())
}

/// Whether a run is there.
pub(super) fn has_run(transaction: &Transaction<'_>, uid: &str) -> Result<bool> {
    transaction.prepare_cached("SELECT 1 FROM runs WHERE uid = ?1")?.exists([uid])
}

/// The run's number in this file; it is written when it is not there yet.
fn run_id(transaction: &Transaction<'_>, run: &RunRow) -> Result<i64> {
    let mut find = transaction.prepare_cached("SELECT id FROM runs WHERE uid = ?1")?;
    if let Some(id) = find.query_row([&run.uid], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    let plan = run.plan.to_string();
    transaction.prepare_cached("INSERT OR IGNORE INTO plans (plan) VALUES (?1)")?.execute([&plan])?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO runs (uid, sweep, started_at, ended_at, result, version, revision, plan_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, (SELECT id FROM plans WHERE plan = ?8))",
    )?;
    let RunRow { uid, sweep, started_at, ended_at, result, version, revision, .. } = run;
    insert.insert(params![uid, sweep, started_at, ended_at, result, version, revision, plan])
}

fn write_note(transaction: &Transaction<'_>, name: &str, at: i64, value: &str) -> Result<()> {
    let mut replace = transaction
        .prepare_cached("INSERT OR REPLACE INTO notes (name, written_at, value) VALUES (?1, ?2, ?3)")?;
    replace.execute(params![name, at, value])?;
    Ok(())
}

fn end_run(transaction: &Transaction<'_>, run_id: i64, ended_at: i64, result: &str) -> Result<()> {
    let mut update =
        transaction.prepare_cached("UPDATE runs SET ended_at = ?2, result = ?3 WHERE id = ?1")?;
    update.execute(params![run_id, ended_at, result])?;
    Ok(())
}

fn insert_probe(transaction: &Transaction<'_>, run_id: i64, probe: &ProbeRow) -> Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO probes (run_id, target, model, prompt_tokens, concurrency, role, at, class, record)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let ProbeRow { target, model, prompt_tokens, concurrency, rate, role, at, class, record } = probe;
    let load = column(Load::of(*concurrency, *rate));
    let record = serde_json::to_string(record).unwrap_or_default();
    insert.execute(params![run_id, target, model, prompt_tokens, load, role, at, class, record])?;
    Ok(())
}

const INSERT_LEVEL: &str = "
    INSERT OR REPLACE INTO levels (
        run_id, target, model, prompt_tokens, concurrency, started_at, ended_at, served_model, fingerprint, requests, ok,
        failures,
        ttft_count, ttft_mean, ttft_p50, ttft_p95, ttft_p99,
        answer_count, answer_mean, answer_p50, answer_p95, answer_p99,
        tpot_count, tpot_mean, tpot_p50, tpot_p95, tpot_p99,
        request_tps_count, request_tps_mean, request_tps_p50, request_tps_p95, request_tps_p99,
        duration_count, duration_mean, duration_p50, duration_p95, duration_p99,
        throughput_tokens_per_second, throughput_requests_per_second, prompt_tokens_measured, cached_ratio,
        client_saturated, incomplete, ttft_independent, tpot_independent, ttft_sketch, tpot_sketch, duration_sketch,
        open_loop, throughput_standard_error, intervals, details
    ) VALUES (
        :run_id, :target, :model, :prompt_tokens, :concurrency, :started_at, :ended_at, :served_model, :fingerprint,
        :requests, :ok, :failures,
        :ttft_count, :ttft_mean, :ttft_p50, :ttft_p95, :ttft_p99,
        :answer_count, :answer_mean, :answer_p50, :answer_p95, :answer_p99,
        :tpot_count, :tpot_mean, :tpot_p50, :tpot_p95, :tpot_p99,
        :request_tps_count, :request_tps_mean, :request_tps_p50, :request_tps_p95, :request_tps_p99,
        :duration_count, :duration_mean, :duration_p50, :duration_p95, :duration_p99,
        :throughput_tokens, :throughput_requests, :prompt_tokens_measured, :cached_ratio,
        :client_saturated, :incomplete, :ttft_independent, :tpot_independent, :ttft_sketch, :tpot_sketch,
        :duration_sketch, :open_loop, :throughput_standard_error, :intervals, :details
    )";

/// The value of the columns called `concurrency`: a number, or the rate of an open loop as text.
pub(super) fn column(load: Load) -> Value {
    match load {
        Load::Concurrency(concurrency) => Value::Integer(concurrency.into()),
        Load::Rate(_) => Value::Text(load.short()),
    }
}

fn insert_level(transaction: &Transaction<'_>, run_id: i64, level: &LevelRow) -> Result<()> {
    let failures =
        (!level.failures.is_empty()).then(|| serde_json::to_string(&level.failures).unwrap_or_default());
    let open_loop = level.open_loop.map(|open| serde_json::to_string(&open).unwrap_or_default());
    let details = (level.details != Details::default())
        .then(|| serde_json::to_string(&level.details).unwrap_or_default());
    let count = |spread: Option<Spread>| spread.map(|spread| spread.count);
    let of = |spread: Option<Spread>| match spread.map(Spread::numbers) {
        Some(numbers) => numbers.map(Some),
        None => [None; 4],
    };
    let [ttft_mean, ttft_p50, ttft_p95, ttft_p99] = of(level.ttft);
    let [answer_mean, answer_p50, answer_p95, answer_p99] = of(level.first_answer);
    let [tpot_mean, tpot_p50, tpot_p95, tpot_p99] = of(level.tpot);
    let [tps_mean, tps_p50, tps_p95, tps_p99] = of(level.request_tps);
    let [duration_mean, duration_p50, duration_p95, duration_p99] = of(level.duration);
    let mut insert = transaction.prepare_cached(INSERT_LEVEL)?;
    insert.execute(named_params! {
        ":run_id": run_id, ":target": level.target, ":model": level.model, ":prompt_tokens": level.prompt_tokens,
        ":concurrency": column(level.load()), ":started_at": level.started_at, ":ended_at": level.ended_at,
        ":served_model": level.served_model, ":fingerprint": level.fingerprint, ":requests": level.requests,
        ":ok": level.ok, ":failures": failures,
        ":ttft_count": count(level.ttft), ":ttft_mean": ttft_mean, ":ttft_p50": ttft_p50,
        ":ttft_p95": ttft_p95, ":ttft_p99": ttft_p99,
        ":answer_count": count(level.first_answer), ":answer_mean": answer_mean, ":answer_p50": answer_p50,
        ":answer_p95": answer_p95, ":answer_p99": answer_p99,
        ":tpot_count": count(level.tpot), ":tpot_mean": tpot_mean, ":tpot_p50": tpot_p50,
        ":tpot_p95": tpot_p95, ":tpot_p99": tpot_p99,
        ":request_tps_count": count(level.request_tps), ":request_tps_mean": tps_mean, ":request_tps_p50": tps_p50,
        ":request_tps_p95": tps_p95, ":request_tps_p99": tps_p99,
        ":duration_count": count(level.duration), ":duration_mean": duration_mean, ":duration_p50": duration_p50,
        ":duration_p95": duration_p95, ":duration_p99": duration_p99,
        ":throughput_tokens": level.throughput_tokens_per_second,
        ":throughput_requests": level.throughput_requests_per_second,
        ":prompt_tokens_measured": level.prompt_tokens_measured, ":cached_ratio": level.cached_ratio,
        ":client_saturated": level.client_saturated, ":incomplete": level.incomplete,
        ":ttft_independent": level.ttft_independent, ":tpot_independent": level.tpot_independent,
        ":ttft_sketch": level.ttft_sketch.as_ref().map(super::Sketch::to_bytes),
        ":tpot_sketch": level.tpot_sketch.as_ref().map(super::Sketch::to_bytes),
        ":duration_sketch": level.duration_sketch.as_ref().map(super::Sketch::to_bytes),
        ":open_loop": open_loop,
        ":throughput_standard_error": level.throughput_standard_error,
        ":intervals": level.intervals.map(super::LevelIntervals::to_bytes), ":details": details,
    })?;
    Ok(())
}

fn insert_ladder(transaction: &Transaction<'_>, run_id: i64, ladder: &LadderRow) -> Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO ladders (run_id, target, model, prompt_tokens, ended_at, state, knee_concurrency,
                                         safe_concurrency, whole, report)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    insert.execute(params![
        run_id,
        ladder.target,
        ladder.model,
        ladder.prompt_tokens,
        ladder.ended_at,
        ladder.state,
        ladder.knee_concurrency,
        ladder.safe_concurrency,
        ladder.whole,
        ladder.report.to_string(),
    ])?;
    Ok(())
}
