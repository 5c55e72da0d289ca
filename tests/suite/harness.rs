//! What the tests start and stop: a simulator in this process, the program as a process of its own.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokenprobe::simulator::{self, ModelProfile, Oracle, Settings};
use tokio::{net::TcpListener, task::JoinSet};

/// A simulated model server; gone when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) oracle: Oracle,
    _task: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let oracle = Oracle::recording(10_000);
        let mut settings = Settings { oracle: oracle.clone(), ..Settings::default() };
        settings.models.push(fixed("fixed"));
        change(&mut settings);
        let mut task = JoinSet::new();
        task.spawn(async move {
            simulator::serve(listener, settings, std::future::pending()).await.unwrap();
        });
        Self { address, oracle, _task: task }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

/// A model with a time to first token of 30 ms and a token every 5 ms.
pub(crate) fn fixed(name: &str) -> ModelProfile {
    ModelProfile::fixed(name, Duration::from_millis(30), Duration::from_millis(5))
}

/// Runs the program to its end, without blocking the runtime that serves it.
pub(crate) async fn run(args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokenprobe"));
    command.args(args).envs(environment.iter().copied()).stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A plain HTTP client; reqwest wants a TLS provider even where there is no TLS.
pub(crate) fn http_client() -> reqwest::Client {
    // A provider that was installed by another test is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// What axum's own `serve` does; it is not among the features that the program needs.
pub(crate) async fn serve_router(listener: TcpListener, router: axum::Router) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = hyper_util::service::TowerToHyperService::new(router.clone());
        connections.spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(hyper_util::rt::TokioIo::new(stream), service),
        );
    }
}

/// A daemon as a process of its own, its log in a file; killed when dropped.
pub(crate) struct Daemon {
    child: std::process::Child,
    pub(crate) address: SocketAddr,
    dir: TempDir,
}

impl Daemon {
    /// Starts the daemon on a configuration and waits until it is ready.
    pub(crate) async fn start(config: &str, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let daemon = Self::start_unready(config, args, environment).await;
        daemon.until("it is ready", async |daemon| daemon.get("/-/ready").await.0 == 200).await;
        daemon
    }

    /// Starts the daemon and waits only until it listens.
    pub(crate) async fn start_unready(config: &str, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tokenprobe.toml"), config).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokenprobe"));
        command.args(["serve", "--web.listen-address", "127.0.0.1:0", "--config.file"]);
        command.arg(dir.path().join("tokenprobe.toml")).args(args);
        command.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        let mut daemon = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), dir };
        daemon.address = daemon.listening().await;
        daemon
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.dir.path().join("tokenprobe.toml")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    async fn listening(&self) -> SocketAddr {
        for _ in 0..600 {
            let log = self.log();
            let address = log.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
            if let Some(address) = address {
                return address.parse().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the daemon does not listen; its log:\n{}", self.log());
    }

    /// Waits until a condition holds, looking often; a test that would wait for ever fails with the log.
    pub(crate) async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) {
        for _ in 0..600 {
            if holds(self).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("waited in vain until {what}; the log:\n{}", self.log());
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let answer = http_client().get(format!("http://{}{path}", self.address)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(crate) async fn post(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.address);
        let answer = http_client().post(url).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// The value of one series of `/metrics`.
    pub(crate) async fn metric(&self, series: &str) -> Option<f64> {
        let text = self.get("/metrics").await.1;
        let line =
            text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits for the process to end of itself; its exit code.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        for _ in 0..1200 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("the daemon does not end; its log:\n{}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
