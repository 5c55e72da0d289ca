//! How a probe shows who asks: what arrives at the endpoint, what token endpoints and programs are asked for, what
//! their failures become, and that nothing of it is measured or printed.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Map;
use tokenprobe::{
    config::{Config, ConnectionPolicy},
    measurement::{FailureClass, Measurement},
    probe::{Endpoint, Lane, Shot, TraceId},
    protocol::{Ask, MaxTokensField, Timeouts},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};

const STREAM: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n\
                      data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// An endpoint and a token endpoint that write down what they are asked.
#[derive(Clone, Default)]
struct Seen {
    requests: Arc<Mutex<Vec<(String, HeaderMap)>>>,
    tokens: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    /// Whether the model endpoint refuses everybody.
    refuses: Arc<Mutex<bool>>,
    /// What the token endpoint answers; `{n}` stands for how often it was asked.
    token_answer: Arc<Mutex<(u16, String)>>,
    token_delay: Arc<Mutex<Duration>>,
    count: Arc<AtomicUsize>,
}

struct Site {
    seen: Seen,
    base: String,
    _task: JoinSet<()>,
}

impl Site {
    async fn start() -> Self {
        let seen = Seen::default();
        *seen.token_answer.lock().unwrap() =
            (200, r#"{"access_token":"issued-token-{n}","expires_in":3600}"#.to_owned());
        let app = Router::new().route("/token", post(token)).fallback(answer).with_state(seen.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { seen, base, _task: task }
    }

    fn lane(&self, target: &str) -> Lane {
        Lane::new(self.endpoint(target), ConnectionPolicy::Reuse)
    }

    fn endpoint(&self, target: &str) -> Arc<Endpoint> {
        let text = format!(
            "[[targets]]\nname = \"t\"\nmodels = [\"m\"]\nbase_url = \"{}/v1\"\n{}\n",
            self.base,
            target.replace("BASE", &self.base)
        );
        let environment = |name: &str| Ok(format!("value-of-{name}"));
        let config = Config::parse(&text, Path::new("t.toml"), &environment).unwrap();
        Arc::new(Endpoint::new(config.targets[0].clone(), Arc::new(config.redactor())).unwrap())
    }

    fn header(&self, index: usize, name: &str) -> String {
        let requests = self.seen.requests.lock().unwrap();
        requests[index].1.get(name).map_or("", |value| value.to_str().unwrap()).to_owned()
    }

    fn tokens_asked(&self) -> usize {
        self.seen.tokens.lock().unwrap().len()
    }

    fn token_answers(&self, status: u16, body: &str) {
        *self.seen.token_answer.lock().unwrap() = (status, body.to_owned());
    }
}

async fn token(State(seen): State<Seen>, headers: HeaderMap, body: String) -> impl IntoResponse {
    let delay = *seen.token_delay.lock().unwrap();
    tokio::time::sleep(delay).await;
    seen.tokens.lock().unwrap().push((headers, body));
    let n = seen.count.fetch_add(1, Ordering::Relaxed) + 1;
    let (status, body) = seen.token_answer.lock().unwrap().clone();
    (
        StatusCode::from_u16(status).unwrap(),
        [("content-type", "application/json")],
        body.replace("{n}", &n.to_string()),
    )
}

async fn answer(State(seen): State<Seen>, request: Request) -> impl IntoResponse {
    let uri = request.uri().to_string();
    seen.requests.lock().unwrap().push((uri, request.headers().clone()));
    if *seen.refuses.lock().unwrap() {
        let shown = request.headers().get("authorization").map_or("", |value| value.to_str().unwrap());
        let body = format!("{{\"error\":{{\"message\":\"no: {shown}\",\"code\":\"invalid_api_key\"}}}}");
        return (StatusCode::UNAUTHORIZED, [("content-type", "application/json")], body);
    }
    (StatusCode::OK, [("content-type", "text/event-stream")], STREAM.to_owned())
}

pub async fn probe(lane: &mut Lane) -> Measurement {
    let second = Duration::from_secs(10);
    let shot = Shot {
        ask: Ask {
            model: "m",
            prompt: "hi",
            max_tokens: 8,
            max_tokens_field: MaxTokensField::MaxTokens,
            temperature: None,
            include_usage: false,
            extra_body: &Map::new(),
        },
        timeouts: Timeouts {
            connect: second,
            headers: second,
            first_token: second,
            stall: second,
            total: second,
        },
        keep_text: false,
        gap_bounds: Arc::new([]),
        trace_id: TraceId::random(),
        due: None,
        again: None,
    };
    lane.probe(&shot).await
}

pub fn failure(measurement: &Measurement) -> (FailureClass, String, String) {
    let failure = measurement.outcome.failure().unwrap();
    let subclass = failure.subclass.as_deref().unwrap_or_default().to_owned();
    (failure.class, subclass, failure.message.clone())
}

const OAUTH2: &str = "oauth2 = { token_url = \"BASE/token\", client_id = \"me\", client_secret = { env = \"SECRET\" }, \
                      scopes = [\"a\", \"b\"], params = { audience = \"it\" } }";

#[tokio::test]
async fn keys_go_into_the_header_that_is_named_and_parameters_into_the_url() {
    let site = Site::start().await;
    for (target, header, expect) in [
        ("api_key = { env = \"K\" }", "authorization", "Bearer value-of-K"),
        ("api_key = { env = \"K\" }\nauth_header = \"api-key\"", "api-key", "value-of-K"),
        ("api_key = { env = \"K\" }\nprotocol = \"anthropic\"", "x-api-key", "value-of-K"),
        (
            "api_key = { env = \"K\" }\nprotocol = \"anthropic\"\nauth_header = \"Authorization\"",
            "authorization",
            "Bearer value-of-K",
        ),
        ("api_key = { env = \"K\" }\nprotocol = \"gemini\"", "x-goog-api-key", "value-of-K"),
        ("token_command = { command = [\"printf\", \"%s\", \"tok-1\"] }", "authorization", "Bearer tok-1"),
        (
            "protocol = \"anthropic\"\ntoken_command = { command = [\"echo\", '{\"token\":\"tok-2\"}'] }",
            "authorization",
            "Bearer tok-2",
        ),
    ] {
        let mut lane = site.lane(&format!("{target}\nquery = {{ \"api-version\" = \"2024-10-21\" }}"));
        probe(&mut lane).await;
        let last = site.seen.requests.lock().unwrap().len() - 1;
        assert_eq!(site.header(last, header), expect, "{target}");
        let uri = site.seen.requests.lock().unwrap()[last].0.clone();
        assert!(uri.contains("?api-version=2024-10-21") || uri.contains("&api-version=2024-10-21"), "{uri}");
    }
}

#[tokio::test]
async fn several_keys_take_turns_and_a_refusal_names_the_one() {
    let site = Site::start().await;
    let endpoint = site.endpoint("api_key = [{ env = \"A\" }, { env = \"B\" }, { env = \"C\" }]");
    let mut lanes = [(); 2].map(|()| Lane::new(endpoint.clone(), ConnectionPolicy::Reuse));
    for turn in 0..6 {
        assert!(probe(&mut lanes[turn % 2]).await.is_ok());
    }
    let shown: Vec<_> = (0..6).map(|index| site.header(index, "authorization")).collect();
    let expect = ["A", "B", "C", "A", "B", "C"].map(|name| format!("Bearer value-of-{name}"));
    assert_eq!(shown, expect);
    *site.seen.refuses.lock().unwrap() = true;
    let (class, _, message) = failure(&probe(&mut lanes[0]).await);
    assert_eq!(class, FailureClass::Auth);
    assert!(message.ends_with("[key 1 of 3, environment variable A]"), "{message}");
    assert!(!message.contains("value-of-A") && message.contains("[redacted]"), "{message}");
}

#[tokio::test]
async fn a_token_is_fetched_once_for_all_and_its_time_is_not_measured() {
    let site = Site::start().await;
    *site.seen.token_delay.lock().unwrap() = Duration::from_millis(300);
    let endpoint = site.endpoint(OAUTH2);
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let mut lane = Lane::new(endpoint.clone(), ConnectionPolicy::Reuse);
        tasks.spawn(async move { probe(&mut lane).await });
    }
    while let Some(measurement) = tasks.join_next().await {
        let measurement = measurement.unwrap();
        assert!(measurement.is_ok(), "{:?}", measurement.outcome);
        assert!(measurement.timeline.end < Duration::from_millis(300), "{:?}", measurement.timeline.end);
    }
    assert_eq!(site.tokens_asked(), 1);
    assert_eq!(site.header(7, "authorization"), "Bearer issued-token-1");
    let (headers, body) = site.seen.tokens.lock().unwrap()[0].clone();
    assert_eq!(body, "grant_type=client_credentials&scope=a+b&audience=it");
    let basic = format!("Basic {}", STANDARD.encode("me:value-of-SECRET"));
    assert_eq!(headers["authorization"], basic.as_str());
}

#[tokio::test]
async fn a_client_can_show_its_secret_in_the_form() {
    let site = Site::start().await;
    let target = OAUTH2.replace("scopes = [\"a\", \"b\"]", "client_auth = \"body\"");
    assert!(probe(&mut site.lane(&target)).await.is_ok());
    let (headers, body) = site.seen.tokens.lock().unwrap()[0].clone();
    assert_eq!(body, "grant_type=client_credentials&client_id=me&client_secret=value-of-SECRET&audience=it");
    assert!(!headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_token_is_renewed_ahead_of_its_end_and_the_old_one_serves_while_that_fails() {
    let site = Site::start().await;
    // Renewed when a fifth of its life is left.
    site.token_answers(200, r#"{"access_token":"issued-token-{n}","expires_in":"2"}"#);
    let mut lane = site.lane(OAUTH2);
    assert!(probe(&mut lane).await.is_ok());
    assert!(probe(&mut lane).await.is_ok());
    assert_eq!(site.tokens_asked(), 1);
    tokio::time::sleep(Duration::from_millis(1700)).await;
    site.token_answers(503, "{}");
    assert!(probe(&mut lane).await.is_ok());
    assert_eq!(site.tokens_asked(), 2, "the renewal was tried");
    assert_eq!(site.header(2, "authorization"), "Bearer issued-token-1", "and the old token served");
    tokio::time::sleep(Duration::from_millis(400)).await;
    let (class, _, message) = failure(&probe(&mut lane).await);
    assert_eq!(class, FailureClass::Overloaded, "{message}");
    assert_eq!(site.tokens_asked(), 2, "a source that just failed is left alone");
}

#[tokio::test]
async fn failures_of_the_token_endpoint_are_told_apart() {
    let site = Site::start().await;
    for (status, body, class, subclass) in [
        (400, r#"{"error":"invalid_grant","error_description":"old"}"#, FailureClass::Auth, "expired"),
        (401, r#"{"error":"invalid_client"}"#, FailureClass::Auth, "invalid_key"),
        (403, r#"{"error":"access_denied"}"#, FailureClass::Auth, "forbidden"),
        (404, "nothing here", FailureClass::EndpointNotFound, ""),
        (429, r#"{"error":"rate_limit_exceeded"}"#, FailureClass::RateLimited, ""),
        (200, r#"{"error":"invalid_grant"}"#, FailureClass::Auth, "expired"),
        (200, "<html>sign in</html>", FailureClass::Protocol, "token_endpoint"),
        (200, r#"{"access_token":""}"#, FailureClass::Protocol, "token_endpoint"),
    ] {
        site.token_answers(status, body);
        let found = failure(&probe(&mut site.lane(OAUTH2)).await);
        assert_eq!((found.0, found.1.as_str()), (class, subclass), "{status} {body}: {}", found.2);
        assert!(found.2.starts_with("token endpoint 127.0.0.1: "), "{}", found.2);
    }
    let nobody = OAUTH2.replace("BASE", "http://127.0.0.1:1");
    let (class, subclass, message) = failure(&probe(&mut site.lane(&nobody)).await);
    assert_eq!((class, subclass.as_str()), (FailureClass::Connect, "token_endpoint"), "{message}");
    assert_eq!(site.seen.requests.lock().unwrap().len(), 0, "nobody was asked without a token");
}

#[tokio::test]
async fn a_refused_token_is_not_kept_and_never_printed() {
    let site = Site::start().await;
    *site.seen.refuses.lock().unwrap() = true;
    let (class, _, message) = failure(&probe(&mut site.lane(OAUTH2)).await);
    assert_eq!(class, FailureClass::Auth);
    assert!(!message.contains("issued-token") && message.contains("[redacted]"), "{message}");
}

#[tokio::test]
async fn programs_that_print_no_token_fail_the_probe_with_their_name() {
    let site = Site::start().await;
    for (command, words) in [
        (r#"["no-such-program-here"]"#, "cannot be started"),
        (r#"["false"]"#, "failed (exit status: 1)"),
        (r#"["true"]"#, "has to print a token"),
        (r#"["echo", "two words"]"#, "has to print a token"),
        (r#"["echo", "{ broken"]"#, "printed broken JSON"),
        (r#"["sleep", "60"]"#, "did not end in time"),
        (r#"["yes"]"#, "printed too much"),
    ] {
        let target = format!("token_command = {{ command = {command}, timeout = \"400ms\" }}");
        let (class, subclass, message) = failure(&probe(&mut site.lane(&target)).await);
        assert_eq!((class, subclass.as_str()), (FailureClass::Auth, "token_command"), "{command}");
        assert!(message.contains(words), "{command}: {message}");
    }
}

#[tokio::test]
async fn requests_to_aws_are_signed() {
    let site = Site::start().await;
    let process = r#"{"Version":1,"AccessKeyId":"AKID2","SecretAccessKey":"s","SessionToken":"session-2","Expiration":"2100-01-01T00:00:00Z"}"#;
    for (aws, id, session) in [
        (
            "{ region = \"us-east-1\", access_key_id = \"AKID1\", secret_access_key = { env = \"S\" } }",
            "AKID1",
            "",
        ),
        (&format!("{{ region = \"us-east-1\", command = [\"echo\", '{process}'] }}"), "AKID2", "session-2"),
        ("{ region = \"us-east-1\" }", "value-of-AWS_ACCESS_KEY_ID", "value-of-AWS_SESSION_TOKEN"),
    ] {
        let mut lane = site.lane(&format!("protocol = \"bedrock\"\naws = {aws}"));
        probe(&mut lane).await;
        let last = site.seen.requests.lock().unwrap().len() - 1;
        let authorization = site.header(last, "authorization");
        let start = format!("AWS4-HMAC-SHA256 Credential={id}/");
        assert!(authorization.starts_with(&start), "{authorization}");
        assert!(
            authorization
                .contains("/us-east-1/bedrock/aws4_request, SignedHeaders=content-type;host;x-amz-date")
        );
        assert_eq!(site.header(last, "x-amz-security-token"), session);
    }
}

/// A TLS server that lets nobody in without a certificate of its own authority; answers one stream to each.
async fn mutual(authority: &rcgen::CertifiedKey<rcgen::KeyPair>) -> (std::net::SocketAddr, JoinSet<()>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.cert.der().clone()).unwrap();
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(authority.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![authority.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(mut tls) = acceptor.accept(socket).await else { continue };
            let _ = tls.read(&mut [0; 4096]).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            let _ = tls.write_all(format!("{head}{STREAM}").as_bytes()).await;
            let _ = tls.shutdown().await;
        }
    });
    (address, tasks)
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_those_who_ask_for_one() {
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (address, _server) = mutual(&authority).await;
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("cert.pem"), authority.cert.pem()).unwrap();
    std::fs::write(files.path().join("key.pem"), authority.signing_key.serialize_pem()).unwrap();
    let probed = async |certificate: &str| {
        let text = format!(
            "[[targets]]\nname = \"t\"\nmodels = [\"m\"]\nbase_url = \"https://localhost:{}/v1\"\n\
             tls = {{ ca_file = \"cert.pem\"{certificate} }}\n",
            address.port()
        );
        let config =
            Config::parse(&text, &files.path().join("t.toml"), &|_: &str| Ok(String::new())).unwrap();
        let endpoint = Endpoint::new(config.targets[0].clone(), Arc::new(config.redactor())).unwrap();
        probe(&mut Lane::new(Arc::new(endpoint), ConnectionPolicy::New)).await
    };
    let shown = probed(", client_cert_file = \"cert.pem\", client_key_file = \"key.pem\"").await;
    assert!(shown.is_ok(), "{:?}", shown.outcome);
    let hidden = probed("").await;
    let (class, _, message) = failure(&hidden);
    assert!(matches!(class, FailureClass::Tls | FailureClass::Connect), "{message}");
}
