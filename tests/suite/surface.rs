//! The HTTP surface over real sockets.

use std::{io::Read as _, net::SocketAddr, sync::Arc, time::Duration};

use reqwest::{Client, Method, Response, StatusCode};
use tokenprobe::{
    metrics::{Layout, Metrics},
    server::{Command, Memory, Readiness, RunAnswer, Status, Surface, Web, serve},
    sweep::Register,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

/// A surface on a port of its own.
struct Served {
    address: SocketAddr,
    client: Client,
    metrics: Arc<Metrics>,
    readiness: watch::Sender<Readiness>,
    commands: mpsc::Receiver<Command>,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
    _status: watch::Sender<Arc<Status>>,
}

async fn served(lifecycle: bool) -> Served {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Arc::new(Metrics::new(Register::default()));
    metrics.apply(&Layout::default());
    let (status, status_seen) = watch::channel(Arc::new(Status::new(chrono::Utc::now())));
    let (readiness, readiness_seen) = watch::channel(Readiness::Starting);
    let (sender, commands) = mpsc::channel(1);
    let surface = Surface {
        metrics: metrics.clone(),
        status: status_seen,
        readiness: readiness_seen,
        commands: sender,
        lifecycle,
        probes: false,
        web: Web::open(),
        memory: Memory::new(None),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(listener, surface, async {
        let _ = stopped.await;
    }));
    let client = Client::builder().no_proxy().build().unwrap();
    Served { address, client, metrics, readiness, commands, stop: Some(stop), tasks, _status: status }
}

impl Served {
    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = self.client.request(method, format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path, &[]).await
    }

    async fn post(&self, path: &str) -> (StatusCode, String) {
        let response = self.ask(Method::POST, path, &[]).await;
        (response.status(), response.text().await.unwrap())
    }
}

