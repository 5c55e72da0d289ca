//! Event framing: what is tolerated, what is said, and that cutting changes nothing.

use proptest::prelude::*;

use super::{Play, content, finish, flags, ms, outcome};
use crate::protocol::{
    Ending, Protocol,
    framing::Frame,
    json_scan::{JsonScan, split_values},
    sse::SseDecoder,
};

/// The frames of a stream fed in the given pieces, as text.
fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, clean: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut decoder = SseDecoder::default();
    let mut note = |frame: Frame<'_>| {
        found.push(match frame {
            Frame::Payload { name, data } => format!("{name}={}", String::from_utf8_lossy(data).trim()),
            Frame::ErrorField(data) => format!("error field {}", String::from_utf8_lossy(data)),
            Frame::Stray(data) => format!("stray {}", String::from_utf8_lossy(data)),
            Frame::Comments => "comments".to_owned(),
            Frame::Lax => "lax".to_owned(),
            Frame::TooLong => "too long".to_owned(),
            Frame::Exception { code, .. } => format!("exception {code}"),
            Frame::Broken => "broken".to_owned(),
        });
    };
    for piece in pieces {
        decoder.feed(piece, &mut note);
    }
    decoder.finish(clean, &mut note);
    found
}

fn check(stream: &str, expected: &[&str]) {
    assert_eq!(frames([stream.as_bytes()], true), expected, "{stream:?}");
    let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
    assert_eq!(frames(bytes, true), expected, "{stream:?}, one byte per read");
}

#[test]
fn fields_follow_the_standard() {
    check("data: {\"a\":1}\n\n", &["={\"a\":1}"]);
    check("data:{\"a\":1}\n\n", &["={\"a\":1}"]);
    check("event: x\ndata: {}\n\n", &["x={}"]);
    check("id: 1\nretry: 5\ndata: {}\n\n", &["={}"]);
    check("event: x\n\ndata: {}\n\n", &["={}"]);
    check(": hi\n\n: ho\n\ndata: {}\n\n", &["comments", "comments", "={}"]);
    check(": hi\ndata: {}\n\n", &["={}"]);
    check("data: {\ndata: }\n\n", &["={\n}"]);
    check("data\n\n", &["="]);
    check("data:\n\n", &["="]);
    check("foo: bar\nbaz\n\ndata: {}\n\n", &["={}"]);
}

#[test]
fn all_line_ends_mix() {
    for end in ["\n", "\r\n", "\r"] {
        check(&format!("data: {{}}{end}{end}data: [1]{end}{end}"), &["={}", "=[1]"]);
    }
    check("data: {}\r\n\ndata: [1]\r\r\n", &["={}", "=[1]"]);
}

#[test]
fn lax_framing_is_tolerated_and_said() {
    check("data: {}\ndata: [1]\n\n", &["={}", "lax", "=[1]"]);
    check("data: {}\ndata: [DONE]\n", &["={}", "lax", "=[DONE]", "lax"]);
    check("data: {}", &["={}", "lax"]);
    check("data: {}\n", &["={}", "lax"]);
    check("data: : junk\ndata: {}\n\n", &["=: junk", "lax", "={}"]);
    check("{\"error\":1}\n", &["stray {\"error\":1}"]);
    check("{\n \"error\": {\n\n }\n}\n\n", &["stray {\n \"error\": {\n }\n}"]);
    check("error: {\"code\":400}\n\n", &["error field {\"code\":400}"]);
    check("data: {\"a\":", &[]);
}

#[test]
fn several_values_in_one_data_line_are_several_events() {
    let chunk = content("A");
    let value = chunk.trim_start_matches("data: ").trim_end();
    let stream = format!("data: {value}{value} {value}\n\n{}", finish("stop"));
    for size in [1, 5, stream.len()] {
        let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
        let measurement = Play::default().texts(&pieces);
        assert_eq!((outcome(&measurement).as_str(), measurement.tokens.chunks), ("ok", 3), "{size}");
        assert!(flags(&measurement).contains(&"lax_framing"), "{size}");
    }
}

#[test]
fn half_an_event_at_an_abort_is_dropped() {
    assert_eq!(frames([b"data: {}\n\ndata: {\"a".as_slice()], false), ["={}"]);
    assert_eq!(frames([b"data".as_slice()], false), [""; 0]);
}

