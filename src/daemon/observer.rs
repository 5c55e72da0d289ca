//! What the daemon makes of events: metrics, log lines, the status page's snapshot.
//!
//! Runs inside the event loop, so nothing here waits. Cells that a reload removed are ignored: a sweep that
//! still runs on the old configuration must not bring their series back.

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, SecondsFormat, Utc};
use tokio::sync::watch;

use super::display::Display;
use crate::{
    analysis::{Finding, LevelSummary},
    archive::{Recalled, RecalledCell, RecalledLadder, Standing},
    budget::{Cap, Exhausted, Price, Remaining},
    cell::{Cell, Load},
    config::{Config, Sweep},
    measurement::{Failure, Measurement},
    metrics::{
        BudgetScope, CellMetrics, Endpoint, Ladder, LadderMetrics, Layout, LevelSkip, Metrics, SkipReason,
        SweepMetrics, SweepResult,
    },
    server::{BudgetStatus, CellStatus, LadderStatus, LevelName, Progress, Status},
    sweep::{Cause, DELAY_BOUNDS, Event, LadderReport, Role},
};

/// Turns events into what can be looked at.
#[derive(Debug)]
pub(super) struct Observer {
    metrics: Arc<Metrics>,
    cells: HashMap<Cell, CellMetrics>,
    sweeps: HashMap<Arc<str>, SweepMetrics>,
    ladders: HashMap<Ladder, LadderMetrics>,
    display: Display,
    /// The first failure of every level that is running, for its line in the log.
    first_failures: HashMap<Arc<Cell>, Failure>,
    prices: HashMap<Endpoint, Price>,
    currency: Arc<str>,
    /// Caps whose end was told, and the period it was told for.
    told: HashMap<Cap, DateTime<Utc>>,
}

impl Observer {
    /// Everything laid out for a configuration; nothing seen yet.
    pub(super) fn new(metrics: Arc<Metrics>, config: &Config, now: DateTime<Utc>) -> Self {
        let mut observer = Self {
            metrics,
            cells: HashMap::new(),
            sweeps: HashMap::new(),
            ladders: HashMap::new(),
            display: Display::new(now),
            first_failures: HashMap::new(),
            prices: HashMap::new(),
            currency: Arc::default(),
            told: HashMap::new(),
        };
        observer.adopt(config);
        observer
    }

