//! What the daemon makes of events: metrics, log lines, the status page's snapshot.
//!
//! Runs inside the event loop, so nothing here waits. Cells that a reload removed are ignored: a sweep that
//! still runs on the old configuration must not bring their series back.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

use crate::{
    analysis::LevelSummary,
    cell::Cell,
    config::Config,
    measurement::Failure,
    metrics::{
        CellMetrics, Ladder, LadderMetrics, Layout, LevelSkip, Metrics, SkipReason, SweepMetrics, SweepModel,
        SweepResult,
    },
    sweep::{Cause, DELAY_BOUNDS, Event, LadderReport, Role},
};

/// The only finding made so far.
const CLIENT_SATURATED: &str = "client_saturated";

/// Turns events into what can be looked at.
#[derive(Debug)]
pub(super) struct Observer {
    metrics: Arc<Metrics>,
    cells: HashMap<Cell, CellMetrics>,
    sweeps: HashMap<Arc<str>, SweepMetrics>,
    ladders: HashMap<Ladder, LadderMetrics>,
    /// The first failure of every level that is running, for its line in the log.
    first_failures: HashMap<Arc<Cell>, Failure>,
}

impl Observer {
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Lays out the series of a configuration; what it no longer names is forgotten.
    pub(super) fn adopt(&mut self, config: &Config) {
        let mut layout = Layout::of(config, &DELAY_BOUNDS);
        layout.findings = vec![Arc::from(CLIENT_SATURATED)];
        self.metrics.apply(&layout);
        self.cells.clear();
        self.sweeps.clear();
        self.ladders.clear();
        for sweep in &config.sweeps {
            self.sweeps.insert(sweep.name.clone(), self.metrics.sweep(&sweep.name));
            for cell in sweep.cells() {
                let ladder = Ladder::from(&cell);
                self.ladders.entry(ladder.clone()).or_insert_with(|| self.metrics.ladder(&ladder));
                let metrics = self.metrics.cell(&cell, sweep.objectives);
                self.cells.insert(cell, metrics);
            }
        }
    }

    /// A sweep started; `delay` after its time when the schedule asked for it.
    pub(super) fn started(&mut self, sweep: &Arc<str>, at: DateTime<Utc>, delay: Option<Duration>) {
        if let Some(metrics) = self.sweeps.get(sweep) {
            metrics.started(at, delay);
        }
        tracing::info!(%sweep, delay = ?delay.unwrap_or_default(), "sweep started");
    }

    /// A sweep ended.
    pub(super) fn ended(&mut self, sweep: &Arc<str>, at: DateTime<Utc>, duration: Duration, result: SweepResult) {
        if let Some(metrics) = self.sweeps.get(sweep) {
            metrics.ended(at, duration, result);
        }
        tracing::info!(%sweep, %result, ?duration, "sweep ended");
    }

    /// A due start did not happen.
    pub(super) fn skipped(&mut self, sweep: &Arc<str>, reason: SkipReason) {
        if let Some(metrics) = self.sweeps.get(sweep) {
            metrics.skipped(reason);
        }
        tracing::info!(%sweep, %reason, "sweep skipped");
    }

    /// When each sweep starts next, and the span to the start after that.
    pub(super) fn scheduled(&mut self, upcoming: &[(Arc<str>, DateTime<Utc>, Option<Duration>)]) {
        for (sweep, next, interval) in upcoming {
            if let Some(metrics) = self.sweeps.get(sweep) {
                metrics.scheduled(Some(*next), *interval);
            }
        }
    }

