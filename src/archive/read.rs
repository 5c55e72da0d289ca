//! What the file holds, read back: lists of runs, one run with its ladders, levels and probes.

use std::borrow::Cow;

use rusqlite::{OptionalExtension as _, Result, Row, Statement, named_params, types::Value as SqlValue};
use serde_json::Value;

use super::{
    details::LevelIntervals,
    row::{LadderRow, LevelRow, OpenLoop, ProbeRow, RunRow, Spread},
    sketch::Sketch,
    store::Store,
};
use crate::{
    analysis::{Basis, Decided, Finding, Found, Interval, Knee, Scaling},
    arrivals::Rate,
    sweep::{LadderReport, NotRun, SweepReport, SweepResult},
};

/// Which runs.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only of this sweep.
    pub sweep: Option<String>,
    /// Started at this time or later, in milliseconds since the Unix epoch.
    pub from: Option<i64>,
    /// Started before this time.
    pub to: Option<i64>,
    /// The latest so many; all of them when unset.
    pub limit: Option<u32>,
}

/// A run, with what a list of runs shows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunListing {
    /// Its number in this archive.
    pub id: i64,
    /// The run.
    pub run: RunRow,
    /// Levels that ended.
    pub levels: u32,
    /// Measured requests of these.
    pub requests: u32,
    /// How many got a whole answer.
    pub ok: u32,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRecord {
    /// The run.
    pub listing: RunListing,
    /// Its ladders that ended, in their order.
    pub ladders: Vec<LadderRow>,
    /// Its levels that ended, in their order.
    pub levels: Vec<LevelRow>,
}

const LISTING: &str = "
    SELECT runs.id, uid, sweep, runs.started_at, runs.ended_at, result, version, revision, plan,
           count(levels.id), coalesce(sum(requests), 0), coalesce(sum(ok), 0)
    FROM runs JOIN plans ON plans.id = plan_id LEFT JOIN levels ON levels.run_id = runs.id";

impl Store {
    /// Runs by their start, the latest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunListing>> {
        let mut select = self.connection.prepare(&format!(
            "{LISTING}
             WHERE runs.id IN (SELECT id FROM runs
                 WHERE (:sweep IS NULL OR sweep = :sweep) AND started_at >= :from AND started_at < :to
                 ORDER BY started_at DESC, id DESC LIMIT :limit)
             GROUP BY runs.id ORDER BY runs.started_at DESC, runs.id DESC"
        ))?;
        let rows = select.query_map(
            named_params! {
                ":sweep": filter.sweep,
                ":from": filter.from.unwrap_or(i64::MIN),
                ":to": filter.to.unwrap_or(i64::MAX),
                ":limit": filter.limit.map_or(-1, i64::from),
            },
            listing,
        )?;
        rows.collect()
    }

    /// The run of a number.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn run(&self, id: i64) -> Result<Option<SweepRecord>> {
        let select = format!("{LISTING} WHERE runs.id = ?1 GROUP BY runs.id");
        let Some(listing) = self.connection.query_row(&select, [id], listing).optional()? else {
            return Ok(None);
        };
        Ok(Some(SweepRecord { listing, ladders: self.ladders(id)?, levels: self.levels(id)? }))
    }

    /// The number of the run of a uid.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn run_number(&self, uid: &str) -> Result<Option<i64>> {
        let select = "SELECT id FROM runs WHERE uid = ?1";
        self.connection.query_row(select, [uid], |row| row.get(0)).optional()
    }

    /// Levels of a run, in the order in which they ended.
    pub(super) fn levels(&self, run_id: i64) -> Result<Vec<LevelRow>> {
        let mut select =
            self.connection.prepare_cached("SELECT * FROM levels WHERE run_id = ?1 ORDER BY id")?;
        select.query_map([run_id], level)?.collect()
    }

    /// Ladders of a run, in the order in which they ended.
    pub(super) fn ladders(&self, run_id: i64) -> Result<Vec<LadderRow>> {
        let mut select =
            self.connection.prepare_cached("SELECT * FROM ladders WHERE run_id = ?1 ORDER BY id")?;
        select.query_map([run_id], ladder)?.collect()
    }

    /// Hands the probes of a run over one by one, in the order in which they ended: there may be very many.
    pub(super) fn each_probe<E: From<rusqlite::Error>>(
        &self,
        run_id: i64,
        mut take: impl FnMut(ProbeRow) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut select: Statement<'_> =
            self.connection.prepare("SELECT * FROM probes WHERE run_id = ?1 ORDER BY id")?;
        let mut rows = select.query([run_id])?;
        while let Some(row) = rows.next()? {
            if let Some(probe) = probe(row)? {
                take(probe)?;
            }
        }
        Ok(())
    }
}

