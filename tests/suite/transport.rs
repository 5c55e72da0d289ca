//! What lies beneath a probe: TLS with ALPN, HTTP/2, proxies, idle connections that the server closed.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Map;
use tokenprobe::{
    config::{BaseUrl, ConnectionPolicy, HttpVersion, Redactor, Target},
    measurement::{ConnectionUse, FailureClass, Flag, Measurement},
    probe::{Endpoint, Lane, Shot, TraceId},
    protocol::{Ask, MaxTokensField, Protocol, Timeouts},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::Duration,
};

const STREAM: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n\
                      data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// What the server saw of a request.
#[derive(Debug)]
struct Seen {
    version: hyper::Version,
    uri: String,
    model: String,
}

/// A TLS server of one certificate authority; HTTP/2 or HTTP/1.1 as the client and `alpn` agree.
struct TlsServer {
    address: std::net::SocketAddr,
    ca_file: tempfile::NamedTempFile,
    seen: mpsc::Receiver<Seen>,
    _tasks: JoinSet<()>,
}

impl TlsServer {
    async fn start(alpn: &[&str]) -> Self {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let ca_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca_file.path(), certified.cert.pem()).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::channel(64);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                connections.spawn(async move {
                    let Ok(tls) = acceptor.accept(socket).await else { return };
                    let service = service_fn(|request| answer(request, sender.clone()));
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(tls), service).await;
                });
            }
        });
        Self { address, ca_file, seen, _tasks: tasks }
    }

    fn target(&self, version: HttpVersion) -> Target {
        let mut target = target(&format!("https://localhost:{}/v1", self.address.port()));
        target.tls.ca_file = Some(self.ca_file.path().to_owned());
        target.http_version = version;
        target
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: mpsc::Sender<Seen>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (version, uri) = (request.version(), request.uri().to_string());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let model = body["model"].as_str().unwrap().to_owned();
    seen.send(Seen { version, uri, model }).await.unwrap();
    Ok(Response::builder().header("content-type", "text/event-stream").body(Full::from(STREAM)).unwrap())
}

fn target(base_url: &str) -> Target {
    let models = vec![Arc::from("org/model:free")];
    Target::ad_hoc(BaseUrl::parse(base_url).unwrap(), Protocol::OpenAiChat, models)
}

fn lane(target: Target) -> Lane {
    let endpoint = Endpoint::new(Arc::new(target), Arc::new(Redactor::default())).unwrap();
    Lane::new(Arc::new(endpoint), ConnectionPolicy::Reuse)
}

async fn probe(lane: &mut Lane) -> Measurement {
    let second = Duration::from_secs;
    let timeouts = Timeouts {
        connect: second(5),
        headers: second(5),
        first_token: second(5),
        stall: second(5),
        total: second(10),
    };
    probe_within(lane, timeouts).await
}

async fn probe_within(lane: &mut Lane, timeouts: Timeouts) -> Measurement {
    let shot = Shot {
        ask: Ask {
            model: "org/model:free",
            prompt: "hi",
            max_tokens: 4,
            max_tokens_field: MaxTokensField::MaxTokens,
            temperature: None,
            include_usage: false,
            extra_body: &Map::new(),
        },
        timeouts,
        keep_text: true,
        gap_bounds: Arc::from([1.0]),
        trace_id: TraceId::random(),
        due: None,
        again: None,
    };
    lane.probe(&shot).await
}

#[tokio::test]
async fn alpn_decides_the_version_and_connections_are_reused_in_both() {
    for (alpn, wanted, version) in [
        (vec!["h2", "http/1.1"], HttpVersion::Auto, hyper::Version::HTTP_2),
        (vec!["http/1.1"], HttpVersion::Auto, hyper::Version::HTTP_11),
        (vec!["h2", "http/1.1"], HttpVersion::Http11, hyper::Version::HTTP_11),
        (vec!["h2"], HttpVersion::Http2, hyper::Version::HTTP_2),
    ] {
        let mut server = TlsServer::start(&alpn).await;
        let mut lane = lane(server.target(wanted));
        for connection in [ConnectionUse::New, ConnectionUse::Reused, ConnectionUse::Reused] {
            let measurement = probe(&mut lane).await;
            assert!(measurement.is_ok(), "{alpn:?} {wanted:?}: {:?}", measurement.outcome);
            assert_eq!(measurement.connection, connection, "{alpn:?} {wanted:?}");
            assert_eq!(measurement.timeline.tls.is_some(), connection == ConnectionUse::New);
            assert_eq!(measurement.visible_text.as_deref(), Some("Hi"));
            let seen = server.seen.recv().await.unwrap();
            assert_eq!(seen.version, version, "{alpn:?} {wanted:?}");
            assert!(seen.uri.ends_with("/v1/chat/completions"), "{}", seen.uri);
            assert_eq!(seen.model, "org/model:free");
        }
    }
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_unless_told_otherwise() {
    let server = TlsServer::start(&["http/1.1"]).await;
    let mut strict = server.target(HttpVersion::Auto);
    strict.tls.ca_file = None;
    let mut lax = target(&format!("https://localhost:{}/v1", server.address.port()));
    lax.tls.insecure_skip_verify = true;
    // Without any authority on this machine the target cannot even be prepared, which is as good a refusal.
    if let Ok(endpoint) = Endpoint::new(Arc::new(strict), Arc::new(Redactor::default())) {
        let mut lane = Lane::new(Arc::new(endpoint), ConnectionPolicy::Reuse);
        let failure = probe(&mut lane).await.outcome.failure().cloned().unwrap();
        assert_eq!(failure.subclass.as_deref(), Some("untrusted"));
    }
    assert!(probe(&mut lane(lax)).await.is_ok());
}

/// A proxy that opens every tunnel to `upstream`, whatever the name.
async fn tunnelling_proxy(upstream: std::net::SocketAddr, tasks: &mut JoinSet<()>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("CONNECT localhost:"), "{head}");
        // user:p@ss
        assert!(head.to_lowercase().contains("proxy-authorization: basic dxnlcjpwqhnz"), "{head}");
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let mut server = TcpStream::connect(upstream).await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut server).await;
    });
    address
}

