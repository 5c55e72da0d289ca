//! What a configuration will do, before it does it: the answer of `--config.check`.
//!
//! Pure: the instant from which starts are counted is an argument.

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use super::{Budget, Config, SeriesCount, Sweep};
use crate::{
    arrivals::{Arrivals, Rate},
    budget::{Cap, Period, Scope, Unit},
    cell::{self, Cell},
    prompt::calibration,
};

#[cfg(test)]
mod tests;

/// Starts, load and series of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One per sweep, in file order.
    pub sweeps: Vec<SweepPlan>,
    /// Series at `/metrics`.
    pub series: SeriesCount,
    /// The limit.
    pub max_series: usize,
    /// What may be spent.
    pub budget: Budget,
    /// What is legal but unwise: of the file, and of the plan.
    pub warnings: Vec<String>,
}

/// What one sweep will do.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPlan {
    /// Name of the sweep.
    pub name: Arc<str>,
    /// When, in words.
    pub schedule: String,
    /// The next starts, jitter aside, in the sweep's zone.
    pub next_starts: Vec<DateTime<Tz>>,
    /// Targets and their models.
    pub targets: Vec<(Arc<str>, Vec<Arc<str>>)>,
    /// Prompt lengths.
    pub prompt_tokens: Vec<u32>,
    /// Concurrency levels; with rates, the most requests in flight.
    pub concurrency: Vec<u32>,
    /// Rates, and how arrivals are spaced.
    pub rates: Vec<Rate>,
    /// How arrivals are spaced, where there are rates.
    pub arrivals: Arrivals,
    /// Load of one run, nothing aborted.
    pub run: Load,
    /// What it costs, once, to learn how the models count prompts.
    pub calibration: Load,
    /// Runs per day, averaged over the next four weeks.
    pub runs_per_day: f64,
    /// Requests one after another in a run: at each level, requests shared among its workers.
    pub rounds: u64,
    /// How long the arrivals of a run's rate levels take, whatever the answers do.
    pub scheduled: Duration,
    /// The shortest time between starts.
    pub interval: Option<Duration>,
}

/// Work sent to endpoints, warm-up included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens, as wanted.
    pub prompt_tokens: u64,
    /// Output tokens at most.
    pub output_tokens: u64,
}

/// How many starts are shown.
const STARTS: usize = 3;
/// What runs per day are averaged over.
const DAYS: i64 = 28;
/// Enough starts to know the average.
const STARTS_COUNTED_MAX: usize = 20_000;
/// Faster than any service: a run that takes longer than its interval even so cannot fit.
const FASTEST_PREFILL_PER_TOKEN: Duration = Duration::from_micros(5);
const FASTEST_DECODE_PER_TOKEN: Duration = Duration::from_micros(500);

impl Plan {
    /// The plan from an instant on.
    #[must_use]
    pub fn new(config: &Config, now: DateTime<Utc>) -> Self {
        let sweeps: Vec<_> = config.sweeps.iter().map(|sweep| SweepPlan::new(sweep, now)).collect();
        let series =
            SeriesCount::of(&config.histograms, &config.budget, config.sweeps.iter().map(AsRef::as_ref));
        let hasty = config.sweeps.iter().zip(&sweeps).filter_map(|(sweep, plan)| too_long(sweep, plan));
        let over = over_budget(config, &sweeps);
        let warnings = config.warnings.iter().cloned().chain(hasty).chain(over).collect();
        let budget = config.budget.clone();
        Self { sweeps, series, max_series: config.histograms.max_series, budget, warnings }
    }
}