#[tokio::test]
async fn metrics_are_text_and_packed_when_asked_for() {
    let served = served(false).await;
    let plain = served.get("/metrics").await;
    assert_eq!(plain.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert!(!plain.headers().contains_key("content-encoding"));
    let plain = plain.text().await.unwrap();
    assert!(plain.contains("\ntokenprobe_build_info{version=\""), "{plain}");
    assert!(plain.contains("\nprocess_start_time_seconds "), "{plain}");

    let packed = served.ask(Method::GET, "/metrics", &[("accept-encoding", "gzip")]).await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    let packed = packed.bytes().await.unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    let names = |text: &str| {
        text.lines().filter(|line| line.starts_with("# TYPE")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&text), names(&plain));
}

#[tokio::test]
async fn health_is_the_process_and_readiness_the_schedule() {
    let served = served(false).await;
    for (readiness, expect) in [
        (Readiness::Starting, StatusCode::SERVICE_UNAVAILABLE),
        (Readiness::Ready, StatusCode::OK),
        (Readiness::Draining, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        served.readiness.send_replace(readiness);
        assert_eq!(served.get("/-/ready").await.status(), expect, "{readiness:?}");
        assert_eq!(served.get("/-/healthy").await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn what_changes_something_is_off_unless_enabled() {
    let served = served(false).await;
    for path in ["/-/reload", "/api/v1/sweeps/hourly/run"] {
        let (status, text) = served.post(path).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(text.contains("--web.enable-lifecycle"), "{text}");
        assert_eq!(served.get(path).await.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
}

#[tokio::test]
async fn a_reload_is_answered_by_the_daemon() {
    let mut served = served(true).await;
    let mut commands = std::mem::replace(&mut served.commands, mpsc::channel(1).1);
    served.tasks.spawn(async move {
        for answer in [Ok(()), Err("tokenprobe.toml:3:1: unknown key".to_owned())] {
            let Some(Command::Reload { reply }) = commands.recv().await else { panic!("no reload") };
            reply.send(answer).unwrap();
        }
    });
    assert_eq!(served.post("/-/reload").await.0, StatusCode::OK);
    let (status, text) = served.post("/-/reload").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.contains("tokenprobe.toml:3:1: unknown key"), "{text}");
    let (status, _) = served.post("/-/reload").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "the daemon is gone");
}

#[tokio::test]
async fn a_page_of_another_site_cannot_reload() {
    let mut served = served(true).await;
    // Browsers send `Sec-Fetch-Site` to encrypted pages and to their own machine only, `Origin` with every form.
    let foreign: [&[(&str, &str)]; 4] = [
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "http://evil.example"), ("host", "10.0.0.5:9877")],
        &[("origin", "null"), ("host", "10.0.0.5:9877")],
        &[("origin", "http://10.0.0.5"), ("host", "10.0.0.5:9877")],
    ];
    for headers in foreign {
        let response = served.ask(Method::POST, "/-/reload", headers).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{headers:?}");
    }
    // The daemon is not there in this test: what gets through to it finds nobody.
    let own: [&[(&str, &str)]; 5] = [
        &[("origin", "http://prober"), ("host", "prober:80")],
        &[("origin", "https://probe.example"), ("host", "a"), ("x-forwarded-host", "probe.example, inner")],
        &[("origin", "http://10.0.0.5:9877"), ("host", "10.0.0.5:9877")],
        &[("sec-fetch-site", "same-origin"), ("origin", "https://probe.example"), ("host", "10.0.0.5:9877")],
        &[
            ("origin", "https://probe.example"),
            ("host", "10.0.0.5:9877"),
            ("x-forwarded-host", "probe.example"),
        ],
    ];
    drop(std::mem::replace(&mut served.commands, mpsc::channel(1).1));
    for headers in own {
        let response = served.ask(Method::POST, "/-/reload", headers).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{headers:?}");
    }
}

#[tokio::test]
async fn a_sweep_is_run_by_name() {
    let mut served = served(true).await;
    let mut commands = std::mem::replace(&mut served.commands, mpsc::channel(1).1);
    served.tasks.spawn(async move {
        while let Some(Command::RunSweep { name, reply }) = commands.recv().await {
            let answer = match name.as_str() {
                "hourly" => RunAnswer::Started,
                "a b" => RunAnswer::Refused("it is running".into()),
                _ => RunAnswer::Unknown,
            };
            reply.send(answer).unwrap();
        }
    });
    for (path, expect) in [("hourly", 202), ("a%20b", 409), ("daily", 404)] {
        let (status, text) = served.post(&format!("/api/v1/sweeps/{path}/run")).await;
        assert_eq!(status.as_u16(), expect, "{text}");
    }
}

#[tokio::test]
async fn the_page_brings_nothing_from_elsewhere() {
    let served = served(false).await;
    let page = served.get("/").await;
    assert_eq!(page.status(), StatusCode::OK);
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
    let page = page.text().await.unwrap();
    for forbidden in ["http://", "https://", "<style", " style=", " onclick=", "javascript:"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    let assets = [
        ("/page.css", "text/css; charset=utf-8"),
        ("/live.js", "text/javascript; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ];
    for (path, kind) in assets {
        assert_eq!(served.get(path).await.headers()["content-type"], kind);
        assert!(page.contains(path.trim_start_matches('/')), "{path}");
    }
    let status: serde_json::Value = served.get("/api/v1/status").await.json().await.unwrap();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn a_form_leads_back_to_the_page() {
    let mut served = served(true).await;
    let mut commands = std::mem::replace(&mut served.commands, mpsc::channel(1).1);
    served.tasks.spawn(async move {
        while let Some(Command::PauseSweep { reply, .. }) = commands.recv().await {
            reply.send(true).unwrap();
        }
    });
    let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let url = format!("http://{}/api/v1/sweeps/a%20b/pause", served.address);
    let response = client.post(&url).header("accept", "text/html,*/*;q=0.8").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    let there = response.url().join(response.headers()["location"].to_str().unwrap()).unwrap();
    assert_eq!(there.path(), "/");
}

#[tokio::test]
async fn an_unknown_path_lists_the_known_ones() {
    let served = served(false).await;
    let response = served.get("/metric").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let text = response.text().await.unwrap();
    for path in ["/metrics", "/-/healthy", "/-/ready", "/-/reload", "/api/v1/status"] {
        assert!(text.contains(path), "{path}");
    }
}

#[tokio::test]
async fn a_scrape_gets_through_however_many_connections_are_held() {
    let served = served(false).await;
    let mut held = Vec::new();
    for index in 0..1000 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        if index % 2 == 0 {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nx: ").await.unwrap();
        }
        held.push(stream);
        if index % 100 == 99 {
            assert_eq!(served.get("/metrics").await.status(), StatusCode::OK, "after {index}");
        }
    }
    // The one that held its connection longest was closed for another.
    let mut answer = String::new();
    let read = tokio::time::timeout(Duration::from_secs(5), held[1].read_to_string(&mut answer)).await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))), "{read:?} {answer}");
    let text = served.metrics.encode();
    let line =
        text.lines().find(|line| line.starts_with("tokenprobe_http_connections_refused_total ")).unwrap();
    let closed: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((1000 - 256..=1010).contains(&closed), "{closed}");
}

#[tokio::test]
async fn a_method_that_a_path_does_not_know_is_refused_in_words() {
    let served = served(false).await;
    let response = served.ask(Method::POST, "/metrics", &[]).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()["allow"], "GET,HEAD");
    assert!(response.text().await.unwrap().contains("allow"));
}

#[tokio::test]
async fn shutdown_lets_a_running_answer_end() {
    let mut served = served(true).await;
    let url = format!("http://{}/-/reload", served.address);
    let request = served.client.post(url).send();
    let mut answer = JoinSet::new();
    answer.spawn(request);
    let Some(Command::Reload { reply }) = served.commands.recv().await else { panic!("no reload") };
    served.stop.take().unwrap().send(()).unwrap();
    reply.send(Ok(())).unwrap();
    assert_eq!(answer.join_next().await.unwrap().unwrap().unwrap().status(), StatusCode::OK);
    let ended = tokio::time::timeout(Duration::from_secs(10), served.tasks.join_next()).await;
    assert!(ended.unwrap().is_some(), "the surface ends");
    assert!(TcpStream::connect(served.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn headers_that_never_end_are_cut_off_by_size() {
    let served = served(false).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nx: ").await.unwrap();
    let line = vec![b'a'; 64 * 1024];
    let _ = stream.write_all(&line).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}