#[tokio::test]
async fn a_tunnel_through_a_proxy_carries_tls_and_shows_the_proxy_its_credential() {
    let mut server = TlsServer::start(&["h2", "http/1.1"]).await;
    let mut tasks = JoinSet::new();
    let proxy = tunnelling_proxy(server.address, &mut tasks).await;
    let mut target = server.target(HttpVersion::Auto);
    target.proxy = Some(format!("http://user:p%40ss@{proxy}").parse().unwrap());
    let measurement = probe(&mut lane(target)).await;
    assert!(measurement.is_ok(), "{:?}", measurement.outcome);
    assert!(measurement.timeline.tls.is_some());
    assert_eq!(server.seen.recv().await.unwrap().version, hyper::Version::HTTP_2);
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_costs_no_probe() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    // Answers one request a connection with a keep-alive it does not keep.
    tasks.spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut chunk = [0; 4096];
            let mut request = Vec::new();
            while !String::from_utf8_lossy(&request).contains("\"stream\":true") {
                let read = socket.read(&mut chunk).await.unwrap();
                request.extend_from_slice(&chunk[..read]);
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", STREAM.len());
            socket.write_all(format!("{head}{STREAM}").as_bytes()).await.unwrap();
        }
    });
    let mut lane = lane(target(&format!("http://{address}/v1")));
    for _ in 0..20 {
        let measurement = probe(&mut lane).await;
        assert!(measurement.is_ok(), "{:?}", measurement.outcome);
        assert_eq!(measurement.connection, ConnectionUse::New);
    }
}

#[tokio::test]
async fn events_that_came_in_one_read_share_its_time_however_they_were_cut_into_http_chunks() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 4096]).await;
        let mut answer = String::from("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let token = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
        let end =
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        for event in std::iter::repeat_n(token, 10).chain([end]) {
            answer.push_str(&format!("{:x}\r\n{event}\r\n", event.len()));
        }
        answer.push_str("0\r\n\r\n");
        socket.write_all(answer.as_bytes()).await.unwrap();
        let _ = socket.read(&mut [0; 4096]).await;
    });
    let measurement = probe(&mut lane(target(&format!("http://{address}/v1")))).await;
    assert!(measurement.is_ok(), "{:?}", measurement.outcome);
    assert_eq!((measurement.tokens.chunks, measurement.tokens.reads), (10, 1));
    assert!(measurement.flags.contains(&Flag::Burst));
    assert_eq!(measurement.time_per_output_token(), None, "ten tokens in one read have no time between them");
}

/// Sends a token a millisecond for a while, and then nothing more.
async fn fades_away(mut socket: TcpStream, tokens: u64) {
    let _ = socket.read(&mut [0; 4096]).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let token = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
    let mut beat = tokio::time::interval(Duration::from_millis(1));
    for piece in std::iter::once(head).chain((0..tokens).map(|_| token)) {
        beat.tick().await;
        if socket.write_all(piece.as_bytes()).await.is_err() {
            return;
        }
    }
    let _ = socket.read(&mut [0; 16]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_falls_silent_just_when_a_deadline_is_looked_at_is_given_up_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut streams = JoinSet::new();
        // The alarm is set for 40 ms after the headers, and moved only when it has rung.
        for tokens in (20..100).cycle() {
            let (socket, _) = listener.accept().await.unwrap();
            streams.spawn(fades_away(socket, tokens));
        }
    });
    let millis = Duration::from_millis;
    let timeouts = Timeouts {
        connect: millis(10_000),
        headers: millis(10_000),
        first_token: millis(10_000),
        stall: millis(40),
        total: millis(30_000),
    };
    let mut probes = JoinSet::new();
    for _ in 0..320 {
        let mut lane = lane(target(&url));
        probes.spawn(async move { probe_within(&mut lane, timeouts).await });
    }
    // One that misses its alarm waits for ever.
    let ended = tokio::time::timeout(Duration::from_secs(60), probes.join_all()).await.unwrap();
    for measurement in ended {
        let failure = measurement.outcome.failure().unwrap();
        assert_eq!((failure.class, failure.subclass.as_deref()), (FailureClass::Timeout, Some("stall")));
    }
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_a_protocol_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 4096]).await;
        let _ = socket.write_all(b"220 mail.example ESMTP\r\n").await;
        let _ = socket.read(&mut [0; 4096]).await;
    });
    let measurement = probe(&mut lane(target(&format!("http://{address}/v1")))).await;
    let failure = measurement.outcome.failure().unwrap();
    assert_eq!(failure.class.as_str(), "protocol", "{failure:?}");
}