    /// The metrics, for whoever counts by itself.
    pub(super) fn shared_metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Whether this replica probes, where there are several.
    pub(super) fn leads(&self, leads: bool) {
        self.metrics.set_leader(leads);
        self.display.show(|status| status.leader = Some(leads));
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What the page shows, as it is now and will be.
    pub(super) fn status(&self) -> watch::Receiver<Arc<Status>> {
        self.display.status()
    }

    /// Lays out the series of a configuration; what it no longer names is forgotten.
    pub(super) fn adopt(&mut self, config: &Config) {
        let mut layout = Layout::of(config, &DELAY_BOUNDS);
        layout.findings = Finding::ALL.iter().map(|finding| Arc::from(finding.as_str())).collect();
        self.metrics.apply(&layout);
        self.cells.clear();
        self.sweeps.clear();
        self.ladders.clear();
        self.prices.clear();
        self.currency = config.budget.caps.currency.clone();
        let configured = config.targets.iter().flat_map(|target| {
            let of = |model: &Arc<str>| Endpoint { target: target.name.clone(), model: model.clone() };
            target.prices.iter().map(move |(model, price)| (of(model), *price))
        });
        self.prices.extend(configured);
        for sweep in &config.sweeps {
            self.sweeps.insert(sweep.name.clone(), self.metrics.sweep(&sweep.name));
            for cell in sweep.cells() {
                let ladder = Ladder::from(&cell);
                let metrics =
                    self.ladders.entry(ladder.clone()).or_insert_with(|| self.metrics.ladder(&ladder));
                metrics.none_found_yet();
                let metrics = self.metrics.cell(&cell, sweep.objectives);
                self.cells.insert(cell, metrics);
            }
        }
        self.display.adopt(config);
    }

    /// Shows what an earlier program measured, with its times: never as something observed now.
    pub(super) fn recall(&mut self, recalled: &Recalled) {
        for RecalledCell { cell, summary, ended_at } in &recalled.cells {
            if let Some(metrics) = self.cells.get(cell) {
                metrics.level(summary);
            }
            self.display.cell(cell, CellStatus::measured(cell, summary, *ended_at));
        }
        for RecalledLadder { cell, row } in &recalled.ladders {
            self.display.recall_ladder(cell, row);
            if let Some(metrics) = self.ladders.get(&Ladder::from(cell)) {
                metrics.concluded(row.knee(), row.safe_concurrency);
                metrics.safe_at(row.safe_rate());
                metrics.found(|finding| row.findings().any(|found| found == finding));
            }
        }
        for sweep in &recalled.sweeps {
            if let Some(metrics) = self.sweeps.get(&sweep.sweep) {
                metrics.recalled(sweep);
            }
            let result = sweep.last_ended.as_ref().and_then(|(.., result)| {
                SweepResult::ALL.iter().copied().find(|each| each.as_str() == result)
            });
            self.display.sweep(&sweep.sweep, |status| {
                status.last_start = Some(sweep.last_start);
                status.last_end = sweep.last_ended.as_ref().map(|(_, ended_at, _)| *ended_at);
                status.last_result = result;
            });
        }
    }

    /// A sweep started; the schedule asked for it at `due`, unless it was a person.
    pub(super) fn started(&mut self, sweep: &Sweep, at: DateTime<Utc>, due: Option<DateTime<Utc>>) {
        let delay = due.map(|due| (at - due).to_std().unwrap_or_default());
        let name = &sweep.name;
        if let Some(metrics) = self.sweeps.get(name) {
            metrics.started(at, delay);
        }
        let levels = u32::try_from(sweep.cells().count()).unwrap_or(u32::MAX);
        let requests = levels.saturating_mul(sweep.level.requests);
        self.display.sweep(name, |status| {
            status.running = true;
            status.last_start = Some(at);
            status.progress = Some(Progress { levels, requests, ..Progress::default() });
        });
        self.display.changed();
        let due = due.map(|due| due.to_rfc3339_opts(SecondsFormat::Millis, true));
        tracing::info!(sweep = %name, due, delay = ?delay.unwrap_or_default(), "sweep started");
    }

    /// A sweep ended.
    pub(super) fn ended(
        &mut self,
        sweep: &Arc<str>,
        at: DateTime<Utc>,
        duration: Duration,
        result: SweepResult,
    ) {
        if let Some(metrics) = self.sweeps.get(sweep) {
            metrics.ended(at, duration, result);
        }
        self.display.sweep(sweep, |status| {
            status.running = false;
            status.last_end = Some(at);
            status.last_result = Some(result);
            status.progress = None;
        });
        self.display.changed();
        tracing::info!(%sweep, %result, ?duration, "sweep ended");
    }

    /// A due start did not happen.
    pub(super) fn skipped(&mut self, sweep: &Arc<str>, due: DateTime<Utc>, reason: SkipReason) {
        if let Some(metrics) = self.sweeps.get(sweep) {
            metrics.skipped(reason);
        }
        tracing::info!(%sweep, due = due.to_rfc3339_opts(SecondsFormat::Millis, true), %reason, "sweep skipped");
    }

    /// Due starts passed by unseen: the machine slept or was too busy, or the clock was set ahead.
    pub(super) fn passed_over(&mut self, sweep: &Arc<str>, starts: u64) {
        if starts == 0 {
            return;
        }
        if let Some(metrics) = self.sweeps.get(sweep) {
            metrics.skipped_many(SkipReason::Late, starts);
        }
        tracing::warn!(%sweep, starts, "due starts passed by: the clock was set ahead, or this machine slept or was too busy");
    }

    /// A sweep was paused or resumed by hand.
    pub(super) fn paused(&mut self, sweep: &Arc<str>, paused: bool) {
        self.display.sweep(sweep, |status| status.paused = paused);
        self.display.changed();
        tracing::info!(%sweep, paused, "sweep paused or resumed");
    }

    /// What every cap still allows.
    pub(super) fn budget(&mut self, remaining: &[Remaining]) {
        for Remaining { cap, limit, left } in remaining {
            self.metrics.set_budget(&BudgetScope::from(cap), *limit, *left);
        }
        let shown = remaining.iter().map(|Remaining { cap, limit, left }| BudgetStatus {
            scope: cap.scope.to_string(),
            unit: cap.unit.as_str(),
            period: cap.period.as_str(),
            limit: *limit,
            remaining: *left,
        });
        self.display.show(|status| status.budgets = shown.collect());
    }

    /// A cap is reached: told once a period, however much is skipped for it.
    pub(super) fn exhausted(&mut self, exhausted: &Exhausted, now: DateTime<Utc>) {
        let period = exhausted.cap.period.start(now);
        if self.told.insert(exhausted.cap.clone(), period) != Some(period) {
            tracing::warn!(cap = %exhausted.cap, "a budget is spent: what would pass it is skipped until the next period");
        }
    }

    /// Counts what a probe cost, where a price is known and the server told its tokens.
    /// A probe that somebody asked for ended.
    pub(super) fn demanded(&self, cell: &Cell, measurement: &Measurement) {
        self.charge(cell, measurement);
        tracing::info!(target = %cell.target, model = %cell.model, ok = measurement.is_ok(), "probed on demand");
    }

    fn charge(&self, cell: &Cell, measurement: &Measurement) {
        let endpoint = Endpoint::from(cell);
        let Some(price) = self.prices.get(&endpoint) else { return };
        let tokens = &measurement.tokens;
        if tokens.prompt.is_some() || tokens.output.is_some() {
            let cost = price.of(tokens.prompt.unwrap_or(0), tokens.output.unwrap_or(0));
            self.metrics.spend(endpoint, self.currency.clone(), cost.units());
        }
    }

    /// When each sweep starts next, and the span to the start after that.
    pub(super) fn scheduled(&mut self, upcoming: &[(Arc<str>, DateTime<Utc>, Option<Duration>)]) {
        for (sweep, next, interval) in upcoming {
            if let Some(metrics) = self.sweeps.get(sweep) {
                metrics.scheduled(Some(*next), *interval);
            }
            self.display.sweep(sweep, |status| status.next_start = Some(*next));
        }
    }

    /// How the archive is doing; nothing without one.
    pub(super) fn archived(&self, standing: Option<Standing>) {
        if let Some(standing) = standing {
            self.metrics.set_archive(&standing);
        }
    }

    /// Something happened in a running sweep.
    pub(super) fn observe(&mut self, event: Event) {
        match event {
            Event::LevelStarted { cell, requests } => {
                self.first_failures.remove(&cell);
                self.display.progress(&cell.sweep, |progress| progress.level = Some(LevelName::of(&cell)));
                tracing::debug!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
                    prompt_tokens = cell.prompt_tokens, load = %cell.load(), requests, "level started");
            }
            Event::Probed { cell, role, measurement, trace_id } => {
                self.charge(&cell, &measurement);
                if role == Role::Measured {
                    self.display.progress(&cell.sweep, Progress::request_ended);
                }
                if let Some(metrics) = self.cells.get(&*cell) {
                    if role == Role::Cold {
                        metrics.observe_cold(&measurement);
                    }
                    match role {
                        Role::Measured => metrics.observe(&measurement),
                        Role::Calibration if measurement.is_empty() => {}
                        Role::Cold
                        | Role::WarmUp
                        | Role::Calibration
                        | Role::Filler
                        | Role::Control
                        | Role::OnDemand => {
                            metrics.observe_excluded(&measurement);
                        }
                    }
                }
                if let Some(failure) = measurement.outcome.failure() {
                    tracing::debug!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
                        prompt_tokens = cell.prompt_tokens, load = %cell.load(), ?role,
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
                    metrics.not_sent(summary.offered.map_or(0, |offered| offered.overflow));
                }
                self.metrics.observe_client_delays(&delays);
                self.display.cell(&cell, CellStatus::measured(&cell, &summary, Utc::now()));
                self.display.progress(&cell.sweep, Progress::level_ended);
                log_level(&cell, &summary, self.first_failures.remove(&cell).as_ref());
            }
            Event::LevelNotRun { cell, cause } => self.not_run(&cell, &cause),
            Event::LadderEnded { report } => self.concluded(&report),
            Event::Advanced { .. } => {}
        }
    }

