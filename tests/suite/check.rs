//! `tokenprobe check` against endpoints that are right, and wrong in the ways in which they usually are.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::Value;
use tokenprobe::simulator::Settings;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};

use crate::harness::{self, Server, stderr, stdout};

struct Seen {
    text: String,
    json: Value,
    code: i32,
}

impl Seen {
    /// The last step: the one that failed, when one did.
    fn last(&self) -> &Value {
        self.json["checks"][0]["steps"].as_array().unwrap().last().unwrap()
    }

    fn step(&self, name: &str) -> &Value {
        let steps = self.json["checks"][0]["steps"].as_array().unwrap();
        steps.iter().find(|step| step["step"] == name).unwrap_or(&Value::Null)
    }
}

async fn check(base_url: &str, model: &str, flags: &[&str], key: &str) -> Seen {
    let mut args = vec!["check", "--base-url", base_url, "--model", model];
    args.extend(flags);
    if !key.is_empty() {
        args.extend(["--api-key-env", "CHECK_KEY"]);
    }
    let environment = [("CHECK_KEY", key)];
    let text = harness::run(&args, &environment).await;
    args.extend(["--format", "json"]);
    let json = harness::run(&args, &environment).await;
    assert_eq!(text.status, json.status, "{}", stderr(&json));
    Seen {
        text: stdout(&text),
        json: serde_json::from_str(&stdout(&json)).unwrap(),
        code: json.status.code().unwrap(),
    }
}

async fn server(key: &'static str) -> Server {
    Server::start(|settings: &mut Settings| settings.api_key = Some(key.into())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_endpoint_passes_every_step() {
    let server = server("sk-good").await;
    for key in ["sk-good", "sk-good\n"] {
        let seen = check(&server.base_url(), "qwen3-8b", &[], key).await;
        assert_eq!(seen.code, 0, "{}", seen.text);
        let steps = seen.json["checks"][0]["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 12);
        // A line break at the end of a variable is a slip: the key is sent without, and it is told.
        let is_padded = key.ends_with('\n');
        assert_eq!(steps[0]["result"], if is_padded { "warning" } else { "ok" });
        assert!(steps.iter().skip(1).all(|step| step["result"] == "ok"), "{}", seen.text);
        let lines = 13 + usize::from(is_padded);
        assert!(!seen.text.contains('✗') && seen.text.lines().count() == lines, "{}", seen.text);
        assert!(!seen.text.contains("sk-good"));
    }
}

async fn fails(seen: impl Future<Output = Seen>, step: &str, mend: &str) {
    let seen = seen.await;
    assert_eq!(seen.code, 1, "{}", seen.text);
    let last = seen.last();
    assert_eq!(
        (last["step"].as_str(), last["result"].as_str()),
        (Some(step), Some("failed")),
        "{}",
        seen.text
    );
    let said = last["mend"].as_str().unwrap_or_default();
    assert!(said.contains(mend), "wanted {mend:?} in {said:?}");
    assert_eq!(seen.text.matches('✗').count(), 1, "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_step_that_fails_is_the_last_and_says_what_to_change() {
    let server = server("sk-good").await;
    let base = server.base_url();
    let doubled = format!("{base}/v1");
    fails(check(&doubled, "qwen3-8b", &[], "sk-good"), "http", &format!("listed under {base}")).await;
    fails(check(&base, "qwen3-8b", &[], "sk-bad"), "credential", "check the key").await;
    fails(check(&base, "qwen3-8b", &[], ""), "credential", "no key is configured").await;
    fails(check(&base, "Qwen3-8b", &[], "sk-good"), "model", "did you mean \"qwen3-8b\"?").await;
    fails(check(&base, "qwen3-8b+html", &[], "sk-good"), "http", "").await;
    fails(check(&base, "qwen3-8b+json", &[], "sk-good"), "stream", "does not stream").await;
    fails(check(&base, "qwen3-8b+429", &[], "sk-good"), "stream", "lower the load").await;
    let slow = ["--timeout.headers", "300ms"];
    fails(check(&base, "qwen3-8b+slow-headers", &slow, "sk-good"), "http", "slower").await;
    let tls = base.replace("http://", "https://");
    fails(check(&tls, "qwen3-8b", &[], ""), "tls", "speaks TLS").await;
    fails(check("http://no-such-host.invalid/v1", "m", &[], ""), "dns", "host name").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_works_and_is_worth_a_word_is_a_warning() {
    let server = server("sk-good").await;
    let seen = check(&server.base_url(), "qwen3-8b+no-usage", &[], "sk-good").await;
    assert_eq!((seen.code, seen.step("usage")["result"].as_str()), (0, Some("warning")), "{}", seen.text);
    let seen = check(&server.base_url(), "qwen3-8b+burst", &[], "sk-good").await;
    assert_eq!((seen.code, seen.step("stream")["result"].as_str()), (0, Some("warning")), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_port_and_a_certificate_of_nobody() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", closed.local_addr().unwrap());
    drop(closed);
    fails(check(&url, "m", &[], ""), "tcp", "check host and port").await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/v1", listener.local_addr().unwrap());
    let mut stage = JoinSet::new();
    stage.spawn(self_signed(listener));
    fails(check(&url, "m", &[], ""), "tls", "tls.ca_file").await;
    let seen = check(&url, "m", &["--insecure"], "").await;
    let tls = seen.step("tls");
    assert_eq!(tls["result"], "warning", "{}", seen.text);
    assert!(tls["detail"].as_str().unwrap().contains("days), not verified"), "{tls}");
}

/// Shows a certificate that ends in a few days, and answers everything with a web page.
async fn self_signed(listener: TcpListener) {
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let end = chrono::Utc::now() + chrono::TimeDelta::days(5);
    let (year, month, day) = {
        use chrono::Datelike as _;
        (end.year(), u8::try_from(end.month()).unwrap(), u8::try_from(end.day()).unwrap())
    };
    params.not_after = rcgen::date_time_ymd(year, month, day);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(socket).await else { continue };
        let mut request = [0; 4096];
        if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
            let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>";
            let _ = stream.write_all(page.as_bytes()).await;
        }
    }
}

/// Answers whoever asks for a list with JSON that never ends, and closes the connection of anybody else.
async fn endless(listener: TcpListener, sent: Arc<AtomicU64>) {
    let mut streams = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        let sent = sent.clone();
        streams.spawn(async move {
            let mut request = [0; 4096];
            if stream.read(&mut request).await.is_err() || !request.starts_with(b"GET") {
                return;
            }
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
            let mut answer = format!("{head}10000\r\n").into_bytes();
            answer.resize(answer.len() + 0x10000, b' ');
            answer.extend(b"\r\n");
            let body = answer.split_off(head.len());
            let mut piece = answer.as_slice();
            while stream.write_all(piece).await.is_ok() && sent.fetch_add(1, Ordering::Relaxed) < 4096 {
                piece = &body;
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_models_that_never_ends_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let sent = Arc::<AtomicU64>::default();
    let mut stage = JoinSet::new();
    stage.spawn(endless(listener, sent.clone()));
    let seen = check(&url, "m", &["--timeout.total", "3s"], "").await;
    assert_eq!(seen.code, 1, "{}", seen.text);
    // A quarter of a gigabyte would have been there to be had.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 2048, "{sent} pieces of 64 KiB were read: {}", seen.text);
}
