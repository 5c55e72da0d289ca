//! The corpus with a fake clock: exact to the microsecond, and the same however the bytes are cut.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tokenprobe::{
    measurement::Measurement,
    protocol::{Deadline, Ending, Protocol, Reply, ReplyHead, TransportFailure},
};

use crate::corpus::{self, Case, Clock, End};

/// Plays a case as the network loop would: a deadline that passes before the next read ends the probe.
fn play(case: &Case, protocol: Protocol, writes: &[(Duration, Vec<u8>)]) -> Measurement {
    let timeouts = case.timeouts();
    let headers_at = case.headers_at();
    let headers = case.headers();
    let head = ReplyHead {
        protocol,
        host: case.request_hint.host.as_deref().unwrap_or("api.example.test"),
        status: case.response_status.expect("an answer has a status"),
        headers: &headers,
        include_usage: case.include_usage(),
        keep_text: true,
        gap_bounds: Arc::from([0.01, 0.1, 1.0]),
    };
    let mut reply = Reply::new(&head, headers_at);
    let mut now = headers_at;
    for (at, bytes) in writes {
        let (due, deadline) = reply.due(&timeouts);
        if due <= *at {
            return reply.end(due, Ending::Deadline(deadline));
        }
        reply.read(*at, bytes);
        now = *at;
        if reply.is_finished() {
            return reply.end(now, Ending::Aborted);
        }
    }
    match case.end.expect("an answer has an end") {
        End::Clean => reply.end(now, Ending::Clean),
        End::Abort => reply.end(now, Ending::Aborted),
        End::Hang => {
            let (due, deadline) = reply.due(&timeouts);
            reply.end(due, Ending::Deadline(deadline))
        }
    }
}

fn transport(case: &Case) -> Option<TransportFailure> {
    let words = || "as the system words it".to_owned();
    Some(match case.transport.as_deref()? {
        "dns_failure" => TransportFailure::Dns(words()),
        "connect_refused" => TransportFailure::Refused(words()),
        "connect_timeout" => TransportFailure::Deadline(Deadline::Connect),
        "tls_untrusted" => TransportFailure::TlsUntrusted(words()),
        "tls_alert" => TransportFailure::TlsHandshake(words()),
        "proxy_407" => TransportFailure::ProxyAuth(words()),
        "reset_before_headers" => TransportFailure::ResetBeforeHeaders(words()),
        other => panic!("unknown transport failure {other}"),
    })
}

fn check_all(clock: Clock, recut: impl Fn(&Case) -> Vec<(Duration, Vec<u8>)>) {
    let mut failures = Vec::new();
    let mut played = 0;
    for case in corpus::load().into_iter().chain(corpus::load_further()) {
        let Some(protocol) = case.protocol() else { panic!("{}: an unknown API", case.id) };
        let measurement = match transport(&case) {
            Some(failure) => failure.into_measurement(Duration::from_millis(10)),
            None if case.headers_at() >= case.timeouts().headers => {
                TransportFailure::Deadline(Deadline::Headers).into_measurement(case.timeouts().headers)
            }
            None => play(&case, protocol, &recut(&case)),
        };
        played += 1;
        for difference in corpus::differences(&case, &measurement, clock) {
            failures.push(format!("{}: {difference}", case.id));
        }
        let message =
            measurement.outcome.failure().map(|failure| failure.message.as_str()).unwrap_or_default();
        assert!(message.chars().count() <= 220 && !message.contains('\n'), "{}: {message:?}", case.id);
    }
    assert!(played >= 400, "only {played} cases were played");
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}

/// A change to a body: at which of its bytes, and to what.
type Edit = (prop::sample::Index, Option<u8>);

proptest! {
    #[test]
    fn no_damage_to_an_answer_makes_it_panic(
        case in prop::sample::select(corpus::load()),
        edits in proptest::collection::vec(any::<Edit>(), 1..6),
        size in 1usize..80,
    ) {
        let Some(protocol) = case.protocol().filter(|_| case.transport.is_none()) else { return Ok(()) };
        let mut bytes: Vec<u8> = case.writes().into_iter().flat_map(|(_, bytes)| bytes).collect();
        for (at, edit) in edits {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match edit {
                Some(byte) => bytes[at] = byte,
                None => drop(bytes.remove(at)),
            }
        }
        let writes: Vec<_> =
            bytes.chunks(size).zip(1..).map(|(piece, at)| (Duration::from_millis(at), piece.to_vec())).collect();
        play(&case, protocol, &writes);
    }
}

#[test]
fn the_corpus_is_exact() {
    check_all(Clock::Exact, Case::writes);
}

#[test]
fn one_byte_per_read_changes_neither_outcome_nor_tokens_nor_times() {
    check_all(Clock::Bytewise, |case| {
        let bytes = case.writes().into_iter();
        bytes.flat_map(|(at, bytes)| bytes.into_iter().map(move |byte| (at, vec![byte]))).collect()
    });
}

#[test]
fn reads_cut_at_odd_places_change_neither_outcome_nor_tokens_nor_times() {
    for size in [2, 3, 7, 64] {
        check_all(Clock::Bytewise, |case| {
            let writes = case.writes().into_iter();
            writes
                .flat_map(|(at, bytes)| {
                    bytes.chunks(size).map(|piece| (at, piece.to_vec())).collect::<Vec<_>>()
                })
                .collect()
        });
    }
}
