//! What a sweep and its ladders write to. Knows nothing of schedules: instants are arguments.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

use super::{
    Metrics,
    labels::{Ladder, LadderState, LevelSkip, SkipReason, SweepResult},
    value::{Counter, Gauge},
};
use crate::{analysis::Knee, archive::RecalledSweep, arrivals::Rate};

/// The series of one sweep.
#[derive(Debug)]
pub struct SweepMetrics {
    runs: Vec<(SweepResult, Counter)>,
    skips: Vec<(SkipReason, Counter)>,
    last_start: Gauge,
    last_end: Gauge,
    last_success: Gauge,
    next_start: Gauge,
    duration: Gauge,
    interval: Gauge,
    start_delay: Gauge,
}

impl SweepMetrics {
    pub(super) fn new(metrics: &Metrics, name: &Arc<str>) -> Self {
        let runs = SweepResult::ALL.iter().map(|result| {
            let key = (name.clone(), *result);
            (*result, metrics.sweep_runs.child(&key))
        });
        let skips = SkipReason::ALL.iter().map(|reason| {
            let key = (name.clone(), *reason);
            (*reason, metrics.sweep_skips.child(&key))
        });
        Self {
            runs: runs.collect(),
            skips: skips.collect(),
            last_start: metrics.sweep_last_start.child(name),
            last_end: metrics.sweep_last_end.child(name),
            last_success: metrics.sweep_last_success.child(name),
            next_start: metrics.sweep_next_start.child(name),
            duration: metrics.sweep_duration.child(name),
            interval: metrics.sweep_interval.child(name),
            start_delay: metrics.sweep_start_delay.child(name),
        }
    }

    /// A run started at `at`, `delay` after it was due; `None` when it was not the schedule that asked for it.
    pub fn started(&self, at: DateTime<Utc>, delay: Option<Duration>) {
        self.last_start.set(Some(unix_seconds(at)));
        if let Some(delay) = delay {
            self.start_delay.set(Some(delay.as_secs_f64()));
        }
    }

    /// A run that took `duration` ended at `at`.
    pub fn ended(&self, at: DateTime<Utc>, duration: Duration, result: SweepResult) {
        self.last_end.set(Some(unix_seconds(at)));
        self.duration.set(Some(duration.as_secs_f64()));
        if result == SweepResult::Completed {
            self.last_success.set(Some(unix_seconds(at)));
        }
        for (_, counter) in self.runs.iter().filter(|(each, _)| *each == result) {
            counter.add(1);
        }
    }

    /// What an earlier program saw, with its times: shown, not counted.
    pub fn recalled(&self, recalled: &RecalledSweep) {
        self.last_start.set(Some(unix_seconds(recalled.last_start)));
        self.last_success.set(recalled.last_success.map(unix_seconds));
        if let Some((started_at, ended_at, _)) = recalled.last_ended {
            self.last_end.set(Some(unix_seconds(ended_at)));
            self.duration.set((ended_at - started_at).to_std().ok().map(|duration| duration.as_secs_f64()));
        }
    }

    /// A due start did not happen.
    pub fn skipped(&self, reason: SkipReason) {
        self.skipped_many(reason, 1);
    }

    /// Several did not, for one reason.
    pub fn skipped_many(&self, reason: SkipReason, starts: u64) {
        for (_, counter) in self.skips.iter().filter(|(each, _)| *each == reason) {
            counter.add(starts);
        }
    }

    /// The next due start, and how long after it the one after that is due; `None` when there is none.
    pub fn scheduled(&self, next_start: Option<DateTime<Utc>>, interval: Option<Duration>) {
        self.next_start.set(next_start.map(unix_seconds));
        self.interval.set(interval.map(|interval| interval.as_secs_f64()));
    }
}

/// The series of one ladder.
#[derive(Debug)]
pub struct LadderMetrics {
    knee: Gauge,
    safe: Gauge,
    knee_rate: Gauge,
    safe_rate: Gauge,
    states: Vec<(LadderState, Gauge)>,
    skips: Vec<(LevelSkip, Counter)>,
    findings: Vec<(Arc<str>, Gauge)>,
}

impl LadderMetrics {
    pub(super) fn new(metrics: &Metrics, ladder: &Ladder, findings: &[Arc<str>]) -> Self {
        let states = LadderState::ALL.iter().map(|state| {
            let key = (ladder.clone(), *state);
            (*state, metrics.ladder_state.child(&key))
        });
        let skips = LevelSkip::ALL.iter().map(|reason| {
            let key = (ladder.clone(), *reason);
            (*reason, metrics.level_skips.child(&key))
        });
        let findings = findings.iter().map(|finding| {
            let key = (ladder.clone(), finding.clone());
            (finding.clone(), metrics.finding.child(&key))
        });
        Self {
            knee: metrics.ladder_knee.child(ladder),
            safe: metrics.ladder_safe.child(ladder),
            knee_rate: metrics.ladder_knee_rate.child(ladder),
            safe_rate: metrics.ladder_safe_rate.child(ladder),
            states: states.collect(),
            skips: skips.collect(),
            findings: findings.collect(),
        }
    }

    /// What the ladder that just ended says; a concurrency that is unknown now is no longer shown.
    pub fn concluded(&self, knee: Knee, safe: Option<u32>) {
        self.knee.set(knee.concurrency().map(f64::from));
        self.safe.set(safe.map(f64::from));
        self.knee_rate.set(knee.rate().map(f64::from));
        let state = LadderState::from(knee);
        for (each, gauge) in &self.states {
            gauge.set(Some(f64::from(u8::from(*each == state))));
        }
    }

    /// The rate that is safe by the ladder of rates that just ended.
    pub fn safe_at(&self, rate: Option<Rate>) {
        self.safe_rate.set(rate.map(f64::from));
    }

    /// The findings that hold now, of those the layout names; all others do not.
    pub fn found(&self, holds: impl Fn(&str) -> bool) {
        for (finding, gauge) in &self.findings {
            gauge.set(Some(f64::from(u8::from(holds(finding)))));
        }
    }

    /// Shows every finding as not made that was never decided, so that the first one made is seen as a change.
    pub fn none_found_yet(&self) {
        for (_, gauge) in self.findings.iter().filter(|(_, gauge)| gauge.value().is_none()) {
            gauge.set(Some(0.0));
        }
    }

    /// Levels that were not run.
    pub fn levels_skipped(&self, reason: LevelSkip, levels: u32) {
        for (_, counter) in self.skips.iter().filter(|(each, _)| *each == reason) {
            counter.add(u64::from(levels));
        }
    }
}

pub(super) fn unix_seconds(at: DateTime<Utc>) -> f64 {
    at.timestamp_millis() as f64 / 1e3
}
