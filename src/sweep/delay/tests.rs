//! Which delays are a verdict.

use super::*;

/// The verdict over samples in milliseconds.
fn check(samples: &[(usize, u64)], kept_waiting: Option<KeptWaiting>, ttft_ms: u64, expect: Option<bool>) {
    let mut lateness = sketch();
    for (count, millis) in samples {
        (0..*count).for_each(|_| lateness.record(ms(*millis)));
    }
    let delays = Delays { sampled: lateness, kept_waiting, span: ms(10_000) };
    let verdict = delays.saturated(Some(ms(ttft_ms).as_secs_f64()));
    assert_eq!(verdict, expect, "{samples:?} {kept_waiting:?} {ttft_ms}");
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn kept(ran: u64, waited: u64) -> KeptWaiting {
    KeptWaiting { ran: ms(ran), waited: ms(waited) }
}

#[test]
fn what_most_stamps_do_not_suffer_is_no_verdict() {
    check(&[], None, 50, None);
    check(&[(100, 0)], None, 50, Some(false));
    check(&[(96, 0), (4, 900)], None, 50, Some(false));
    check(&[(400, 4)], None, 50, Some(false));
}

#[test]
fn more_than_one_in_twenty_is_a_verdict() {
    check(&[(94, 0), (6, 9)], None, 50, Some(true));
}

#[test]
fn the_limit_grows_with_the_time_to_first_token() {
    check(&[(90, 0), (10, 9)], None, 150, Some(true));
    check(&[(90, 0), (10, 9)], None, 1000, Some(false));
    check(&[(90, 0), (10, 60)], None, 1000, Some(true));
}

#[test]
fn a_starved_process_is_trusted_less() {
    let samples = [(980, 0), (20, 4)];
    check(&samples, Some(kept(200, 4000)), 50, Some(true));
    check(&samples, Some(kept(200, 500)), 50, Some(false));
    check(&samples, Some(kept(100, 400)), 50, Some(false));
    check(&samples, Some(kept(200, 4000)), 1000, Some(false));
    check(&[(100, 0)], Some(kept(200, 4000)), 50, Some(false));
}
