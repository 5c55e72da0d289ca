//! The corpus over real sockets: every chunk is one write of a real server, read by the real client.
//!
//! Times are checked by a floor (never earlier than the server can have sent it) and a wide ceiling; everything
//! else must be exactly as with the fake clock.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use serde_json::Map;
use tokenprobe::{
    config::{BaseUrl, ConnectionPolicy, Redactor, Target},
    measurement::Measurement,
    probe::{Endpoint, Lane, Shot, TraceId},
    protocol::{Ask, MaxTokensField, Protocol, Timeouts},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::sleep,
};

use crate::corpus::{self, Case, Clock, End};

/// How much later than sent a token may be dated on a machine that does other things, too.
const CEILING: Duration = Duration::from_millis(1500);
/// Cases played at once: few enough that they do not starve each other.
const AT_ONCE: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_is_measured_right_over_a_real_socket() {
    let mut running = JoinSet::new();
    let mut wrong = Vec::new();
    let cases = corpus::load();
    assert!(cases.len() >= 142, "the corpus is there");
    for case in cases {
        let Some(protocol) = case.protocol() else { continue };
        if running.len() >= AT_ONCE {
            wrong.extend(running.join_next().await.unwrap().unwrap());
        }
        running.spawn(async move {
            let measurement = play(&case, protocol).await;
            let differences = corpus::differences(&case, &measurement, Clock::Slack(CEILING));
            differences.into_iter().map(|difference| format!("{}: {difference}", case.id)).collect::<Vec<_>>()
        });
    }
    while let Some(more) = running.join_next().await {
        wrong.extend(more.unwrap());
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

async fn play(case: &Case, protocol: Protocol) -> Measurement {
    let mut stage = JoinSet::new();
    let placeholder = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let mut target = Target::ad_hoc(placeholder, protocol, vec![Arc::from("demo-1")]);
    let mut timeouts = case.timeouts();
    let url = match case.transport.as_deref() {
        Some(failure) => fail(failure, &mut stage, &mut target, &mut timeouts).await,
        None => {
            let address = serve(case, &mut stage).await;
            match &case.request_hint.host {
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
    let endpoint = Endpoint::new(Arc::new(target), Arc::new(Redactor::default())).unwrap();
    let shot = Shot {
        ask: Ask {
            model: "demo-1",
            prompt: "hi",
            max_tokens: 16,
            max_tokens_field: MaxTokensField::MaxTokens,
            temperature: None,
            include_usage: case.include_usage(),
            extra_body: &Map::new(),
        },
        timeouts,
        keep_text: true,
        gap_bounds: Arc::from([0.1]),
        trace_id: TraceId::random(),
        due: None,
        again: None,
    };
    Lane::new(Arc::new(endpoint), ConnectionPolicy::Reuse).probe(&shot).await
}

/// Plays one case's answer to one request.
async fn serve(case: &Case, stage: &mut JoinSet<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let case = case.clone();
    stage.spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        read_request(&mut socket).await;
        sleep(Duration::from_millis(case.head_delay_ms.unwrap_or(0))).await;
        let mut head =
            format!("HTTP/1.1 {} Whatever\r\ntransfer-encoding: chunked\r\n", case.response_status.unwrap());
        for (name, value) in case.response_headers.iter().flatten() {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        socket.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        for chunk in case.body_chunks.iter().flatten() {
            sleep(Duration::from_millis(chunk.delay_ms)).await;
            let bytes = chunk.bytes();
            let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
            framed.extend_from_slice(&bytes);
            framed.extend_from_slice(b"\r\n");
            // A client whose deadline passed is gone, and may be.
            if socket.write_all(&framed).await.is_err() {
                return;
            }
        }
        match case.end.unwrap() {
            End::Clean => drop(socket.write_all(b"0\r\n\r\n").await),
            End::Abort => {}
            End::Hang => std::future::pending().await,
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
