//! The simulated model server over real sockets: shapes, faults, counts, and times.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::time::Duration;

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokenprobe::simulator::{self, ModelProfile, Oracle, Settings};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet, time::Instant};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A running simulator and a client of it.
struct Simulated {
    base: String,
    client: Client,
    oracle: Oracle,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinSet<std::io::Result<()>>,
}

/// Two models of exactly known timing: `quick` (5 ms, 1 ms) and `known` (150 ms, 20 ms).
async fn simulated(change: impl FnOnce(&mut Settings)) -> Simulated {
    let oracle = Oracle::recording(1000);
    let mut settings = Settings {
        models: vec![
            ModelProfile::fixed("quick", MS(5), MS(1)),
            ModelProfile::fixed("known", MS(150), MS(20)),
        ],
        oracle: oracle.clone(),
        lateness: MS(300),
        keepalive: MS(10),
        ..Settings::default()
    };
    change(&mut settings);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel();
    let mut serving = JoinSet::new();
    serving.spawn(simulator::serve(listener, settings, async {
        let _ = stopped.await;
    }));
    // The provider is per process: another test may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().tcp_nodelay(true).build().unwrap();
    Simulated { base, client, oracle, stop: Some(stop), serving }
}

fn ask(model: &str, max_tokens: u32) -> Value {
    json!({"model": model, "stream": true, "max_tokens": max_tokens, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "hi there"}]})
}

impl Simulated {
    async fn post(&self, path: &str, body: &Value) -> reqwest::Result<Response> {
        self.client.post(format!("{}{path}", self.base)).json(body).send().await
    }

    async fn chat(&self, model: &str) -> Response {
        self.post("/v1/chat/completions", &ask(model, 6)).await.unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.client.get(format!("{}{path}", self.base)).send().await.unwrap().text().await.unwrap()
    }
}

/// What a stream said, put together.
#[derive(Debug, Default)]
struct Told {
    text: String,
    reasoning: String,
    text_events: usize,
    finish: Option<String>,
    usage: Option<Value>,
    error: Option<Value>,
    comments: usize,
    done: bool,
}

fn told(body: &str) -> Told {
    let mut told = Told::default();
    for line in body.lines() {
        if line.starts_with(':') {
            told.comments += 1;
        }
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data == "[DONE]" {
            told.done = true;
            continue;
        }
        let event: Value = serde_json::from_str(data).unwrap();
        if !event["error"].is_null() {
            told.error = Some(event["error"].clone());
        }
        if !event["usage"].is_null() {
            told.usage = Some(event["usage"].clone());
        }
        let choice = &event["choices"][0];
        let text =
            [&choice["delta"]["content"], &choice["text"]].into_iter().find_map(Value::as_str).unwrap_or("");
        let reasoning = choice["delta"]["reasoning"].as_str().unwrap_or("");
        told.text_events += usize::from(!text.is_empty() || !reasoning.is_empty());
        told.text.push_str(text);
        told.reasoning.push_str(reasoning);
        if let Some(finish) = choice["finish_reason"].as_str() {
            told.finish = Some(finish.to_owned());
        }
    }
    told
}

#[tokio::test]
async fn a_stream_tells_its_tokens_its_finish_and_its_usage() {
    let server = simulated(|_| {}).await;
    for path in ["/v1/chat/completions", "/chat/completions"] {
        let response = server.post(path, &ask("quick", 6)).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        let told = told(&response.text().await.unwrap());
        assert_eq!(told.text, "one two three four five six");
        assert_eq!((told.text_events, told.finish.as_deref(), told.done), (6, Some("length"), true));
        let usage = told.usage.unwrap();
        assert_eq!((&usage["completion_tokens"], &usage["prompt_tokens"]), (&json!(6), &json!(7)));
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
    }
}

#[tokio::test]
async fn completions_speak_their_own_shape() {
    let server = simulated(|_| {}).await;
    let mut ask = json!({"model": "quick", "prompt": "hi there", "stream": true, "max_tokens": 3});
    let streamed = told(&server.post("/v1/completions", &ask).await.unwrap().text().await.unwrap());
    assert_eq!((&*streamed.text, streamed.usage, streamed.done), ("one two three", None, true));
    ask["stream"] = json!(false);
    let whole: Value = server.post("/completions", &ask).await.unwrap().json().await.unwrap();
    assert_eq!(
        (&whole["object"], &whole["choices"][0]["text"]),
        (&json!("text_completion"), &json!("one two three"))
    );
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_one_document() {
    let server = simulated(|_| {}).await;
    let mut ask = ask("quick+reasoning", 600);
    ask["stream"] = json!(false);
    let whole: Value = server.post("/v1/chat/completions", &ask).await.unwrap().json().await.unwrap();
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(whole["usage"]["completion_tokens"], 524);
    assert_eq!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 12);
    assert!(whole["choices"][0]["message"]["reasoning"].as_str().unwrap().starts_with("one two"));
}

