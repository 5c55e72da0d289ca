//! What a configuration asks to be shown: which series exist, and how many they are.
//!
//! Pure. Knows nothing of what the series hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    labels::{
        BudgetScope, Endpoint, Ladder, LadderState, LevelSkip, ObjectiveKind, Phase, Quantile, SkipReason,
        SweepModel, SweepResult,
    },
    value::{Histogram, Value as _},
};
use crate::{
    cell::Cell,
    config::{Config, Objectives, Sweep},
    engine::Part,
    measurement::{FailureClass, rate_limit::RateLimitUnit},
    sweep::{Fate, Role},
};

/// Everything that has series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layout {
    /// Bucket bounds.
    pub buckets: Buckets,
    /// Sweeps with their cells.
    pub sweeps: Vec<SweepLayout>,
    /// Cells whose target has an engine that is asked for its own metrics.
    pub engine_cells: BTreeSet<Cell>,
    /// Names of the findings that ladders are examined for.
    pub findings: Vec<Arc<str>>,
    /// Where a price is configured, and its currency.
    pub prices: Vec<(Endpoint, Arc<str>)>,
    /// Budgets.
    pub budgets: Vec<BudgetScope>,
}

/// One sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepLayout {
    /// Unique name.
    pub name: Arc<str>,
    /// What counts as good.
    pub objectives: Objectives,
    /// Its grid.
    pub cells: Vec<Cell>,
}

/// Upper bounds of the histograms' buckets: ascending, finite, the infinite one left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Buckets {
    /// Both times to first token, seconds.
    pub time_to_first_token: Arc<[f64]>,
    /// Time per output token, seconds.
    pub time_per_output_token: Arc<[f64]>,
    /// Gaps between reads, seconds: the bounds of the measurements' [`crate::measurement::GapSketch`].
    pub chunk_gap: Arc<[f64]>,
    /// Whole requests, seconds.
    pub request_duration: Arc<[f64]>,
    /// Tokens per second of single requests.
    pub output_tokens_per_second: Arc<[f64]>,
    /// The prober's own delay, seconds.
    pub client_delay: Arc<[f64]>,
}

/// Bounds of `connection_phase_seconds`: from a name in the resolver's cache to a lost SYN sent again twice.
pub(super) const PHASE_BOUNDS: [f64; 13] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Metrics of the process, those without labels (in flight, refused connections, build, two of the reload), and five of
/// the archive.
const FIXED_SERIES: usize = 7 + 5 + 7;

impl Layout {
    /// The layout of a configuration.
    #[must_use]
    pub fn of(config: &Config, client_delay: &[f64]) -> Self {
        let histograms = &config.histograms;
        let buckets = Buckets {
            time_to_first_token: histograms.time_to_first_token_seconds.as_slice().into(),
            time_per_output_token: histograms.time_per_output_token_seconds.as_slice().into(),
            chunk_gap: histograms.time_per_output_token_seconds.as_slice().into(),
            request_duration: histograms.request_duration_seconds.as_slice().into(),
            output_tokens_per_second: histograms.output_tokens_per_second.as_slice().into(),
            client_delay: client_delay.into(),
        };
        let sweeps = config.sweeps.iter().map(|sweep| SweepLayout::of(sweep)).collect();
        let engine_cells = config.sweeps.iter().flat_map(|sweep| engine_cells(sweep)).collect();
        Self {
            buckets,
            sweeps,
            engine_cells,
            prices: prices(config),
            budgets: budgets(config),
            ..Self::default()
        }
    }

    /// How many series `/metrics` shows at most under this layout: once every gauge is known.
    #[must_use]
    pub fn series(&self) -> usize {
        let per_cell = self.histogram_series_per_cell()
            + 1
            + FailureClass::ALL.len()
            // Two throughputs, two latencies by quantile.
            + 2
            + 2 * Quantile::ALL.len();
        let within: usize = self
            .sweeps
            .iter()
            .map(|sweep| sweep.cells.len() * objective_kinds(&sweep.objectives).count())
            .sum();
        // Knee and safe load: a concurrency or a rate.
        let per_ladder = 2 + LadderState::ALL.len() + LevelSkip::ALL.len() + self.findings.len();
        // Four timestamps, duration, interval, delay.
        let per_sweep = SweepResult::ALL.len() + SkipReason::ALL.len() + 7;
        let per_target = Phase::ALL.len() * Histogram::series(&PHASE_BOUNDS.into());
        self.cells().count() * per_cell
            + self.cells().filter(|cell| cell.rate.is_some()).count()
            + within
            // One more for the KV cache.
            + self.engine_cells.len() * (Part::ALL.len() + 1)
            + self.keys::<Ladder>().len() * per_ladder
            + self.keys::<SweepModel>().len() * 4
            // `up`, the cold one, `failing`, three gauges by unit of a rate limit, attempts and results.
            + self.keys::<Endpoint>().len() * (2 + FailureClass::ALL.len() + 3 * RateLimitUnit::ALL.len() + Role::ALL.len() * (1 + Fate::ALL.len()))
            + self.objective_limits().len()
            + self.objective_ratios().len()
            + self.targets().len() * per_target
            + self.sweeps.len() * per_sweep
            + self.prices.len()
            // Limit and remainder.
            + 2 * self.budgets.len()
            + Histogram::series(&self.buckets.client_delay)
            + FIXED_SERIES
    }

