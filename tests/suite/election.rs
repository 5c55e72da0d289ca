//! Replicas that stand by for each other: two daemons as processes of their own, and an API server that keeps one lease the
//! way Kubernetes does (a write must name the version it rests on) and fails on demand, for each of them apart.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use crate::harness::{Daemon, Server, serve_router};

/// Within how long a leader that is gone is replaced.
const TAKEOVER: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_secs(1);

/// What becomes of a replica's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// 503 at once.
    Refused,
    /// No answer, ever, and nothing done.
    Partition,
    /// Done, and no answer to writes.
    AnswersLost,
    /// Done and answered after a while.
    Slow,
    /// Every second write meets somebody else's.
    Conflicts,
}

#[derive(Default)]
struct Store {
    lease: Option<Value>,
    version: u64,
    /// Who held it, in order.
    holders: Vec<String>,
}

/// One replica's way to the API server.
#[derive(Clone)]
struct Door {
    store: Arc<Mutex<Store>>,
    fault: Arc<Mutex<Fault>>,
}

struct Replica {
    daemon: Daemon,
    fault: Arc<Mutex<Fault>>,
}

/// Two daemons, their API server and the model server that sees what they send.
struct Pair {
    server: Server,
    store: Arc<Mutex<Store>>,
    replicas: [Replica; 2],
    _doors: JoinSet<()>,
}

impl Store {
    fn write(&mut self, mut lease: Value) -> Response {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        if self.holders.last() != Some(&holder) {
            self.holders.push(holder);
        }
        self.lease = Some(lease.clone());
        Json(lease).into_response()
    }

    fn answer(&mut self, method: &Method, body: &[u8]) -> Response {
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        let message = |text: &str| Json(json!({"kind": "Status", "message": text}));
        match (method, &self.lease) {
            (&Method::GET, Some(lease)) => Json(lease.clone()).into_response(),
            (&Method::POST, Some(_)) => (StatusCode::CONFLICT, message("already exists")).into_response(),
            (&Method::POST, None) => self.write(sent()),
            (&Method::PUT, Some(lease)) => {
                let sent = sent();
                if sent["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"] {
                    return self.write(sent);
                }
                (StatusCode::CONFLICT, message("the object has been modified")).into_response()
            }
            _ => (StatusCode::NOT_FOUND, message("not found")).into_response(),
        }
    }
}

async fn serve(State(door): State<Door>, request: Request) -> Response {
    let fault = *door.fault.lock().unwrap();
    assert_eq!(request.headers()["authorization"], "Bearer token-of-a-pod");
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let write = parts.method != Method::GET;
    match fault {
        Fault::Refused => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Fault::Partition => return std::future::pending().await,
        Fault::Slow => tokio::time::sleep(Duration::from_millis(200)).await,
        Fault::Conflicts if write => {
            let mut store = door.store.lock().unwrap();
            if store.version.is_multiple_of(2) && store.lease.is_some() {
                let lease = store.lease.clone().unwrap();
                let _ = store.write(lease);
            }
        }
        Fault::None | Fault::Conflicts | Fault::AnswersLost => {}
    }
    let answer = door.store.lock().unwrap().answer(&parts.method, &body);
    if write && fault == Fault::AnswersLost {
        std::future::pending::<()>().await;
    }
    answer
}

/// A run of about half a second every second.
fn config(server: &Server, replica: usize) -> String {
    format!(
        r#"
[budget]
requests_per_month = 100000

[[targets]]
name = "sim"
base_url = "{}"
models = ["fixed"]
extra_headers = {{ x-replica = "{replica}" }}

[[sweeps]]
name = "often"
every = "1s"
targets = ["sim"]
prompt_tokens = [50]
concurrency = [1]
requests_per_level = 8
max_tokens = 4
"#,
        server.base_url()
    )
}

impl Pair {
    async fn start() -> Self {
        let server = Server::start(|_| {}).await;
        let store = Arc::new(Mutex::new(Store::default()));
        let mut doors = JoinSet::new();
        let first = Replica::start(&server, 0, &store, &mut doors).await;
        let second = Replica::start(&server, 1, &store, &mut doors).await;
        Self { server, store, replicas: [first, second], _doors: doors }
    }