#[tokio::test]
async fn max_completion_tokens_and_ignore_eos_are_heeded() {
    let server = simulated(|settings| settings.models[0].answer_tokens = 4).await;
    let mut ask = ask("quick", 9);
    assert_eq!(
        told(&server.post("/v1/chat/completions", &ask).await.unwrap().text().await.unwrap()).text_events,
        4
    );
    ask["ignore_eos"] = json!(true);
    assert_eq!(
        told(&server.post("/v1/chat/completions", &ask).await.unwrap().text().await.unwrap()).text_events,
        9
    );
    ask["max_completion_tokens"] = json!(2);
    assert_eq!(
        told(&server.post("/v1/chat/completions", &ask).await.unwrap().text().await.unwrap()).text_events,
        2
    );
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_words_of_vllm() {
    let server = simulated(|settings| settings.models[0].context_tokens = 100).await;
    let check = async |body: Value, status: u16, words: &str| {
        let response = server.post("/v1/chat/completions", &body).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{body}");
        let error: Value = response.json().await.unwrap();
        assert_eq!(error["error"]["code"], status);
        assert!(error["error"]["message"].as_str().unwrap().contains(words), "{error}");
    };
    check(ask("nope", 1), 404, "The model `nope` does not exist").await;
    check(ask("quick+", 1), 404, "unknown suffix `+`").await;
    check(ask("quick+429+bogus", 1), 404, "+role-first").await;
    check(ask("quick", 0), 400, "max_tokens must be at least 1").await;
    check(ask("quick", 5000), 400, "max_model_len=100").await;
    check(ask("quick", 99), 400, "maximum context length is 100 tokens").await;
    check(json!({"model": "quick"}), 400, "Field required").await;
    check(json!({}), 400, "missing field `model`").await;
    let long = json!({"model": "quick", "messages": [{"role": "user", "content": "a".repeat(4000)}]});
    check(long, 400, "maximum context length is 100 tokens").await;
}

#[tokio::test]
async fn a_key_is_asked_for_where_one_is_set() {
    let server = simulated(|settings| settings.api_key = Some("sk-right".to_owned())).await;
    let check = async |key: Option<&str>, expect: u16| {
        for path in ["/v1/chat/completions", "/v1/models"] {
            let url = format!("{}{path}", server.base);
            let request = match path {
                "/v1/models" => server.client.get(url),
                _ => server.client.post(url).json(&ask("quick", 1)),
            };
            let request = if let Some(key) = key { request.header("authorization", key) } else { request };
            assert_eq!(request.send().await.unwrap().status(), expect, "{key:?} at {path}");
        }
    };
    check(None, 401).await;
    check(Some("sk-right"), 401).await;
    check(Some("Bearer sk-wrong"), 401).await;
    check(Some("Bearer sk-right"), 200).await;
}

#[tokio::test]
async fn models_health_and_strange_paths() {
    let server = simulated(|_| {}).await;
    for path in ["/v1/models", "/models"] {
        let models: Value = serde_json::from_str(&server.get(path).await).unwrap();
        let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
        assert_eq!(ids, ["quick", "known"]);
    }
    assert_eq!(server.get("/health").await, "");
    assert_eq!(server.get("/v1/v1/chat/completions").await, r#"{"detail":"Not Found"}"#);
    assert_eq!(server.get("/v1/chat/completions").await, r#"{"detail":"Method Not Allowed"}"#);
}

#[tokio::test]
async fn a_fault_before_the_answer_is_its_status() {
    let server = simulated(|_| {}).await;
    for (suffix, status) in
        [("429", 429), ("401", 401), ("404", 404), ("500", 500), ("503", 503), ("html", 200)]
    {
        let response = server.chat(&format!("quick+{suffix}")).await;
        assert_eq!(response.status().as_u16(), status, "+{suffix}");
        assert_eq!(response.headers().contains_key("retry-after"), suffix == "429");
        let kind = if suffix == "html" { "text/html; charset=utf-8" } else { "application/json" };
        assert_eq!(response.headers()["content-type"], kind);
    }
}

#[tokio::test]
async fn usage_can_be_rejected_or_kept_back() {
    let server = simulated(|_| {}).await;
    let rejected = server.chat("quick+usage-rejected").await;
    assert_eq!(rejected.status(), StatusCode::BAD_REQUEST);
    assert!(rejected.text().await.unwrap().contains("stream_options"));
    let mut without = ask("quick+usage-rejected", 2);
    without.as_object_mut().unwrap().remove("stream_options");
    let accepted = server.post("/v1/chat/completions", &without).await.unwrap();
    assert!(told(&accepted.text().await.unwrap()).done);
    let silent = told(&server.chat("quick+no-usage").await.text().await.unwrap());
    assert_eq!((silent.text_events, silent.usage, silent.done), (6, None, true));
}

#[tokio::test]
async fn every_fifth_request_to_a_flaky_model_fails() {
    let server = simulated(|_| {}).await;
    let mut failed = 0;
    for _ in 0..20 {
        failed += usize::from(server.chat("quick+flaky").await.status() == 500);
    }
    assert_eq!(failed, 4);
}

#[tokio::test]
async fn a_stream_can_be_cut_short_in_several_ways() {
    let server = simulated(|_| {}).await;
    assert!(server.post("/v1/chat/completions", &ask("quick+reset", 6)).await.is_err());
    assert!(server.chat("quick+truncate").await.text().await.is_err());
    assert!(server.chat("quick+truncate+burst").await.text().await.is_err());
    let failed = told(&server.chat("quick+error-in-stream").await.text().await.unwrap());
    assert_eq!(
        (failed.text_events, failed.error.unwrap()["code"].as_u64(), failed.done),
        (2, Some(500), true)
    );
    let mut stalled = server.chat("quick+stall").await;
    let mut body = String::new();
    while let Ok(Ok(Some(bytes))) = tokio::time::timeout(MS(200), stalled.chunk()).await {
        body.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert_eq!((told(&body).text_events, told(&body).done), (2, false));
}

#[tokio::test]
async fn an_answer_can_take_strange_shapes() {
    let server = simulated(|_| {}).await;
    let shape =
        async |suffix: &str| told(&server.chat(&format!("quick+{suffix}")).await.text().await.unwrap());
    let empty = shape("empty").await;
    assert_eq!((empty.text_events, empty.finish.as_deref(), empty.done), (0, Some("stop"), true));
    assert_eq!(empty.usage.unwrap()["completion_tokens"], 0);
    assert_eq!(shape("four-per-chunk").await.text_events, 2);
    assert_eq!(shape("four-per-chunk").await.text, "one two three four five six");
    assert_eq!(shape("burst").await.text_events, 6);
    assert!(shape("keepalive+slow-first").await.comments >= 10);
    let thoughtful = shape("reasoning").await;
    assert_eq!(
        (thoughtful.reasoning.as_str(), thoughtful.text.as_str()),
        ("one two three four five six", "")
    );
    let document: Value = server.chat("quick+json").await.json().await.unwrap();
    assert_eq!(document["object"], "chat.completion");
    let writes = server.oracle.requests().into_iter().find(|seen| seen.model.ends_with("+burst")).unwrap();
    assert_eq!((writes.tokens_sent, writes.token_writes), (6, 1));
}

#[tokio::test]
async fn late_headers_and_late_tokens_are_late() {
    let server = simulated(|_| {}).await;
    let times = async |model: &str| {
        let start = Instant::now();
        let mut response = server.chat(model).await;
        let headers = start.elapsed();
        let mut body = String::new();
        while told(&body).text_events == 0 {
            body.push_str(&String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()));
        }
        (headers, start.elapsed())
    };
    let (headers, first) = times("quick+slow-headers").await;
    assert!(headers >= MS(300) && first >= MS(305), "{headers:?} {first:?}");
    let (headers, first) = times("quick+slow-first").await;
    assert!(headers < first && first >= MS(305), "{headers:?} {first:?}");
    let (_, first) = times("known+slow").await;
    assert!(first >= MS(300), "{first:?}");
    let mut early = server.chat("known+role-first").await;
    let role = String::from_utf8(early.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(role.contains("assistant") && told(&role).text_events == 0, "{role}");
}

#[tokio::test]
async fn a_repeated_prompt_is_told_as_cached() {
    let server = simulated(|_| {}).await;
    let cached = async |prompt: &str| {
        let mut ask = ask("quick", 1);
        ask["messages"][0]["content"] = json!(prompt);
        let response = server.post("/v1/chat/completions", &ask).await.unwrap();
        told(&response.text().await.unwrap()).usage.unwrap()["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    let prompt = "word ".repeat(500);
    assert_eq!(cached(&prompt).await, 0);
    assert_eq!(cached(&prompt).await, 496);
    assert_eq!(cached(&format!("nonce {prompt}")).await, 0);
}

#[tokio::test]
async fn faults_can_be_switched_on_and_off_where_allowed() {
    let server = simulated(|settings| settings.allow_fault_api = true).await;
    let switch = |model: &str, fault: &str| json!({"model": model, "fault": fault});
    assert_eq!(server.post("/-/fault", &switch("quick", "429")).await.unwrap().status(), 204);
    assert_eq!(server.chat("quick").await.status(), 429);
    assert_eq!(server.chat("known").await.status(), 200);
    assert_eq!(server.post("/-/fault", &switch("quick", "bogus")).await.unwrap().status(), 404);
    assert_eq!(server.post("/-/fault", &switch("nope", "429")).await.unwrap().status(), 404);
    assert_eq!(server.post("/-/fault", &json!({"model": "quick"})).await.unwrap().status(), 400);
    let cleared = server.client.delete(format!("{}/-/fault", server.base)).send().await.unwrap();
    assert_eq!(cleared.status(), 204);
    assert_eq!(server.chat("quick").await.status(), 200);
    let closed = simulated(|_| {}).await;
    assert_eq!(closed.post("/-/fault", &switch("quick", "429")).await.unwrap().status(), 404);
}

#[tokio::test]
async fn engine_metrics_bear_the_names_of_vllm() {
    let server = simulated(|_| {}).await;
    server.chat("quick").await.text().await.unwrap();
    let page = server.get("/metrics").await;
    let check = |line: &str| assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    for name in
        ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total"]
    {
        check(&format!("vllm:{name}{{engine=\"0\",model_name=\"quick\"}} 0.0"));
    }
    for (name, value) in [
        ("prompt_tokens", 7),
        ("generation_tokens", 6),
        ("prefix_cache_queries", 7),
        ("prefix_cache_hits", 0),
    ] {
        check(&format!("vllm:{name}_total{{engine=\"0\",model_name=\"quick\"}} {value}.0"));
    }
    check(r#"vllm:request_success_total{engine="0",finished_reason="length",model_name="quick"} 1.0"#);
    check(r#"vllm:time_to_first_token_seconds_bucket{engine="0",le="0.005",model_name="quick"} 1.0"#);
    for (name, count) in [
        ("time_to_first_token_seconds", 1),
        ("inter_token_latency_seconds", 5),
        ("request_time_per_output_token_seconds", 1),
        ("e2e_request_latency_seconds", 1),
        ("request_queue_time_seconds", 1),
        ("request_prefill_time_seconds", 1),
        ("request_decode_time_seconds", 1),
    ] {
        check(&format!("vllm:{name}_count{{engine=\"0\",model_name=\"quick\"}} {count}.0"));
        check(&format!("vllm:{name}_count{{engine=\"0\",model_name=\"known\"}} 0.0"));
    }
}

#[tokio::test]
async fn the_oracle_tells_what_was_received_and_sent() {
    let server = simulated(|_| {}).await;
    let body = ask("quick", 6);
    let request = server.client.post(format!("{}/v1/chat/completions", server.base)).json(&body);
    request.bearer_auth("sk-secret").send().await.unwrap().text().await.unwrap();
    let seen = server.oracle.requests().remove(0);
    assert_eq!(serde_json::from_slice::<Value>(&seen.body).unwrap(), body);
    assert_eq!(
        (seen.path.as_str(), seen.model.as_str(), seen.status),
        ("/v1/chat/completions", "quick", 200)
    );
    assert_eq!(seen.headers["authorization"], "Bearer sk-secret");
    assert!(!format!("{seen:?}").contains("sk-secret"));
    assert_eq!((seen.tokens_sent, seen.prompt_tokens, seen.completed), (6, 7, true));
    assert!(seen.first_token_written.unwrap() - seen.received >= MS(5));
    assert!(seen.last_token_written.unwrap() - seen.received >= MS(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_model_keeps_its_time() {
    let server = simulated(|_| {}).await;
    let mut late = Vec::new();
    for _ in 0..3 {
        server.post("/v1/chat/completions", &ask("known", 10)).await.unwrap().text().await.unwrap();
    }
    for seen in server.oracle.requests() {
        let (first, last) = (seen.first_token_written.unwrap(), seen.last_token_written.unwrap());
        assert!(first - seen.received >= MS(150) && last - seen.received >= MS(330), "never early");
        late.push((first - seen.received).saturating_sub(MS(150)));
        late.push((last - seen.received).saturating_sub(MS(330)));
    }
    late.sort();
    // Less than one gap late, at the first token as at the last: lateness does not add up. How late exactly is a matter
    // of the machine, and of the benchmark.
    assert!(late[late.len() / 2] < MS(20), "{late:?}");
}

#[tokio::test]
async fn a_scaled_clock_runs_faster() {
    let server = simulated(|settings| settings.time_scale = 0.1).await;
    let start = Instant::now();
    server.post("/v1/chat/completions", &ask("known", 11)).await.unwrap().text().await.unwrap();
    // 35 ms instead of 350.
    assert!((MS(35)..MS(350)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test]
async fn stopping_breaks_open_answers_off_at_once() {
    let mut server = simulated(|_| {}).await;
    let mut stalled = server.chat("quick+stall").await;
    stalled.chunk().await.unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    server.serving.join_next().await.unwrap().unwrap().unwrap();
    while let Ok(Some(_)) = stalled.chunk().await {}
    assert!(server.post("/v1/chat/completions", &ask("quick", 1)).await.is_err());
}
