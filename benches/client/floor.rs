//! The floor: a bare hyper client that only stamps. What any client over hyper must spend at least.
//!
//! No decoding: a frame that begins like an event is counted as one, and the script says which is the first and
//! which is the last token. Starts are staggered and the loop is closed, as tokenprobe's are.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    Load,
    record::{FAILED, Measured},
};

/// Runs the load; a line per measured request.
pub(crate) async fn run(load: Load) -> io::Result<Vec<String>> {
    let load = Arc::new(load);
    let mut workers = JoinSet::new();
    for index in 0..load.concurrency {
        workers.spawn(work(load.clone(), index));
    }
    let mut lines = Vec::new();
    while let Some(done) = workers.join_next().await {
        match done {
            Ok(Ok(measured)) => lines.extend(measured.iter().map(Measured::to_string)),
            Ok(Err(_)) | Err(_) => lines.push(FAILED.to_owned()),
        }
    }
    Ok(lines)
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn work(load: Arc<Load>, index: u32) -> Result<Vec<Measured>, Failure> {
    sleep(load.script.length().mul_f64(f64::from(index) / f64::from(load.concurrency))).await;
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, load.port)).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let mut measured = Vec::new();
    for round in 0..=load.rounds {
        let probe = probe(&load, &mut sender).await?;
        // The first one opened the connection: a warm-up, as tokenprobe's.
        measured.extend((round > 0).then_some(probe));
    }
    Ok(measured)
}

async fn probe(load: &Load, sender: &mut http1::SendRequest<Full<Bytes>>) -> Result<Measured, Failure> {
    let trace = fastrand::u128(1..);
    let request = http::Request::post("/v1/chat/completions")
        .header("host", "localhost")
        .header("traceparent", format!("00-{trace:032x}-0000000000000001-01"))
        .body(Full::new(load.body()))?;
    let t0 = Instant::now();
    let mut body = sender.send_request(request).await?.into_body();
    let (mut events, mut first, mut last) = (0, Duration::ZERO, Duration::ZERO);
    let first_token = if load.script.role_first { 2 } else { 1 };
    while let Some(frame) = body.frame().await {
        let at = t0.elapsed();
        if frame?.data_ref().is_some_and(|data| data.starts_with(b"data: {")) {
            events += 1;
            if events == first_token {
                first = at;
            }
            if events == first_token + load.script.tokens - 1 {
                last = at;
            }
        }
    }
    sender.ready().await?;
    Ok(Measured { trace, ttft: first, tpot: (last - first) / (load.script.tokens - 1).max(1) })
}
