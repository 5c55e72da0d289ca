//! The status page's snapshot, kept up to date.
//!
//! Written inside the event loop, so nothing here waits. Whoever looks gets the snapshot as it was when they looked.

use std::{collections::HashSet, sync::Arc};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    archive::{LadderRow, run_plan},
    arrivals::Rate,
    budget::Scope,
    cell::Cell,
    config::{Config, Objectives},
    metrics::Ladder,
    server::{CellStatus, LadderStatus, ObjectiveStatus, Progress, Status, SweepStatus},
    sweep::NotRun,
};

/// What can be looked at.
#[derive(Debug)]
pub(super) struct Display(watch::Sender<Arc<Status>>);

impl Display {
    /// Nothing measured yet.
    pub(super) fn new(now: DateTime<Utc>) -> Self {
        Self(watch::Sender::new(Arc::new(Status::new(now))))
    }

    /// The snapshot, as it is now and will be.
    pub(super) fn status(&self) -> watch::Receiver<Arc<Status>> {
        self.0.subscribe()
    }

    pub(super) fn show(&self, change: impl FnOnce(&mut Status)) {
        self.0.send_modify(|status| change(Arc::make_mut(status)));
    }

    /// Something began or ended: what was drawn before is out of date.
    pub(super) fn changed(&self) {
        self.show(|status| status.revision += 1);
    }

    pub(super) fn sweep(&self, name: &str, change: impl FnOnce(&mut SweepStatus)) {
        self.show(|status| {
            if let Some(sweep) = status.sweeps.iter_mut().find(|sweep| *sweep.name == *name) {
                change(sweep);
            }
        });
    }

    /// A running sweep came further.
    pub(super) fn progress(&self, sweep: &str, change: impl FnOnce(&mut Progress)) {
        self.sweep(sweep, |status| {
            if let Some(progress) = &mut status.progress {
                change(progress);
            }
        });
    }

    /// A level ended, or was left out.
    pub(super) fn cell(&self, cell: &Cell, latest: CellStatus) {
        self.show(|status| {
            if let Some(slot) = status.cells.iter_mut().find(|status| status.is_of(cell)) {
                *slot = latest;
                status.revision += 1;
            }
        });
    }

    /// A ladder ended.
    pub(super) fn ladder(&self, latest: LadderStatus) {
        self.show(|status| {
            match status.ladders.iter_mut().find(|known| known.is_like(&latest)) {
                Some(slot) => *slot = latest,
                None => status.ladders.push(latest),
            }
            status.revision += 1;
        });
    }

    /// What an earlier program knew of a ladder, and which of its levels were left out.
    pub(super) fn recall_ladder(&self, cell: &Cell, row: &LadderRow) {
        let measured = |status: &Status, cell: &Cell| {
            status.cells.iter().any(|known| known.is_of(cell) && known.measured_at.is_some())
        };
        for NotRun { concurrency, rate, reason } in row.not_run() {
            // Of an open loop, only the rate tells levels apart.
            let concurrency = if rate.is_some() { cell.concurrency } else { concurrency };
            let cell = Cell { concurrency, rate, ..cell.clone() };
            if !measured(&self.0.borrow().clone(), &cell) {
                self.cell(&cell, CellStatus::left_out(&cell, reason));
            }
        }
        let Some(ended_at) = DateTime::from_timestamp_millis(row.ended_at) else { return };
        self.ladder(LadderStatus {
            sweep: cell.sweep.clone(),
            target: cell.target.clone(),
            model: cell.model.clone(),
            prompt_tokens: cell.prompt_tokens,
            ended_at,
            state: row.state.clone(),
            knee_concurrency: row.knee_concurrency,
            safe_concurrency: row.safe_concurrency,
            knee_requests_per_second: row.knee().rate().map(Rate::per_second),
            safe_requests_per_second: row.safe_rate().map(Rate::per_second),
            findings: row.found(),
        });
    }

    /// Goes over to a configuration's sweeps and cells; what is known of those that stay is kept.
    pub(super) fn adopt(&self, config: &Config) {
        self.show(|status| adopt(status, config));
    }
}

fn adopt(status: &mut Status, config: &Config) {
    let sweeps = config.sweeps.iter().map(|sweep| {
        let known = status.sweeps.iter().find(|known| known.name == sweep.name).cloned();
        SweepStatus {
            schedule: sweep.schedule.to_string(),
            objectives: objectives(&sweep.objectives),
            ..known.unwrap_or_else(|| SweepStatus::unstarted(sweep.name.clone()))
        }
    });
    let cells = config.cells();
    let ladders: HashSet<Ladder> = cells.iter().map(Ladder::from).collect();
    let cells = cells.into_iter().map(|cell| {
        let known = status.cells.iter().find(|known| known.is_of(&cell)).cloned();
        known.unwrap_or_else(|| CellStatus::unmeasured(&cell))
    });
    (status.sweeps, status.cells) = (sweeps.collect(), cells.collect());
    status.ladders.retain(|LadderStatus { sweep, target, model, prompt_tokens, .. }| {
        ladders.contains(&Ladder::new(sweep, target, model, *prompt_tokens))
    });
    status.configuration = Arc::new(configuration(config));
    status.revision += 1;
}

fn objectives(objectives: &Objectives) -> ObjectiveStatus {
    let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
    ObjectiveStatus {
        ttft_seconds: seconds(objectives.ttft),
        tpot_seconds: seconds(objectives.tpot),
        duration_seconds: seconds(objectives.duration),
        success_ratio: objectives.success_ratio,
    }
}

/// Every cap there is, as the configuration calls it.
fn budget(config: &Config) -> Value {
    let mut caps = serde_json::Map::new();
    for (cap, limit) in config.budget.caps.iter() {
        let name = format!("{}_per_{}", cap.unit.as_str(), cap.period.as_str());
        let name = if cap.scope == Scope::All { name } else { format!("{}.{name}", cap.scope) };
        caps.insert(name, limit.into());
    }
    caps.insert("max_in_flight".to_owned(), config.budget.max_in_flight.into());
    Value::Object(caps)
}

/// What is configured, without secrets.
fn configuration(config: &Config) -> Value {
    let redactor = config.redactor();
    let plans = config.sweeps.iter().map(|sweep| run_plan(sweep, &redactor));
    json!({
        "server": {
            "listen_address": config.server.listen_address.to_string(),
            "shutdown_grace_seconds": config.server.shutdown_grace.as_secs_f64(),
        },
        "archive": {
            "path": config.archive.path.as_ref().map(|path| path.display().to_string()),
            "measurements_days": config.archive.measurements.as_secs() / 86_400,
            "runs_days": config.archive.runs.as_secs() / 86_400,
            "max_size_bytes": config.archive.size_max,
        },
        "budget": budget(config),
        "sweeps": plans.collect::<Vec<_>>(),
    })
}