fn listing(row: &Row<'_>) -> Result<RunListing> {
    let run = RunRow {
        uid: row.get(1)?,
        sweep: row.get(2)?,
        started_at: row.get(3)?,
        ended_at: row.get(4)?,
        result: row.get(5)?,
        version: row.get(6)?,
        revision: row.get(7)?,
        plan: json(row, 8)?,
    };
    Ok(RunListing { id: row.get(0)?, run, levels: row.get(9)?, requests: row.get(10)?, ok: row.get(11)? })
}

pub(super) fn level(row: &Row<'_>) -> Result<LevelRow> {
    let failures: Option<String> = row.get("failures")?;
    let intervals: Option<Vec<u8>> = row.get("intervals")?;
    let details: Option<String> = row.get("details")?;
    let sketch = |name| -> Result<Option<Sketch>> {
        let bytes: Option<Vec<u8>> = row.get(name)?;
        Ok(bytes.and_then(|bytes| Sketch::from_bytes(&bytes)))
    };
    let open_loop: Option<String> = row.get("open_loop")?;
    let open_loop: Option<OpenLoop> = open_loop.and_then(|text| serde_json::from_str(&text).ok());
    Ok(LevelRow {
        target: row.get("target")?,
        model: row.get("model")?,
        prompt_tokens: row.get("prompt_tokens")?,
        concurrency: open_loop
            .map_or_else(|| load(row).map(|(concurrency, _)| concurrency), |open| Ok(open.max_in_flight))?,
        open_loop,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        served_model: row.get("served_model")?,
        fingerprint: row.get("fingerprint")?,
        requests: row.get("requests")?,
        ok: row.get("ok")?,
        failures: failures.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
        ttft: spread(row, "ttft")?,
        first_answer: spread(row, "answer")?,
        tpot: spread(row, "tpot")?,
        request_tps: spread(row, "request_tps")?,
        duration: spread(row, "duration")?,
        throughput_tokens_per_second: row.get("throughput_tokens_per_second")?,
        throughput_standard_error: row.get("throughput_standard_error")?,
        throughput_requests_per_second: row.get("throughput_requests_per_second")?,
        prompt_tokens_measured: row.get("prompt_tokens_measured")?,
        cached_ratio: row.get("cached_ratio")?,
        client_saturated: row.get("client_saturated")?,
        incomplete: row.get("incomplete")?,
        ttft_independent: row.get("ttft_independent")?,
        tpot_independent: row.get("tpot_independent")?,
        ttft_sketch: sketch("ttft_sketch")?,
        tpot_sketch: sketch("tpot_sketch")?,
        duration_sketch: sketch("duration_sketch")?,
        intervals: intervals.and_then(|bytes| LevelIntervals::from_bytes(&bytes)),
        details: details.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
    })
}

/// A column called `concurrency`: a number, or a rate as text.
fn load(row: &Row<'_>) -> Result<(u32, Option<Rate>)> {
    if let SqlValue::Text(rate) = row.get("concurrency")? {
        return Ok((0, rate.parse().ok()));
    }
    Ok((row.get("concurrency")?, None))
}