impl SweepPlan {
    fn new(sweep: &Sweep, now: DateTime<Utc>) -> Self {
        let zone = sweep.schedule.timezone();
        let mut run = Load::default();
        let mut rounds = 0_u64;
        let mut scheduled = Duration::ZERO;
        for cell in sweep.cells() {
            let requests = requests_of(sweep, &cell);
            run.requests += requests;
            run.prompt_tokens += requests * u64::from(cell.prompt_tokens);
            run.output_tokens += requests * u64::from(sweep.level.output_tokens_max());
            rounds += rounds_of(sweep, &cell);
            scheduled = scheduled.saturating_add(schedule_of(sweep, &cell));
        }
        let ladders = (sweep.cells().count() / sweep.levels().max(1)) as u64;
        let lengths: u64 = sweep.prompt_tokens.iter().map(|tokens| u64::from(*tokens)).sum();
        for (cell, output_tokens) in extra_levels(sweep) {
            let requests = requests_of(sweep, &cell) * ladders;
            run.requests += requests;
            run.prompt_tokens += requests * lengths / sweep.prompt_tokens.len().max(1) as u64;
            run.output_tokens += requests * u64::from(output_tokens);
            rounds += rounds_of(sweep, &cell) * ladders;
        }
        Self {
            name: Arc::clone(&sweep.name),
            schedule: sweep.schedule.to_string(),
            next_starts: sweep
                .schedule
                .starts_after(now)
                .take(STARTS)
                .map(|start| start.with_timezone(&zone))
                .collect(),
            targets: sweep
                .targets
                .iter()
                .map(|(target, models)| (Arc::clone(&target.name), models.clone()))
                .collect(),
            prompt_tokens: sweep.prompt_tokens.clone(),
            concurrency: sweep.concurrency.clone(),
            rates: sweep.rates.clone(),
            arrivals: sweep.level.arrivals,
            run,
            calibration: calibration(sweep),
            runs_per_day: runs_per_day(sweep, now),
            rounds,
            scheduled,
            interval: sweep.schedule.shortest_interval(),
        }
    }

    /// The mean duration of a request up to which a run ends before the next is due.
    #[must_use]
    pub fn request_duration_max(&self) -> Option<Duration> {
        let rounds = u32::try_from(self.rounds).ok().filter(|rounds| *rounds > 0)?;
        self.interval.map(|interval| interval.saturating_sub(self.scheduled) / rounds)
    }
}

/// Two short prompts a model.
fn calibration(sweep: &Sweep) -> Load {
    if !sweep.level.calibrate || !sweep.level.prompts.have_wanted_length() {
        return Load::default();
    }
    let models = sweep.targets.iter().map(|(_, models)| models.len() as u64).sum::<u64>();
    let longest = sweep.prompt_tokens.iter().copied().max().unwrap_or(0);
    let lengths = calibration::lengths(longest, sweep.level.prompt_language);
    let requests = models * lengths.len() as u64;
    Load {
        requests,
        prompt_tokens: models * lengths.into_iter().map(u64::from).sum::<u64>(),
        output_tokens: requests * u64::from(calibration::MAX_TOKENS),
    }
}

/// Levels a ladder may run beside those of its grid, with the output limit of each.
fn extra_levels(sweep: &Sweep) -> impl Iterator<Item = (Cell, u32)> + '_ {
    let extra = sweep.extra_levels().into_iter().zip(std::iter::repeat(sweep.cells().next()));
    extra.filter_map(|((concurrency, output_tokens), cell)| {
        Some((Cell { concurrency, ..cell? }, output_tokens))
    })
}

/// Requests of a level that go one after another: those of one worker, warm-up and measured; at a rate, the one that
/// goes ahead and the last one.
fn rounds_of(sweep: &Sweep, cell: &Cell) -> u64 {
    let cell::Load::Concurrency(concurrency) = cell.load() else { return 2 };
    let warmup = sweep.level.warmup(concurrency).div_ceil(concurrency.max(1));
    u64::from(warmup) + u64::from(sweep.level.requests.div_ceil(concurrency.max(1)))
}

/// How long a level's arrivals take: those of its warm-up and the measured ones.
fn schedule_of(sweep: &Sweep, cell: &Cell) -> Duration {
    let level = &sweep.level;
    let warmup = level.warmup_requests.max(level.margin());
    cell.rate.map_or(Duration::ZERO, |rate| rate.time_for(level.requests.saturating_add(warmup)))
}