#[test]
fn an_event_is_dated_by_the_read_that_brought_its_last_data_byte() {
    let event = content("A");
    let (head, tail) = event.split_at(event.len() - 2);
    for cut in [head.len(), head.len() + 1] {
        let measurement = Play::default().reads(&[
            (10, &event.as_bytes()[..cut]),
            (90, &event.as_bytes()[cut..]),
            (95, finish("stop").as_bytes()),
        ]);
        assert_eq!(measurement.timeline.first_answer_token, Some(ms(10)), "{tail:?}");
    }
}

#[test]
fn bytes_before_the_first_event_are_seen_through() {
    let stream = content("A") + &finish("stop");
    for prefix in ["\u{feff}", "\n", "\r\n\r\n", "\u{feff}\n", " \n"] {
        let whole = format!("{prefix}{stream}");
        assert_eq!(outcome(&Play::default().texts(&[&whole])), "ok", "{prefix:?}");
        let bytes: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
        assert_eq!(outcome(&Play::default().texts(&bytes)), "ok", "{prefix:?}");
    }
}

#[test]
fn what_is_not_quite_json_is_mended() {
    let halves = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\ud83d\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"\\ude00 x\"}}]}\n\n",
        &finish("stop"),
    ];
    let measurement = Play::default().texts(&halves);
    assert_eq!((outcome(&measurement).as_str(), measurement.tokens.chunks), ("ok", 2));
    let odd = "data: {\"choices\":[{\"delta\":{\"content\":\"NaN \\\"\\\\\"},\"logprobs\":{\"a\":NaN,\"b\":-Infinity}}]}\n\n";
    let measurement = Play::default().texts(&[odd, &finish("stop")]);
    assert_eq!(measurement.visible_text.as_deref(), Some("NaN \"\\"));
    let mut raw = content("hX").into_bytes();
    let at = raw.iter().position(|byte| *byte == b'X').unwrap();
    raw[at] = 0xff;
    let measurement = Play::default().texts(&[raw, finish("stop").into_bytes()]);
    assert_eq!(measurement.visible_text.as_deref(), Some("h\u{fffd}"));
}

#[test]
fn data_that_is_not_json_is_a_protocol_error() {
    for bad in ["data: hello\n\n", "data: {\"choices\":\n\n", "data: {}x\n\n", "data: 5x\n\n"] {
        let error = Play::default().texts(&[bad, &finish("stop")]);
        assert_eq!(outcome(&error), "error protocol/bad_json", "{bad:?}");
        let partial = Play::default().texts(&[&content("A"), bad, &content("B"), &finish("stop")]);
        assert_eq!(outcome(&partial), "partial protocol/bad_json", "{bad:?}");
        assert_eq!(partial.visible_text.as_deref(), Some("A"), "{bad:?}");
        assert!(partial.flags.is_empty(), "{bad:?}: {:?}", flags(&partial));
    }
}

#[test]
fn errors_hide_in_odd_places() {
    let pretty = "event: x\ndata: {}\n\n{\n  \"error\": {\n    \"message\": \"Rate limit reached\"\n  }\n}\n";
    let measurement = Play::default().texts(&[pretty]);
    assert_eq!(outcome(&measurement), "error rate_limited");
    assert_eq!(flags(&measurement), ["lax_framing", "missing_done"]);
    let words = Play::default().texts(&["event: error\ndata: Server is busy\n\n"]);
    assert_eq!(outcome(&words), "error overloaded");
    let field = Play::default().texts(&["error: Server is busy\n\n"]);
    assert_eq!(outcome(&field), "error overloaded");
    let in_choice = "data: {\"choices\":[{\"delta\":{},\"error\":{\"code\":502,\"message\":\"x\"}}]}\n\n";
    assert_eq!(outcome(&Play::default().texts(&[in_choice])), "error upstream_error");
    let no_error = "data: {\"error\":null,\"choices\":[{\"delta\":{\"content\":\"A\"}}]}\n\n";
    assert_eq!(outcome(&Play::default().texts(&[no_error, &finish("stop")])), "ok");
}

#[test]
fn a_stream_of_nothing_is_told_from_words() {
    assert_eq!(outcome(&Play::default().texts(&[": hi\n\n"])), "error stream_truncated/no_events");
    assert_eq!(outcome(&Play::default().texts(&["event: ping\n\n"])), "error stream_truncated/no_events");
    let words = "upstream connect error or disconnect/reset before headers";
    assert_eq!(outcome(&Play::default().texts(&[words])), "error edge/upstream_connect");
    assert_eq!(outcome(&Play::default().texts(&["<html></html>"])), "error endpoint_not_found");
    let aborted = Play { ending: Ending::Aborted, ..Play::default() };
    assert_eq!(outcome(&aborted.texts(&[b""])), "error stream_truncated/aborted");
}

