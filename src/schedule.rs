//! When a sweep starts: cron expressions and periods to instants.
//!
//! Pure: every function takes the instant it starts from; nothing here reads a clock, and nothing knows of
//! sweeps, tasks or permits.
//!
//! # Daylight saving time
//!
//! An expression is searched in local time without a zone, where croner is right, and every local time found is
//! then mapped to the instants at which it happens. (croner's own search across a change may repeat or go back.)
//!
//! - A schedule whose hour field allows every hour follows real time: `0 0 * * * *` fires 23 times on the day
//!   that loses an hour and 25 times on the day that gains one, an hour apart throughout.
//! - Any other schedule names times of day. One inside the lost hour fires once, right after the gap; one inside
//!   the repeated hour fires at the first pass only, unless its minute field begins with `*`
//!   (`0 */15 0-6 * * *`): such a schedule means "every 15 minutes" and leaves no hour out.

use std::{fmt, time::Duration};

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::{GapInfo, Tz};
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

mod quiet;

#[cfg(test)]
mod tests;

pub use quiet::QuietHours;

/// When a sweep starts.
#[derive(Clone, PartialEq)]
pub struct Schedule {
    cadence: Cadence,
    timezone: Tz,
    jitter: Duration,
}

/// What the starts follow.
#[derive(Clone, PartialEq)]
enum Cadence {
    Cron(Box<CronCadence>),
    /// Milliseconds between starts.
    Every(i64),
    Manual,
}

#[derive(Clone, PartialEq)]
struct CronCadence {
    expression: String,
    cron: Cron,
    /// A local time inside the lost hour is made up for right after it.
    catches_up: bool,
    /// A local time inside the repeated hour fires at both passes.
    repeats: bool,
}

/// Why an expression or period cannot be a schedule; its text says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleError(String);

/// The shortest time between two starts.
const PERIOD_MIN: Duration = Duration::from_secs(1);
/// The longest: beyond a year a period is a slip of the pen.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Longer than any shift of any zone's clock that repeats local times.
const SHIFT_MAX: TimeDelta = TimeDelta::hours(3);
/// A fixed day (2024-01-01) to try an expression from, so that checking one needs no clock.
const REFERENCE_SECONDS: i64 = 1_704_067_200;
/// How many starts are looked at to find the shortest interval of an expression.
const INTERVAL_SAMPLES: usize = 200;

impl Schedule {
    /// A cron expression of six fields (seconds first) or a nickname like `@hourly`, in a time zone.
    pub fn cron(expression: &str, timezone: Tz) -> Result<Self, ScheduleError> {
        let cron = parse_cron(expression)?;
        let every_hour = (0..24).all(|hour| cron.pattern.hour_match(hour).unwrap_or(false));
        let cadence = CronCadence {
            expression: expression.trim().to_owned(),
            catches_up: !every_hour,
            repeats: every_hour || cron.pattern.minutes.from_wildcard,
            cron,
        };
        let schedule = Self { cadence: Cadence::Cron(Box::new(cadence)), timezone, jitter: Duration::ZERO };
        match schedule.next_after(reference()) {
            Some(_) => Ok(schedule),
            None => Err(ScheduleError("no date ever matches; check the day and the month".to_owned())),
        }
    }

    /// A period. Starts fall on whole multiples of it since 1970-01-01 00:00 UTC, so that neither a restart nor a
    /// clock that jumps moves them: `1h` is every full UTC hour, `15m` every UTC quarter.
    pub fn every(period: Duration, timezone: Tz) -> Result<Self, ScheduleError> {
        if period < PERIOD_MIN {
            return Err(ScheduleError(
                "a period below 1s is not a schedule; write \"1s\" or more".to_owned(),
            ));
        }
        if period > PERIOD_MAX {
            return Err(ScheduleError("a period above 366 days; write a shorter one".to_owned()));
        }
        let millis = i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
        Ok(Self { cadence: Cadence::Every(millis), timezone, jitter: Duration::ZERO })
    }

    /// Never on its own, only when asked to.
    #[must_use]
    pub fn manual() -> Self {
        Self { cadence: Cadence::Manual, timezone: Tz::UTC, jitter: Duration::ZERO }
    }

