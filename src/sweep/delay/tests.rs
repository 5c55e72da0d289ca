//! Which delays are a verdict.

use super::*;

/// The verdict over samples in milliseconds.
fn check(samples: &[(usize, u64)], starved: bool, ttft_ms: u64, expect: Option<bool>) {
    let mut lateness = sketch();
    for (count, millis) in samples {
        (0..*count).for_each(|_| lateness.record(ms(*millis)));
    }
    let delays = Delays { sampled: lateness, starved };
    let verdict = delays.saturated(Some(ms(ttft_ms).as_secs_f64()), None);
    assert_eq!(verdict, expect, "{samples:?} starved {starved} {ttft_ms}");
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn what_most_stamps_do_not_suffer_is_no_verdict() {
    check(&[], false, 50, None);
    check(&[(100, 0)], false, 50, Some(false));
    check(&[(96, 0), (4, 900)], false, 50, Some(false));
    check(&[(400, 4)], false, 50, Some(false));
}

#[test]
fn more_than_one_in_twenty_is_a_verdict() {
    check(&[(94, 0), (6, 9)], false, 50, Some(true));
}

#[test]
fn the_limit_grows_with_the_time_to_first_token() {
    check(&[(90, 0), (10, 9)], false, 150, Some(true));
    check(&[(90, 0), (10, 9)], false, 1000, Some(false));
    check(&[(90, 0), (10, 60)], false, 1000, Some(true));
}

#[test]
fn a_starved_process_is_trusted_less() {
    let samples = [(980, 0), (20, 4)];
    check(&samples, true, 50, Some(true));
    check(&samples, false, 50, Some(false));
    check(&samples, true, 1000, Some(false));
    check(&[(100, 0)], true, 50, Some(false));
}

#[test]
fn requests_that_left_late_are_a_verdict() {
    let mut lateness = sketch();
    (0..100).for_each(|_| lateness.record(ms(0)));
    let delays = Delays { sampled: lateness, starved: false };
    assert_eq!(
        delays.saturated(Some(0.05), Some(0.0055)),
        Some(false),
        "but for the timer's own millisecond"
    );
    assert_eq!(delays.saturated(Some(0.05), Some(0.0065)), Some(true));
    assert_eq!(delays.saturated(Some(1.0), Some(0.0065)), Some(false));
}
