//! Tokens, their clocks and counts, flags and ends of streams.

use super::{Play, content, delta, finish, flags, ms, outcome};
use crate::{
    measurement::{Measurement, TokenKind},
    protocol::{Deadline, Ending, Protocol, Timeouts},
};

/// Clocks in milliseconds, chunks, text.
fn clocks(measurement: &Measurement) -> (Option<u128>, Option<u128>, u64, String) {
    let line = &measurement.timeline;
    let millis = |at: Option<std::time::Duration>| at.map(|at| at.as_millis());
    (
        millis(line.first_answer_token),
        millis(line.first_reasoning_token),
        measurement.tokens.chunks,
        measurement.visible_text.clone().unwrap_or_default(),
    )
}

fn check_think(deltas: &[&str], expected: (Option<u128>, Option<u128>, u64, &str), expected_flags: &[&str]) {
    let mut texts: Vec<String> = deltas.iter().map(|text| content(text)).collect();
    texts.push(finish("stop"));
    let measurement = Play::default().texts(&texts);
    let (answer, reasoning, chunks, text) = clocks(&measurement);
    assert_eq!((answer, reasoning, chunks, text.as_str()), expected, "{deltas:?}");
    assert_eq!(flags(&measurement), expected_flags, "{deltas:?}");
}

#[test]
fn thinking_written_into_the_answer_is_told_apart() {
    let inline = ["inline_think"];
    check_think(&["<think>", "Hm", "</think>", "Two"], (Some(40), Some(20), 2, "Two"), &inline);
    check_think(&["<think>Hm", " so</think>Two"], (Some(20), Some(10), 2, "Two"), &inline);
    check_think(&["<th", "ink>Hm</th", "ink>", "\n\nTwo"], (Some(40), Some(20), 2, "\n\nTwo"), &inline);
    check_think(&["\n", "<think>", "\n", "</think>", "A"], (Some(50), Some(30), 2, "A"), &inline);
    check_think(&["<think>a</think>x</think>y"], (Some(10), Some(10), 1, "x</think>y"), &inline);
    let bare = ["inline_think", "think_close_only"];
    check_think(&["Because", " so</th", "ink>", "Two"], (Some(40), Some(10), 3, "Two"), &bare);
    check_think(&["so</think>Two"], (Some(10), Some(10), 1, "Two"), &bare);
    check_think(&["</think>", "Two"], (Some(20), None, 1, "Two"), &bare);
}

#[test]
fn text_that_only_looks_like_a_tag_keeps_its_own_time() {
    check_think(&["<th", "e>"], (Some(10), None, 2, "<the>"), &[]);
    check_think(&["\n\n", "Yes"], (Some(10), None, 2, "\n\nYes"), &[]);
    check_think(&["\n", "\n"], (Some(10), None, 2, "\n\n"), &[]);
    check_think(&["a <", "b"], (Some(10), None, 2, "a <b"), &[]);
    check_think(&["a", "<", "/th", "b"], (Some(10), None, 4, "a</thb"), &[]);
    check_think(
        &["Use <think>", "x</think>", " tags"],
        (Some(10), None, 3, "Use <think>x</think> tags"),
        &[],
    );
    check_think(&["Use <thi", "nk>x</think> tags"], (Some(10), None, 2, "Use <think>x</think> tags"), &[]);
}

