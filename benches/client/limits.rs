//! What is asked of tokenprobe, beside what was measured.

use std::fmt;

use crate::summary::Figures;

/// The most that each figure may be at one concurrency; `None` where nothing is asked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    failures: Option<f64>,
    error_mean: Option<f64>,
    error_p99: Option<f64>,
    tpot_percent: Option<f64>,
    cpu_ratio: Option<f64>,
    peak_mib: Option<f64>,
}

impl Limits {
    pub(crate) fn at(concurrency: u32) -> Self {
        let common = Self { failures: Some(0.0), ..Self::default() };
        let up_to_1024 = Self { tpot_percent: Some(1.0), cpu_ratio: Some(1.5), ..common };
        match concurrency {
            1..=64 => Self { error_mean: Some(0.3), ..up_to_1024 },
            256 => Self { error_mean: Some(0.8), error_p99: Some(4.0), peak_mib: Some(30.0), ..up_to_1024 },
            1024 => Self { error_mean: Some(3.0), ..up_to_1024 },
            4096 => Self { error_p99: Some(20.0), ..common },
            _ => common,
        }
    }

    /// Every limit with its figure.
    pub(crate) fn verdicts(&self, seen: &Figures, floor: &Figures) -> Vec<Verdict> {
        let all = [
            ("failed", self.failures, seen.failures),
            ("TTFT error mean, ms", self.error_mean, seen.error_mean),
            ("TTFT error P99, ms", self.error_p99, seen.error_p99),
            ("TPOT error, %", self.tpot_percent, seen.tpot_percent),
            ("CPU, x floor", self.cpu_ratio, seen.cpu / floor.cpu),
            ("peak memory, MiB", self.peak_mib, seen.peak_mib),
        ];
        all.into_iter().filter_map(|(what, most, is)| Some(Verdict { what, is, most: most? })).collect()
    }
}

/// One figure and the most that it may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
    what: &'static str,
    is: f64,
    most: f64,
}

impl Verdict {
    pub(crate) fn holds(&self) -> bool {
        self.is <= self.most
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.holds() { "" } else { "  OVER" };
        write!(f, "{:<20} {:>8.2}  at most {:>5.1}{mark}", self.what, self.is, self.most)
    }
}