    fn histogram_series_per_cell(&self) -> usize {
        let Buckets { time_to_first_token, time_per_output_token, chunk_gap, request_duration, .. } =
            &self.buckets;
        let bounds = [
            time_to_first_token,
            time_to_first_token,
            time_per_output_token,
            chunk_gap,
            request_duration,
            &self.buckets.output_tokens_per_second,
        ];
        bounds.into_iter().map(Histogram::series).sum()
    }

    /// Every cell, sweep by sweep.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.sweeps.iter().flat_map(|sweep| &sweep.cells)
    }

    /// Ladders, endpoints and the like, each once.
    pub(super) fn keys<'a, K: From<&'a Cell> + Ord>(&'a self) -> BTreeSet<K> {
        self.cells().map(K::from).collect()
    }

    pub(super) fn targets(&self) -> BTreeSet<Arc<str>> {
        self.cells().map(|cell| cell.target.clone()).collect()
    }

    pub(super) fn sweep_names(&self) -> BTreeSet<Arc<str>> {
        self.sweeps.iter().map(|sweep| sweep.name.clone()).collect()
    }

    /// The longest good times, where they are set.
    pub(super) fn objective_limits(&self) -> BTreeMap<(Arc<str>, ObjectiveKind), Duration> {
        let limits = self.sweeps.iter().flat_map(|sweep| {
            let Objectives { ttft, tpot, duration, .. } = sweep.objectives;
            let kinds = [
                (ObjectiveKind::Ttft, ttft),
                (ObjectiveKind::Tpot, tpot),
                (ObjectiveKind::Duration, duration),
            ];
            kinds.into_iter().filter_map(|(kind, limit)| Some(((sweep.name.clone(), kind), limit?)))
        });
        limits.collect()
    }

    /// The shares of requests that should be good, where they are set.
    pub(super) fn objective_ratios(&self) -> BTreeMap<Arc<str>, f64> {
        let set = self
            .sweeps
            .iter()
            .filter_map(|sweep| Some((sweep.name.clone(), sweep.objectives.success_ratio?)));
        set.collect()
    }

    pub(super) fn within_objective(&self) -> BTreeSet<(Cell, ObjectiveKind)> {
        let pairs = self.sweeps.iter().flat_map(|sweep| {
            let kinds = objective_kinds(&sweep.objectives).collect::<Vec<_>>();
            sweep
                .cells
                .iter()
                .flat_map(move |cell| kinds.clone().into_iter().map(|kind| (cell.clone(), kind)))
        });
        pairs.collect()
    }
}

impl SweepLayout {
    fn of(sweep: &Sweep) -> Self {
        Self { name: sweep.name.clone(), objectives: sweep.objectives, cells: sweep.cells().collect() }
    }
}

fn engine_cells(sweep: &Sweep) -> Vec<Cell> {
    let asked = |name: &str| {
        sweep.targets.iter().any(|(target, _)| &*target.name == name && target.engine_metrics_url.is_some())
    };
    sweep.cells().filter(|cell| asked(&cell.target)).collect()
}

fn prices(config: &Config) -> Vec<(Endpoint, Arc<str>)> {
    let probed = config.sweeps.iter().flat_map(|sweep| &sweep.targets);
    let priced = probed.flat_map(|(target, models)| {
        let models = models.iter().filter(|model| target.prices.contains_key(*model));
        models.map(|model| Endpoint { target: target.name.clone(), model: model.clone() })
    });
    let priced: BTreeSet<Endpoint> = priced.collect();
    priced.into_iter().map(|endpoint| (endpoint, config.budget.caps.currency.clone())).collect()
}

fn budgets(config: &Config) -> Vec<BudgetScope> {
    config.budget.caps.iter().map(|(cap, _)| BudgetScope::from(cap)).collect()
}

/// Every pair of a key and a value of its further label.
pub(super) fn times<A: Ord + Clone, B: Ord + Clone>(keys: &BTreeSet<A>, values: &[B]) -> BTreeSet<(A, B)> {
    keys.iter().flat_map(|key| values.iter().map(|value| (key.clone(), value.clone()))).collect()
}

/// The objectives that are set, and all of them together.
pub(super) fn objective_kinds(objectives: &Objectives) -> impl Iterator<Item = ObjectiveKind> + use<> {
    let kinds = [
        (ObjectiveKind::Ttft, objectives.ttft.is_some()),
        (ObjectiveKind::Tpot, objectives.tpot.is_some()),
        (ObjectiveKind::Duration, objectives.duration.is_some()),
        (ObjectiveKind::All, true),
    ];
    kinds.into_iter().filter(|(_, set)| *set).map(|(kind, _)| kind)
}
