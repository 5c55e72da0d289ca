//! Streams that mean harm: memory and time stay bounded, and the outcome says what happened.

use std::io::Write;

use super::{Play, content, delta, finish, ms, outcome};
use crate::protocol::{
    Deadline, Ending, Timeouts,
    framing::{EVENT_BYTES_MAX, Frame},
    sse::SseDecoder,
};

/// Most bytes the decoder held while fed `reads` times the same bytes, and how often it cried.
fn footprint(read: &[u8], reads: usize) -> (usize, bool) {
    let mut decoder = SseDecoder::default();
    let mut too_long = false;
    let mut most = 0;
    for _ in 0..reads {
        decoder.feed(read, &mut |frame| too_long |= frame == Frame::TooLong);
        most = most.max(decoder.footprint());
    }
    (most, too_long)
}

#[test]
fn comments_cost_no_memory() {
    let (endless_comment, _) = footprint(&[b":", [b'x'; 4096].as_slice()].concat(), 1);
    assert!(endless_comment <= 8192);
    let mut decoder = SseDecoder::default();
    decoder.feed(b": ", &mut |_| {});
    for _ in 0..2000 {
        decoder.feed(&[b'x'; 4096], &mut |_| {});
    }
    assert!(decoder.footprint() <= 8192);
    let (lines, too_long) = footprint(b": ping\n: ping\n\n", 100_000);
    assert!(lines <= 1024 && !too_long);
}

#[test]
fn endless_lines_and_events_are_given_up() {
    let mut decoder = SseDecoder::default();
    let mut too_long = 0;
    decoder.feed(b"data: {\"a\":\"", &mut |_| {});
    for _ in 0..1000 {
        decoder.feed(&[b'x'; 8192], &mut |frame| too_long += usize::from(frame == Frame::TooLong));
        assert!(decoder.footprint() <= 2 * EVENT_BYTES_MAX + 65_536);
    }
    assert_eq!(too_long, 1);
    let (lines, too_long) = footprint(b"data: {\"a\":[\n", 200_000);
    assert!(too_long && lines <= 2 * EVENT_BYTES_MAX + 65_536);
    let (unknown, _) = footprint(&[b'x'; 4096], 1000);
    assert!(unknown <= 200_000, "{unknown}");
    let (stray, _) = footprint(b"{\"a\":[\n", 100_000);
    assert!(stray <= 200_000, "{stray}");
}

#[test]
fn an_event_past_its_limit_is_a_protocol_error_and_ends_the_reading() {
    let mut reply = Play::default().reply();
    reply.read(ms(10), content("A").as_bytes());
    reply.read(ms(20), b"data: {\"a\":\"");
    for _ in 0..200 {
        reply.read(ms(30), &[b'x'; 8192]);
    }
    assert!(reply.is_finished());
    assert_eq!(outcome(&reply.end(ms(40), Ending::Aborted)), "partial protocol");
}

#[test]
fn a_json_reply_past_its_limit_is_a_protocol_error() {
    let mut reply = Play::default().reply();
    reply.read(ms(10), b"{\"choices\":[\"");
    for _ in 0..2000 {
        reply.read(ms(30), &[b'x'; 8192]);
    }
    assert!(reply.is_finished());
    assert_eq!(outcome(&reply.end(ms(40), Ending::Aborted)), "error protocol");
}

#[test]
fn an_endless_error_page_is_cut() {
    let mut reply = Play { status: 502, ..Play::default() }.reply();
    for at in 0..2000 {
        reply.read(ms(at), &[b'<'; 8192]);
    }
    assert_eq!(outcome(&reply.end(ms(2000), Ending::TooLarge)), "error edge/gateway_502");
}

#[test]
fn a_bomb_is_defused() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..1600 {
        bomb.write_all(&vec![b' '; 65_536]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 200_000);
    let mut reply = Play { headers: &[("content-encoding", "gzip")], ..Play::default() }.reply();
    reply.read(ms(10), &bomb);
    assert!(reply.is_finished());
    assert_eq!(outcome(&reply.end(ms(40), Ending::Clean)), "error protocol");
}

#[test]
fn deep_json_overflows_nothing() {
    let deep = |open: &str, close: &str| open.repeat(200_000) + &close.repeat(200_000);
    let in_stream = format!("data: {{\"choices\":{}}}\n\n", deep("[", "]"));
    assert_eq!(
        outcome(&Play::default().texts(&[in_stream, finish("stop")])),
        "empty empty_output/no_visible_text"
    );
    let content_parts = delta(&format!("{{\"content\":{}}}", deep("[", "]")));
    Play::default().texts(&[content_parts, finish("stop")]);
    let nested = delta(&format!(
        "{{\"content\":{}{}}}",
        "{\"thinking\":".repeat(100_000),
        "1".to_owned() + &"}".repeat(100_000)
    ));
    Play::default().texts(&[nested, finish("stop")]);
    let error = format!("{{\"error\":{}}}", deep("[", "]"));
    assert_eq!(outcome(&Play { status: 400, ..Play::default() }.texts(&[&error])), "error bad_request/other");
    Play::default().texts(&[&error]);
    let in_error = format!("data: {{\"error\":{}}}\n\n", deep("[", "]"));
    assert_eq!(outcome(&Play::default().texts(&[in_error])), "error upstream_error");
}

#[test]
fn one_byte_per_read_is_linear() {
    // A quadratic step anywhere would need hours for these.
    let line = format!("data: {{\"a\":\"{}\"}}\n\n", "x".repeat(400_000));
    let blanks = format!("data: {{}}{}\n\n", " ".repeat(400_000));
    let newlines = "data:\n".repeat(100_000) + "data: x\n" + &"data: y\n".repeat(50_000);
    let values = format!("data: {}\n\n", "{}".repeat(300_000));
    for stream in [line, blanks, newlines, values] {
        let mut decoder = SseDecoder::default();
        for byte in stream.as_bytes().chunks(1) {
            decoder.feed(byte, &mut |_| {});
        }
        let mut whole = SseDecoder::default();
        whole.feed(stream.as_bytes(), &mut |_| {});
    }
}

#[test]
fn memory_does_not_grow_with_the_answer() {
    let mut reply = Play::default().reply();
    let chunk = content(" a longer word");
    for at in 0..100_000 {
        reply.read(ms(at), chunk.as_bytes());
    }
    let timeouts =
        Timeouts { connect: ms(1), headers: ms(1), first_token: ms(1), stall: ms(9), total: ms(900_000) };
    assert_eq!(reply.due(&timeouts), (ms(100_008), Deadline::Stall));
    let measurement = reply.end(ms(100_000), Ending::Aborted);
    assert_eq!(measurement.tokens.chunks, 100_000);
    assert_eq!(measurement.visible_text.map(|text| text.len()), Some(1 << 20));
}