    /// Which replica leads, once one does.
    async fn leader(&self) -> usize {
        for _ in 0..600 {
            for (index, replica) in self.replicas.iter().enumerate() {
                if replica.daemon.metric("tokenprobe_leader").await == Some(1.0) {
                    return index;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nobody leads:\n{}\n{}", self.replicas[0].daemon.log(), self.replicas[1].daemon.log());
    }

    /// Waits until a replica has started so many more sweeps.
    async fn until_started(&self, replica: usize, more: usize) {
        let daemon = &self.replicas[replica].daemon;
        let before = starts(daemon).len();
        daemon.until("sweeps were started", async |daemon| starts(daemon).len() >= before + more).await;
    }

    /// No due instant was run twice, and the time between two that were run is no longer than a takeover allows.
    fn check_starts(&self) -> usize {
        let all = self.replicas.iter().flat_map(|replica| starts(&replica.daemon));
        let mut times: BTreeMap<DateTime<Utc>, u32> = BTreeMap::new();
        for due in all {
            *times.entry(due).or_default() += 1;
        }
        let doubled: Vec<_> = times.iter().filter(|(_, count)| **count > 1).collect();
        assert!(doubled.is_empty(), "run twice: {doubled:?}\n{}", self.logs());
        let dues: Vec<_> = times.keys().collect();
        for pair in dues.windows(2) {
            let gap = (*pair[1] - *pair[0]).to_std().unwrap();
            assert!(gap <= TAKEOVER + PERIOD, "nothing was run for {gap:?}\n{}", self.logs());
        }
        dues.len()
    }

    /// When a replica's requests came to the model server.
    fn sent(&self, replica: usize) -> Vec<std::time::Instant> {
        let name = replica.to_string();
        let seen = self.server.oracle.requests();
        let ours = seen.iter().filter(|seen| seen.headers["x-replica"] == name.as_str());
        ours.map(|seen| seen.received.into()).collect()
    }

    fn logs(&self) -> String {
        self.replicas.iter().map(|replica| replica.daemon.log()).collect::<Vec<_>>().join("\n--\n")
    }
}

impl Replica {
    async fn start(
        server: &Server,
        index: usize,
        store: &Arc<Mutex<Store>>,
        doors: &mut JoinSet<()>,
    ) -> Self {
        let fault = Arc::new(Mutex::new(Fault::None));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let door = Door { store: store.clone(), fault: fault.clone() };
        let router = Router::new().fallback(serve).with_state(door);
        doors.spawn(async move { serve_router(listener, router).await });
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        std::fs::write(&token, "token-of-a-pod\n").unwrap();
        let api = format!("http://{address}");
        let args = [
            "--leader-election.lease=tokenprobe",
            "--leader-election.namespace=monitoring",
            "--leader-election.lease-duration=5s",
            "--web.enable-lifecycle",
            "--leader-election.api-server",
            &api,
            "--leader-election.token-file",
            token.to_str().unwrap(),
        ];
        let daemon = Daemon::start(&config(server, index), &args, &[]).await;
        Self { daemon, fault }
    }

    fn fail(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }
}

/// The due instants of the sweeps that a daemon started.
fn starts(daemon: &Daemon) -> Vec<DateTime<Utc>> {
    let log = daemon.log();
    let lines = log.lines().filter(|line| line.contains("sweep started"));
    let due = lines.filter_map(|line| line.split("due=").nth(1)?.split_whitespace().next());
    due.map(|due| due.trim_matches('"').parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_probes_and_the_other_stands_by() {
    let pair = Pair::start().await;
    let leader = pair.leader().await;
    let standby = 1 - leader;
    pair.until_started(leader, 3).await;
    let (leading, standing_by) = (&pair.replicas[leader].daemon, &pair.replicas[standby].daemon);
    assert!(pair.sent(standby).is_empty());
    assert_eq!(standing_by.metric("tokenprobe_leader").await, Some(0.0));
    assert_eq!(standing_by.get("/-/ready").await.0, 200);
    let skips = r#"tokenprobe_sweep_skips_total{sweep="often",reason="standby"}"#;
    standing_by.until("starts are skipped", async |daemon| daemon.metric(skips).await >= Some(2.0)).await;
    let (code, text) = standing_by.post("/api/v1/sweeps/often/run").await;
    assert_eq!((code, text.contains("stands by")), (409, true), "{text}");
    assert!(standing_by.get("/api/v1/status").await.1.contains("\"leader\":false"));
    // A leader that is told to stop gives the lease up: nobody waits for its end.
    let stopped = std::time::Instant::now();
    leading.signal("-TERM");
    standing_by.until("it leads", async |daemon| daemon.metric("tokenprobe_leader").await == Some(1.0)).await;
    pair.until_started(standby, 3).await;
    let first = pair.sent(standby)[0];
    assert!(first.duration_since(stopped) < TAKEOVER + PERIOD);
    // What the one spent counts for the other.
    let sent = pair.sent(0).len() + pair.sent(1).len();
    let left = r#"tokenprobe_budget_remaining{scope="all",unit="requests",period="month"}"#;
    let knows =
        async |daemon: &Daemon| daemon.metric(left).await.is_some_and(|left| 100_000.0 - left >= sent as f64);
    standing_by.until("it knows what both spent", knows).await;
    assert!(pair.check_starts() >= 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_is_replaced_within_one_lease() {
    let pair = Pair::start().await;
    let leader = pair.leader().await;
    pair.until_started(leader, 3).await;
    pair.replicas[leader].daemon.signal("-KILL");
    let killed = std::time::Instant::now();
    pair.until_started(1 - leader, 4).await;
    let first = pair.sent(1 - leader)[0];
    assert!(first.duration_since(killed) <= TAKEOVER + PERIOD, "{:?}", first.duration_since(killed));
    assert!(pair.check_starts() >= 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_frozen_sends_nothing_when_it_wakes_up() {
    let pair = Pair::start().await;
    let leader = pair.leader().await;
    pair.until_started(leader, 3).await;
    let frozen = &pair.replicas[leader].daemon;
    // In the midst of a run.
    let sent = pair.sent(leader).len();
    frozen.until("a run is under way", async |_| pair.sent(leader).len() > sent).await;
    frozen.signal("-STOP");
    pair.until_started(1 - leader, 3).await;
    let before = pair.sent(leader).len();
    frozen.signal("-CONT");
    frozen.until("it knows", async |daemon| daemon.metric("tokenprobe_leader").await == Some(0.0)).await;
    pair.until_started(1 - leader, 3).await;
    assert_eq!(pair.sent(leader).len(), before, "what was sent after the thaw");
    let aborted = r#"tokenprobe_sweep_runs_total{sweep="often",result="aborted"}"#;
    frozen.until("its run was stopped", async |daemon| daemon.metric(aborted).await == Some(1.0)).await;
    assert!(pair.check_starts() >= 9);
    assert_eq!(frozen.metric("tokenprobe_probes_in_flight").await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_stops_before_another_begins() {
    for fault in [Fault::Partition, Fault::Refused] {
        let pair = Pair::start().await;
        let leader = pair.leader().await;
        pair.until_started(leader, 2).await;
        pair.replicas[leader].fail(fault);
        pair.until_started(1 - leader, 3).await;
        let last = *pair.sent(leader).last().unwrap();
        let first = pair.sent(1 - leader)[0];
        assert!(last < first, "{fault:?}: the old leader sent {:?} too long", last.duration_since(first));
        // Back again, it stands by.
        pair.replicas[leader].fail(Fault::None);
        pair.until_started(1 - leader, 3).await;
        assert_eq!(pair.sent(leader).last(), Some(&last));
        assert!(pair.check_starts() >= 8, "{fault:?}");
        // And the other way round.
        pair.replicas[1 - leader].fail(fault);
        pair.until_started(leader, 2).await;
        pair.check_starts();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_slow_or_loses_answers_costs_no_start_and_doubles_none() {
    let pair = Pair::start().await;
    let leader = pair.leader().await;
    for fault in [Fault::Slow, Fault::Conflicts, Fault::AnswersLost] {
        pair.until_started(leader, 2).await;
        for replica in &pair.replicas {
            replica.fail(fault);
        }
        pair.until_started(leader, 3).await;
        for replica in &pair.replicas {
            replica.fail(Fault::None);
        }
    }
    assert!(pair.check_starts() >= 15);
    let holders = pair.store.lock().unwrap().holders.len();
    assert_eq!(holders, 1, "nobody else took the lease over");
    let failures = pair.replicas[leader].daemon.metric("tokenprobe_lease_request_failures_total").await;
    assert!(failures >= Some(2.0), "{failures:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_nothing_is_probed_and_the_flags_say_what_is_missing() {
    let server = Server::start(|_| {}).await;
    let args = [
        "--leader-election.lease=tokenprobe",
        "--leader-election.namespace=monitoring",
        "--leader-election.api-server=http://127.0.0.1:9",
    ];
    let daemon = Daemon::start(&config(&server, 0), &args, &[]).await;
    let skips = r#"tokenprobe_sweep_skips_total{sweep="often",reason="standby"}"#;
    daemon.until("starts are skipped", async |daemon| daemon.metric(skips).await >= Some(2.0)).await;
    assert!(server.oracle.requests().is_empty());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokenprobe.toml");
    std::fs::write(&file, config(&server, 0)).unwrap();
    for (flags, expected) in [
        (vec!["--leader-election.lease=tokenprobe"], "--leader-election.api-server"),
        (
            vec!["--leader-election.lease=No Name", "--leader-election.api-server=http://127.0.0.1:9"],
            "no name",
        ),
        (
            vec!["--leader-election.lease=x", "--leader-election.api-server=http://127.0.0.1:9"],
            "--leader-election.namespace",
        ),
    ] {
        let mut args = vec!["serve", "--config.file", file.to_str().unwrap()];
        args.extend(flags);
        let output = crate::harness::run(&args, &[("KUBERNETES_SERVICE_HOST", "")]).await;
        let error = crate::harness::stderr(&output);
        assert_eq!(output.status.code(), Some(78), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}
