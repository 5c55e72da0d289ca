//! Starts on ordinary days and across both changes of the clock, against tables and a brute-force oracle.

use chrono::{Datelike, NaiveDate};
use proptest::prelude::*;

use super::*;

fn utc(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

fn cron(expression: &str, zone: Tz) -> Schedule {
    Schedule::cron(expression, zone).unwrap()
}

/// The starts of a local day as `HH:MM:SS offset`.
fn day(expression: &str, zone: Tz, date: &str) -> Vec<String> {
    let date: NaiveDate = date.parse().unwrap();
    // From the last second of the day before: no zone here changes its clock at midnight.
    let midnight = zone.from_local_datetime(&date.and_hms_opt(0, 0, 0).unwrap()).unwrap();
    let schedule = cron(expression, zone);
    schedule
        .starts_after(midnight.to_utc() - TimeDelta::seconds(1))
        .map(|start| start.with_timezone(&zone))
        .take_while(|start| start.date_naive() == date)
        .map(|start| start.format("%H:%M:%S %z").to_string())
        .collect()
}

fn check_day(expression: &str, zone: Tz, date: &str, expected: &[&str]) {
    assert_eq!(day(expression, zone, date), expected, "{expression} in {zone} on {date}");
}

#[test]
fn plain_days() {
    check_day("0 30 9 * * *", Tz::Europe__Berlin, "2026-06-01", &["09:30:00 +0200"]);
    check_day(
        "0 0 8,20 * * MON-FRI",
        Tz::Asia__Shanghai,
        "2026-06-01",
        &["08:00:00 +0800", "20:00:00 +0800"],
    );
    check_day("0 0 8,20 * * MON-FRI", Tz::Asia__Shanghai, "2026-06-06", &[]);
    check_day(
        "*/20 59 23 * * *",
        Tz::UTC,
        "2026-06-01",
        &["23:59:00 +0000", "23:59:20 +0000", "23:59:40 +0000"],
    );
    assert_eq!(day("@hourly", Tz::UTC, "2026-06-01").len(), 24);
    assert_eq!(day("@daily", Tz::UTC, "2026-06-01"), ["00:00:00 +0000"]);
}

/// (zone, day that loses time, day that gains time)
const CHANGES: [(Tz, &str, &str); 3] = [
    (Tz::Europe__Berlin, "2026-03-29", "2026-10-25"),
    (Tz::America__New_York, "2026-03-08", "2026-11-01"),
    (Tz::Australia__Lord_Howe, "2026-10-04", "2026-04-05"),
];

#[test]
fn a_time_inside_the_gap_fires_once_right_after_it() {
    check_day("0 30 2 * * *", Tz::Europe__Berlin, "2026-03-29", &["03:00:00 +0200"]);
    check_day("0 30 2 * * *", Tz::America__New_York, "2026-03-08", &["03:00:00 -0400"]);
    check_day("0 15 2 * * *", Tz::Australia__Lord_Howe, "2026-10-04", &["02:30:00 +1100"]);
    // Several lost times are made up for once, and not beside a regular start.
    check_day("0 0,20,40 2 * * *", Tz::Europe__Berlin, "2026-03-29", &["03:00:00 +0200"]);
    check_day("0 0,30 2,3 * * *", Tz::Europe__Berlin, "2026-03-29", &["03:00:00 +0200", "03:30:00 +0200"]);
    check_day("0 */10 2 * * *", Tz::Europe__Berlin, "2026-03-29", &["03:00:00 +0200"]);
    check_day(
        "0 0 */2 * * *",
        Tz::Europe__Berlin,
        "2026-03-29",
        &[
            "00:00:00 +0100",
            "03:00:00 +0200",
            "04:00:00 +0200",
            "06:00:00 +0200",
            "08:00:00 +0200",
            "10:00:00 +0200",
            "12:00:00 +0200",
            "14:00:00 +0200",
            "16:00:00 +0200",
            "18:00:00 +0200",
            "20:00:00 +0200",
            "22:00:00 +0200",
        ],
    );
}

#[test]
fn a_time_inside_the_repeated_hour_fires_at_its_first_pass() {
    check_day("0 30 2 * * *", Tz::Europe__Berlin, "2026-10-25", &["02:30:00 +0200"]);
    check_day("0 30 1 * * *", Tz::America__New_York, "2026-11-01", &["01:30:00 -0400"]);
    check_day("0 45 1 * * *", Tz::Australia__Lord_Howe, "2026-04-05", &["01:45:00 +1100"]);
    check_day("0 0,30 2 * * *", Tz::Europe__Berlin, "2026-10-25", &["02:00:00 +0200", "02:30:00 +0200"]);
    check_day("0 0 2,3 * * *", Tz::Europe__Berlin, "2026-10-25", &["02:00:00 +0200", "03:00:00 +0100"]);
}

#[test]
fn every_real_hour_counts() {
    check_day(
        "0 0 * * * *",
        Tz::Australia__Lord_Howe,
        "2026-04-05",
        &[
            "00:00:00 +1100",
            "01:00:00 +1100",
            "02:00:00 +1030",
            "03:00:00 +1030",
            "04:00:00 +1030",
            "05:00:00 +1030",
            "06:00:00 +1030",
            "07:00:00 +1030",
            "08:00:00 +1030",
            "09:00:00 +1030",
            "10:00:00 +1030",
            "11:00:00 +1030",
            "12:00:00 +1030",
            "13:00:00 +1030",
            "14:00:00 +1030",
            "15:00:00 +1030",
            "16:00:00 +1030",
            "17:00:00 +1030",
            "18:00:00 +1030",
            "19:00:00 +1030",
            "20:00:00 +1030",
            "21:00:00 +1030",
            "22:00:00 +1030",
            "23:00:00 +1030",
        ],
    );
    let count = |zone, date| day("0 0 * * * *", zone, date).len();
    assert_eq!(count(Tz::Europe__Berlin, "2026-03-29"), 23);
    assert_eq!(count(Tz::Europe__Berlin, "2026-10-25"), 25);
    assert_eq!(count(Tz::America__New_York, "2026-03-08"), 23);
    assert_eq!(count(Tz::America__New_York, "2026-11-01"), 25);
    check_day(
        "0 30 0-3 * * *",
        Tz::Europe__Berlin,
        "2026-10-25",
        &["00:30:00 +0200", "01:30:00 +0200", "02:30:00 +0200", "03:30:00 +0100"],
    );
    check_day(
        "0 */30 1-3 * * *",
        Tz::Europe__Berlin,
        "2026-10-25",
        &[
            "01:00:00 +0200",
            "01:30:00 +0200",
            "02:00:00 +0200",
            "02:30:00 +0200",
            "02:00:00 +0100",
            "02:30:00 +0100",
            "03:00:00 +0100",
            "03:30:00 +0100",
        ],
    );
}

#[test]
fn every_quarter_of_an_hour_without_a_hole() {
    for (zone, shorter, longer) in CHANGES {
        for date in [shorter, longer] {
            let date: NaiveDate = date.parse().unwrap();
            let from = date.and_hms_opt(0, 0, 0).unwrap().and_utc() - TimeDelta::hours(14);
            let schedule = cron("0 */15 * * * *", zone);
            let starts: Vec<_> = schedule.starts_after(from).take(4 * 48).collect();
            for pair in starts.windows(2) {
                assert_eq!(pair[1] - pair[0], TimeDelta::minutes(15), "{zone} at {}", pair[0]);
            }
        }
    }
}

/// What an expression of plain numbers and `*` means, by the letter of this module's documentation.
struct Oracle {
    minutes: Vec<u32>,
    minutes_star: bool,
    hours: Vec<u32>,
    zone: Tz,
}

impl Oracle {
    fn expression(&self) -> String {
        let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let hours = if self.hours.len() == 24 { "*".to_owned() } else { list(&self.hours) };
        let minutes = if self.minutes_star { "*/5".to_owned() } else { list(&self.minutes) };
        format!("0 {minutes} {hours} * * *")
    }

    fn matches(&self, local: NaiveDateTime) -> bool {
        let minute = if self.minutes_star {
            local.minute().is_multiple_of(5)
        } else {
            self.minutes.contains(&local.minute())
        };
        minute && self.hours.contains(&local.hour())
    }

    /// Every minute of UTC, one by one.
    fn starts(&self, from: DateTime<Utc>, hours: i64) -> Vec<DateTime<Utc>> {
        let all_hours = self.hours.len() == 24;
        let mut starts = Vec::new();
        for minute in 1..=hours * 60 {
            let instant = from + TimeDelta::minutes(minute);
            let local = instant.with_timezone(&self.zone).naive_local();
            let before = (instant - TimeDelta::minutes(1)).with_timezone(&self.zone).naive_local();
            let second_pass = [30, 60].into_iter().any(|back| {
                let earlier = instant - TimeDelta::minutes(back);
                earlier.with_timezone(&self.zone).naive_local() == local
            });
            let regular = self.matches(local) && (!second_pass || all_hours || self.minutes_star);
            let lost = (1..(local - before).num_minutes())
                .any(|step| self.matches(before + TimeDelta::minutes(step)));
            if regular || (lost && !all_hours) {
                starts.push(instant);
            }
        }
        starts
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn starts_are_those_of_the_oracle(
        (zone, shorter, longer) in prop::sample::select(CHANGES.to_vec()),
        gains in any::<bool>(),
        minutes in prop::collection::btree_set(0_u32..60, 1..4),
        hours in prop_oneof![Just((0..24).collect()), prop::collection::btree_set(0_u32..5, 1..4)],
        minutes_star in any::<bool>(),
        lead_minutes in 0_i64..900,
    ) {
        let oracle = Oracle {
            minutes: minutes.into_iter().collect(),
            minutes_star,
            hours: hours.into_iter().collect(),
            zone,
        };
        let date: NaiveDate = if gains { longer } else { shorter }.parse().unwrap();
        let from = date.and_hms_opt(0, 0, 0).unwrap().and_utc() - TimeDelta::minutes(lead_minutes);
        let hours = 30;
        let schedule = cron(&oracle.expression(), zone);
        let starts: Vec<_> = schedule
            .starts_after(from)
            .take_while(|start| *start <= from + TimeDelta::hours(hours))
            .collect();
        prop_assert_eq!(starts, oracle.starts(from, hours), "{} in {}", oracle.expression(), zone);
    }

    #[test]
    fn starts_strictly_increase(
        expression in prop::sample::select(vec![
            "0 0 * * * *", "*/7 * * * * *", "0 30 2 * * *", "0 0 0 29 2 *", "0 0 12 L * *", "0 */13 1-3 * * SUN",
        ]),
        zone in prop::sample::select(chrono_tz::TZ_VARIANTS.to_vec()),
        seconds in 0_i64..4_000_000_000,
        nanos in 0_u32..1_000_000_000,
    ) {
        let after = DateTime::from_timestamp(seconds, nanos).unwrap();
        let schedule = cron(expression, zone);
        let mut last = after;
        for start in schedule.starts_after(after).take(20) {
            prop_assert!(start > last, "{start} after {last}");
            prop_assert_eq!(start.timestamp_subsec_nanos(), 0);
            last = start;
        }
        prop_assert!(last > after);
    }

    #[test]
    fn periods_are_aligned_and_increase(millis in 1_000_u64..100_000_000, seconds in -1_000_000_i64..4_000_000_000) {
        let schedule = Schedule::every(Duration::from_millis(millis), Tz::UTC).unwrap();
        let after = DateTime::from_timestamp(seconds, 1).unwrap();
        let next = schedule.next_after(after).unwrap();
        prop_assert!(next > after);
        prop_assert!(next - after <= TimeDelta::milliseconds(i64::try_from(millis).unwrap()));
        prop_assert_eq!(next.timestamp_millis().rem_euclid(i64::try_from(millis).unwrap()), 0);
    }

    #[test]
    fn jitter_stays_inside(name in "[a-z]{1,8}", seconds in 0_i64..4_000_000_000, jitter in 0_u64..3_600) {
        let schedule = Schedule::every(Duration::from_secs(3_601), Tz::UTC).unwrap();
        let schedule = schedule.with_jitter(Duration::from_secs(jitter)).unwrap();
        let due = DateTime::from_timestamp(seconds, 0).unwrap();
        let start = schedule.jittered(&name, due);
        prop_assert_eq!(start, schedule.jittered(&name, due));
        prop_assert!((TimeDelta::zero()..=TimeDelta::seconds(jitter.cast_signed())).contains(&(start - due)));
    }
}

#[test]
fn jitter_spreads_sweeps_and_starts() {
    let schedule = Schedule::every(Duration::from_secs(3_600), Tz::UTC).unwrap();
    let schedule = schedule.with_jitter(Duration::from_secs(60)).unwrap();
    let delays: std::collections::HashSet<_> = (0..100)
        .map(|hour| {
            let due = DateTime::from_timestamp(hour * 3_600, 0).unwrap();
            schedule.jittered("hourly", due) - due
        })
        .collect();
    assert!(delays.len() > 90, "{}", delays.len());
    let due = utc("2026-06-01T12:00:00Z");
    assert_ne!(schedule.jittered("one", due), schedule.jittered("two", due));
}

#[test]
fn refusals_say_what_to_write() {
    let check = |expression: &str, expected: &str| {
        let error = Schedule::cron(expression, Tz::UTC).unwrap_err().to_string();
        assert!(error.contains(expected), "{expression}: {error}");
    };
    check("0 * * * *", "write \"0 0 * * * *\"");
    check("", "not 0");
    check("0 0 0 0 0 0 0", "not 7");
    check("@sometimes", "is not a cron expression");
    check("0 0 25 * * *", "\"25\" is no hour");
    check("0 60 * * * *", "\"60\" is no minute");
    check("0 0 0 * * MOON", "\"MOON\" is no weekday");
    check("0 0 0 0 * *", "\"0\" is no day");
    check("0 0 0 30 2 *", "no date ever matches");
    check("x y z a b c", "is not a cron expression");
    let every = |seconds| Schedule::every(Duration::from_secs(seconds), Tz::UTC);
    assert!(every(0).unwrap_err().to_string().contains("below 1s"));
    assert!(every(u64::MAX).unwrap_err().to_string().contains("366 days"));
    let hourly = cron("0 0 * * * *", Tz::UTC);
    assert!(hourly.clone().with_jitter(Duration::from_secs(3_600)).unwrap_err().to_string().contains("1h"));
    assert!(hourly.with_jitter(Duration::from_secs(3_599)).is_ok());
}

#[test]
fn a_manual_schedule_never_starts() {
    let manual = Schedule::manual();
    assert_eq!(manual.next_after(utc("2026-06-01T12:00:00Z")), None);
    assert_eq!(manual.shortest_interval(), None);
    assert_eq!(manual.to_string(), "only on demand");
}

#[test]
fn a_zone_that_skipped_a_whole_day() {
    // Samoa had no 30 December 2011.
    let schedule = cron("0 0 12 * * *", Tz::Pacific__Apia);
    let starts: Vec<_> = schedule
        .starts_after(utc("2011-12-29T00:00:00Z"))
        .take(3)
        .map(|start| start.with_timezone(&Tz::Pacific__Apia))
        .map(|start| (start.day(), start.hour()))
        .collect();
    assert_eq!(starts, [(29, 12), (31, 0), (31, 12)]);
}

#[test]
fn every_second_across_the_changes() {
    for change in ["2026-03-29T01:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"] {
        let from = utc(change) - TimeDelta::seconds(1_000);
        let schedule = cron("* * * * * *", Tz::Europe__Berlin);
        let starts = schedule.starts_after(from).take(2_000);
        for (number, start) in (1..).zip(starts) {
            assert_eq!(start, from + TimeDelta::seconds(number));
        }
    }
}

#[test]
fn shortest_intervals() {
    let check = |expression: &str, seconds| {
        let interval = cron(expression, Tz::UTC).shortest_interval();
        assert_eq!(interval, Some(Duration::from_secs(seconds)), "{expression}");
    };
    check("0 0 * * * *", 3_600);
    check("0 0,10 * * * *", 600);
    check("0 0 9 * * MON", 7 * 86_400);
}
