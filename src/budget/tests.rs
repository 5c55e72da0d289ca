//! Exact, with time as an argument: what fits, what is refused, and that nothing ever passes a cap.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;

use super::*;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn order(sweep: &str, target: &str) -> Order {
    Order { sweep: Arc::from(sweep), target: Arc::from(target) }
}

fn amount(requests: u64, tokens: u64) -> Amount {
    Amount { requests, tokens, cost: Money::default() }
}

fn caps(list: &[(Scope, Unit, Period, f64)]) -> Caps {
    let mut caps = Caps::none();
    for (scope, unit, period, most) in list {
        caps.limit(scope.clone(), *unit, *period, *most);
    }
    caps
}

fn left(ledger: &mut Ledger, now: DateTime<Utc>) -> Vec<f64> {
    ledger.remaining(now).into_iter().map(|remaining| remaining.left).collect()
}

#[test]
fn periods_begin_by_the_calendar() {
    let now = at("2026-05-17T13:45:10.5Z");
    let starts = Period::ALL.iter().map(|period| period.start(now)).collect::<Vec<_>>();
    assert_eq!(starts, [at("2026-05-17T13:00:00Z"), at("2026-05-17T00:00:00Z"), at("2026-05-01T00:00:00Z")]);
}

#[test]
fn prices_are_per_million_tokens_and_rounded_up() {
    let check = |price: Price, prompt, output, units: f64| {
        let cost = price.of(prompt, output).units();
        assert!((cost - units).abs() < 1.5e-9 && cost >= units - 1e-15, "{cost} is not {units}");
    };
    let price = Price { input: 0.15, output: 0.6, request: 0.0 };
    check(price, 1_000_000, 0, 0.15);
    check(price, 1000, 64, 0.000_188_4);
    check(price, 1, 0, 0.000_000_15);
    check(Price { request: 0.01, ..price }, 0, 0, 0.01);
    check(Price::default(), 1_000_000, 1_000_000, 0.0);
}

#[test]
fn what_is_held_counts_until_it_is_settled() {
    let now = at("2026-01-01T10:00:00Z");
    let mut ledger = Ledger::new(caps(&[(Scope::All, Unit::Tokens, Period::Day, 100.0)]));
    let order = order("s", "t");
    ledger.hold(&order, amount(1, 60), now).unwrap();
    let refused = ledger.hold(&order, amount(1, 60), now).unwrap_err();
    assert_eq!(refused.to_string(), "the budget of tokens per day of all is spent");
    ledger.settle(&order, amount(1, 60), amount(1, 40), now);
    assert_eq!(left(&mut ledger, now), [60.0]);
    ledger.hold(&order, amount(1, 60), now).unwrap();
    assert_eq!(left(&mut ledger, now), [0.0]);
}

#[test]
fn every_scope_counts_for_itself_and_for_the_whole() {
    let now = at("2026-01-01T10:00:00Z");
    let mut ledger = Ledger::new(caps(&[
        (Scope::All, Unit::Requests, Period::Hour, 3.0),
        (Scope::Target("a".into()), Unit::Requests, Period::Day, 2.0),
        (Scope::Sweep("s".into()), Unit::Requests, Period::Month, 1.0),
    ]));
    let one = amount(1, 10);
    ledger.hold(&order("s", "a"), one, now).unwrap();
    let check = |ledger: &mut Ledger, sweep, target, expect: &str| {
        let cap = ledger.hold(&order(sweep, target), one, now).map_err(|refused| refused.cap.to_string());
        assert_eq!(cap.err().unwrap_or_default(), expect);
    };
    check(&mut ledger, "s", "b", "requests per month of sweep:s");
    check(&mut ledger, "other", "a", "");
    check(&mut ledger, "other", "a", "requests per day of target:a");
    check(&mut ledger, "other", "b", "");
    check(&mut ledger, "other", "b", "requests per hour of all");
}

#[test]
fn a_new_period_begins_anew_and_a_clock_set_back_does_not() {
    let mut ledger = Ledger::new(caps(&[(Scope::All, Unit::Requests, Period::Hour, 2.0)]));
    let order = order("s", "t");
    let noon = at("2026-01-01T12:59:59Z");
    ledger.hold(&order, amount(2, 0), noon).unwrap();
    ledger.settle(&order, amount(2, 0), amount(2, 0), noon);
    assert_eq!(left(&mut ledger, noon), [0.0]);
    for earlier in ["2026-01-01T11:30:00Z", "2025-12-31T00:00:00Z", "1970-01-01T00:00:00Z"] {
        assert!(ledger.hold(&order, amount(1, 0), at(earlier)).is_err(), "{earlier}");
    }
    assert_eq!(left(&mut ledger, at("2026-01-01T13:00:00Z")), [2.0]);
}

#[test]
fn what_is_held_over_the_end_of_a_period_counts_where_it_is_settled() {
    let mut ledger = Ledger::new(caps(&[(Scope::All, Unit::Tokens, Period::Hour, 100.0)]));
    let order = order("s", "t");
    ledger.hold(&order, amount(1, 80), at("2026-01-01T12:59:59Z")).unwrap();
    let next = at("2026-01-01T13:00:01Z");
    assert_eq!(left(&mut ledger, next), [20.0]);
    ledger.settle(&order, amount(1, 80), amount(1, 70), next);
    assert_eq!(left(&mut ledger, next), [30.0]);
}

