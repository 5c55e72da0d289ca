//! Streams that were right once: the corpus, cut, torn, repeated and spliced, for every decoder. Nothing may panic,
//! and what comes out holds together. `PROPTEST_CASES` sets how many are tried.

use base64::Engine as _;
use proptest::prelude::*;
use serde::Deserialize;

use super::{Play, other_formats::event};
use crate::{
    measurement::{Measurement, Outcome},
    protocol::{Ending, Protocol},
};

const PROTOCOLS: [Protocol; 8] = [
    Protocol::OpenAiChat,
    Protocol::OpenAiCompletions,
    Protocol::OpenAiResponses,
    Protocol::Anthropic,
    Protocol::Gemini,
    Protocol::Ollama,
    Protocol::DashScope,
    Protocol::Bedrock,
];

/// A body that some server sent, and in which format.
#[derive(Debug, Clone)]
struct Seed {
    protocol: Protocol,
    status: u16,
    body: Vec<u8>,
}

#[derive(Deserialize)]
struct Case {
    request_hint: Hint,
    response_status: Option<u16>,
    body_chunks: Option<Vec<Chunk>>,
}

#[derive(Deserialize)]
struct Hint {
    api: String,
}

#[derive(Deserialize)]
struct Chunk {
    bytes: String,
    encoding: Option<String>,
}

