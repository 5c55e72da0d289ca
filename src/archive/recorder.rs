//! Turns what happens in a sweep into entries of the archive. Pure: the wall clock is an argument, and where entries
//! go is the caller's business.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;

use super::{
    row::{Entry, LadderRow, LevelRow, ProbeRow, RunRow},
    sketch::Sketch,
};
use crate::{
    analysis::independent,
    cell::Cell,
    measurement::{
        Measurement, TokenSource,
        record::{Record, Subject},
    },
    probe::TraceId,
    report::ladder_value,
    sweep::{Event, LadderReport, Role, SweepResult},
    version,
};

/// Samples of a level that its sketch is made of, at most; a longer level's first ones.
const SAMPLES_MAX: usize = 200_000;

/// Follows running sweeps.
#[derive(Debug, Default)]
pub struct Recorder {
    /// By the sweep's name: a sweep never overlaps itself.
    runs: HashMap<Arc<str>, Running>,
}

#[derive(Debug)]
struct Running {
    run: Arc<RunRow>,
    levels: HashMap<Arc<Cell>, LevelSamples>,
}

/// What is kept of a level until it ends.
#[derive(Debug, Default)]
struct LevelSamples {
    started_at: i64,
    served_model: Option<String>,
    fingerprint: Option<String>,
    ttft: Vec<f64>,
    tpot: Vec<f64>,
    duration: Vec<f64>,
}

impl Recorder {
    /// A run begins.
    #[must_use]
    pub fn started(&mut self, sweep: &Arc<str>, plan: Value, now: DateTime<Utc>) -> Arc<RunRow> {
        let run = Arc::new(RunRow {
            uid: format!("{:016x}", fastrand::u64(..)),
            sweep: sweep.to_string(),
            started_at: now.timestamp_millis(),
            ended_at: None,
            result: None,
            version: version::PACKAGE.to_owned(),
            revision: version::REVISION.to_owned(),
            plan,
        });
        self.runs.insert(sweep.clone(), Running { run: run.clone(), levels: HashMap::new() });
        run
    }

    /// Something happened in a run.
    #[must_use]
    pub fn observe(&mut self, event: &Event, now: DateTime<Utc>) -> Option<Entry> {
        match event {
            Event::LevelStarted { cell, .. } => {
                let started = LevelSamples { started_at: now.timestamp_millis(), ..LevelSamples::default() };
                self.runs.get_mut(&cell.sweep)?.levels.insert(cell.clone(), started);
                None
            }
            Event::Probed { cell, role, measurement, trace_id } => {
                let running = self.runs.get_mut(&cell.sweep)?;
                if *role == Role::Measured
                    && let Some(level) = running.levels.get_mut(cell)
                {
                    level.add(measurement);
                }
                if *role != Role::Measured && measurement.is_ok() {
                    return None;
                }
                let row = probe_row(cell, *role, measurement, *trace_id, now);
                Some(Entry::Probe(running.run.clone(), Box::new(row)))
            }
            Event::LevelEnded { cell, summary, .. } => {
                let running = self.runs.get_mut(&cell.sweep)?;
                let samples = running.levels.remove(cell).unwrap_or_default();
                let mut row = LevelRow::new(cell, summary, samples.started_at, now.timestamp_millis());
                samples.finish(&mut row);
                Some(Entry::Level(running.run.clone(), Box::new(row)))
            }
            Event::LadderEnded { report } => {
                let run = self.runs.get(&report.sweep)?.run.clone();
                Some(Entry::Ladder(run, Box::new(ladder_row(report, now))))
            }
            Event::LevelNotRun { .. } | Event::Advanced { .. } => None,
        }
    }

    /// A run ended.
    #[must_use]
    pub fn ended(&mut self, sweep: &str, result: SweepResult, now: DateTime<Utc>) -> Option<Entry> {
        let run = self.runs.remove(sweep)?.run;
        let result = match result {
            SweepResult::Completed => "completed",
            SweepResult::Aborted => "aborted",
            SweepResult::Failed => "failed",
        };
        Some(Entry::RunEnded { run, ended_at: now.timestamp_millis(), result })
    }
}

impl LevelSamples {
    /// Takes in a measured probe, by the rules of the level's statistics: good ones only, and a time per token only
    /// where the server counted the tokens.
    fn add(&mut self, measurement: &Measurement) {
        if measurement.served_model.is_some() {
            self.served_model.clone_from(&measurement.served_model);
        }
        if measurement.fingerprint.is_some() {
            self.fingerprint.clone_from(&measurement.fingerprint);
        }
        if !measurement.is_ok() || self.duration.len() >= SAMPLES_MAX {
            return;
        }
        let counted = !matches!(measurement.tokens.source, TokenSource::ChunkCount | TokenSource::None);
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        self.ttft.extend(seconds(measurement.timeline.first_token()));
        self.tpot.extend(seconds(measurement.time_per_output_token().filter(|_| counted)));
        self.duration.push(measurement.timeline.end.as_secs_f64());
    }

    fn finish(self, row: &mut LevelRow) {
        row.served_model = self.served_model;
        row.fingerprint = self.fingerprint;
        row.ttft_independent = independent(&self.ttft);
        row.tpot_independent = independent(&self.tpot);
        row.ttft_sketch = Sketch::of(self.ttft);
        row.tpot_sketch = Sketch::of(self.tpot);
        row.duration_sketch = Sketch::of(self.duration);
    }
}

fn probe_row(
    cell: &Cell,
    role: Role,
    measurement: &Measurement,
    trace_id: TraceId,
    now: DateTime<Utc>,
) -> ProbeRow {
    // The probe ended just now; its own clock knows no date.
    let started_at = now - measurement.timeline.end;
    let started_text = started_at.to_rfc3339_opts(SecondsFormat::Millis, true);
    let trace_id = trace_id.to_string();
    let subject = Subject {
        target: &cell.target,
        model: &cell.model,
        started_at: &started_text,
        trace_id: Some(&trace_id),
    };
    ProbeRow {
        target: cell.target.to_string(),
        model: cell.model.to_string(),
        prompt_tokens: cell.prompt_tokens,
        concurrency: cell.concurrency,
        rate: cell.rate,
        role: role.as_str().to_owned(),
        at: started_at.timestamp_millis(),
        class: measurement.outcome.failure().map(|failure| failure.class.as_str().to_owned()),
        record: Record::new(measurement, subject),
    }
}

fn ladder_row(report: &LadderReport, now: DateTime<Utc>) -> LadderRow {
    LadderRow {
        target: report.target.to_string(),
        model: report.model.to_string(),
        prompt_tokens: report.prompt_tokens,
        ended_at: now.timestamp_millis(),
        state: report.knee.state().to_owned(),
        knee_concurrency: report.knee.concurrency(),
        safe_concurrency: report.safe_concurrency,
        whole: !report.levels.is_empty() && report.levels.iter().all(|level| !level.incomplete),
        report: ladder_value(report),
    }
}
