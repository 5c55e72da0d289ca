//! The formats beside OpenAI's chat and completions: what is peculiar to each.

use flate2::Crc;

use super::{Play, flags, ms, outcome};
use crate::{
    measurement::{Measurement, TokenKind},
    protocol::{Ending, Protocol},
};

/// `outcome; first answer, first reasoning in ms; chunks; tokens source; finish; flags; text`.
fn describe(measurement: &Measurement) -> String {
    let line = &measurement.timeline;
    let millis = |at: Option<std::time::Duration>| at.map_or("-".into(), |at| at.as_millis().to_string());
    format!(
        "{}; {} {}; {}; {} {}; {}; {:?}; {}",
        outcome(measurement),
        millis(line.first_answer_token),
        millis(line.first_reasoning_token),
        measurement.tokens.chunks,
        measurement.tokens.output.unwrap_or(0),
        measurement.tokens.source.as_str(),
        measurement.finish_reason.as_deref().unwrap_or("-"),
        flags(measurement),
        measurement.visible_text.as_deref().unwrap_or_default(),
    )
}

/// Plays payloads, each an event of its own 10 ms after the last.
fn check(protocol: Protocol, payloads: &[&str], expected: &str) {
    let wrap = |payload: &&str| {
        if protocol == Protocol::Ollama { format!("{payload}\n") } else { format!("data: {payload}\n\n") }
    };
    let texts: Vec<String> = payloads.iter().map(wrap).collect();
    let measurement = Play { protocol, ..Play::default() }.texts(&texts);
    assert_eq!(describe(&measurement), expected, "{payloads:?}");
}

#[test]
fn anthropic() {
    let check = |payloads: &[&str], expected: &str| check(Protocol::Anthropic, payloads, expected);
    let start = r#"{"type":"message_start","message":{"model":"m","content":[],"usage":{"input_tokens":3,"cache_read_input_tokens":4,"cache_creation_input_tokens":5,"output_tokens":1}}}"#;
    let text = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#;
    let delta = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#;
    let stop = r#"{"type":"message_stop"}"#;
    check(&[start, text, delta, stop], r#"ok; 20 -; 1; 2 usage; end_turn; ["prompt_cached"]; Hi"#);
    check(
        &[start, text, delta],
        r#"partial stream_truncated/no_terminal; 20 -; 1; 2 usage; end_turn; ["prompt_cached"]; Hi"#,
    );
    let tool = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"look","input":{}}}"#;
    let json =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    check(&[tool, json, stop], r"ok; 10 -; 2; 2 chunk_count; -; []; look{}");
    let redacted =
        r#"{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"QQ"}}"#;
    let spent =
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":16}}"#;
    check(
        &[redacted, spent, stop],
        "empty empty_output/budget_spent_on_reasoning; - -; 0; 16 usage; max_tokens; []; ",
    );
    check(
        &[r#"{"type":"error","error":{"type":"rate_limit_error"}}"#],
        "error rate_limited; - -; 0; 0 none; -; []; ",
    );
    check(
        &[
            r#"{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"output_tokens":2}}"#,
        ],
        "unmeasurable not_streaming/json_reply; - -; 0; 2 usage; end_turn; []; ",
    );
    let measurement =
        Play { protocol: Protocol::Anthropic, ..Play::default() }.texts(&[format!("data: {start}\n\n")]);
    assert_eq!((measurement.tokens.prompt, measurement.tokens.cached_prompt), (Some(12), Some(4)));
}

