//! Answers of real servers: llama.cpp, vLLM, and a LiteLLM gateway before llama.cpp.

use super::{Play, flags, outcome};
use crate::{measurement::Measurement, protocol::Protocol};

/// Plays a captured answer, cut into reads of `size` bytes.
fn play(protocol: Protocol, capture: &str, size: usize) -> Measurement {
    let (head, body) = capture.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(&str, &str)> = lines
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| *name != "transfer-encoding")
        .collect();
    let play = Play { protocol, status, headers: &headers, include_usage: true, ..Play::default() };
    let pieces: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
    play.texts(&pieces)
}

/// `outcome; tokens source; chunks, of the answer; flags; text`, the same in one read (but for flags) and in many.
fn check(protocol: Protocol, capture: &str, expected: &str) {
    let describe = |measurement: &Measurement| {
        let tokens = &measurement.tokens;
        format!(
            "{}; {} {}; {} {}; {:?}; {}",
            outcome(measurement),
            tokens.output.unwrap_or(0),
            tokens.source.as_str(),
            tokens.chunks,
            tokens.answer_chunks,
            flags(measurement),
            measurement.visible_text.as_deref().unwrap_or_default(),
        )
    };
    let one_by_one = play(protocol, capture, 1);
    assert_eq!(describe(&one_by_one), expected);
    for size in [100, capture.len()] {
        let mut measurement = play(protocol, capture, size);
        measurement.flags.clone_from(&one_by_one.flags);
        assert_eq!(describe(&measurement), expected, "{size}");
    }
}

macro_rules! capture {
    ($name:literal) => {
        include_str!(concat!("../../../tests/data/captures/", $name, ".txt"))
    };
}

#[test]
fn chat() {
    let chat = Protocol::OpenAiChat;
    check(
        chat,
        capture!("llama-server.stream_usage"),
        "ok; 24 usage; 22 10; [\"prompt_cached\"]; One two three four five six seven eight nine ten",
    );
    check(
        chat,
        capture!("vllm.stream_usage"),
        "ok; 24 usage; 22 10; []; One two three four five six seven eight nine ten",
    );
    check(
        chat,
        capture!("litellm.stream_usage"),
        "ok; 32 usage; 27 15; [\"multi_token_chunks\", \"prompt_cached\"]; One two three four five six seven eight nine ten eleven twelve 🦀 done.",
    );
    check(
        chat,
        capture!("llama-server.n2"),
        "empty empty_output/budget_spent_on_reasoning; 8 usage_cumulative; 14 0; [\"usage_every_chunk\", \"prompt_cached\"]; ",
    );
    check(chat, capture!("vllm.n2"), "empty empty_output/budget_spent_on_reasoning; 16 usage; 14 0; []; ");
    check(
        chat,
        capture!("llama-server.logprobs"),
        "empty empty_output/budget_spent_on_reasoning; 4 vendor:timings.predicted_n; 3 0; [\"prompt_cached\"]; ",
    );
    check(
        chat,
        capture!("vllm.logprobs"),
        "empty empty_output/budget_spent_on_reasoning; 1 chunk_count; 1 0; [\"usage_missing\"]; ",
    );
}

#[test]
fn completions() {
    let completions = Protocol::OpenAiCompletions;
    check(
        completions,
        capture!("llama-server.completions"),
        "ok; 24 usage; 22 10; [\"inline_think\"]; One two three four five six seven eight nine ten",
    );
    check(
        completions,
        capture!("vllm.completions"),
        "ok; 24 usage; 22 10; [\"inline_think\"]; One two three four five six seven eight nine ten",
    );
}

#[test]
fn errors() {
    let chat = Protocol::OpenAiChat;
    check(chat, capture!("vllm.bad_model"), "error model_not_found; 0 none; 0 0; []; ");
    check(chat, capture!("vllm.long_prompt"), "error bad_request/context_length; 0 none; 0 0; []; ");
    check(chat, capture!("vllm.max_tokens_huge"), "error bad_request/context_length; 0 none; 0 0; []; ");
}

#[test]
fn messages() {
    let anthropic = Protocol::Anthropic;
    check(
        anthropic,
        capture!("llama-server.anthropic_stream"),
        "ok; 24 usage; 22 10; [\"prompt_cached\"]; One two three four five six seven eight nine ten",
    );
    check(
        anthropic,
        capture!("vllm.anthropic_stream"),
        "ok; 24 usage; 22 10; []; One two three four five six seven eight nine ten",
    );
    check(
        anthropic,
        capture!("litellm.anthropic_stream"),
        "ok; 32 usage; 15 15; [\"multi_token_chunks\"]; One two three four five six seven eight nine ten eleven twelve 🦀 done.",
    );
}

#[test]
fn responses() {
    let responses = Protocol::OpenAiResponses;
    check(
        responses,
        capture!("llama-server.responses_stream"),
        "ok; 24 usage; 22 10; [\"prompt_cached\"]; One two three four five six seven eight nine ten",
    );
    check(
        responses,
        capture!("vllm.responses_stream"),
        "ok; 24 usage; 18 8; [\"multi_token_chunks\"]; One two three four five six seven eight nine ten",
    );
    check(
        responses,
        capture!("litellm.responses_stream"),
        "ok; 32 usage; 27 15; [\"multi_token_chunks\", \"prompt_cached\"]; One two three four five six seven eight nine ten eleven twelve 🦀 done.",
    );
}
