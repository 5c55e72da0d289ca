//! From what client and server say to the figures of one run, and from runs to the table.

use std::collections::HashMap;

use crate::record::{Line, Truth, Usage};

/// One run of one client at one concurrency.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    /// Measured time to first token minus the server's own, per request, in milliseconds.
    pub(crate) error_mean: f64,
    pub(crate) error_p50: f64,
    pub(crate) error_p99: f64,
    /// P99 measured minus P99 true: what a reader of percentiles sees.
    pub(crate) p99_shift: f64,
    /// Mean of the relative error of the time per output token.
    pub(crate) tpot_percent: f64,
    pub(crate) measured: f64,
    pub(crate) failures: f64,
    /// Seconds per million chunks, that is milliseconds per thousand.
    pub(crate) cpu: f64,
    pub(crate) peak_mib: f64,
    /// Share of its core the server needed while it ran.
    pub(crate) server_busy: f64,
}

impl Figures {
    pub(crate) fn of(client: &str, server: &str) -> Self {
        let told = server.lines().filter_map(Line::parse);
        let mut truths: HashMap<u128, Truth> = HashMap::new();
        let (mut chunks, mut server_cpu) = (0_u64, 0.0);
        let (mut begin, mut end) = (u64::MAX, 0);
        for line in told {
            match line {
                Line::Truth(truth) => {
                    chunks += u64::from(truth.tokens);
                    begin = begin.min(truth.received);
                    end = end.max(truth.last);
                    truths.insert(truth.trace, truth);
                }
                Line::Usage(usage) => server_cpu = usage.cpu.as_secs_f64(),
                Line::Measured(_) | Line::Failed => {}
            }
        }
        let mut seen = Seen::default();
        let mut usage = Usage::default();
        for line in client.lines().filter_map(Line::parse) {
            match line {
                Line::Measured(measured) => {
                    match truths.get(&measured.trace).filter(|truth| truth.complete) {
                        Some(truth) => {
                            seen.add(truth, measured.ttft.as_secs_f64(), measured.tpot.as_secs_f64());
                        }
                        None => seen.failures += 1,
                    }
                }
                Line::Failed => seen.failures += 1,
                Line::Usage(own) => usage = own,
                Line::Truth(_) => {}
            }
        }
        let span = end.saturating_sub(begin) as f64 / 1e9;
        let cpu = usage.cpu.as_secs_f64() * 1e6 / (chunks as f64).max(1.0);
        Self {
            cpu,
            peak_mib: usage.peak_memory_kib as f64 / 1024.0,
            server_busy: server_cpu / span.max(1e-9),
            ..seen.figures()
        }
    }

    /// Figure by figure, the median of several runs.
    pub(crate) fn median(runs: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| quantile(&mut runs.iter().map(field).collect::<Vec<_>>(), 0.5);
        Self {
            error_mean: of(|run| run.error_mean),
            error_p50: of(|run| run.error_p50),
            error_p99: of(|run| run.error_p99),
            p99_shift: of(|run| run.p99_shift),
            tpot_percent: of(|run| run.tpot_percent),
            measured: of(|run| run.measured),
            // A failure in any run is a failure.
            failures: runs.iter().map(|run| run.failures).fold(0.0, f64::max),
            cpu: of(|run| run.cpu),
            peak_mib: of(|run| run.peak_mib),
            server_busy: of(|run| run.server_busy),
        }
    }

    pub(crate) const HEADINGS: &str = "concurrency  client      measured  failed  TTFT error ms: mean    P50    P99  P99-P99  TPOT error %  CPU s/M chunks  x floor  peak MiB  server busy";

    pub(crate) fn row(&self, concurrency: u32, client: &str, floor: &Self) -> String {
        format!(
            "{concurrency:>11}  {client:<10}  {:>8}  {:>6}  {:>20.3} {:>6.3} {:>6.3} {:>8.3}  {:>12.3}  {:>14.2}  {:>7.2}  {:>8.1}  {:>10.0}%",
            self.measured,
            self.failures,
            self.error_mean,
            self.error_p50,
            self.error_p99,
            self.p99_shift,
            self.tpot_percent,
            self.cpu,
            self.cpu / floor.cpu,
            self.peak_mib,
            self.server_busy * 100.0,
        )
    }
}

/// Requests that both sides speak of; milliseconds.
#[derive(Default)]
struct Seen {
    errors: Vec<f64>,
    measured: Vec<f64>,
    true_ones: Vec<f64>,
    tpot_errors: Vec<f64>,
    failures: u32,
}

impl Seen {
    fn add(&mut self, truth: &Truth, ttft_seconds: f64, tpot_seconds: f64) {
        let true_ttft = (truth.first - truth.received) as f64 / 1e6;
        let true_tpot = (truth.last - truth.first) as f64 / 1e9 / f64::from(truth.tokens - 1).max(1.0);
        self.errors.push(ttft_seconds * 1e3 - true_ttft);
        self.measured.push(ttft_seconds * 1e3);
        self.true_ones.push(true_ttft);
        self.tpot_errors.push((tpot_seconds / true_tpot - 1.0).abs() * 100.0);
    }

    fn figures(mut self) -> Figures {
        Figures {
            error_mean: mean(&self.errors),
            error_p50: quantile(&mut self.errors, 0.5),
            error_p99: quantile(&mut self.errors, 0.99),
            p99_shift: quantile(&mut self.measured, 0.99) - quantile(&mut self.true_ones, 0.99),
            tpot_percent: mean(&self.tpot_errors),
            measured: self.errors.len() as f64,
            failures: f64::from(self.failures),
            ..Figures::default()
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// With linear interpolation.
fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = q * values.len().saturating_sub(1) as f64;
    let at = |rank: f64| values.get(rank as usize).copied().unwrap_or(f64::NAN);
    at(rank.floor()) + (at(rank.ceil()) - at(rank.floor())) * rank.fract()
}
