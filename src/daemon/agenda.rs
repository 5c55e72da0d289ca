//! When each sweep is due. Pure: the wall clock is an argument, and may jump.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use crate::{config::Sweep, election::Starts, schedule::Schedule};

/// How far the clocks of replicas may differ.
const AHEAD_MAX: TimeDelta = TimeDelta::hours(1);

/// The next start of every sweep.
#[derive(Debug)]
pub struct Agenda(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    sweep: Arc<Sweep>,
    /// The schedule's own time.
    base: DateTime<Utc>,
    /// With jitter added: when it starts.
    due: DateTime<Utc>,
}

/// A sweep whose time has come.
#[derive(Debug, Clone)]
pub struct Due {
    /// Which.
    pub sweep: Arc<Sweep>,
    /// The schedule's own time, without jitter: the same for every replica.
    pub base: DateTime<Utc>,
    /// When it should have started.
    pub due: DateTime<Utc>,
    /// Further occurrences that passed by since, and are made up for by this one.
    pub passed_over: u64,
}

impl Agenda {
    /// All sweeps, from `now` on; those with `run_on_start` are due at once when `starting`.
    #[must_use]
    pub fn new(sweeps: &[Arc<Sweep>], now: DateTime<Utc>, starting: bool) -> Self {
        let entries = sweeps.iter().filter_map(|sweep| {
            let mut entry = Entry::after(sweep.clone(), now)?;
            if starting && sweep.run_on_start {
                entry.base = now;
                entry.due = now;
            }
            Some(entry)
        });
        Self(entries.collect())
    }

    /// Goes over to a new set of sweeps. One whose schedule did not change keeps its next start: a reload neither
    /// skips nor doubles it.
    pub fn adopt(&mut self, sweeps: &[Arc<Sweep>], now: DateTime<Utc>) {
        let before = std::mem::replace(self, Self::new(sweeps, now, false));
        for entry in &mut self.0 {
            let same = |old: &&Entry| {
                old.sweep.name == entry.sweep.name && old.sweep.schedule == entry.sweep.schedule
            };
            if let Some(old) = before.0.iter().find(same) {
                entry.base = old.base;
                entry.due = old.due;
            }
        }
    }

    /// Takes what is due at `now`. Occurrences missed while the machine slept or the clock jumped ahead are made
    /// up for by one start, not by many.
    pub fn take_due(&mut self, now: DateTime<Utc>) -> Vec<Due> {
        let mut taken = Vec::new();
        for entry in &mut self.0 {
            let Some(fresh) = Entry::after(entry.sweep.clone(), now) else { continue };
            if entry.due <= now {
                let passed_over = entry.passed_over(now);
                taken.push(Due { sweep: entry.sweep.clone(), base: entry.base, due: entry.due, passed_over });
                *entry = fresh;
            } else if fresh.base < entry.base {
                // The clock was set back: what was next is no longer.
                *entry = fresh;
            }
        }
        taken
    }

    /// Passes over what another replica has dealt with already, by a clock that is ahead of ours. A time so far ahead that
    /// it can only be a mistake is not followed.
    pub fn pass_over(&mut self, starts: &Starts, now: DateTime<Utc>) {
        for entry in &mut self.0 {
            let Some(dealt_with) = starts.get(&entry.sweep.name) else { continue };
            if entry.base > *dealt_with {
                continue;
            }
            if *dealt_with - now > AHEAD_MAX {
                tracing::warn!(sweep = %entry.sweep.name, start = %dealt_with,
                    "another replica ran a start that lies hours ahead: one of the clocks is wrong");
                continue;
            }
            if let Some(next) = Entry::after(entry.sweep.clone(), *dealt_with) {
                *entry = next;
            }
        }
    }

    /// How long from `now` until the next start.
    #[must_use]
    pub fn wait(&self, now: DateTime<Utc>) -> Option<std::time::Duration> {
        let next = self.0.iter().map(|entry| entry.due).min()?;
        Some((next - now).to_std().unwrap_or_default())
    }

    /// Every sweep with its next start and the span to the one after it.
    pub fn upcoming(&self) -> impl Iterator<Item = (&Arc<Sweep>, DateTime<Utc>, Option<TimeDelta>)> + '_ {
        self.0.iter().map(|entry| {
            let after = entry.sweep.schedule.next_after(entry.base);
            (&entry.sweep, entry.due, after.map(|after| after - entry.base))
        })
    }
}

/// Occurrences that are counted one by one when a clock jumps ahead.
const PASSED_OVER_MAX: usize = 100_000;

impl Entry {
    /// How many occurrences after this one were due by `now`, too.
    fn passed_over(&self, now: DateTime<Utc>) -> u64 {
        let later = self.sweep.schedule.starts_after(self.base);
        later.take_while(|base| *base <= now).take(PASSED_OVER_MAX).count() as u64
    }

    fn after(sweep: Arc<Sweep>, now: DateTime<Utc>) -> Option<Self> {
        let schedule: &Schedule = &sweep.schedule;
        let base = schedule.next_after(now)?;
        let due = schedule.jittered(&sweep.name, base);
        Some(Self { sweep, base, due })
    }
}