#[test]
fn responses() {
    let check = |payloads: &[&str], expected: &str| check(Protocol::OpenAiResponses, payloads, expected);
    let created = r#"{"type":"response.created","response":{"status":"in_progress","model":"m","usage":null,"error":null}}"#;
    let text = r#"{"delta":"Hi","type":"response.output_text.delta"}"#;
    let done = r#"{"type":"response.output_text.done","text":"Hi"}"#;
    let completed =
        r#"{"type":"response.completed","response":{"status":"completed","usage":{"output_tokens":1}}}"#;
    check(&[created, text, done, completed], "ok; 20 -; 1; 1 usage; completed; []; Hi");
    check(&[created, text], "partial stream_truncated/no_terminal; 20 -; 1; 1 chunk_count; -; []; Hi");
    check(&[text, completed, "[DONE]"], "ok; 10 -; 1; 1 usage; completed; []; Hi");
    let call = r#"{"type":"response.output_item.added","item":{"name":"look","type":"function_call","arguments":""}}"#;
    let arguments = r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#;
    check(&[call, arguments, completed], "ok; 10 -; 2; 1 usage; completed; []; look{}");
    let filtered = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}"#;
    check(&[text, filtered], "partial content_filter/output; 10 -; 1; 1 chunk_count; incomplete; []; Hi");
    let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"x"}}}"#;
    check(&[text, failed], "partial rate_limited; 10 -; 1; 1 chunk_count; -; []; Hi");
    let annotation = r#"{"type":"response.output_text.annotation.added","delta":"no text"}"#;
    check(&[annotation, text, completed], "ok; 20 -; 1; 1 usage; completed; []; Hi");
    let whole = r#"{"object":"response","status":"completed","error":null,"output":[{"content":[{"text":"Hi"}]}],"usage":{"output_tokens":2}}"#;
    let play = Play { protocol: Protocol::OpenAiResponses, ..Play::default() };
    assert_eq!(
        describe(&play.texts(&[whole])),
        "unmeasurable not_streaming/json_reply; - -; 0; 2 usage; completed; []; "
    );
}