#[test]
fn a_reload_keeps_what_was_spent_also_under_a_new_cap() {
    let now = at("2026-01-01T10:00:00Z");
    let mut ledger = Ledger::new(caps(&[(Scope::All, Unit::Requests, Period::Day, 10.0)]));
    let order = order("s", "t");
    ledger.hold(&order, amount(4, 400), now).unwrap();
    ledger.settle(&order, amount(4, 400), amount(4, 400), now);
    ledger.adopt(
        caps(&[
            (Scope::All, Unit::Requests, Period::Day, 5.0),
            (Scope::Sweep("s".into()), Unit::Tokens, Period::Month, 1000.0),
        ]),
        now,
    );
    assert_eq!(left(&mut ledger, now), [1.0, 600.0]);
    ledger.adopt(caps(&[(Scope::All, Unit::Requests, Period::Day, 2.0)]), now);
    assert_eq!(left(&mut ledger, now), [0.0], "a cap below what was spent is spent");
}

#[test]
fn spending_survives_a_restart_while_its_period_lasts() {
    let now = at("2026-01-31T23:30:00Z");
    let day = caps(&[
        (Scope::All, Unit::Requests, Period::Day, 10.0),
        (Scope::Target("t".into()), Unit::Cost, Period::Month, 1.0),
    ]);
    let mut before = Ledger::new(day.clone());
    let order = order("s", "t");
    let used = Amount { requests: 3, tokens: 30, cost: Money::from_units(0.25) };
    before.hold(&order, used, now).unwrap();
    let kept = before.export();
    let mut after = Ledger::new(day.clone());
    after.import(&kept, now);
    assert_eq!(left(&mut after, now), [7.0, 0.75]);
    let mut later = Ledger::new(day);
    later.import(&kept, at("2026-02-01T00:00:00Z"));
    assert_eq!(left(&mut later, at("2026-02-01T00:00:00Z")), [10.0, 1.0]);
}

#[test]
fn a_reservation_returns_by_drop_until_its_probe_was_sent() {
    let governor = Governor::with_clock(caps(&[(Scope::All, Unit::Requests, Period::Day, 2.0)]), || {
        at("2026-01-01T10:00:00Z")
    });
    let left = || governor.remaining()[0].left;
    let order = order("s", "t");
    let unsent = governor.reserve(&order, amount(1, 10)).unwrap();
    assert!((left() - 1.0).abs() < 1e-9);
    drop(unsent);
    assert!((left() - 2.0).abs() < 1e-9, "never sent: given back");
    let mut lost = governor.reserve(&order, amount(1, 10)).unwrap();
    lost.sent();
    drop(lost);
    assert!((left() - 1.0).abs() < 1e-9, "sent and its end not seen: counts in full");
    let mut settled = governor.reserve(&order, amount(1, 10)).unwrap();
    settled.sent();
    settled.settle(amount(1, 4));
    assert!(governor.reserve(&order, amount(1, 1)).is_err());
}

/// What a runaway prober may do in one step.
#[derive(Debug, Clone)]
enum Step {
    Send { sweep: u8, tokens: u64 },
    Settle { share: u64 },
    Drop,
    Reload { requests: u64 },
    Tick { seconds: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..3, 1_u64..50).prop_map(|(sweep, tokens)| Step::Send { sweep, tokens }),
        3 => (0_u64..=100).prop_map(|share| Step::Settle { share }),
        1 => Just(Step::Drop),
        1 => (20_u64..=40).prop_map(|requests| Step::Reload { requests }),
        2 => (-100_000_i64..4000).prop_map(|seconds| Step::Tick { seconds }),
    ]
}

proptest! {
    /// A year's ladder, a cron every second, a reload loop, a clock that jumps: in no hour by the clock's own count
    /// are more than 40 requests sent or 400 tokens used, and what is left is never less than nothing.
    #[test]
    fn a_runaway_never_sends_more_than_the_cap(steps in prop::collection::vec(step(), 1..400)) {
        let limits = |requests: u64| caps(&[
            (Scope::All, Unit::Requests, Period::Hour, requests as f64),
            (Scope::All, Unit::Tokens, Period::Hour, 400.0),
        ]);
        let mut ledger = Ledger::new(limits(40));
        let mut now = at("2026-01-01T10:00:00Z");
        // The hour that counts is the latest the book was told of: a clock set back gives no second one.
        ledger.remaining(now);
        let mut hour = Period::Hour.start(now);
        let mut sent = 0_u64;
        let mut used = 0_u64;
        let mut under_way: Vec<(Order, Amount)> = Vec::new();
        for step in steps {
            match step {
                Step::Send { sweep, tokens } => {
                    let order = order(&format!("s{sweep}"), "t");
                    if ledger.hold(&order, amount(1, tokens), now).is_ok() {
                        sent += 1;
                        under_way.push((order, amount(1, tokens)));
                    }
                }
                Step::Settle { share } => if let Some((order, held)) = under_way.pop() {
                    let tokens = held.tokens * share / 100;
                    ledger.settle(&order, held, amount(1, tokens), now);
                    used += tokens;
                }
                Step::Drop => if let Some((order, held)) = under_way.pop() {
                    ledger.settle(&order, held, held, now);
                    used += held.tokens;
                }
                Step::Reload { requests } => ledger.adopt(limits(requests), now),
                Step::Tick { seconds } => {
                    now += TimeDelta::seconds(seconds);
                    ledger.remaining(now);
                }
            }
            if Period::Hour.start(now) > hour {
                hour = Period::Hour.start(now);
                // What is under way was sent in the hour before and is still held in this one.
                (sent, used) = (under_way.len() as u64, 0);
            }
            prop_assert!(sent <= 40, "{sent} requests in one hour");
            let held: u64 = under_way.iter().map(|(_, held)| held.tokens).sum();
            prop_assert!(used + held <= 400, "{used} tokens used and {held} held in one hour");
        }
    }
}