    /// Something happened in a running sweep.
    pub(super) fn observe(&mut self, event: Event) {
        match event {
            Event::LevelStarted { cell, requests } => {
                self.first_failures.remove(&cell);
                tracing::debug!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
                    prompt_tokens = cell.prompt_tokens, concurrency = cell.concurrency, requests, "level started");
            }
            Event::Probed { cell, role, measurement, trace_id } => {
                if let Some(metrics) = self.cells.get(&*cell) {
                    match role {
                        Role::Measured => metrics.observe(&measurement),
                        Role::WarmUp | Role::Filler => metrics.observe_excluded(&measurement),
                    }
                }
                if let Some(failure) = measurement.outcome.failure() {
                    tracing::debug!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
                        prompt_tokens = cell.prompt_tokens, concurrency = cell.concurrency, ?role,
                        class = %failure.class, subclass = failure.subclass.as_deref().unwrap_or_default(),
                        error = failure.message, %trace_id, "probe failed");
                    if role == Role::Measured {
                        self.first_failures.entry(cell).or_insert_with(|| failure.clone());
                    }
                }
            }
            Event::LevelEnded { cell, summary, delays } => {
                if let Some(metrics) = self.cells.get(&*cell) {
                    metrics.level(&summary);
                }
                self.metrics.observe_client_delays(&delays);
                log_level(&cell, &summary, self.first_failures.remove(&cell).as_ref());
            }
            Event::LevelNotRun { cell, cause } => self.not_run(&cell, cause),
            Event::LadderEnded { report } => self.concluded(&report),
        }
    }

    fn not_run(&mut self, cell: &Cell, cause: Cause) {
        tracing::info!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
            prompt_tokens = cell.prompt_tokens, concurrency = cell.concurrency, reason = %cause, "level not run");
        let skip = match cause {
            Cause::Fatal(..) => LevelSkip::Fatal,
            Cause::FailureRatio { .. } => LevelSkip::FailureRatio,
            Cause::AfterKnee(_) => LevelSkip::AfterKnee,
            Cause::Stopped => return,
        };
        if let Some(metrics) = self.ladders.get(&Ladder::from(cell)) {
            metrics.levels_skipped(skip, 1);
        }
        // What an earlier run said of a level that could not be run now no longer holds.
        if let Some(metrics) = self.cells.get(cell) {
            metrics.forget_level();
        }
    }

    fn concluded(&mut self, report: &LadderReport) {
        let ladder = Ladder {
            sweep_model: SweepModel {
                sweep: report.sweep.clone(),
                target: report.target.clone(),
                model: report.model.clone(),
            },
            prompt_tokens: report.prompt_tokens,
        };
        let Some(metrics) = self.ladders.get(&ladder) else { return };
        if report.levels.iter().any(|level| level.incomplete) || report.levels.is_empty() {
            return;
        }
        metrics.concluded(report.knee, report.safe_concurrency);
        let saturated = report.levels.iter().any(|level| level.client_saturated == Some(true));
        metrics.found(|finding| finding == CLIENT_SATURATED && saturated);
    }
}

/// One line a level: an error's words are shown once, not once a probe.
fn log_level(cell: &Cell, summary: &LevelSummary, first_failure: Option<&Failure>) {
    let millis = |seconds: Option<f64>| seconds.map_or_else(|| "unknown".into(), |s| format!("{:.1}ms", s * 1e3));
    let ttft = millis(summary.ttft_seconds.map(|ttft| ttft.p50));
    let tpot = millis(summary.tpot_seconds.map(|tpot| tpot.p50));
    let failures: Vec<String> =
        summary.failures.iter().map(|(class, count)| format!("{class}:{count}")).collect();
    let failures = failures.join(",");
    if summary.client_saturated == Some(true) {
        tracing::warn!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
            prompt_tokens = cell.prompt_tokens, concurrency = cell.concurrency,
            "this machine was too busy to measure this level: its latencies are too long");
    }
    if summary.failures.is_empty() {
        tracing::info!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
            prompt_tokens = cell.prompt_tokens, concurrency = cell.concurrency, ok = summary.ok,
            ttft_p50 = ttft, tpot_p50 = tpot, "level ended");
    } else {
        tracing::warn!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
            prompt_tokens = cell.prompt_tokens, concurrency = cell.concurrency, ok = summary.ok,
            failures, ttft_p50 = ttft, tpot_p50 = tpot, error = first_failure.map_or("", |failure| &failure.message),
            "level ended with failures");
    }
}