#[test]
fn gemini() {
    let check = |payloads: &[&str], expected: &str| check(Protocol::Gemini, payloads, expected);
    let part =
        |part: &str, rest: &str| format!(r#"{{"candidates":[{{"content":{{"parts":[{part}]}}{rest}}}]}}"#);
    let text = part(r#"{"text":"Hi"}"#, "");
    let stop = part("", r#","finishReason":"STOP""#);
    let thought = part(r#"{"text":"Hm","thought":true}"#, "");
    let both = part(r#"{"thought":true,"text":"Hm"},{"text":"Hi"}"#, r#","finishReason":"STOP""#);
    check(&[&thought, &text, &stop], "ok; 20 10; 2; 2 chunk_count; STOP; []; Hi");
    check(&[&both], "ok; 10 10; 1; 1 chunk_count; STOP; []; Hi");
    let call = part(r#"{"functionCall":{"name":"look","args":{"k":1}}}"#, r#","finishReason":"STOP""#);
    check(&[&call], "ok; 10 -; 1; 1 chunk_count; STOP; []; look");
    let safety = part("", r#","finishReason":"SAFETY""#);
    check(&[&text, &safety], "partial content_filter/output; 10 -; 1; 1 chunk_count; SAFETY; []; Hi");
    check(&[&safety], "error content_filter/output; - -; 0; 0 none; SAFETY; []; ");
    check(
        &[r#"{"promptFeedback":{"blockReason":"OTHER"}}"#],
        "error content_filter/prompt; - -; 0; 0 none; -; []; ",
    );
    check(&[&text], "partial stream_truncated/no_terminal; 10 -; 1; 1 chunk_count; -; []; Hi");
    check(
        &[&text, r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"overloaded"}}"#],
        "partial overloaded; 10 -; 1; 1 chunk_count; -; []; Hi",
    );
    let counted = |n: u32| {
        text.replace(
            "]}}]",
            &format!("]}},\"finishReason\":\"STOP\"}}],\"usageMetadata\":{{\"candidatesTokenCount\":{n}}}"),
        )
        .replace("}}}}", "}}}")
    };
    let every = [counted(1), counted(2)];
    check(&[&every[0], &every[1]], r#"ok; 10 -; 2; 2 usage_cumulative; STOP; ["usage_every_chunk"]; HiHi"#);
    let play = Play { protocol: Protocol::Gemini, ..Play::default() };
    let list = format!("[{text},\n{stop}]");
    assert_eq!(
        describe(&play.texts(&[list])),
        "unmeasurable not_streaming/json_reply; - -; 0; 0 none; STOP; []; "
    );
}

#[test]
fn ollama() {
    let check = |payloads: &[&str], expected: &str| check(Protocol::Ollama, payloads, expected);
    let text = r#"{"message":{"role":"assistant","content":"Hi"},"done":false}"#;
    let done = r#"{"done":true,"done_reason":"stop","eval_count":1}"#;
    check(&[text, done], "ok; 10 -; 1; 1 vendor:eval_count; stop; []; Hi");
    check(&[text, "", done], "ok; 10 -; 1; 1 vendor:eval_count; stop; []; Hi");
    check(&[text, r#"{"done":true}"#], "ok; 10 -; 1; 1 chunk_count; -; []; Hi");
    let cold = r#"{"done":true,"done_reason":"stop","load_duration":2500000000,"eval_count":1}"#;
    check(&[text, cold], r#"ok; 10 -; 1; 1 vendor:eval_count; stop; ["cold_start"]; Hi"#);
    check(
        &[text, r#"{"error":"model runner has unexpectedly stopped"}"#],
        "partial upstream_error; 10 -; 1; 1 chunk_count; -; []; Hi",
    );
    check(&[r#"{"error":"model 'x' not found"}"#], "error model_not_found; - -; 0; 0 none; -; []; ");
    check(&[text, "oops", done], "partial protocol/bad_json; 10 -; 1; 1 chunk_count; -; []; Hi");
    let play = Play { protocol: Protocol::Ollama, ..Play::default() };
    let lines = format!("{text}\r\n{done}");
    for size in [1, 7, lines.len()] {
        let pieces: Vec<&[u8]> = lines.as_bytes().chunks(size).collect();
        assert_eq!(outcome(&play.texts(&pieces)), "ok", "{size}");
    }
    let half = Play { ending: Ending::Aborted, ..play.clone() }.texts(&[text, "\n{\"mess"]);
    assert_eq!(outcome(&half), "partial stream_truncated/aborted");
    let mut reply = play.reply();
    reply.read(ms(1), b"{\"a\":\"");
    for _ in 0..200 {
        reply.read(ms(2), &[b'x'; 8192]);
    }
    assert!(reply.is_finished());
}

#[test]
fn dashscope() {
    let check = |payloads: &[&str], expected: &str| check(Protocol::DashScope, payloads, expected);
    let message = |text: &str, finish: &str| {
        format!(
            r#"{{"output":{{"choices":[{{"message":{{"content":"{text}"}},"finish_reason":"{finish}"}}]}}}}"#
        )
    };
    check(&[&message("A", "null"), &message("", "stop")], "ok; 10 -; 1; 1 chunk_count; stop; []; A");
    check(
        &[&message("A", "null"), &message("A", "stop")],
        r#"ok; 10 -; 1; 1 chunk_count; stop; ["cumulative_text"]; A"#,
    );
    check(
        &[&message("A", "null"), &message("AB", "null"), &message("ABC", "stop")],
        r#"ok; 10 -; 3; 3 chunk_count; stop; ["cumulative_text"]; ABC"#,
    );
    check(&[r#"{"output":{"text":"A","finish_reason":"stop"}}"#], "ok; 10 -; 1; 1 chunk_count; stop; []; A");
    let thinking = r#"{"output":{"choices":[{"message":{"content":"","reasoning_content":"Hm"},"finish_reason":"null"}]}}"#;
    check(&[thinking, &message("A", "stop")], "ok; 20 10; 2; 2 chunk_count; stop; []; A");
    check(
        &[&message("A", "null"), r#"{"code":"InternalError","message":"boom"}"#],
        "partial upstream_error; 10 -; 1; 1 chunk_count; -; []; A",
    );
}

/// A binary message with these string headers.
fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        let mut crc = Crc::new();
        crc.update(bytes);
        crc.sum().to_be_bytes()
    };
    let mut encoded = Vec::new();
    for (name, value) in headers {
        encoded.push(u8::try_from(name.len()).unwrap());
        encoded.extend(name.as_bytes());
        encoded.push(7);
        encoded.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        encoded.extend(value.as_bytes());
    }
    let total = u32::try_from(16 + encoded.len() + payload.len()).unwrap();
    let mut message = total.to_be_bytes().to_vec();
    message.extend(u32::try_from(encoded.len()).unwrap().to_be_bytes());
    message.extend(crc(&message));
    message.extend(encoded);
    message.extend(payload.as_bytes());
    message.extend(crc(&message));
    message
}

pub(super) fn event(kind: &str, payload: &str) -> Vec<u8> {
    message(
        &[(":message-type", "event"), (":event-type", kind), (":content-type", "application/json")],
        payload,
    )
}

#[test]
fn bedrock() {
    let play = Play { protocol: Protocol::Bedrock, ..Play::default() };
    let text = event("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"Hi"}}"#);
    let stop = event("messageStop", r#"{"stopReason":"end_turn"}"#);
    let usage = event("metadata", r#"{"usage":{"inputTokens":9,"outputTokens":1}}"#);
    let thought = event("contentBlockDelta", r#"{"delta":{"reasoningContent":{"text":"Hm"}}}"#);
    let tool = event("contentBlockStart", r#"{"start":{"toolUse":{"name":"look","toolUseId":"t"}}}"#);
    let input = event("contentBlockDelta", r#"{"delta":{"toolUse":{"input":"{}"}}}"#);
    let exception = |kind: &str| {
        message(&[(":message-type", "exception"), (":exception-type", kind)], r#"{"message":"Too many"}"#)
    };
    let check = |messages: &[&[u8]], expected: &str| {
        assert_eq!(describe(&play.texts(messages)), expected);
        let whole = messages.concat();
        for size in [1, 5, 64] {
            let pieces: Vec<&[u8]> = whole.chunks(size).collect();
            assert_eq!(outcome(&play.texts(&pieces)), expected.split(';').next().unwrap(), "{size}");
        }
    };
    check(&[&thought, &text, &stop, &usage], "ok; 20 10; 2; 1 usage; end_turn; []; Hi");
    check(&[&tool, &input, &stop], "ok; 10 -; 2; 2 chunk_count; end_turn; []; look{}");
    check(
        &[&text, &exception("throttlingException")],
        "partial rate_limited; 10 -; 1; 1 chunk_count; -; []; Hi",
    );
    check(&[&exception("validationException")], "error bad_request/other; - -; 0; 0 none; -; []; ");
    check(&[&exception("serviceUnavailableException")], "error overloaded; - -; 0; 0 none; -; []; ");
    check(&[&text], "partial stream_truncated/no_terminal; 10 -; 1; 1 chunk_count; -; []; Hi");
    let intervened = event("messageStop", r#"{"stopReason":"guardrail_intervened"}"#);
    check(
        &[&text, &intervened],
        "partial content_filter/output; 10 -; 1; 1 chunk_count; guardrail_intervened; []; Hi",
    );
    for at in [2, 9, 30, text.len() - 2] {
        let mut broken = text.clone();
        broken[at] ^= 0x40;
        let measurement = play.texts(&[text.clone(), broken]);
        assert_eq!(outcome(&measurement), "partial protocol", "{at}");
    }
    let refused = Play {
        status: 403,
        headers: &[("x-amzn-errortype", "AccessDeniedException:http://x/")],
        ..play.clone()
    };
    assert_eq!(outcome(&refused.texts(&[r#"{"message":"You don't have access"}"#])), "error auth/forbidden");
    let expired = Play { status: 403, headers: &[("x-amzn-errortype", "ExpiredTokenException")], ..play };
    assert_eq!(
        outcome(&expired.texts(&[r#"{"message":"The security token included in the request is expired"}"#])),
        "error auth/expired"
    );
}

#[test]
fn first_token_kinds() {
    let play = Play { protocol: Protocol::OpenAiResponses, ..Play::default() };
    let call = r#"data: {"type":"response.output_item.added","item":{"type":"function_call","name":"f"}}"#;
    assert_eq!(play.texts(&[format!("{call}\n\n")]).first_token_kind, Some(TokenKind::ToolCall));
}