fn runs_per_day(sweep: &Sweep, now: DateTime<Utc>) -> f64 {
    const MILLIS_PER_DAY: f64 = 86_400_000.0;
    let Some(end) = now.checked_add_signed(TimeDelta::days(DAYS)) else { return 0.0 };
    let mut starts =
        sweep.schedule.starts_after(now).take_while(|start| *start <= end).take(STARTS_COUNTED_MAX);
    let Some(first) = starts.next() else { return 0.0 };
    let (more, last) = starts.fold((0_usize, first), |(more, _), start| (more + 1, start));
    // From start to start, so that a regular schedule comes out even whenever it is asked; over the whole span
    // where there are too few of them for that.
    let (runs, span) = if more < 2 { (more + 1, end - now) } else { (more, last - first) };
    runs as f64 * MILLIS_PER_DAY / span.num_milliseconds().max(1) as f64
}

/// Only what is certain: the fastest service there is would not be done in time.
fn too_long(sweep: &Sweep, plan: &SweepPlan) -> Option<String> {
    let interval = plan.interval?;
    let decode = FASTEST_DECODE_PER_TOKEN.saturating_mul(sweep.level.output_tokens_max());
    let shortest: Duration = sweep
        .cells()
        .map(|cell| {
            let request = decode.saturating_add(FASTEST_PREFILL_PER_TOKEN.saturating_mul(cell.prompt_tokens));
            let rounds = u32::try_from(rounds_of(sweep, &cell)).unwrap_or(u32::MAX);
            // The warm-up ends sooner where answers are fast.
            let arrivals = cell.rate.map_or(Duration::ZERO, |rate| rate.time_for(sweep.level.requests));
            request.saturating_mul(rounds).saturating_add(arrivals)
        })
        .fold(Duration::ZERO, Duration::saturating_add);
    (shortest > interval).then(|| {
        format!(
            "sweep \"{}\": a run cannot end within its interval of {}: at 2000 output tokens and 200000 prompt \
             tokens per second and request it would still take {}; starts will be skipped",
            sweep.name,
            humantime::format_duration(interval),
            humantime::format_duration(Duration::from_secs(shortest.as_secs())),
        )
    })
}

/// Caps per day and month that the plan reaches if nothing fails and every answer is as long as it may be.
fn over_budget(config: &Config, plans: &[SweepPlan]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (cap, most) in config.budget.caps.iter() {
        let days = match cap.period {
            Period::Hour => 1.0 / 24.0,
            Period::Day => 1.0,
            Period::Month => 30.0,
        };
        let planned: f64 =
            config.sweeps.iter().zip(plans).map(|(sweep, plan)| spent_per_day(sweep, plan, cap)).sum();
        let planned = planned * days;
        if planned > most {
            let percent = most / planned * 100.0;
            warnings.push(format!(
                "the plan needs {} {} per {} of {}, more than the budget's {}: after {percent:.0}% of it levels are \
                 skipped; probe less, or raise the budget",
                shown(cap.unit, planned),
                cap.unit,
                cap.period,
                cap.scope,
                shown(cap.unit, most),
            ));
        }
    }
    warnings
}

/// What one sweep spends in a day of what a cap limits.
fn spent_per_day(sweep: &Sweep, plan: &SweepPlan, cap: &Cap) -> f64 {
    let counts = |target: &str| match &cap.scope {
        Scope::All => true,
        Scope::Target(name) => **name == *target,
        Scope::Sweep(name) => *name == sweep.name,
    };
    let spent = sweep.cells().filter(|cell| counts(&cell.target)).map(|cell| {
        let requests = requests_of(sweep, &cell) as f64;
        let (prompt, output) = (u64::from(cell.prompt_tokens), u64::from(sweep.level.output_tokens_max()));
        match cap.unit {
            Unit::Requests => requests,
            Unit::Tokens => requests * (prompt + output) as f64,
            Unit::Cost => {
                let target = sweep.targets.iter().find(|(target, _)| target.name == cell.target);
                let price = target.and_then(|(target, _)| target.prices.get(&cell.model));
                price.map_or(0.0, |price| price.of(prompt, output).units() * requests)
            }
        }
    });
    spent.sum::<f64>() * plan.runs_per_day
}

