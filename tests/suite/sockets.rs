//! The corpus over real sockets: every chunk is one write of a real server, read by the real client.
//!
//! Times are checked by a floor (never earlier than the server can have sent it) and a wide ceiling; everything
//! else must be exactly as with the fake clock.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use tokenprobe::{
    config::{BaseUrl, ConnectionPolicy, Redactor, Target},
    measurement::{Flag, Measurement},
    probe::{Endpoint, Lane, Shot, TraceId},
    protocol::{Ask, MaxTokensField, Protocol, Timeouts},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::sleep,
};

/// How much later than sent a token may be dated on a machine that does other things, too.
const CEILING: Duration = Duration::from_millis(1500);
/// Cases played at once: few enough that they do not starve each other.
const AT_ONCE: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_openai_case_is_measured_right_over_a_real_socket() {
    let cases: Vec<Value> = include_str!("../data/quirks.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|case| protocol(case).is_some())
        .collect();
    assert!(cases.len() >= 100, "the corpus is there");
    let mut running = JoinSet::new();
    let mut wrong = Vec::new();
    for case in cases {
        if running.len() >= AT_ONCE {
            wrong.extend(running.join_next().await.unwrap().unwrap());
        }
        running.spawn(async move {
            let measurement = play(&case).await;
            compare(&case, &measurement)
        });
    }
    while let Some(more) = running.join_next().await {
        wrong.extend(more.unwrap());
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

fn protocol(case: &Value) -> Option<Protocol> {
    match case["request_hint"]["api"].as_str()? {
        "openai_chat" => Some(Protocol::OpenAiChat),
        "openai_completions" => Some(Protocol::OpenAiCompletions),
        _ => None,
    }
}

async fn play(case: &Value) -> Measurement {
    let mut stage = JoinSet::new();
    let mut target = Target::ad_hoc(
        BaseUrl::parse("http://127.0.0.1:1/v1").unwrap(),
        protocol(case).unwrap(),
        vec![Arc::from("demo-1")],
    );
    let mut timeouts = timeouts(case);
    let url = match case["transport"].as_str() {
        Some(failure) => fail(failure, &mut stage, &mut target, &mut timeouts).await,
        None => {
            let address = serve(case, &mut stage).await;
            match case["request_hint"]["host"].as_str() {
                // What a few words mean depends on who says them: the host is asked through a proxy.
                Some(host) => {
                    target.proxy = Some(format!("http://{address}").parse().unwrap());
                    format!("http://{host}/v1")
                }
                None => format!("http://{address}/v1"),
            }
        }
    };
    target.base_url = BaseUrl::parse(&url).unwrap();
    let usage = case["request_hint"]["body"]["stream_options"]["include_usage"] == Value::Bool(true);
    let endpoint = Endpoint::new(Arc::new(target), Arc::new(Redactor::default())).unwrap();
    let shot = Shot {
        ask: Ask {
            model: "demo-1",
            prompt: "hi",
            max_tokens: 16,
            max_tokens_field: MaxTokensField::MaxTokens,
            temperature: None,
            include_usage: usage,
            extra_body: &Map::new(),
        },
        timeouts,
        keep_text: true,
        gap_bounds: Arc::from([0.1]),
        trace_id: TraceId::random(),
    };
    Lane::new(Arc::new(endpoint), ConnectionPolicy::Reuse).probe(&shot).await
}

fn timeouts(case: &Value) -> Timeouts {
    let given = &case["request_hint"]["client_timeouts"];
    let or = |key: &str, default| Duration::from_millis(given[key].as_u64().unwrap_or(default));
    Timeouts {
        connect: or("connect_ms", 5_000),
        headers: or("headers_ms", 20_000),
        first_token: or("first_token_ms", 20_000),
        stall: or("stall_ms", 20_000),
        total: or("total_ms", 30_000),
    }
}

/// Plays one case's answer to one request.
async fn serve(case: &Value, stage: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let case = case.clone();
    stage.spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        read_request(&mut socket).await;
        sleep(Duration::from_millis(case["head_delay_ms"].as_u64().unwrap())).await;
        let mut head =
            format!("HTTP/1.1 {} Whatever\r\ntransfer-encoding: chunked\r\n", case["response_status"]);
        for (name, value) in case["response_headers"].as_object().into_iter().flatten() {
            head.push_str(&format!("{name}: {}\r\n", value.as_str().unwrap()));
        }
        socket.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        for chunk in case["body_chunks"].as_array().unwrap() {
            sleep(Duration::from_millis(chunk["delay_ms"].as_u64().unwrap())).await;
            let text = chunk["bytes"].as_str().unwrap();
            let bytes = match chunk["encoding"].as_str() {
                Some("base64") => STANDARD.decode(text).unwrap(),
                _ => text.as_bytes().to_vec(),
            };
            let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
            framed.extend_from_slice(&bytes);
            framed.extend_from_slice(b"\r\n");
            // A client whose deadline passed is gone, and may be.
            if socket.write_all(&framed).await.is_err() {
                return;
            }
        }
        match case["end"].as_str().unwrap() {
            "clean" => drop(socket.write_all(b"0\r\n\r\n").await),
            "abort" => {}
            _ => std::future::pending().await,
        }
        // What the client still sends is read, so that closing does not reset what it has not read yet.
        let _ = socket.shutdown().await;
        let mut rest = [0; 64];
        while socket.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    });
    address
}

/// Reads one request with its body.
async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = socket.read(&mut chunk).await.unwrap();
        assert!(read > 0, "the request ended early");
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0_usize) {
            return text;
        }
    }
}

