use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};

use super::agenda::Agenda;
use crate::{
    config::{BaseUrl, Sweep, Target},
    protocol::Protocol,
    schedule::Schedule,
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn sweep(name: &str, schedule: Schedule) -> Arc<Sweep> {
    let base_url = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let target = Arc::new(Target::ad_hoc(base_url, Protocol::OpenAiChat, vec![Arc::from("m")]));
    let mut sweep = Sweep::ad_hoc(target, vec![100], vec![1]);
    sweep.name = Arc::from(name);
    sweep.schedule = schedule;
    Arc::new(sweep)
}

fn every(period: u64) -> Schedule {
    Schedule::every(Duration::from_secs(period), chrono_tz::UTC).unwrap()
}

fn hourly(zone: &str) -> Schedule {
    Schedule::cron("0 0 * * * *", zone.parse().unwrap()).unwrap()
}

/// Plays a clock that wakes the loop just when it asks to be woken, and collects the due times.
fn play(agenda: &mut Agenda, from: &str, to: &str) -> Vec<DateTime<Utc>> {
    let (mut now, to) = (at(from), at(to));
    let mut starts = Vec::new();
    while now < to {
        starts.extend(agenda.take_due(now).into_iter().map(|due| due.due));
        now += TimeDelta::from_std(agenda.wait(now).unwrap()).unwrap().max(TimeDelta::milliseconds(1));
    }
    starts
}

#[test]
fn an_hourly_sweep_starts_every_real_hour_through_both_changes_of_the_clock() {
    // Europe/Berlin loses an hour on 2026-03-29 and gains one on 2026-10-25: 23 and 25 hours, an hour apart.
    for (from, to, hours) in [
        ("2026-03-28T22:59:59Z", "2026-03-29T21:59:59Z", 23),
        ("2026-10-24T21:59:59Z", "2026-10-25T22:59:59Z", 25),
    ] {
        let mut agenda = Agenda::new(&[sweep("a", hourly("Europe/Berlin"))], at(from), false);
        let starts = play(&mut agenda, from, to);
        assert_eq!(starts.len(), hours, "from {from}");
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == TimeDelta::hours(1)));
    }
}

#[test]
fn run_on_start_is_due_at_once_and_only_at_the_start_of_the_daemon() {
    let now = at("2026-01-01T00:00:10Z");
    let mut eager = Sweep::ad_hoc(sweep("a", every(60)).targets[0].0.clone(), vec![100], vec![1]);
    eager.schedule = every(60);
    eager.run_on_start = true;
    let eager = Arc::new(eager);
    let mut agenda = Agenda::new(std::slice::from_ref(&eager), now, true);
    assert_eq!(agenda.wait(now), Some(Duration::ZERO));
    assert_eq!(agenda.take_due(now).len(), 1);
    assert_eq!(agenda.wait(now), Some(Duration::from_secs(50)));
    assert!(Agenda::new(&[eager], now, false).take_due(now).is_empty());
}

#[test]
fn a_jump_ahead_is_made_up_for_by_one_start() {
    let start = at("2026-01-01T00:00:00Z");
    let mut agenda = Agenda::new(&[sweep("a", every(60))], start, false);
    let later = start + TimeDelta::hours(5) + TimeDelta::seconds(7);
    let due = agenda.take_due(later);
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].due, at("2026-01-01T00:01:00Z"));
    // Minutes 2 to 300: counted, not made up for.
    assert_eq!(due[0].passed_over, 299);
    assert_eq!(agenda.wait(later), Some(Duration::from_secs(53)));
}

#[test]
fn a_clock_that_is_set_back_does_not_silence_the_schedule() {
    let start = at("2026-01-01T12:00:30Z");
    let mut agenda = Agenda::new(&[sweep("a", every(60))], start, false);
    assert_eq!(agenda.wait(start), Some(Duration::from_secs(30)));
    let earlier = at("2026-01-01T03:00:30Z");
    assert!(agenda.take_due(earlier).is_empty());
    assert_eq!(agenda.wait(earlier), Some(Duration::from_secs(30)));
}

#[test]
fn a_reload_neither_skips_nor_doubles_a_start() {
    let start = at("2026-01-01T00:00:00Z");
    let mut agenda = Agenda::new(&[sweep("a", every(60)), sweep("b", every(60))], start, false);
    // The reload comes a moment after the due time, before the loop looked.
    let late = at("2026-01-01T00:01:00.005Z");
    agenda.adopt(&[sweep("a", every(60)), sweep("b", every(30)), sweep("c", every(60))], late);
    let due: Vec<String> = agenda.take_due(late).iter().map(|due| due.sweep.name.to_string()).collect();
    assert_eq!(due, ["a"], "unchanged: due still; changed and new ones: from now on");
    assert!(agenda.take_due(late).is_empty());
    assert_eq!(agenda.wait(late), Some(Duration::from_millis(29_995)));
}
