//! tokenprobe itself: the sweep the daemon runs, with its workers, prompts, deadlines and statistics.

use std::{collections::HashSet, io, sync::Arc, time::Duration};

use tokenprobe::{
    budget::Governor,
    config::{BaseUrl, Histograms, Redactor, Sweep, Target},
    probe::Endpoint,
    protocol::Protocol,
    sweep::{Event, Fleet, Prepared, Register, Role, Run, brake},
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    Load,
    record::{FAILED, Measured},
};

/// Runs the load; a line per measured request.
pub(crate) async fn run(load: Load) -> io::Result<Vec<String>> {
    let base_url = BaseUrl::parse(&format!("http://127.0.0.1:{}/v1", load.port)).map_err(io::Error::other)?;
    let target = Arc::new(Target::ad_hoc(base_url, Protocol::OpenAiChat, vec!["bench".into()]));
    let mut sweep = Sweep::ad_hoc(target.clone(), vec![load.prompt_tokens], vec![load.concurrency]);
    sweep.level.requests = load.concurrency * load.rounds;
    sweep.level.timeouts.total = Duration::from_secs(60);
    let mut fleet = Fleet::default();
    let endpoint = Endpoint::new(target, Arc::new(Redactor::default()))?;
    fleet.insert(Prepared::new(endpoint), &Fleet::default());
    let (events, inbox) = mpsc::channel(1024);
    let (_brake, halt) = brake();
    let run = Run {
        sweep: Arc::new(sweep),
        fleet,
        gap_bounds: Histograms::default().time_per_output_token_seconds.into(),
        events,
        halt,
        register: Register::default(),
        governor: Governor::unlimited(),
        paused: std::sync::Arc::default(),
    };
    // As in the daemon: the sweep in a task of its own, whoever listens in the main one.
    let mut sweep = JoinSet::new();
    sweep.spawn(run.run());
    let lines = listen(inbox).await;
    let report = sweep.join_next().await.ok_or(io::ErrorKind::BrokenPipe)??;
    let levels = report.ladders.iter().flat_map(|ladder| &ladder.levels);
    let verdicts: HashSet<_> = levels.map(|level| level.client_saturated).collect();
    eprintln!("client_saturated: {verdicts:?}");
    Ok(lines)
}

async fn listen(mut inbox: mpsc::Receiver<Event>) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(event) = inbox.recv().await {
        let Event::Probed { role: Role::Measured, measurement, trace_id, .. } = event else { continue };
        let trace = u128::from_str_radix(&trace_id.to_string(), 16).unwrap_or_default();
        let times = measurement.timeline.first_token().zip(measurement.time_per_output_token());
        lines.push(if let Some((ttft, tpot)) = times.filter(|_| measurement.is_ok()) {
            Measured { trace, ttft, tpot }.to_string()
        } else {
            eprintln!("{:?}", measurement.outcome);
            FAILED.to_owned()
        });
    }
    lines
}