#[test]
fn a_budget_spent_thinking_aloud_is_empty() {
    let measurement = Play::default().texts(&[content("<think>"), content("Hm</th"), finish("length")]);
    assert_eq!(outcome(&measurement), "empty empty_output/budget_spent_on_reasoning");
    let stopped = Play::default().texts(&[delta(r#"{"reasoning":"Hm"}"#), finish("stop")]);
    assert_eq!(outcome(&stopped), "empty empty_output/no_visible_text");
    let veiled = delta(r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"QQ"}]}"#);
    let veiled = Play::default().texts(&[veiled, finish("length")]);
    assert_eq!(outcome(&veiled), "empty empty_output/budget_spent_on_reasoning");
}

#[test]
fn repeated_text_is_no_token() {
    let repeat =
        Play::default().texts(&[content("Hello"), content(" there"), content("Hello there"), finish("stop")]);
    assert_eq!(clocks(&repeat), (Some(10), None, 2, "Hello there".into()));
    assert_eq!(flags(&repeat), ["repeat_chunk"]);
    let cumulative = Play::default().texts(&[
        content("I"),
        content("I am"),
        content("I am here"),
        content("I am here"),
        finish("stop"),
    ]);
    assert_eq!(clocks(&cumulative), (Some(10), None, 3, "I am here".into()));
    assert_eq!(flags(&cumulative), ["cumulative_text"]);
}

#[test]
fn a_model_may_say_the_same_twice() {
    for deltas in
        [["ha", "ha", "!"], ["ha", "haha", "!"], ["-", "---", "x"], ["\n", "\n\n", "x"], ["哈", "哈哈", "x"]]
    {
        let mut texts: Vec<String> = deltas.iter().map(|text| content(text)).collect();
        texts.push(finish("stop"));
        let measurement = Play::default().texts(&texts);
        assert_eq!(clocks(&measurement).3, deltas.concat());
        assert_eq!((measurement.tokens.chunks, flags(&measurement)), (3, vec![]), "{deltas:?}");
    }
}

#[test]
fn every_kind_of_text_is_a_token() {
    let cases: &[(&str, TokenKind, &str)] = &[
        (r#"{"refusal":"No"}"#, TokenKind::Refusal, "No"),
        (r#"{"tool_calls":[{"index":0,"function":{"name":"look"}}]}"#, TokenKind::ToolCall, "look"),
        (r#"{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}"#, TokenKind::ToolCall, "{"),
        (r#"{"tool_calls":[{"custom":{"input":"x","name":"f"}}]}"#, TokenKind::ToolCall, "fx"),
        (r#"{"function_call":{"arguments":"{}","name":"f"}}"#, TokenKind::ToolCall, "f{}"),
        (r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#, TokenKind::Content, "ab"),
        (r#"{"content":{"type":"text","text":"a"}}"#, TokenKind::Content, "a"),
        (r#"{"\u0063ontent":"\u0041"}"#, TokenKind::Content, "A"),
    ];
    for (json, kind, text) in cases {
        let measurement = Play::default().texts(&[delta(json), finish("stop")]);
        assert_eq!(measurement.first_token_kind, Some(*kind), "{json}");
        assert_eq!(clocks(&measurement), (Some(10), None, 1, (*text).into()), "{json}");
    }
}

#[test]
fn what_carries_no_text_is_no_token() {
    let silent = [
        r#"{"role":"assistant"}"#,
        r#"{"content":null}"#,
        r#"{"content":""}"#,
        r#"{"content":[]}"#,
        r#"{"content":[{"type":"text","text":""}]}"#,
        r#"{"content":5}"#,
        r#"{"tool_calls":null}"#,
        r#"{"tool_calls":[{"id":"a","type":"function","function":{"name":"","arguments":""}}]}"#,
        r#"{"reasoning_content":""}"#,
        r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"QQ"}]}"#,
        r#"{"extra_content":{"google":{"thought_signature":"x"}}}"#,
        r#"{"audio":{"id":"a"}}"#,
        "null",
        "[]",
        "7",
    ];
    for json in silent {
        let measurement = Play::default().texts(&[delta(json), content("A"), finish("stop")]);
        assert_eq!(clocks(&measurement), (Some(20), None, 1, "A".into()), "{json}");
    }
}

#[test]
fn reasoning_goes_by_several_names_and_counts_once() {
    let names = [
        r#"{"reasoning_content":"Hm"}"#,
        r#"{"reasoning":"Hm"}"#,
        r#"{"reasoning":"Hm","reasoning_content":"Hm"}"#,
        r#"{"reasoning_details":[{"type":"reasoning.text","text":"Hm"}],"reasoning":"Hm"}"#,
        r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"Hm"}]}"#,
        r#"{"content":[{"type":"thinking","thinking":"Hm"}]}"#,
    ];
    for json in names {
        let measurement = Play::default().texts(&[delta(json), content("A"), finish("stop")]);
        assert_eq!(clocks(&measurement), (Some(20), Some(10), 2, "A".into()), "{json}");
    }
}

fn usage(usage: &str) -> String {
    format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n")
}

#[test]
fn token_counts_come_from_where_the_server_puts_them() {
    let two = r#"{"prompt_tokens":9,"completion_tokens":2}"#;
    let groq = format!("data: {{\"choices\":[],\"x_groq\":{{\"id\":\"r\",\"usage\":{two}}}}}\n\n");
    let timings =
        "data: {\"choices\":[],\"timings\":{\"predicted_n\":2,\"prompt_n\":1,\"cache_n\":8}}\n\n".to_owned();
    let cases: Vec<(Vec<String>, u64, &str, &[&str])> = vec![
        (vec![], 2, "chunk_count", &["usage_missing"]),
        (vec![usage(two)], 2, "usage", &[]),
        (vec![groq.clone()], 2, "vendor:x_groq.usage", &[]),
        (vec![groq, usage(two)], 2, "usage", &[]),
        (vec![timings.clone()], 2, "vendor:timings.predicted_n", &["prompt_cached"]),
        (
            vec![usage(r#"{"completion_tokens":0,"prompt_tokens":0}"#)],
            2,
            "chunk_count",
            &["usage_zero_distrusted"],
        ),
        (
            vec![usage(r#"{"completion_tokens":0}"#), timings],
            2,
            "vendor:timings.predicted_n",
            &["usage_zero_distrusted", "prompt_cached"],
        ),
        (vec![usage("null")], 2, "chunk_count", &["usage_missing"]),
        // No answer has so many.
        (vec![usage(r#"{"completion_tokens":4000000000}"#)], 2, "chunk_count", &["usage_missing"]),
        // A part cannot be more than the whole: this one stands beside it.
        (
            vec![usage(r#"{"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":30}}"#)],
            32,
            "usage",
            &["hidden_reasoning"],
        ),
        // Nor can so many have been sent in so few bytes, or more of a prompt been cached than there was.
        (vec![usage(r#"{"completion_tokens":1000000}"#)], 2, "chunk_count", &["usage_excess_distrusted"]),
        (
            vec![usage(
                r#"{"completion_tokens":1000002,"completion_tokens_details":{"reasoning_tokens":1000000}}"#,
            )],
            1_000_002,
            "usage",
            &["hidden_reasoning"],
        ),
        (
            vec![usage(
                r#"{"completion_tokens":2,"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":10}}"#,
            )],
            2,
            "usage",
            &[],
        ),
        (vec![usage(two), usage(two)], 2, "usage", &[]),
        (vec![usage(r#"{"completion_tokens":3}"#)], 3, "usage", &[]),
        (vec![usage(r#"{"completion_tokens":4}"#)], 4, "usage", &["multi_token_chunks"]),
        (
            vec![usage(r#"{"completion_tokens":9,"completion_tokens_details":{"reasoning_tokens":7}}"#)],
            9,
            "usage",
            &["hidden_reasoning"],
        ),
        (
            vec![usage(r#"{"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}"#)],
            2,
            "usage",
            &["prompt_cached"],
        ),
        (
            vec![usage(r#"{"completion_tokens":2,"prompt_cache_hit_tokens":4}"#)],
            2,
            "usage",
            &["prompt_cached"],
        ),
    ];
    for (frames, tokens, source, expected) in cases {
        let mut texts = vec![content("Oak"), content(" leaf")];
        let end = finish("stop");
        let (stop, done) = end.split_at(end.find("data: [DONE]").unwrap());
        texts.push(format!("{stop}{}{done}", frames.concat()));
        let measurement = Play { include_usage: true, ..Play::default() }.texts(&texts);
        assert_eq!(measurement.tokens.output, Some(tokens), "{frames:?}");
        assert_eq!(measurement.tokens.source.as_str(), source, "{frames:?}");
        assert_eq!(flags(&measurement), expected, "{frames:?}");
    }
}

#[test]
fn growing_usage_is_the_last_value() {
    let chunk = |text: &str, n: u32| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}],\"usage\":{{\"completion_tokens\":{n}}}}}\n\n"
        )
    };
    let measurement = Play::default().texts(&[chunk("", 0), chunk("a", 1), chunk("b", 2), finish("stop")]);
    assert_eq!(measurement.tokens.output, Some(2));
    assert_eq!(measurement.tokens.source.as_str(), "usage_cumulative");
    assert_eq!(flags(&measurement), ["usage_every_chunk"]);
    let cut = Play { ending: Ending::Aborted, ..Play::default() }.texts(&[chunk("a", 1), chunk("b", 2)]);
    assert_eq!((outcome(&cut).as_str(), cut.tokens.output), ("partial stream_truncated/aborted", Some(2)));
}

#[test]
fn finish_words_decide_only_when_they_are_known_failures() {
    let cases = [
        ("stop", "ok", "empty empty_output/no_visible_text"),
        ("banana", "ok", "empty empty_output/no_visible_text"),
        ("tool_calls", "ok", "empty empty_output/no_visible_text"),
        ("content_filter", "partial content_filter/output", "error content_filter/output"),
        ("SAFETY", "partial content_filter/output", "error content_filter/output"),
        ("PROHIBITED_CONTENT", "partial content_filter/output", "error content_filter/output"),
        ("error", "partial upstream_error/finish_reason", "error upstream_error/finish_reason"),
        ("network_error", "partial upstream_error/finish_reason", "error upstream_error/finish_reason"),
        ("aborted", "partial upstream_error/finish_reason", "error upstream_error/finish_reason"),
        (
            "insufficient_system_resource",
            "partial overloaded/finish_reason",
            "error overloaded/finish_reason",
        ),
    ];
    for (word, with_text, without) in cases {
        assert_eq!(outcome(&Play::default().texts(&[content("A"), finish(word)])), with_text, "{word}");
        assert_eq!(outcome(&Play::default().texts(&[finish(word)])), without, "{word}");
    }
}

#[test]
fn a_complete_answer_survives_a_lost_connection() {
    let mut play = Play { ending: Ending::Aborted, ..Play::default() };
    let complete = content("A") + finish("stop").trim_end_matches("data: [DONE]\n\n");
    assert_eq!(outcome(&play.texts(&[&complete])), "ok");
    play.ending = Ending::Deadline(Deadline::Grace);
    let measurement = play.texts(&[&complete]);
    assert_eq!((outcome(&measurement).as_str(), flags(&measurement)), ("ok", vec!["missing_done"]));
    play.ending = Ending::TooLarge;
    assert_eq!(outcome(&play.texts(&[content("A")])), "partial protocol");
}

#[test]
fn choices_beside_the_first_are_tokens_but_not_text() {
    let second = content("B").replace("\"index\":0", "\"index\":1");
    let both = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"index\":0},{\"delta\":{\"content\":\"y\"},\"index\":1}]}\n\n";
    let measurement = Play::default().texts(&[second, content("A"), both.to_owned(), finish("stop")]);
    assert_eq!(clocks(&measurement), (Some(10), None, 4, "Ax".into()));
}

#[test]
fn gaps_lie_between_reads_that_carried_tokens() {
    let play = Play::default();
    let (a, b, c) = (content("a"), content("b") + &content("c"), content("d"));
    let role = delta(r#"{"role":"assistant"}"#);
    let end = finish("stop");
    let reads: [(u64, &[u8]); 6] = [
        (10, role.as_bytes()),
        (100, a.as_bytes()),
        (105, role.as_bytes()),
        (120, b.as_bytes()),
        (150, c.as_bytes()),
        (500, end.as_bytes()),
    ];
    let measurement = play.reads(&reads);
    assert_eq!(measurement.gaps.means().map(|(count, _)| count).sum::<u32>(), 2);
    assert_eq!(measurement.gaps.max(), Some(ms(30)));
    assert_eq!((measurement.tokens.chunks, measurement.tokens.reads), (4, 3));
    assert_eq!(measurement.timeline.last_token, Some(ms(150)));
    assert_eq!(measurement.timeline.end, ms(500));
    assert_eq!(flags(&measurement), ["coalesced"]);
}

#[test]
fn a_burst_has_no_gaps() {
    let words: String = (0..6).map(|n| content(&format!(" {n}"))).collect();
    let more: String = (6..12).map(|n| content(&format!(" {n}"))).collect();
    let measurement = Play::default().texts(&[&words, &more, &finish("stop")]);
    assert_eq!(flags(&measurement), ["burst"]);
    assert_eq!(measurement.gaps.max(), None);
    let three = Play::default().texts(&[&words, &more, &content("x"), &finish("stop")]);
    assert_eq!(flags(&three), ["coalesced"]);
}

const TIMEOUTS: Timeouts = Timeouts {
    connect: ms_const(100),
    headers: ms_const(200),
    first_token: ms_const(1000),
    stall: ms_const(400),
    total: ms_const(10_000),
};

const fn ms_const(value: u64) -> std::time::Duration {
    std::time::Duration::from_millis(value)
}

#[test]
fn deadlines_follow_what_came() {
    let mut reply = Play::default().reply();
    assert_eq!(reply.due(&TIMEOUTS), (ms(1000), Deadline::FirstToken));
    reply.read(ms(20), b": ping\n\n");
    reply.read(ms(30), delta(r#"{"role":"assistant"}"#).as_bytes());
    assert_eq!(reply.due(&TIMEOUTS), (ms(1000), Deadline::FirstToken));
    reply.read(ms(40), delta(r#"{"reasoning":"Hm"}"#).as_bytes());
    assert_eq!(reply.due(&TIMEOUTS), (ms(440), Deadline::Stall));
    reply.read(ms(50), b": ping\n\n");
    assert_eq!(reply.due(&TIMEOUTS), (ms(440), Deadline::Stall));
    reply.read(ms(60), content("A").trim_end().as_bytes());
    assert_eq!(reply.due(&TIMEOUTS), (ms(460), Deadline::Stall));
    let end = finish("stop");
    let (stop, done) = end.split_at(end.find("[DONE]").unwrap());
    reply.read(ms(70), b"\n\n");
    reply.read(ms(80), stop.as_bytes());
    assert_eq!(reply.due(&TIMEOUTS), (ms(2080), Deadline::Grace));
    reply.read(ms(90), done.as_bytes());
    assert_eq!(reply.due(&TIMEOUTS), (ms(340), Deadline::Grace));
    assert!(!reply.is_finished());
    let short = Timeouts { total: ms(100), ..TIMEOUTS };
    assert_eq!(reply.due(&short), (ms(100), Deadline::Grace));
    assert_eq!(reply.end(ms(100), Ending::Deadline(Deadline::Grace)).timeline.end, ms(90));
}

#[test]
fn an_answer_that_is_no_stream_is_read_to_its_end() {
    let json =
        br#"{"object":"chat.completion","choices":[{"message":{"content":"Old"},"finish_reason":"stop"}]}"#;
    let mut reply = Play::default().reply();
    reply.read(ms(2000), json);
    assert_eq!(reply.due(&TIMEOUTS), (ms(2400), Deadline::Stall));
    let measurement = reply.end(ms(2400), Ending::Deadline(Deadline::Stall));
    assert_eq!(outcome(&measurement), "unmeasurable not_streaming/json_reply");
    assert_eq!(measurement.timeline.end, ms(2000));
    assert_eq!(measurement.timeline.first_token(), None);
    let half = &json[..40];
    assert_eq!(outcome(&Play::default().texts(&[half])), "error protocol/bad_json");
    let aborted = Play { ending: Ending::Aborted, ..Play::default() };
    assert_eq!(outcome(&aborted.texts(&[half])), "error stream_truncated/aborted");
    let late = Play { ending: Ending::Deadline(Deadline::Total), ..Play::default() };
    assert_eq!(outcome(&late.texts(&[half])), "error timeout/total");
    let text = br#"{"object":"text_completion","choices":[{"text":"Old","finish_reason":"stop"}]}"#;
    let completions = Play { protocol: Protocol::OpenAiCompletions, ..Play::default() };
    assert_eq!(outcome(&completions.texts(&[text])), "unmeasurable not_streaming/json_reply");
    assert_eq!(outcome(&Play::default().texts(&[b"{\"hello\":1}"])), "error protocol/bad_json");
}

#[test]
fn headers_tell_of_caches_and_ids() {
    let hits: [&[(&str, &str)]; 5] = [
        &[("x-cache", "Hit from cloudfront")],
        &[("cf-cache-status", "HIT")],
        &[("x-litellm-cache-key", "abc")],
        &[("cf-aig-cache-status", "hit")],
        &[("x-cache", "HIT, MISS")],
    ];
    for headers in hits {
        let play = Play { headers, ..Play::default() };
        assert_eq!(flags(&play.texts(&[content("A"), finish("stop")])), ["cached_response"], "{headers:?}");
    }
    let misses: [&[(&str, &str)]; 3] =
        [&[("x-cache", "MISS")], &[("cf-cache-status", "DYNAMIC")], &[("cache-control", "hit")]];
    for headers in misses {
        let play = Play { headers, ..Play::default() };
        assert!(play.texts(&[content("A"), finish("stop")]).flags.is_empty(), "{headers:?}");
    }
    let play = Play { headers: &[("cf-ray", "ray"), ("x-request-id", "req")], ..Play::default() };
    assert_eq!(play.texts(&[content("A")]).request_id.as_deref(), Some("req"));
}

#[test]
fn text_that_reads_like_an_error_is_flagged() {
    let errors = [
        "Error: API request failed (429): too many",
        "{\"error\":{\"code\":429}}",
        "[Error] upstream returned status code 502",
        "HTTP 503 Service Unavailable",
        "<html><head><title>502 Bad Gateway</title>",
    ];
    for text in errors {
        let measurement = Play::default().texts(&[content(text), finish("stop")]);
        assert_eq!(flags(&measurement), ["content_looks_like_error"], "{text}");
    }
    for text in
        ["Errors are common in 500 lines of code", "The error code 404 means not found", "Error bars show 95"]
    {
        let measurement = Play::default().texts(&[content(text), finish("stop")]);
        let flagged = !measurement.flags.is_empty();
        assert_eq!(flagged, text.starts_with("Errors"), "{text}: a guess, and known to err here");
    }
}

#[test]
fn served_model_and_fingerprint_are_kept() {
    let chunk = "data: {\"model\":\"demo-1\",\"system_fingerprint\":\"b1\",\"choices\":[{\"delta\":{\"content\":\"A\"}}]}\n\n";
    let measurement = Play::default().texts(&[chunk.to_owned(), finish("stop")]);
    assert_eq!(measurement.served_model.as_deref(), Some("demo-1"));
    assert_eq!(measurement.fingerprint.as_deref(), Some("b1"));
}