    fn not_run(&mut self, cell: &Cell, cause: &Cause) {
        if let Cause::Budget(exhausted) = cause {
            self.exhausted(exhausted, Utc::now());
        }
        self.display.progress(&cell.sweep, Progress::level_ended);
        tracing::info!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
            prompt_tokens = cell.prompt_tokens, load = %cell.load(), reason = %cause, "level not run");
        let skip = match cause {
            Cause::Fatal(..) | Cause::NotStreaming(_) => LevelSkip::Fatal,
            Cause::FailureRatio { .. } => LevelSkip::FailureRatio,
            Cause::AfterKnee(_) => LevelSkip::AfterKnee,
            Cause::Budget(_) => LevelSkip::Budget,
            Cause::HeldOff(_) => LevelSkip::RetryAfter,
            Cause::Quiet => LevelSkip::Quiet,
            Cause::Paused => LevelSkip::Paused,
            Cause::LighterFails => LevelSkip::LighterFails,
            Cause::Asleep(_) => LevelSkip::Asleep,
            Cause::Stopped => return,
        };
        if let Some(metrics) = self.ladders.get(&Ladder::from(cell)) {
            metrics.levels_skipped(skip, 1);
        }
        // What an earlier run said of a level that could not be run now no longer holds.
        self.display.cell(cell, CellStatus::left_out(cell, cause.to_string()));
        if let Some(metrics) = self.cells.get(cell) {
            metrics.forget_level();
        }
    }

    fn concluded(&mut self, report: &LadderReport) {
        let ladder = Ladder::new(&report.sweep, &report.target, &report.model, report.prompt_tokens);
        let Some(metrics) = self.ladders.get(&ladder) else { return };
        if report.levels.iter().any(|level| level.incomplete) || report.levels.is_empty() {
            return;
        }
        metrics.concluded(report.knee, report.safe_concurrency);
        metrics.safe_at(report.safe_rate);
        metrics.found(|name| report.findings.iter().any(|found| found.finding.as_str() == name));
        self.display.ladder(LadderStatus::of(report, Utc::now()));
        log_ladder(report);
    }
}