fn seeds() -> Vec<Seed> {
    let lines = include_str!("../../../tests/data/quirks.jsonl").lines();
    let cases = lines.map(|line| serde_json::from_str::<Case>(line).unwrap());
    let mut seeds: Vec<Seed> = cases.filter_map(seed).collect();
    let bedrock = [
        event("messageStart", r#"{"role":"assistant"}"#),
        event("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"so"}}}"#),
        event("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"text":"Hi"}}"#),
        event("messageStop", r#"{"stopReason":"end_turn"}"#),
        event("metadata", r#"{"usage":{"inputTokens":9,"outputTokens":2,"totalTokens":11}}"#),
    ];
    // As often as there are cases of the other formats.
    let bedrock = Seed { protocol: Protocol::Bedrock, status: 200, body: bedrock.concat() };
    seeds.extend(std::iter::repeat_n(bedrock, 10));
    seeds
}

fn seed(case: Case) -> Option<Seed> {
    let protocol = match case.request_hint.api.as_str() {
        "openai_completions" => Protocol::OpenAiCompletions,
        "openai_responses" => Protocol::OpenAiResponses,
        "anthropic_messages" => Protocol::Anthropic,
        "gemini" => Protocol::Gemini,
        "ollama_chat" => Protocol::Ollama,
        "dashscope" => Protocol::DashScope,
        "bedrock_converse" => Protocol::Bedrock,
        _ => Protocol::OpenAiChat,
    };
    let decoded = |chunk: Chunk| match chunk.encoding.as_deref() {
        Some("base64") => base64::engine::general_purpose::STANDARD.decode(chunk.bytes).unwrap(),
        _ => chunk.bytes.into_bytes(),
    };
    let body = case.body_chunks?.into_iter().flat_map(decoded).collect();
    Some(Seed { protocol, status: case.response_status?, body })
}

/// What is done to a body.
#[derive(Debug, Clone)]
enum Damage {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index, prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
    Splice(prop::sample::Index, prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    let word = prop::sample::select(vec![
        "data: ",
        "\n\n",
        "\r",
        ":",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\u0000",
        "\\ud800",
        "null",
        "1e999",
        "-1",
        "<think>",
        "</think>",
        "[DONE]",
        "event: error\n",
        "\u{feff}",
        "\"content\":",
        "\"usage\":",
        "\"error\":",
        "\0",
        "é",
        "🦀",
    ]);
    prop_oneof![
        3 => (index(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        3 => (index(), word).prop_map(|(at, word)| Damage::Insert(at, word.into())),
        1 => (index(), prop::collection::vec(any::<u8>(), 0..24)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        2 => (index(), index()).prop_map(|(from, to)| Damage::Cut(from, to)),
        2 => (index(), index()).prop_map(|(from, to)| Damage::Repeat(from, to)),
        1 => (index(), index()).prop_map(|(seed, at)| Damage::Splice(seed, at)),
    ]
}

fn apply(body: &mut Vec<u8>, damage: &Damage, seeds: &[Seed]) {
    let at = |index: &prop::sample::Index, body: &[u8]| index.index(body.len() + 1);
    let range = |from, to, body: &[u8]| {
        let (from, to) = (at(from, body), at(to, body));
        from.min(to)..from.max(to)
    };
    match damage {
        Damage::Set(index, byte) => {
            let at = at(index, body);
            if let Some(slot) = body.get_mut(at) {
                *slot = *byte;
            }
        }
        Damage::Insert(index, bytes) => {
            let at = at(index, body);
            body.splice(at..at, bytes.iter().copied());
        }
        Damage::Cut(from, to) => drop(body.drain(range(from, to, body))),
        Damage::Repeat(from, to) => {
            let range = range(from, to, body);
            let copy = body[range.clone()].to_vec();
            body.splice(range.end..range.end, copy);
        }
        Damage::Splice(seed, index) => {
            let other = &seeds[seed.index(seeds.len())].body;
            let at = at(index, body);
            body.splice(at..at, other.iter().copied());
        }
    }
}

/// What holds of every measurement, whatever was read.
fn holds_together(measurement: &Measurement) {
    let line = &measurement.timeline;
    let tokens = &measurement.tokens;
    if let (Some(first), Some(last)) = (line.first_token(), line.last_token) {
        assert!(first <= last && last <= line.end, "{line:?}");
    }
    assert_eq!(line.first_token().is_some(), line.last_token.is_some(), "{line:?}");
    assert!(tokens.answer_chunks <= tokens.chunks && tokens.reads <= tokens.chunks.max(1), "{tokens:?}");
    if let Some(time) = measurement.time_per_output_token() {
        assert!(time <= line.end, "{time:?}");
    }
    match &measurement.outcome {
        Outcome::Ok | Outcome::Partial(_) => assert!(line.first_answer_token.is_some(), "{measurement:?}"),
        Outcome::Empty(_) | Outcome::Unmeasurable(_) | Outcome::Error(_) => {
            assert!(line.first_answer_token.is_none(), "{measurement:?}");
        }
    }
    if let Some(failure) = measurement.outcome.failure() {
        assert!(failure.message.chars().count() < 400 && !failure.message.contains('\n'), "{failure:?}");
    }
}

proptest! {
    #[test]
    fn damaged_streams_are_told_as_something(
        seed in any::<prop::sample::Index>(),
        damages in prop::collection::vec(damage(), 0..6),
        other_protocol in prop::option::weighted(0.2, prop::sample::select(PROTOCOLS.to_vec())),
        other_status in prop::option::weighted(0.1, prop::sample::select(vec![200u16, 204, 301, 400, 401, 404, 429, 500, 503])),
        encoding in prop::option::weighted(0.05, prop::sample::select(vec!["gzip", "deflate", "br"])),
        ending in prop::sample::select(vec![Ending::Clean, Ending::Aborted, Ending::TooLarge]),
        sizes in prop::collection::vec(1usize..200, 1..8),
    ) {
        thread_local! { static SEEDS: Vec<Seed> = seeds(); }
        SEEDS.with(|seeds| {
            let seed = &seeds[seed.index(seeds.len())];
            let mut body = seed.body.clone();
            body.truncate(64 << 10);
            for damage in &damages {
                apply(&mut body, damage, seeds);
            }
            let mut reads = Vec::new();
            let mut rest = body.as_slice();
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (read, left) = rest.split_at((*size).min(rest.len()));
                reads.push(read);
                rest = left;
            }
            let headers: Vec<_> = encoding.iter().map(|name| ("content-encoding", *name)).collect();
            let play = Play {
                protocol: other_protocol.unwrap_or(seed.protocol),
                status: other_status.unwrap_or(seed.status),
                headers: &headers,
                ending,
                include_usage: true,
                ..Play::default()
            };
            holds_together(&play.texts(&reads));
        });
    }

    /// Frames with a right checksum and anything inside.
    #[test]
    fn bedrock_events_may_hold_anything(
        payloads in prop::collection::vec(
            r#"(\{|\}|"delta":|"text":|"usage":|"outputTokens":|"stopReason":|"message":|"reasoningContent":|:|,|"[a-z]{0,4}"|1|null|\[|\]){0,16}"#,
            0..5,
        ),
        kinds in prop::collection::vec("[a-zA-Z:]{0,20}", 5),
        size in 1usize..64,
    ) {
        let body: Vec<u8> = payloads.iter().zip(&kinds).flat_map(|(payload, kind)| event(kind, payload)).collect();
        let reads: Vec<&[u8]> = body.chunks(size).collect();
        holds_together(&Play { protocol: Protocol::Bedrock, ..Play::default() }.texts(&reads));
    }
}