fn requests_of(sweep: &Sweep, cell: &Cell) -> u64 {
    u64::from(sweep.level.requests) + u64::from(sweep.level.excluded(cell))
}

fn shown(unit: Unit, number: f64) -> String {
    if unit == Unit::Cost { format!("{number:.2}") } else { grouped(whole(number)) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and a count is never negative"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sweep in &self.sweeps {
            writeln!(f, "{sweep}")?;
        }
        let SeriesCount { total, per_cell, cells, ladders } = self.series;
        writeln!(
            f,
            "series: {} of at most {} ({cells} cells of {per_cell} series or more, {ladders} ladders)",
            grouped(total as u64),
            grouped(self.max_series as u64),
        )?;
        for (cap, most) in self.budget.caps.iter() {
            let built_in = if self.budget.is_ceiling && cap.scope == Scope::All {
                " (built in: there is no [budget])"
            } else {
                ""
            };
            let most = if cap.unit == Unit::Cost {
                format!("{most} {}", self.budget.caps.currency)
            } else {
                grouped(whole(most))
            };
            writeln!(f, "budget: {most} {cap}{built_in}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

impl fmt::Display for SweepPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "sweep \"{}\": {}", self.name, self.schedule)?;
        let starts = self.next_starts.iter().map(|start| start.format("%Y-%m-%d %H:%M:%S %:z").to_string());
        writeln!(f, "  next starts    {}", joined(starts))?;
        for (target, models) in &self.targets {
            writeln!(f, "  target         {target}: {}", joined(models.iter()))?;
        }
        writeln!(f, "  prompt tokens  {}", joined(self.prompt_tokens.iter()))?;
        if self.rates.is_empty() {
            writeln!(f, "  concurrency    {}", joined(self.concurrency.iter()))?;
        } else {
            let rates = joined(self.rates.iter().map(|rate| cell::Load::Rate(*rate).short()));
            let most = joined(self.concurrency.iter());
            writeln!(
                f,
                "  rate           {rates}: {} arrivals, {most} in flight at most",
                self.arrivals.as_str()
            )?;
        }
        writeln!(f, "  per run        {}", self.run)?;
        if self.calibration != Load::default() {
            writeln!(f, "  once           {}: to learn how prompts are counted", self.calibration)?;
        }
        let per_day = self.run.times(self.runs_per_day);
        writeln!(
            f,
            "  per day        {per_day} ({} {})",
            rounded(self.runs_per_day),
            if rounded(self.runs_per_day) == "1" { "run" } else { "runs" }
        )?;
        if let Some((fits, interval)) = self.request_duration_max().zip(self.interval) {
            let interval = humantime::format_duration(interval);
            let fits = fits.as_secs_f64();
            writeln!(f, "  fits {interval} while a request takes less than {fits:.2} s on average")?;
        }
        Ok(())
    }
}

impl Load {
    /// This load so many times.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and a count is never negative"
    )]
    pub fn times(self, runs: f64) -> Self {
        let scaled = |number: u64| (number as f64 * runs).round() as u64;
        Self {
            requests: scaled(self.requests),
            prompt_tokens: scaled(self.prompt_tokens),
            output_tokens: scaled(self.output_tokens),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests, {} prompt tokens, {} output tokens at most",
            grouped(self.requests),
            grouped(self.prompt_tokens),
            grouped(self.output_tokens),
        )
    }
}

fn joined(items: impl Iterator<Item = impl fmt::Display>) -> String {
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rounded(number: f64) -> String {
    if number >= 10.0 || number.fract() < 0.005 { format!("{number:.0}") } else { format!("{number:.2}") }
}