#[test]
fn values_end_where_their_brackets_close() {
    let cases: [(&str, Option<usize>); 8] = [
        ("{}", Some(2)),
        (" [1, \"]\"] x", Some(9)),
        ("{\"a\":\"\\\"}\"}", Some(11)),
        ("{\"a\":{", None),
        ("x{}", None),
        ("", None),
        ("   ", None),
        ("[DONE]", Some(6)),
    ];
    for (text, end) in cases {
        assert_eq!(JsonScan::default().advance(text.as_bytes()), end, "{text:?}");
        let mut scan = JsonScan::default();
        let stepwise = (0..=text.len()).find_map(|len| scan.advance(&text.as_bytes()[..len]));
        assert_eq!(stepwise, end, "{text:?}, bytewise");
    }
    assert_eq!(split_values(b"{} [1] x"), (vec![b"{}".as_slice(), b" [1]"], b" x".as_slice()));
}

/// How one event is written.
#[derive(Debug, Clone)]
struct Written {
    name: Option<String>,
    data: String,
    comment: bool,
    space: bool,
    end: &'static str,
}

fn written() -> impl Strategy<Value = Written> {
    let json = proptest::collection::btree_map("[a-z]{1,4}", "[ -~é\u{1f41f}]{0,12}", 0..4)
        .prop_map(|members| serde_json::to_string(&members).unwrap());
    let pretty = proptest::collection::vec(any::<u32>(), 0..4)
        .prop_map(|numbers| serde_json::to_string_pretty(&serde_json::json!({ "n": numbers })).unwrap());
    let data = prop_oneof![4 => json, 1 => pretty, 1 => Just("[DONE]".to_owned())];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    (proptest::option::of("[a-z_.]{1,8}"), data, any::<bool>(), any::<bool>(), end)
        .prop_map(|(name, data, comment, space, end)| Written { name, data, comment, space, end })
}

fn encode(events: &[Written]) -> String {
    let mut stream = String::new();
    for event in events {
        let Written { name, data, comment, space, end } = event;
        let space = if *space { " " } else { "" };
        if *comment {
            stream.extend([":", space, "note", end]);
        }
        if let Some(name) = name {
            stream.extend(["event:", space, name, end]);
        }
        for line in data.lines() {
            // A space that belongs to the data needs one before it.
            let space = if line.starts_with(' ') { " " } else { space };
            stream.extend(["data:", space, line, end]);
        }
        stream.push_str(end);
    }
    stream
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_however_it_is_cut(
        events in proptest::collection::vec(written(), 0..8),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = encode(&events);
        let expected: Vec<String> = events
            .iter()
            .map(|event| format!("{}={}", event.name.as_deref().unwrap_or_default(), event.data))
            .collect();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.extend([0, stream.len()]);
        at.sort_unstable();
        let pieces = at.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]);
        prop_assert_eq!(frames(pieces, true), expected.clone());
        prop_assert_eq!(frames(stream.as_bytes().chunks(1), true), expected);
    }

    #[test]
    fn no_bytes_panic(
        reads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..16),
        status in prop_oneof![Just(200u16), Just(404), Just(500), Just(301)],
        deflate in any::<bool>(),
        protocol in prop::sample::select(vec![
            Protocol::OpenAiChat,
            Protocol::OpenAiResponses,
            Protocol::Anthropic,
            Protocol::Gemini,
            Protocol::Ollama,
            Protocol::DashScope,
            Protocol::Bedrock,
        ]),
    ) {
        let headers: &[(&str, &str)] = if deflate { &[("content-encoding", "deflate")] } else { &[] };
        for ending in [Ending::Clean, Ending::Aborted] {
            Play { protocol, status, headers, ending, ..Play::default() }.texts(&reads);
        }
    }

    #[test]
    fn no_almost_events_panic(
        text in r#"(data: ?|event: error|:|error: |\n|\r|\{|\}|\[DONE\]|"choices"|"delta"|"content"|:|,|"|\\u[0-9a-f]{4}|<think>|</th|1|null|\[|\]){0,60}"#,
        size in 1usize..9,
    ) {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        Play::default().texts(&pieces);
    }
}
