//! How long a scrape takes: the whole of `/metrics` written down, every histogram filled.

use std::time::Duration;

use divan::{
    AllocProfiler, Bencher,
    counter::{BytesCount, ItemsCount},
};
use tokenprobe::{
    cell::Cell,
    config::{Histograms, Objectives},
    measurement::{GapSketch, Measurement, Outcome, Timeline, TokenSource, Tokens},
    metrics::{Buckets, Layout, Metrics, SweepLayout},
    sweep::Register,
};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Series are counted as the configuration's limit counts them: lines of the output.
#[divan::bench(args = [1_000, 10_000], sample_count = 50)]
fn encode(bencher: Bencher<'_, '_>, series: usize) {
    let metrics = filled(series);
    let text = metrics.encode();
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    bencher
        .counter(BytesCount::new(text.len()))
        .counter(ItemsCount::new(lines))
        .bench_local(|| metrics.encode());
}

fn filled(series: usize) -> Metrics {
    let histograms = Histograms::default();
    let mut layout = Layout {
        buckets: Buckets {
            time_to_first_token: histograms.time_to_first_token_seconds.into(),
            time_per_output_token: histograms.time_per_output_token_seconds.as_slice().into(),
            chunk_gap: histograms.time_per_output_token_seconds.into(),
            request_duration: histograms.request_duration_seconds.into(),
            output_tokens_per_second: histograms.output_tokens_per_second.into(),
            client_delay: tokenprobe::sweep::DELAY_BOUNDS.into(),
        },
        sweeps: vec![SweepLayout {
            name: "hourly".into(),
            objectives: Objectives::default(),
            cells: Vec::new(),
        }],
        ..Layout::default()
    };
    for number in 0.. {
        if layout.series() >= series {
            break;
        }
        for sweep in &mut layout.sweeps {
            sweep.cells.push(cell(number));
        }
    }
    let metrics = Metrics::new(Register::default());
    metrics.apply(&layout);
    for cell in layout.cells() {
        let writer = metrics.cell(cell, Objectives::default());
        for step in 1..=20 {
            writer.observe(&measurement(step * 37 + cell.concurrency));
        }
    }
    metrics
}

fn cell(number: u32) -> Cell {
    Cell {
        sweep: "hourly".into(),
        target: "gateway".into(),
        model: format!("org/model-{}", number / 8).into(),
        prompt_tokens: 1000,
        concurrency: number % 8 + 1,
        rate: None,
    }
}

fn measurement(millis: u32) -> Measurement {
    let at = |millis: u32| Duration::from_millis(millis.into());
    let first = at(millis) + Duration::from_nanos(123_457);
    Measurement {
        timeline: Timeline {
            first_answer_token: Some(first),
            last_token: Some(first + at(630)),
            last_answer_token: Some(first + at(630)),
            end: first + at(640),
            ..Timeline::default()
        },
        outcome: Outcome::Ok,
        first_token_kind: None,
        tokens: Tokens {
            output: Some(64),
            source: TokenSource::Usage,
            chunks: 64,
            reads: 64,
            ..Tokens::default()
        },
        gaps: GapSketch::default(),
        finish_reason: None,
        flags: std::collections::BTreeSet::default(),
        connection: tokenprobe::measurement::ConnectionUse::Reused,
        served_model: None,
        fingerprint: None,
        request_id: None,
        rate_limits: Vec::new(),
        visible_text: None,
    }
}
