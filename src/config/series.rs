//! How many Prometheus series a configuration asks for.
//!
//! The metrics themselves are named in `metrics.rs`; here are only their multiplicities, checked against it.

use std::collections::BTreeSet;

use super::{Budget, Histograms, Objectives, Sweep};
use crate::{
    analysis::Finding,
    measurement::{FailureClass, rate_limit::RateLimitUnit},
    sweep::{Fate, Role},
};

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
/// Four parts of `level_ttft_part_seconds`, and `level_kv_cache_usage_ratio`.
const PER_ENGINE_CELL: usize = 4 + 1;
/// Names of findings.
pub(crate) const FINDINGS_MAX: usize = Finding::ALL.len();
/// `ladder_knee_*` and `ladder_safe_*` as concurrency or as rate, four `ladder_state`, nine reasons of `level_skips_total`,
/// and as many findings as there are names for.
const PER_LADDER: usize = 2 + 4 + 9 + FINDINGS_MAX;
/// The four token counters of a sweep, target and model.
const PER_SWEEP_MODEL: usize = 4;
/// `up` and the time of the cold probe of a target and model, `failing` by error class, three `rate_limit*` by unit, and by role
/// `probe_attempts_total` and `probe_results_total`.
const PER_MODEL: usize =
    2 + FailureClass::ALL.len() + 3 * RateLimitUnit::ALL.len() + Role::ALL.len() * (1 + Fate::ALL.len());
/// `connection_phase_seconds`: three phases, 13 bounds.
const PER_TARGET: usize = 3 * (13 + HISTOGRAM_EXTRA);
/// Three results of `sweep_runs_total`, six reasons of `sweep_skips_total`, four timestamps, three durations.
const PER_SWEEP: usize = 3 + 6 + 4 + 3;
/// What there is once: probes in flight, client delay with its 18 bounds, five of the archive, refused connections, leadership and its
/// failed requests, build, two of the reload, seven of the process.
const FIXED: usize = 1 + (18 + HISTOGRAM_EXTRA) + 5 + 1 + 2 + 1 + 2 + 7;

impl SeriesCount {
    /// Counts the series of sweeps.
    pub fn of<'s>(
        histograms: &Histograms,
        budget: &Budget,
        sweeps: impl IntoIterator<Item = &'s Sweep>,
    ) -> Self {
        let per_cell = per_cell(histograms);
        // `budget_limit` and `budget_remaining`.
        let mut count = Self { per_cell, total: FIXED + 2 * budget.caps.iter().count(), ..Self::default() };
        let mut priced = BTreeSet::new();
        let mut models = BTreeSet::new();
        let mut targets = BTreeSet::new();
        for sweep in sweeps {
            let (cells, ladders) = (sweep.cell_count(), sweep.ladder_count());
            let sweep_models = sweep.targets.iter().flat_map(|(target, models)| {
                models.iter().map(move |model| (target.name.clone(), model.clone()))
            });
            let sweep_models = sweep_models.collect::<BTreeSet<_>>();
            count.cells = count.cells.saturating_add(cells);
            count.ladders = count.ladders.saturating_add(ladders);
            let engine_models: usize = sweep
                .targets
                .iter()
                .filter(|(target, _)| target.engine_metrics_url.is_some())
                .map(|(_, models)| models.len())
                .sum();
            let engine_cells = engine_models
                .saturating_mul(sweep.prompt_tokens.len())
                .saturating_mul(sweep.concurrency.len());
            let series = [
                // `arrivals_not_sent_total`.
                if sweep.rates.is_empty() { 0 } else { cells },
                engine_cells.saturating_mul(PER_ENGINE_CELL),
                cells.saturating_mul(per_cell + objective_series(&sweep.objectives)),
                ladders.saturating_mul(PER_LADDER),
                sweep_models.len().saturating_mul(PER_SWEEP_MODEL),
                PER_SWEEP + limits(&sweep.objectives) + usize::from(sweep.objectives.success_ratio.is_some()),
            ];
            count.total = series.into_iter().fold(count.total, usize::saturating_add);
            let with_price = sweep.targets.iter().flat_map(|(target, models)| {
                models
                    .iter()
                    .filter(|model| target.prices.contains_key(*model))
                    .map(|model| (target.name.clone(), model.clone()))
            });
            priced.extend(with_price);
            targets.extend(sweep.targets.iter().map(|(target, _)| target.name.clone()));
            models.extend(sweep_models);
        }
        // `cost_total` where there is a price.
        let shared = models.len() * PER_MODEL + targets.len() * PER_TARGET + priced.len();
        count.total = count.total.saturating_add(shared);
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

/// `requests_within_objective_total`: one per objective, and `all`.
fn objective_series(objectives: &Objectives) -> usize {
    limits(objectives) + 1
}

/// `objective_seconds`: one per objective.
fn limits(objectives: &Objectives) -> usize {
    [objectives.ttft, objectives.tpot, objectives.duration].into_iter().flatten().count()
}