fn spread(row: &Row<'_>, name: &str) -> Result<Option<Spread>> {
    let column = |part: &str| format!("{name}_{part}");
    let Some(count) = row.get(column("count").as_str())? else { return Ok(None) };
    Ok(Some(Spread {
        count,
        mean: row.get(column("mean").as_str())?,
        p50: row.get(column("p50").as_str())?,
        p95: row.get(column("p95").as_str())?,
        p99: row.get(column("p99").as_str())?,
    }))
}

pub(super) fn ladder(row: &Row<'_>) -> Result<LadderRow> {
    let report: String = row.get("report")?;
    Ok(LadderRow {
        target: row.get("target")?,
        model: row.get("model")?,
        prompt_tokens: row.get("prompt_tokens")?,
        ended_at: row.get("ended_at")?,
        state: row.get("state")?,
        knee_concurrency: row.get("knee_concurrency")?,
        safe_concurrency: row.get("safe_concurrency")?,
        whole: row.get("whole")?,
        report: serde_json::from_str(&report).unwrap_or_default(),
    })
}

/// `None` for a record that a much later program wrote in a shape that cannot be read here.
pub(super) fn probe(row: &Row<'_>) -> Result<Option<ProbeRow>> {
    let record: String = row.get("record")?;
    let Ok(record) = serde_json::from_str(&record) else { return Ok(None) };
    let (concurrency, rate) = load(row)?;
    Ok(Some(ProbeRow {
        target: row.get("target")?,
        model: row.get("model")?,
        prompt_tokens: row.get("prompt_tokens")?,
        concurrency,
        rate,
        role: row.get("role")?,
        at: row.get("at")?,
        class: row.get("class")?,
        record,
    }))
}

fn json(row: &Row<'_>, column: usize) -> Result<Value> {
    let text: String = row.get(column)?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

impl LadderRow {
    /// The concurrencies that were not run, and why.
    #[must_use]
    pub fn not_run(&self) -> Vec<NotRun> {
        let listed = self.report.get("not_run").and_then(Value::as_array);
        let read = |value: &Value| {
            let concurrency = value.get("concurrency").and_then(Value::as_u64);
            let concurrency = concurrency.and_then(|concurrency| u32::try_from(concurrency).ok());
            let rate = rate(value, "rate");
            let reason = value.get("reason")?.as_str()?.to_owned();
            Some(NotRun { concurrency: concurrency.or(rate.map(|_| 0))?, rate, reason })
        };
        listed.into_iter().flatten().filter_map(read).collect()
    }

    /// Names of its findings.
    pub fn findings(&self) -> impl Iterator<Item = &str> {
        let listed = self.report.get("findings").and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(|finding| finding.get("finding")?.as_str())
    }

    /// Its findings, with their evidence; a name that is no longer in use is left out.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        let listed = self.report.get("findings").and_then(Value::as_array);
        let read = |value: &Value| {
            let evidence = value.get("evidence").and_then(Value::as_object);
            let number =
                |(name, number): (&String, &Value)| Some((Cow::Owned(name.clone()), number.as_f64()?));
            let finding = Finding::parse(value.get("finding")?.as_str()?)?;
            let basis = value.get("basis").and_then(Value::as_str).and_then(Basis::parse);
            Some(Found {
                finding,
                basis: basis.unwrap_or(finding.basis()),
                level: value.get("level").and_then(Value::as_u64).and_then(|level| u32::try_from(level).ok()),
                rate: rate(value, "rate"),
                evidence: evidence.into_iter().flatten().filter_map(number).collect(),
            })
        };
        listed.into_iter().flatten().filter_map(read).collect()
    }

    /// The rate that is safe.
    #[must_use]
    pub fn safe_rate(&self) -> Option<Rate> {
        rate(&self.report, "safe_requests_per_second")
    }

    /// What decided where its knee is.
    #[must_use]
    pub fn decided(&self) -> Option<Decided> {
        let decision = self.report.get("knee_decided_by")?;
        let number = |name: &str| decision.get(name).and_then(Value::as_f64);
        let to = u32::try_from(decision.get("to_concurrency")?.as_u64()?).ok()?;
        match decision.get("by")?.as_str()? {
            "throughput" => {
                let side = |index: usize| decision.get("gain_interval")?.get(index)?.as_f64();
                let interval = Interval { low: side(0), high: side(1) };
                Some(Decided::Gain { to, gain: number("gain")?, interval })
            }
            "failures" => Some(Decided::Failures { to, ratio: number("failure_ratio")? }),
            "latency" => Some(Decided::Latency { to }),
            _ => None,
        }
    }

    /// The Universal Scalability Law fitted to its levels.
    #[must_use]
    pub fn scaling(&self) -> Option<Scaling> {
        let law = self.report.get("scaling")?;
        let number = |name: &str| law.get(name).and_then(Value::as_f64);
        Some(Scaling {
            gamma: number("gamma_tokens_per_second")?,
            contention: number("contention")?,
            coherency: number("coherency")?,
            peak_concurrency: number("peak_concurrency"),
            peak_throughput: number("peak_throughput_tokens_per_second"),
            r_squared: number("r_squared")?,
        })
    }

    /// What it says about capacity.
    #[must_use]
    pub fn knee(&self) -> Knee {
        match (self.state.as_str(), self.knee_concurrency) {
            ("found", Some(concurrency)) => Knee::Found(concurrency),
            ("found", None) => {
                rate(&self.report, "knee_requests_per_second").map_or(Knee::Unstable, Knee::AtRate)
            }
            ("not_reached", _) => Knee::NotReached,
            ("failed", _) => Knee::Failed,
            _ => Knee::Unstable,
        }
    }
}

