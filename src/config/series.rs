//! How many Prometheus series a configuration asks for.
//!
//! The metrics themselves are named in `metrics.rs`; here are only their multiplicities, checked against it.

use std::{collections::BTreeSet, sync::Arc};

use super::{Histograms, Objectives, Sweep, Target};
use crate::measurement::FailureClass;

/// Series by what they multiply with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeriesCount {
    /// All of them.
    pub total: usize,
    /// Series of each cell, objectives aside.
    pub per_cell: usize,
    /// Cells of all sweeps.
    pub cells: usize,
    /// Ladders of all sweeps.
    pub ladders: usize,
}

/// `_bucket{le="+Inf"}`, `_sum` and `_count` beside the buckets.
const HISTOGRAM_EXTRA: usize = 3;
/// `requests_total`, the two `level_throughput_*`, and three quantiles of `level_ttft_seconds` and `level_tpot_seconds`.
const PLAIN_PER_CELL: usize = 1 + 2 + 2 * 3;
/// `ladder_knee_concurrency`, `ladder_safe_concurrency`, four `ladder_state`, and as many findings as there are names for.
const PER_LADDER: usize = 2 + 4 + 16;
/// The four token counters of a sweep, target and model.
const PER_SWEEP_MODEL: usize = 4;
/// `up` of a target and model.
const PER_MODEL: usize = 1;
/// Phases of `connection_phase_seconds`: dns, tcp, tls.
const PHASES: usize = 3;
/// Bounds of `connection_phase_seconds` and of `client_delay_seconds`.
const FIXED_BOUNDS: usize = 15;
/// Three results of `sweep_runs_total`, five reasons of `sweep_skips_total`, four timestamps, three durations.
const PER_SWEEP: usize = 3 + 5 + 4 + 3;
/// What there is once: probes in flight, client delay, build, reload, process.
const FIXED: usize = 1 + FIXED_BOUNDS + HISTOGRAM_EXTRA + 1 + 2 + 8;

impl SeriesCount {
    /// Counts the series of sweeps over targets.
    pub fn of<'s>(
        histograms: &Histograms,
        sweeps: impl IntoIterator<Item = &'s Sweep>,
        targets: &[Arc<Target>],
    ) -> Self {
        let per_cell = per_cell(histograms);
        let mut count = Self { per_cell, total: FIXED, ..Self::default() };
        for sweep in sweeps {
            let (cells, ladders) = (sweep.cell_count(), sweep.ladder_count());
            let models: usize = sweep.targets.iter().map(|(_, models)| models.len()).sum();
            count.cells = count.cells.saturating_add(cells);
            count.ladders = count.ladders.saturating_add(ladders);
            let series = [
                cells.saturating_mul(per_cell + objective_series(&sweep.objectives)),
                ladders.saturating_mul(PER_LADDER),
                models.saturating_mul(PER_SWEEP_MODEL),
                PER_SWEEP,
            ];
            count.total = series.into_iter().fold(count.total, usize::saturating_add);
        }
        let models: BTreeSet<_> = targets
            .iter()
            .flat_map(|target| target.models.iter().map(|model| (&target.name, model)))
            .collect();
        let phases = targets.len().saturating_mul(PHASES * (FIXED_BOUNDS + HISTOGRAM_EXTRA));
        count.total = count.total.saturating_add(models.len() * PER_MODEL).saturating_add(phases);
        count
    }
}

fn per_cell(histograms: &Histograms) -> usize {
    let histogram = |bounds: &[f64]| bounds.len() + HISTOGRAM_EXTRA;
    // Two kinds of first token; time per output token and chunk gap.
    2 * histogram(&histograms.time_to_first_token_seconds)
        + 2 * histogram(&histograms.time_per_output_token_seconds)
        + histogram(&histograms.request_duration_seconds)
        + histogram(&histograms.output_tokens_per_second)
        + FailureClass::ALL.len()
        + PLAIN_PER_CELL
}

/// `requests_within_objective_total`: one per objective, and `all` when there is one.
fn objective_series(objectives: &Objectives) -> usize {
    let set = [objectives.ttft, objectives.tpot, objectives.duration].into_iter().flatten().count();
    if set == 0 { 0 } else { set + 1 }
}