/// Sets a stage on which no HTTP answer comes; the URL to ask.
async fn fail(
    failure: &str,
    stage: &mut JoinSet<()>,
    target: &mut Target,
    timeouts: &mut Timeouts,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    match failure {
        "dns_failure" => return "http://no-such-host.invalid/v1".into(),
        "connect_refused" => {
            drop(listener);
            return format!("http://{address}/v1");
        }
        "connect_timeout" => {
            timeouts.connect = Duration::from_millis(300);
            return format!("http://{}/v1", deaf(stage).await);
        }
        "tls_untrusted" => stage.spawn(tls_server(listener)),
        "tls_alert" => stage.spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            // fatal handshake_failure
            let _ = socket.write_all(&[0x15, 3, 3, 0, 2, 2, 40]).await;
            let _ = socket.read(&mut [0; 64]).await;
        }),
        "proxy_407" => {
            target.proxy = Some(format!("http://{address}").parse().unwrap());
            stage.spawn(async move {
                let (mut socket, _) = listener.accept().await.unwrap();
                let request = read_request(&mut socket).await;
                assert!(request.starts_with("CONNECT model.example.invalid:443 "), "{request}");
                let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
                socket.write_all(answer).await.unwrap();
                let _ = socket.read(&mut [0; 64]).await;
            });
            return "https://model.example.invalid/v1".into();
        }
        "reset_before_headers" => {
            stage.spawn(async move {
                let (mut socket, _) = listener.accept().await.unwrap();
                read_request(&mut socket).await;
                socket.set_zero_linger().unwrap();
            });
            return format!("http://{address}/v1");
        }
        other => panic!("no stage for {other}"),
    };
    format!("https://{address}/v1")
}

/// A listener whose queue is full: the kernel drops further handshakes.
async fn deaf(stage: &mut JoinSet<()>) -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let (full, filled) = tokio::sync::oneshot::channel();
    stage.spawn(async move {
        let mut queued = Vec::new();
        while let Ok(Ok(socket)) =
            tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            queued.push(socket);
        }
        let _ = full.send(());
        std::future::pending::<()>().await;
        drop((listener, queued));
    });
    filled.await.unwrap();
    address
}

async fn tls_server(listener: TcpListener) {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let _ = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(socket).await;
}

fn compare(case: &Value, measurement: &Measurement) -> Vec<String> {
    let id = case["id"].as_str().unwrap();
    let expected = &case["expected"];
    let failure = measurement.outcome.failure();
    let text = |value: Option<&str>| value.map_or(Value::Null, Value::from);
    let actual = [
        ("outcome", Value::from(measurement.outcome.as_str())),
        ("error_class", text(failure.map(|failure| failure.class.as_str()))),
        ("error_subclass", text(failure.and_then(|failure| failure.subclass.as_deref()))),
        ("output_tokens", measurement.tokens.output.map_or(Value::Null, Value::from)),
        ("output_tokens_source", serde_json::to_value(measurement.tokens.source).unwrap()),
        ("finish_reason", text(measurement.finish_reason.as_deref())),
        ("first_token_kind", serde_json::to_value(measurement.first_token_kind).unwrap()),
    ];
    let mut wrong: Vec<String> = actual
        .into_iter()
        .filter(|(key, value)| expected[*key] != *value)
        .map(|(key, value)| format!("{id}: {key} is {value}, not {} ({failure:?})", expected[key]))
        .collect();
    if let Some(visible) = expected["visible_text"].as_str()
        && measurement.visible_text.as_deref().unwrap_or_default() != visible
    {
        wrong.push(format!("{id}: text is {:?}, not {visible:?}", measurement.visible_text));
    }
    wrong.extend(compare_flags(id, expected, measurement));
    wrong.extend(compare_times(id, expected, measurement));
    wrong
}

/// How writes fall into reads is up to the machine: it may add `coalesced` and `burst`, never remove them.
fn compare_flags(id: &str, expected: &Value, measurement: &Measurement) -> Option<String> {
    let wanted: Vec<&str> =
        expected["flags"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    let up_to_the_machine = |flag: &Flag| matches!(flag, Flag::Coalesced | Flag::Burst);
    let seen: Vec<&str> = measurement
        .flags
        .iter()
        .filter(|flag| !up_to_the_machine(flag) || wanted.contains(&flag.as_str()))
        .map(|flag| flag.as_str())
        .collect();
    let missing = wanted.iter().any(|flag| !seen.contains(flag));
    let surplus = seen.iter().any(|flag| !wanted.contains(flag));
    (missing || surplus).then(|| format!("{id}: flags are {seen:?}, not {wanted:?}"))
}

fn compare_times(id: &str, expected: &Value, measurement: &Measurement) -> Option<String> {
    let first = measurement.timeline.first_answer_token;
    match (expected["ttft_ms"].as_u64().map(Duration::from_millis), first) {
        (None, None) => None,
        (Some(floor), Some(at)) if at >= floor && at <= floor + CEILING => None,
        (floor, at) => Some(format!("{id}: first answer token at {at:?}, sent at {floor:?}")),
    }
}
