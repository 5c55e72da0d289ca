//! What is recognised is what reading would have told: for every event of streams made of everything events differ in.

use proptest::prelude::*;

use super::*;
use crate::protocol::Protocol;

/// Plays a stream; how many of its events were recognised. Each of those is read as well, and must say the same.
fn play(protocol: Protocol, events: &[String]) -> usize {
    let mut familiar = Familiar::default();
    let mut known = Vec::new();
    let mut recognized = 0;
    for event in events {
        let mut gist = Gist::default();
        let read = protocol.read(event.as_bytes(), &mut gist);
        if let Some(said) = familiar.recognize(event.as_bytes()) {
            recognized += 1;
            assert!(read.is_ok(), "not JSON, and recognised: {event}");
            assert_eq!(gist.only_text(), Some(said), "{event}");
            // Names are noted when they come: none may come unnoticed.
            let (model, fingerprint) = gist.names();
            assert!(known.contains(&(model.to_owned(), fingerprint.to_owned())), "{event}");
        } else if read.is_ok() {
            familiar.keep(event.as_bytes(), &gist, |event, gist| protocol.read(event, gist));
            let (model, fingerprint) = gist.names();
            known.push((model.to_owned(), fingerprint.to_owned()));
        }
    }
    recognized
}

fn chunk(delta: &str) -> String {
    format!(
        r#"{{"id":"c-1","object":"chat.completion.chunk","created":1,"model":"org/m","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#
    )
}

fn content(text: &str) -> String {
    chunk(&format!(r#"{{"content":"{text}"}}"#))
}

fn check(events: &[String], recognized: usize) {
    assert_eq!(play(Protocol::OpenAiChat, events), recognized, "{events:#?}");
}

#[test]
fn a_stream_of_words_is_read_once() {
    check(&[" the", " wind", " blew", "", " 風", " over"].map(content), 4);
}

#[test]
fn escapes_and_what_is_no_json_are_read() {
    let events = [" the", "\\n", " a\\\"b", " wind", "\u{1}", "\"", " over"];
    check(&events.map(content), 2);
}

#[test]
fn a_text_that_also_stands_elsewhere_is_found() {
    // As the name of its own member, as a value before it, and as both at once.
    for (first, more) in [("content", 2), ("org/m", 2), ("chat.completion.chunk", 2), ("c-1", 2)] {
        check(&[first, " wind", " over"].map(content), more);
    }
}

#[test]
fn whatever_else_differs_is_read() {
    let id = |event: String| event.replace("c-1", "c-2");
    check(&[content(" a"), content(" b"), id(content(" c")), id(content(" d"))], 2);
    let model = |event: String| event.replace("org/m", "org/n");
    check(&[content(" a"), model(content(" b")), model(content(" c"))], 1);
    check(&[content(" a"), content(" b").replace("null", "\"stop\""), content(" c")], 1);
    let usage = content(" b").replace("\"created\":1", "\"created\":1,\"usage\":{\"completion_tokens\":2}");
    check(&[usage.clone(), usage.clone(), usage], 0);
    let reasoning = |text: &str| chunk(&format!(r#"{{"reasoning_content":"{text}"}}"#));
    check(&[reasoning(" a"), reasoning(" b"), content(" c"), content(" d")], 2);
    let both = |text: &str| chunk(&format!(r#"{{"reasoning_content":"{text}","content":"{text}"}}"#));
    check(&[both(" a"), both(" b")], 0);
    let call = |text: &str| {
        chunk(&format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{text}"}}}}]}}"#))
    };
    check(&[call("1"), call("2"), call("3")], 2);
}

#[test]
fn a_stream_whose_events_all_differ_is_not_compared_for_ever() {
    let events: Vec<String> =
        (0..20).map(|time| content(" a").replace("\"created\":1", &format!("\"created\":{time}"))).collect();
    check(&events, 0);
    let mut familiar = Familiar::default();
    for event in &events {
        let mut gist = Gist::default();
        Protocol::OpenAiChat.read(event.as_bytes(), &mut gist).unwrap();
        familiar.keep(event.as_bytes(), &gist, |event, gist| Protocol::OpenAiChat.read(event, gist));
    }
    assert_eq!(familiar.vain, VAIN_MAX);
}

/// A piece of text as it may stand in a stream: words, escapes, what is no JSON, and text that stands elsewhere, too.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => " [a-z]{1,6}",
        1 => Just(String::new()),
        1 => prop::sample::select(vec![
            "\\n", "\\\"", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\"", "\\", "\u{1}", "\t", "é", "😀", "content", "c-1",
            "null", "stop", "assistant", "org/m", "}", "\"},\"x\":{\"a\":\"", "<think>", "~", "a~",
        ]).prop_map(str::to_owned),
    ]
}

/// An event of any kind, with room for a text.
fn event() -> impl Strategy<Value = String> {
    let shapes = vec![
        r#"{"id":"c-1","model":"org/m","choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":null}]}"#,
        r#"{"id":"c-1","model":"org/m","choices":[{"index":1,"delta":{"content":"TEXT"},"finish_reason":null}]}"#,
        r#"{"id":"c-2","model":"org/n","choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":null}]}"#,
        r#"{"id":"c-1","model":"org/m","choices":[{"index":0,"delta":{"reasoning_content":"TEXT"}}]}"#,
        r#"{"id":"c-1","model":"org/m","choices":[{"index":0,"delta":{"reasoning":"TEXT","content":"TEXT"}}]}"#,
        r#"{"id":"c-1","model":"org/m","choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":"stop"}]}"#,
        r#"{"id":"TEXT","model":"org/m","choices":[{"index":0,"delta":{"content":"TEXT"}}]}"#,
        r#"{"id":"c-1","model":"TEXT","choices":[{"index":0,"delta":{"content":" a"}}]}"#,
        r#"{"object":"TEXT","choices":[{"index":0,"delta":{"content":" a"}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"text","text":"TEXT"},{"type":"thinking","thinking":"TEXT"}]}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"TEXT","text":" a"}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"TEXT","arguments":"{}"}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"TEXT"}}]}}]}"#,
        r#"{"choices":[{"delta":{"content":"TEXT"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
        r#"{"choices":[{"delta":{"refusal":"TEXT"}}]}"#,
        r#"{"error":{"message":"TEXT"}}"#,
        r#"{"choices":[{"text":"TEXT","index":0}]}"#,
    ];
    (prop::sample::select(shapes), text()).prop_map(|(shape, text)| shape.replace("TEXT", &text))
}

proptest! {
    #[test]
    fn what_is_recognised_is_what_reading_tells(
        events in proptest::collection::vec(event(), 1..24),
        repeats in 1_usize..4,
    ) {
        let events: Vec<String> = events.into_iter().flat_map(|event| vec![event; repeats]).collect();
        play(Protocol::OpenAiChat, &events);
    }

    #[test]
    fn words_of_one_shape_are_recognised(words in proptest::collection::vec(" [a-z]{1,6}", 2..20)) {
        let events: Vec<String> = words.iter().map(|word| content(word)).collect();
        prop_assert_eq!(play(Protocol::OpenAiChat, &events), events.len() - 1);
    }
}