    /// The same schedule, its starts delayed by up to `jitter`.
    pub fn with_jitter(mut self, jitter: Duration) -> Result<Self, ScheduleError> {
        match self.shortest_interval() {
            Some(interval) if jitter >= interval => {
                let interval = humantime::format_duration(interval);
                Err(ScheduleError(format!(
                    "the jitter must be shorter than the shortest interval between starts, which is {interval}"
                )))
            }
            _ => {
                self.jitter = jitter;
                Ok(self)
            }
        }
    }

    /// The first start strictly after an instant; jitter is not part of it. `None` when there is none.
    #[must_use]
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match &self.cadence {
            Cadence::Cron(cadence) => cadence.next_after(after, self.timezone),
            Cadence::Every(millis) => {
                let due =
                    after.timestamp_millis().div_euclid(*millis).checked_add(1)?.checked_mul(*millis)?;
                DateTime::from_timestamp_millis(due)
            }
            Cadence::Manual => None,
        }
    }

    /// Every start strictly after an instant, in order.
    pub fn starts_after(&self, after: DateTime<Utc>) -> impl Iterator<Item = DateTime<Utc>> + '_ {
        std::iter::successors(self.next_after(after), |last| self.next_after(*last))
    }

    /// When the start due at `due` really happens: 0 to `jitter` later. The same sweep and due time always give
    /// the same delay; different sweeps spread.
    #[must_use]
    pub fn jittered(&self, sweep: &str, due: DateTime<Utc>) -> DateTime<Utc> {
        let span = u64::try_from(self.jitter.as_millis()).unwrap_or(u64::MAX);
        if span == 0 {
            return due;
        }
        let delay = mix(sweep, due.timestamp_millis()) % span.saturating_add(1);
        let delay = i64::try_from(delay).unwrap_or(i64::MAX);
        TimeDelta::try_milliseconds(delay).and_then(|delay| due.checked_add_signed(delay)).unwrap_or(due)
    }

    /// The shortest time between two consecutive starts: exact for a period, for an expression the shortest among
    /// the next 200 starts from a fixed day. `None` when it never repeats.
    #[must_use]
    pub fn shortest_interval(&self) -> Option<Duration> {
        if let Cadence::Every(millis) = self.cadence {
            return Some(Duration::from_millis(millis.unsigned_abs()));
        }
        let starts: Vec<_> = self.starts_after(reference()).take(INTERVAL_SAMPLES).collect();
        let gaps = starts.iter().zip(starts.iter().skip(1)).map(|(first, second)| *second - *first);
        gaps.min().and_then(|gap| gap.to_std().ok())
    }

    /// The zone its expression is read in and its starts are shown in.
    #[must_use]
    pub fn timezone(&self) -> Tz {
        self.timezone
    }

    /// The longest delay of a start.
    #[must_use]
    pub fn jitter(&self) -> Duration {
        self.jitter
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({self})")
    }
}

/// The expression or period as a person would write it.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cadence {
            Cadence::Cron(cadence) => write!(f, "cron \"{}\" in {}", cadence.expression, self.timezone)?,
            Cadence::Every(millis) => {
                let period = Duration::from_millis(millis.unsigned_abs());
                write!(f, "every {}", humantime::format_duration(period))?;
            }
            Cadence::Manual => f.write_str("only on demand")?,
        }
        if self.jitter.is_zero() {
            return Ok(());
        }
        write!(f, ", up to {} later", humantime::format_duration(self.jitter))
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScheduleError {}

impl CronCadence {
    fn next_after(&self, after: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        let from = after.with_nanosecond(0)?.checked_add_signed(TimeDelta::seconds(1))?;
        let local = from.with_timezone(&zone).naive_local();
        let hit = self.first_from(local, after, zone);
        let first_pass = |instant| is_first_pass(instant, zone);
        if !self.repeats || !first_pass(from) || hit.is_some_and(first_pass) {
            return hit;
        }
        // The clock goes back before the hit: local times before this one come again.
        let again = self.second_pass(local, clock_shift(from, zone), zone);
        [hit, again].into_iter().flatten().min()
    }

    /// The first instant after `after` among local times from `local` on: later ones happen no sooner.
    fn first_from(&self, local: NaiveDateTime, after: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        let mut found = self.next_local(local, true);
        loop {
            let happens = self.instants(found?, zone);
            let next = happens.into_iter().flatten().find(|instant| *instant > after);
            if next.is_some() {
                return next;
            }
            found = self.next_local(found?, false);
        }
    }