/// A member that is a rate.
fn rate(object: &Value, name: &str) -> Option<Rate> {
    object.get(name).and_then(Value::as_f64).and_then(Rate::new)
}

impl SweepRecord {
    /// The run as it was reported when it ended. A run that was killed has the levels that ended.
    #[must_use]
    pub fn report(&self) -> SweepReport {
        let mut ladders: Vec<LadderReport> = Vec::new();
        for level in &self.levels {
            let last = ladders.last_mut().filter(|ladder| {
                *ladder.target == *level.target
                    && *ladder.model == *level.model
                    && ladder.prompt_tokens == level.prompt_tokens
            });
            match last {
                Some(ladder) => ladder.levels.push(level.summary()),
                None => ladders.push(self.ladder_of(level)),
            }
        }
        for ladder in &mut ladders {
            // A level that refined a knee was run last and stands between the others.
            ladder.levels.sort_by_key(|level| level.concurrency);
        }
        let result = match self.listing.run.result.as_deref() {
            Some("completed") => SweepResult::Completed,
            Some("failed") => SweepResult::Failed,
            _ => SweepResult::Aborted,
        };
        SweepReport { ladders, result }
    }

    fn ladder_of(&self, level: &LevelRow) -> LadderReport {
        let known = self.ladders.iter().find(|ladder| {
            ladder.target == level.target
                && ladder.model == level.model
                && ladder.prompt_tokens == level.prompt_tokens
        });
        LadderReport {
            sweep: self.listing.run.sweep.as_str().into(),
            target: level.target.as_str().into(),
            model: level.model.as_str().into(),
            prompt_tokens: level.prompt_tokens,
            levels: vec![level.summary()],
            not_run: known.map(LadderRow::not_run).unwrap_or_default(),
            knee: known.map_or(Knee::Unstable, LadderRow::knee),
            decided: known.and_then(LadderRow::decided),
            safe_concurrency: known.and_then(|ladder| ladder.safe_concurrency),
            safe_rate: known.and_then(LadderRow::safe_rate),
            scaling: known.and_then(LadderRow::scaling),
            growth: None,
            control: None,
            findings: known.map(LadderRow::found).unwrap_or_default(),
        }
    }
}