/// One line a ladder: what it says about capacity, and what was found.
fn log_ladder(report: &LadderReport) {
    let unknown = |load: Option<Load>| load.map_or("unknown".into(), Load::short);
    let knee = report.knee.rate().map(Load::Rate).or(report.knee.concurrency().map(Load::Concurrency));
    let safe = report.safe_rate.map(Load::Rate).or(report.safe_concurrency.map(Load::Concurrency));
    let findings: Vec<&str> = report.findings.iter().map(|found| found.finding.as_str()).collect();
    tracing::info!(sweep = %report.sweep, target = %report.target, model = %report.model,
        prompt_tokens = report.prompt_tokens, state = report.knee.state(),
        knee = unknown(knee), safe = unknown(safe),
        findings = findings.join(","), "ladder ended");
}

/// One line a level: an error's words are shown once, not once a probe.
fn log_level(cell: &Cell, summary: &LevelSummary, first_failure: Option<&Failure>) {
    let millis =
        |seconds: Option<f64>| seconds.map_or_else(|| "unknown".into(), |s| format!("{:.1}ms", s * 1e3));
    let ttft = millis(summary.ttft_seconds.map(|ttft| ttft.p50));
    let tpot = millis(summary.tpot_seconds.map(|tpot| tpot.p50));
    let failures: Vec<String> =
        summary.failures.iter().map(|(class, count)| format!("{class}:{count}")).collect();
    let failures = failures.join(",");
    if summary.client_saturated == Some(true) {
        tracing::warn!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
            prompt_tokens = cell.prompt_tokens, load = %cell.load(),
            "this machine was too busy to measure this level: its latencies are too long");
    }
    if summary.failures.is_empty() {
        tracing::info!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
            prompt_tokens = cell.prompt_tokens, load = %cell.load(), ok = summary.ok,
            ttft_p50 = ttft, tpot_p50 = tpot, "level ended");
    } else {
        tracing::warn!(sweep = %cell.sweep, target = %cell.target, model = %cell.model,
            prompt_tokens = cell.prompt_tokens, load = %cell.load(), ok = summary.ok,
            failures, ttft_p50 = ttft, tpot_p50 = tpot, error = first_failure.map_or("", |failure| &failure.message),
            "level ended with failures");
    }
}
