//! What is asked, where, and with which credential.

use serde_json::{Map, Value, json};

use crate::protocol::{Ask, KeyError, MaxTokensField, Protocol};

fn ask(extra_body: &Map<String, Value>) -> Ask<'_> {
    Ask {
        model: "org/demo:1",
        prompt: "7f3a Tell me",
        max_tokens: 64,
        max_tokens_field: MaxTokensField::MaxTokens,
        temperature: None,
        include_usage: true,
        extra_body,
    }
}

fn sent(protocol: Protocol, ask: &Ask<'_>) -> Value {
    serde_json::from_slice(&protocol.body(ask)).unwrap()
}

#[test]
fn chat_asks_for_a_stream() {
    let none = Map::new();
    assert_eq!(
        sent(Protocol::OpenAiChat, &ask(&none)),
        json!({
            "model": "org/demo:1",
            "messages": [{ "role": "user", "content": "7f3a Tell me" }],
            "max_tokens": 64,
            "stream": true,
            "stream_options": { "include_usage": true },
        })
    );
    assert_eq!(Protocol::OpenAiChat.path("org/demo:1"), "/chat/completions");
}

#[test]
fn completions_ask_with_a_bare_prompt() {
    let none = Map::new();
    let ask = Ask {
        include_usage: false,
        temperature: Some(0.7),
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        ..ask(&none)
    };
    assert_eq!(
        sent(Protocol::OpenAiCompletions, &ask),
        json!({
            "model": "org/demo:1",
            "prompt": "7f3a Tell me",
            "max_completion_tokens": 64,
            "temperature": 0.7,
            "stream": true,
        })
    );
    assert_eq!(Protocol::OpenAiCompletions.path("x"), "/completions");
}

#[test]
fn every_format_asks_in_its_own_words() {
    let none = Map::new();
    let ask = Ask { temperature: Some(0.5), ..ask(&none) };
    let prompt = "7f3a Tell me";
    let cases = [
        (
            Protocol::OpenAiResponses,
            "/responses",
            json!({ "model": "org/demo:1", "input": prompt, "max_output_tokens": 64, "temperature": 0.5, "stream": true }),
        ),
        (
            Protocol::Anthropic,
            "/messages",
            json!({
                "model": "org/demo:1",
                "messages": [{ "role": "user", "content": prompt }],
                "max_tokens": 64,
                "temperature": 0.5,
                "stream": true,
            }),
        ),
        (
            Protocol::Gemini,
            "/models/org/demo:1:streamGenerateContent?alt=sse",
            json!({
                "contents": [{ "role": "user", "parts": [{ "text": prompt }] }],
                "generationConfig": { "maxOutputTokens": 64, "temperature": 0.5 },
            }),
        ),
        (
            Protocol::Ollama,
            "/chat",
            json!({
                "model": "org/demo:1",
                "messages": [{ "role": "user", "content": prompt }],
                "options": { "num_predict": 64, "temperature": 0.5 },
                "stream": true,
            }),
        ),
        (
            Protocol::DashScope,
            "/services/aigc/text-generation/generation",
            json!({
                "model": "org/demo:1",
                "input": { "messages": [{ "role": "user", "content": prompt }] },
                "parameters": {
                    "result_format": "message", "incremental_output": true, "max_tokens": 64, "temperature": 0.5,
                },
            }),
        ),
        (
            Protocol::Bedrock,
            "/model/org%2Fdemo%3A1/converse-stream",
            json!({
                "messages": [{ "role": "user", "content": [{ "text": prompt }] }],
                "inferenceConfig": { "maxTokens": 64, "temperature": 0.5 },
            }),
        ),
    ];
    for (protocol, path, body) in cases {
        assert_eq!(protocol.path(ask.model), path);
        assert_eq!(sent(protocol, &ask), body, "{protocol:?}");
    }
    assert_eq!(Protocol::Gemini.path("models/demo x"), "/models/demo%20x:streamGenerateContent?alt=sse");
}

#[test]
fn formats_differ_in_their_headers() {
    let named = |protocol: Protocol| protocol.auth_header("k").unwrap().0;
    assert_eq!(named(Protocol::Anthropic), "x-api-key");
    assert_eq!(named(Protocol::Gemini), "x-goog-api-key");
    assert_eq!(named(Protocol::Ollama), "authorization");
    assert_eq!(Protocol::Anthropic.own_header().unwrap().0, "anthropic-version");
    assert_eq!(Protocol::DashScope.own_header().unwrap().1, "enable");
    assert_eq!(Protocol::OpenAiChat.own_header(), None);
}

#[test]
fn nested_members_merge() {
    let Value::Object(extra) = json!({ "options": { "num_ctx": 8192, "num_predict": null }, "think": false })
    else {
        panic!("an object")
    };
    let body = sent(Protocol::Ollama, &ask(&extra));
    assert_eq!(body["options"], json!({ "num_ctx": 8192 }));
    assert_eq!(body["think"], json!(false));
}

#[test]
fn extra_members_win_and_null_removes() {
    let Value::Object(extra) =
        json!({ "max_tokens": null, "stream_options": null, "seed": 7, "model": "other" })
    else {
        panic!("an object")
    };
    assert_eq!(
        sent(Protocol::OpenAiChat, &ask(&extra)),
        json!({
            "model": "other",
            "messages": [{ "role": "user", "content": "7f3a Tell me" }],
            "stream": true,
            "seed": 7,
        })
    );
}

#[test]
fn keys_are_trimmed_and_kept_secret() {
    let (name, value) = Protocol::OpenAiChat.auth_header(" sk-test\n").unwrap();
    assert_eq!((name.as_str(), value.to_str().unwrap()), ("authorization", "Bearer sk-test"));
    assert!(value.is_sensitive());
    assert_eq!(Protocol::OpenAiChat.auth_header(" \n"), Err(KeyError::Empty));
    for key in ["sk te", "sk\nte", "sk\u{0}te", "sk-é"] {
        assert_eq!(Protocol::OpenAiChat.auth_header(key), Err(KeyError::Unsendable), "{key:?}");
    }
}
