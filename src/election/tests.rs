//! What a contender makes of what it sees, with time as an argument; and what a lease carries over the wire.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Carried, Starts, contender::Contender, lease::Lease};
use crate::budget::Spent;

const SECOND: Duration = Duration::from_secs(1);

fn contender(identity: &str) -> Contender {
    Contender::new(identity.to_owned(), 15 * SECOND).unwrap()
}

/// The lease as the API server returns it.
fn stored(lease: &Lease, version: u32) -> Lease {
    let mut value = serde_json::to_value(lease).unwrap();
    value["metadata"]["resourceVersion"] = version.to_string().into();
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_lease_is_taken_over_only_after_its_whole_length_without_a_change() {
    let start = Instant::now();
    let (mut leader, mut standby) = (contender("a"), contender("b"));
    assert!(leader.may_take(start), "nobody holds it");
    let wish = leader.wish(&Lease::new("x"), &Carried::default(), chrono::Utc::now());
    let first = stored(&wish, 1);
    let until = leader.won(first.clone(), start, start);
    standby.saw(first.clone(), start);
    assert!(!standby.may_take(start));
    let length = first.length();
    // The leader has stopped well before anybody else may begin.
    assert!(until < start + length - SECOND, "{:?}", until - start);
    // Seeing the same again proves nothing; a new version begins anew, whatever times stand in it.
    standby.saw(first.clone(), start + length / 2);
    let renewed = stored(&leader.wish(&first, &Carried::default(), chrono::DateTime::UNIX_EPOCH), 2);
    standby.saw(renewed, start + length / 2);
    assert!(!standby.may_take(start + length));
    assert!(standby.may_take(start + length + length / 2));
}

#[test]
fn a_takeover_takes_no_longer_than_promised() {
    for takeover in [3, 4, 5, 15, 60, 3600] {
        let takeover = takeover * SECOND;
        let start = Instant::now();
        let mut standby = Contender::new("b".into(), takeover).unwrap();
        let wish = Contender::new("a".into(), takeover).unwrap().wish(
            &Lease::new("x"),
            &Carried::default(),
            chrono::Utc::now(),
        );
        // Written just after a look of the standby, and the leader died at once.
        let seen = start + standby.look_every();
        standby.saw(stored(&wish, 1), seen);
        let mut now = seen;
        while !standby.may_take(now) {
            now = standby.wake(now);
        }
        assert!(now - start <= takeover, "{:?} for {takeover:?}", now - start);
    }
    assert!(Contender::new("a".into(), SECOND).is_err());
}

#[test]
fn a_lease_that_was_given_up_may_be_had_at_once() {
    let start = Instant::now();
    let mut standby = contender("b");
    let held = contender("a").wish(&Lease::new("x"), &Carried::default(), chrono::Utc::now());
    standby.saw(stored(&held, 1), start);
    assert!(!standby.may_take(start));
    standby.saw(stored(&held.given_up(&Carried::default(), chrono::Utc::now()), 2), start);
    assert!(standby.may_take(start));
}

#[test]
fn what_a_lease_carries_comes_back_and_what_is_not_ours_stays() {
    let starts = Starts::from([(Arc::from("hourly \"x\""), "2026-01-01T01:00:00Z".parse().unwrap())]);
    let spent =
        Spent { scope: "all".into(), period: "day".into(), start: 1, requests: 2, tokens: 3, cost: 0.5 };
    let carried = Carried { starts, spent: vec![spent] };
    let foreign = serde_json::json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "x", "resourceVersion": "7", "labels": {"team": "a"}, "annotations": {"other": "kept"}},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 11, "leaseTransitions": 4, "strategy": "OldestEmulationVersion"}
    });
    let lease: Lease = serde_json::from_value(foreign).unwrap();
    let ours = lease.held_by("b", 11, &carried, "2026-01-01T01:00:00Z".parse().unwrap());
    let value = serde_json::to_value(&ours).unwrap();
    assert_eq!(serde_json::from_value::<Lease>(value.clone()).unwrap().carried(), carried);
    assert_eq!(value["metadata"]["labels"]["team"], "a");
    assert_eq!(value["metadata"]["annotations"]["other"], "kept");
    assert_eq!(value["metadata"]["resourceVersion"], "7");
    assert_eq!(value["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(value["spec"]["leaseTransitions"], 5);
    assert_eq!(value["spec"]["renewTime"], "2026-01-01T01:00:00.000000Z");
    assert_eq!(ours.held_by("b", 11, &carried, chrono::Utc::now()).holder(), Some("b"));
    // Whatever somebody wrote into the annotations by hand costs nothing but what it said.
    let mut spoilt = value;
    spoilt["metadata"]["annotations"]["tokenprobe/starts"] = "{".into();
    let spoilt: Lease = serde_json::from_value(spoilt).unwrap();
    assert_eq!(spoilt.carried().starts, Starts::new());
}