    /// The first start in the second pass of the repeated time, of which `local` is in the first.
    fn second_pass(&self, local: NaiveDateTime, shift: TimeDelta, zone: Tz) -> Option<DateTime<Utc>> {
        let mut found = self.next_local(local.checked_sub_signed(shift)?, true)?;
        while found < local {
            if let [Some(_), Some(second)] = self.instants(found, zone) {
                return Some(second);
            }
            found = self.next_local(found, false)?;
        }
        None
    }

    /// The first local time that matches, as if there were no zones.
    fn next_local(&self, from: NaiveDateTime, inclusive: bool) -> Option<NaiveDateTime> {
        self.cron.find_next_occurrence(&from.and_utc(), inclusive).ok().map(|found| found.naive_utc())
    }

    /// The instants at which a matching local time fires: first pass, second pass.
    fn instants(&self, local: NaiveDateTime, zone: Tz) -> [Option<DateTime<Utc>>; 2] {
        match zone.from_local_datetime(&local) {
            MappedLocalTime::Single(instant) => [Some(instant.to_utc()), None],
            MappedLocalTime::Ambiguous(first, second) => {
                [Some(first.to_utc()), self.repeats.then(|| second.to_utc())]
            }
            MappedLocalTime::None if self.catches_up => {
                let end = GapInfo::new(&local, &zone).and_then(|gap| gap.end);
                [end.map(|end| end.to_utc()), None]
            }
            MappedLocalTime::None => [None, None],
        }
    }
}

/// Whether the local time of an instant comes again.
fn is_first_pass(instant: DateTime<Utc>, zone: Tz) -> bool {
    let local = instant.with_timezone(&zone).naive_local();
    matches!(zone.from_local_datetime(&local), MappedLocalTime::Ambiguous(first, _) if first == instant)
}

/// By how much the zone's clock is set forward or back within a few hours of an instant.
fn clock_shift(instant: DateTime<Utc>, zone: Tz) -> TimeDelta {
    let offset = |instant: DateTime<Utc>| {
        let seconds = zone.offset_from_utc_datetime(&instant.naive_utc()).fix().local_minus_utc();
        TimeDelta::seconds(i64::from(seconds))
    };
    let before = instant.checked_sub_signed(SHIFT_MAX).map(offset);
    let after = instant.checked_add_signed(SHIFT_MAX).map(offset);
    before.zip(after).map_or(TimeDelta::zero(), |(before, after)| (after - before).abs())
}

fn parse_cron(expression: &str) -> Result<Cron, ScheduleError> {
    let expression = expression.trim();
    let fields = expression.split_whitespace().count();
    if fields == 5 {
        return Err(ScheduleError(format!(
            "has 5 fields, and seconds come first here; write \"0 {expression}\""
        )));
    }
    if fields != 6 && !expression.starts_with('@') {
        return Err(ScheduleError(format!(
            "must have 6 fields (second minute hour day month weekday), not {fields}; \
             every full hour is \"0 0 * * * *\""
        )));
    }
    let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).build();
    parser.parse(expression).map_err(|_| match bad_field(parser, expression) {
        Some((name, field)) => ScheduleError(format!(
            "is not a cron expression: \"{field}\" is no {name}; the fields are {}, every full hour is \
             \"0 0 * * * *\"",
            FIELDS.join(" ")
        )),
        None => ScheduleError(
            "is not a cron expression; every full hour is \"0 0 * * * *\" or \"@hourly\"".to_owned(),
        ),
    })
}

const FIELDS: [&str; 6] = ["second", "minute", "hour", "day", "month", "weekday"];

/// The first field that is refused even on its own; croner does not say which it was.
fn bad_field(parser: CronParser, expression: &str) -> Option<(&'static str, &str)> {
    let fields = expression.split_whitespace().enumerate();
    fields.zip(FIELDS).map(|((index, field), name)| (index, name, field)).find_map(|(index, name, field)| {
        let mut alone = ["*"; FIELDS.len()];
        *alone.get_mut(index)? = field;
        parser.parse(&alone.join(" ")).is_err().then_some((name, field))
    })
}

fn reference() -> DateTime<Utc> {
    DateTime::from_timestamp(REFERENCE_SECONDS, 0).unwrap_or_default()
}

/// FNV-1a over the name and the due time, then one round of avalanche, for the low bits decide.
fn mix(name: &str, due_millis: i64) -> u64 {
    let bytes = name.bytes().chain(due_millis.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}
