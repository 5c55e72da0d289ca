//! What `/metrics` shows: every series from load on, observed from measurements, written as text.
//!
//! [`names`] is the public API (names, labels, help); [`Layout`] says which series a configuration asks for;
//! [`CellMetrics`], [`SweepMetrics`] and [`LadderMetrics`] are what the work writes to, found once and then
//! written to without lookup; [`Metrics::encode`] writes it all down. Lives in memory: knows nothing of the
//! configuration, of sockets or of clocks. No lock is held while a probe runs: a scrape waits for nobody.

mod cell;
mod family;
mod labels;
mod layout;
pub mod names;
mod sweep;
mod text;
mod value;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
};

use chrono::{DateTime, Utc};
use prometheus::{core::Collector as _, process_collector::ProcessCollector};

pub use cell::CellMetrics;
pub use labels::{
    ArchiveDrop, BudgetScope, Endpoint, Ladder, LadderState, LevelSkip, ObjectiveKind, Phase, Quantile,
    SkipReason, SweepModel, SweepResult,
};
pub use layout::{Buckets, Layout, SweepLayout};
pub use sweep::{LadderMetrics, SweepMetrics};
pub use text::CONTENT_TYPE;

use crate::{
    archive::Standing,
    cell::Cell,
    config::Objectives,
    engine::Part,
    measurement::{FailureClass, GapSketch, rate_limit::RateLimitUnit},
    sweep::{Errand, Fate, Register, Role},
};
use family::{Exposed, Family};
use labels::{Build, LabelSet};
use layout::{PHASE_BOUNDS, times};
use value::{Counter, Gauge, Histogram, Sum, Value};

/// Every metric of the program.
pub struct Metrics {
    time_to_first_token: Family<Cell, Histogram>,
    time_to_first_answer_token: Family<Cell, Histogram>,
    time_per_output_token: Family<Cell, Histogram>,
    chunk_gap: Family<Cell, Histogram>,
    request_duration: Family<Cell, Histogram>,
    output_tokens_per_second: Family<Cell, Histogram>,
    requests: Family<Cell, Counter>,
    arrivals_not_sent: Family<Cell, Counter>,
    request_failures: Family<(Cell, FailureClass), Counter>,
    requests_within_objective: Family<(Cell, ObjectiveKind), Counter>,
    prompt_tokens: Family<SweepModel, Counter>,
    cached_prompt_tokens: Family<SweepModel, Counter>,
    output_tokens: Family<SweepModel, Counter>,
    reasoning_tokens: Family<SweepModel, Counter>,
    cost: Family<(Endpoint, Arc<str>), Sum>,
    level_throughput_tokens: Family<Cell, Gauge>,
    level_throughput_requests: Family<Cell, Gauge>,
    level_ttft: Family<(Cell, Quantile), Gauge>,
    level_tpot: Family<(Cell, Quantile), Gauge>,
    level_ttft_part: Family<(Cell, Part), Gauge>,
    level_kv_cache: Family<Cell, Gauge>,
    ladder_knee: Family<Ladder, Gauge>,
    ladder_safe: Family<Ladder, Gauge>,
    ladder_knee_rate: Family<Ladder, Gauge>,
    ladder_safe_rate: Family<Ladder, Gauge>,
    ladder_state: Family<(Ladder, LadderState), Gauge>,
    finding: Family<(Ladder, Arc<str>), Gauge>,
    level_skips: Family<(Ladder, LevelSkip), Counter>,
    up: Family<Endpoint, Gauge>,
    failing: Family<(Endpoint, FailureClass), Gauge>,
    cold_ttft: Family<Endpoint, Gauge>,
    connection_phase: Family<(Arc<str>, Phase), Histogram>,
    rate_limit: Family<(Endpoint, RateLimitUnit), Gauge>,
    rate_limit_remaining: Family<(Endpoint, RateLimitUnit), Gauge>,
    rate_limit_reset: Family<(Endpoint, RateLimitUnit), Gauge>,
    objective_seconds: Family<(Arc<str>, ObjectiveKind), Gauge>,
    objective_ratio: Family<Arc<str>, Gauge>,
    sweep_runs: Family<(Arc<str>, SweepResult), Counter>,
    sweep_skips: Family<(Arc<str>, SkipReason), Counter>,
    sweep_last_start: Family<Arc<str>, Gauge>,
    sweep_last_end: Family<Arc<str>, Gauge>,
    sweep_last_success: Family<Arc<str>, Gauge>,
    sweep_next_start: Family<Arc<str>, Gauge>,
    sweep_duration: Family<Arc<str>, Gauge>,
    sweep_interval: Family<Arc<str>, Gauge>,
    sweep_start_delay: Family<Arc<str>, Gauge>,
    budget_limit: Family<BudgetScope, Gauge>,
    budget_remaining: Family<BudgetScope, Gauge>,
    probe_attempts: Family<(Endpoint, Role), Counter>,
    probe_results: Family<((Endpoint, Role), Fate), Counter>,
    probes_in_flight: Family<(), Gauge>,
    client_delay: Family<(), Histogram>,
    archive_up: Family<(), Gauge>,
    archive_dropped: Family<ArchiveDrop, Counter>,
    archive_write_failures: Family<(), Counter>,
    archive_size: Family<(), Gauge>,
    http_connections_refused: Family<(), Counter>,
    leader: Family<(), Gauge>,
    lease_request_failures: Family<(), Counter>,
    build_info: Family<Build, Gauge>,
    config_last_reload_successful: Family<(), Gauge>,
    config_last_reload_success: Family<(), Gauge>,
    process: ProcessCollector,
    register: Register,
    findings: RwLock<Arc<[Arc<str>]>>,
}

impl Metrics {
    /// Metrics of a program without a configuration yet; what the register holds is shown as it is at each scrape.
    #[must_use]
    pub fn new(register: Register) -> Self {
        let metrics = Self {
            time_to_first_token: Family::new(&names::TIME_TO_FIRST_TOKEN),
            time_to_first_answer_token: Family::new(&names::TIME_TO_FIRST_ANSWER_TOKEN),
            time_per_output_token: Family::new(&names::TIME_PER_OUTPUT_TOKEN),
            chunk_gap: Family::new(&names::CHUNK_GAP),
            request_duration: Family::new(&names::REQUEST_DURATION),
            output_tokens_per_second: Family::new(&names::OUTPUT_TOKENS_PER_SECOND),
            requests: Family::new(&names::REQUESTS),
            arrivals_not_sent: Family::new(&names::ARRIVALS_NOT_SENT),
            request_failures: Family::new(&names::REQUEST_FAILURES),
            requests_within_objective: Family::new(&names::REQUESTS_WITHIN_OBJECTIVE),
            prompt_tokens: Family::new(&names::PROMPT_TOKENS),
            cached_prompt_tokens: Family::new(&names::CACHED_PROMPT_TOKENS),
            output_tokens: Family::new(&names::OUTPUT_TOKENS),
            reasoning_tokens: Family::new(&names::REASONING_TOKENS),
            cost: Family::new(&names::COST),
            level_throughput_tokens: Family::new(&names::LEVEL_THROUGHPUT_TOKENS),
            level_throughput_requests: Family::new(&names::LEVEL_THROUGHPUT_REQUESTS),
            level_ttft: Family::new(&names::LEVEL_TTFT),
            level_tpot: Family::new(&names::LEVEL_TPOT),
            level_ttft_part: Family::new(&names::LEVEL_TTFT_PART),
            level_kv_cache: Family::new(&names::LEVEL_KV_CACHE),
            ladder_knee: Family::new(&names::LADDER_KNEE),
            ladder_safe: Family::new(&names::LADDER_SAFE),
            ladder_knee_rate: Family::new(&names::LADDER_KNEE_RATE),
            ladder_safe_rate: Family::new(&names::LADDER_SAFE_RATE),
            ladder_state: Family::new(&names::LADDER_STATE),
            finding: Family::new(&names::FINDING),
            level_skips: Family::new(&names::LEVEL_SKIPS),
            up: Family::new(&names::UP),
            failing: Family::new(&names::FAILING),
            cold_ttft: Family::new(&names::COLD_TTFT),
            connection_phase: Family::new(&names::CONNECTION_PHASE),
            rate_limit: Family::new(&names::RATE_LIMIT),
            rate_limit_remaining: Family::new(&names::RATE_LIMIT_REMAINING),
            rate_limit_reset: Family::new(&names::RATE_LIMIT_RESET),
            objective_seconds: Family::new(&names::OBJECTIVE_SECONDS),
            objective_ratio: Family::new(&names::OBJECTIVE_RATIO),
            sweep_runs: Family::new(&names::SWEEP_RUNS),
            sweep_skips: Family::new(&names::SWEEP_SKIPS),
            sweep_last_start: Family::new(&names::SWEEP_LAST_START),
            sweep_last_end: Family::new(&names::SWEEP_LAST_END),
            sweep_last_success: Family::new(&names::SWEEP_LAST_SUCCESS),
            sweep_next_start: Family::new(&names::SWEEP_NEXT_START),
            sweep_duration: Family::new(&names::SWEEP_DURATION),
            sweep_interval: Family::new(&names::SWEEP_INTERVAL),
            sweep_start_delay: Family::new(&names::SWEEP_START_DELAY),
            budget_limit: Family::new(&names::BUDGET_LIMIT),
            budget_remaining: Family::new(&names::BUDGET_REMAINING),
            probe_attempts: Family::new(&names::PROBE_ATTEMPTS),
            probe_results: Family::new(&names::PROBE_RESULTS),
            probes_in_flight: Family::new(&names::PROBES_IN_FLIGHT),
            client_delay: Family::new(&names::CLIENT_DELAY),
            archive_up: Family::new(&names::ARCHIVE_UP),
            archive_dropped: Family::new(&names::ARCHIVE_DROPPED),
            archive_write_failures: Family::new(&names::ARCHIVE_WRITE_FAILURES),
            archive_size: Family::new(&names::ARCHIVE_SIZE),
            http_connections_refused: Family::new(&names::HTTP_CONNECTIONS_REFUSED),
            leader: Family::new(&names::LEADER),
            lease_request_failures: Family::new(&names::LEASE_REQUEST_FAILURES),
            build_info: Family::new(&names::BUILD_INFO),
            config_last_reload_successful: Family::new(&names::CONFIG_LAST_RELOAD_SUCCESSFUL),
            config_last_reload_success: Family::new(&names::CONFIG_LAST_RELOAD_SUCCESS),
            process: ProcessCollector::for_self(),
            register,
            findings: RwLock::default(),
        };
        metrics.lay_out_program();
        metrics
    }

    /// Makes the series be those of a layout: new ones start at zero, removed ones are gone, unchanged ones keep
    /// their counts. A histogram whose bounds change starts anew.
    pub fn apply(&self, layout: &Layout) {
        *self.findings.write().unwrap_or_else(PoisonError::into_inner) = layout.findings.clone().into();
        self.client_delay.lay_out(&layout.buckets.client_delay, &BTreeSet::from([()]));
        self.lay_out_cells(layout);
        self.lay_out_models(layout);
        self.lay_out_ladders(layout);
        self.lay_out_sweeps(&layout.sweep_names());
        self.lay_out_objectives(layout);
    }

    /// What a level of this cell writes to.
    #[must_use]
    pub fn cell(&self, cell: &Cell, objectives: Objectives) -> CellMetrics {
        CellMetrics::new(self, cell, objectives)
    }

    /// What a sweep writes to.
    #[must_use]
    pub fn sweep(&self, name: &Arc<str>) -> SweepMetrics {
        SweepMetrics::new(self, name)
    }

    /// What a ladder writes to.
    #[must_use]
    pub fn ladder(&self, ladder: &Ladder) -> LadderMetrics {
        let findings = self.findings.read().unwrap_or_else(PoisonError::into_inner).clone();
        LadderMetrics::new(self, ladder, &findings)
    }

    /// How late timers of our own fired while probes were running.
    pub fn observe_client_delays(&self, delays: &GapSketch) {
        let histogram = self.client_delay.child(&());
        for (count, mean) in delays.means() {
            histogram.observe_many(mean, count);
        }
    }

    /// Adds the price of a probe, in units of the currency.
    pub fn spend(&self, endpoint: Endpoint, currency: Arc<str>, amount: f64) {
        self.cost.child(&(endpoint, currency)).add(amount);
    }

    /// What a budget allows in a period, and what of it is left in the current one.
    pub fn set_budget(&self, budget: &BudgetScope, limit: f64, remaining: f64) {
        self.budget_limit.child(budget).set(Some(limit));
        self.budget_remaining.child(budget).set(Some(remaining));
    }

    /// The configuration was loaded at `at`.
    pub fn reload_succeeded(&self, at: DateTime<Utc>) {
        self.config_last_reload_successful.child(&()).set(Some(1.0));
        self.config_last_reload_success.child(&()).set(Some(sweep::unix_seconds(at)));
    }

    /// A new configuration was refused, the old one stays.
    pub fn reload_failed(&self) {
        self.config_last_reload_successful.child(&()).set(Some(0.0));
    }

    /// A connection to the HTTP surface was refused.
    pub fn connection_refused(&self) {
        self.http_connections_refused.child(&()).add(1);
    }

    /// Whether this replica is the one that probes. One that stands by shows no latest result: what it measured once must
    /// not stand beside what the leader measures now.
    pub fn set_leader(&self, leads: bool) {
        self.leader.child(&()).set(Some(f64::from(u8::from(leads))));
        if !leads {
            self.forget_latest();
        }
    }

    fn forget_latest(&self) {
        let forget = |gauge: &Gauge| gauge.set(None);
        self.up.each(forget);
        self.failing.each(forget);
        self.level_throughput_tokens.each(forget);
        self.level_throughput_requests.each(forget);
        self.level_ttft.each(forget);
        self.level_tpot.each(forget);
        for gauges in [&self.ladder_knee, &self.ladder_safe, &self.ladder_knee_rate, &self.ladder_safe_rate] {
            gauges.each(forget);
        }
        self.ladder_state.each(forget);
        self.finding.each(forget);
    }

    /// The API server did not grant a request about the lease.
    pub fn lease_request_failed(&self) {
        self.lease_request_failures.child(&()).add(1);
    }

    /// How the archive is doing; counts are of the whole life of the program.
    pub fn set_archive(&self, standing: &Standing) {
        self.archive_up.child(&()).set(standing.up.map(|up| f64::from(u8::from(up))));
        self.archive_size.child(&()).set(standing.size_bytes.map(|bytes| bytes as f64));
        let counts = [
            (self.archive_dropped.child(&ArchiveDrop::QueueFull), standing.dropped_queue_full),
            (self.archive_dropped.child(&ArchiveDrop::Unwritten), standing.dropped_unwritten),
            (self.archive_write_failures.child(&()), standing.write_failures),
        ];
        for (counter, count) in counts {
            counter.raise_to(count);
        }
    }

    /// Everything, in text format 0.0.4, in the order of [`names::CATALOGUE`].
    #[must_use]
    pub fn encode(&self) -> String {
        self.count_probes();
        let mut out = String::with_capacity(64 * 1024);
        for family in self.families() {
            family.expose(&mut out);
        }
        let mut process = self.process.collect();
        process.sort_by(|one, other| one.name().cmp(other.name()));
        text::collected(&mut out, &process);
        out
    }

    /// Takes over the register as it is at one moment.
    fn count_probes(&self) {
        let mut in_flight = 0;
        for (Errand { target, model, role }, tally) in self.register.tallies() {
            in_flight += tally.in_flight();
            let key = (Endpoint { target, model }, role);
            self.probe_attempts.child(&key).raise_to(tally.attempts);
            for fate in Fate::ALL {
                self.probe_results.child(&(key.clone(), *fate)).raise_to(tally.of(*fate));
            }
        }
        self.probes_in_flight.child(&()).set(Some(in_flight as f64));
    }

    fn lay_out_program(&self) {
        let unlabelled = BTreeSet::from([()]);
        lay_out(&self.probes_in_flight, &unlabelled);
        lay_out(&self.archive_up, &unlabelled);
        lay_out(&self.archive_dropped, &ArchiveDrop::ALL.iter().copied().collect());
        lay_out(&self.archive_write_failures, &unlabelled);
        lay_out(&self.archive_size, &unlabelled);
        lay_out(&self.http_connections_refused, &unlabelled);
        lay_out(&self.leader, &unlabelled);
        lay_out(&self.lease_request_failures, &unlabelled);
        lay_out(&self.config_last_reload_successful, &unlabelled);
        lay_out(&self.config_last_reload_success, &unlabelled);
        lay_out(&self.build_info, &BTreeSet::from([Build]));
        self.build_info.child(&Build).set(Some(1.0));
    }

    fn lay_out_cells(&self, layout: &Layout) {
        let cells: BTreeSet<Cell> = layout.cells().cloned().collect();
        let buckets = &layout.buckets;
        self.time_to_first_token.lay_out(&buckets.time_to_first_token, &cells);
        self.time_to_first_answer_token.lay_out(&buckets.time_to_first_token, &cells);
        self.time_per_output_token.lay_out(&buckets.time_per_output_token, &cells);
        self.chunk_gap.lay_out(&buckets.chunk_gap, &cells);
        self.request_duration.lay_out(&buckets.request_duration, &cells);
        self.output_tokens_per_second.lay_out(&buckets.output_tokens_per_second, &cells);
        lay_out(&self.requests, &cells);
        lay_out(&self.arrivals_not_sent, &cells.iter().filter(|cell| cell.rate.is_some()).cloned().collect());
        lay_out(&self.request_failures, &times(&cells, FailureClass::ALL));
        lay_out(&self.requests_within_objective, &layout.within_objective());
        lay_out(&self.level_throughput_tokens, &cells);
        lay_out(&self.level_throughput_requests, &cells);
        let quantiles = times(&cells, Quantile::ALL);
        lay_out(&self.level_ttft, &quantiles);
        lay_out(&self.level_tpot, &quantiles);
        lay_out(&self.level_ttft_part, &times(&layout.engine_cells, Part::ALL));
        lay_out(&self.level_kv_cache, &layout.engine_cells);
    }

    fn lay_out_models(&self, layout: &Layout) {
        let models = layout.keys::<SweepModel>();
        lay_out(&self.prompt_tokens, &models);
        lay_out(&self.cached_prompt_tokens, &models);
        lay_out(&self.output_tokens, &models);
        lay_out(&self.reasoning_tokens, &models);
        let endpoints = layout.keys::<Endpoint>();
        lay_out(&self.up, &endpoints);
        lay_out(&self.cold_ttft, &endpoints);
        lay_out(&self.failing, &times(&endpoints, FailureClass::ALL));
        let errands = times(&endpoints, Role::ALL);
        lay_out(&self.probe_attempts, &errands);
        lay_out(&self.probe_results, &times(&errands, Fate::ALL));
        let allowances = times(&endpoints, RateLimitUnit::ALL);
        for gauge in [&self.rate_limit, &self.rate_limit_remaining, &self.rate_limit_reset] {
            lay_out(gauge, &allowances);
        }
        lay_out(&self.cost, &layout.prices.iter().cloned().collect());
        let budgets = layout.budgets.iter().cloned().collect();
        lay_out(&self.budget_limit, &budgets);
        lay_out(&self.budget_remaining, &budgets);
        let phases = times(&layout.targets(), Phase::ALL);
        self.connection_phase.lay_out(&PHASE_BOUNDS.into(), &phases);
    }

    fn lay_out_ladders(&self, layout: &Layout) {
        let ladders = layout.keys::<Ladder>();
        let of_kind = |open: bool| {
            let cells = layout.cells().filter(|cell| cell.rate.is_some() == open);
            cells.map(Ladder::from).collect::<BTreeSet<_>>()
        };
        for (closed, open) in
            [(&self.ladder_knee, &self.ladder_knee_rate), (&self.ladder_safe, &self.ladder_safe_rate)]
        {
            lay_out(closed, &of_kind(false));
            lay_out(open, &of_kind(true));
        }
        lay_out(&self.ladder_state, &times(&ladders, LadderState::ALL));
        lay_out(&self.finding, &times(&ladders, &layout.findings));
        lay_out(&self.level_skips, &times(&ladders, LevelSkip::ALL));
    }

    fn lay_out_sweeps(&self, sweeps: &BTreeSet<Arc<str>>) {
        lay_out(&self.sweep_runs, &times(sweeps, SweepResult::ALL));
        lay_out(&self.sweep_skips, &times(sweeps, SkipReason::ALL));
        let gauges = [
            &self.sweep_last_start,
            &self.sweep_last_end,
            &self.sweep_last_success,
            &self.sweep_next_start,
            &self.sweep_duration,
            &self.sweep_interval,
            &self.sweep_start_delay,
        ];
        for gauge in gauges {
            lay_out(gauge, sweeps);
        }
    }

    fn lay_out_objectives(&self, layout: &Layout) {
        let limits = layout.objective_limits();
        lay_out(&self.objective_seconds, &limits.keys().cloned().collect());
        for (key, limit) in &limits {
            self.objective_seconds.child(key).set(Some(limit.as_secs_f64()));
        }
        let ratios = layout.objective_ratios();
        lay_out(&self.objective_ratio, &ratios.keys().cloned().collect());
        for (sweep, ratio) in &ratios {
            self.objective_ratio.child(sweep).set(Some(*ratio));
        }
    }

    /// In the order of the catalogue.
    fn families(&self) -> Vec<&dyn Exposed> {
        vec![
            &self.time_to_first_token,
            &self.time_to_first_answer_token,
            &self.time_per_output_token,
            &self.chunk_gap,
            &self.request_duration,
            &self.output_tokens_per_second,
            &self.requests,
            &self.arrivals_not_sent,
            &self.request_failures,
            &self.requests_within_objective,
            &self.prompt_tokens,
            &self.cached_prompt_tokens,
            &self.output_tokens,
            &self.reasoning_tokens,
            &self.cost,
            &self.level_throughput_tokens,
            &self.level_throughput_requests,
            &self.level_ttft,
            &self.level_tpot,
            &self.level_ttft_part,
            &self.level_kv_cache,
            &self.ladder_knee,
            &self.ladder_safe,
            &self.ladder_knee_rate,
            &self.ladder_safe_rate,
            &self.ladder_state,
            &self.finding,
            &self.level_skips,
            &self.up,
            &self.failing,
            &self.cold_ttft,
            &self.connection_phase,
            &self.rate_limit,
            &self.rate_limit_remaining,
            &self.rate_limit_reset,
            &self.objective_seconds,
            &self.objective_ratio,
            &self.sweep_runs,
            &self.sweep_skips,
            &self.sweep_last_start,
            &self.sweep_last_end,
            &self.sweep_last_success,
            &self.sweep_next_start,
            &self.sweep_duration,
            &self.sweep_interval,
            &self.sweep_start_delay,
            &self.budget_limit,
            &self.budget_remaining,
            &self.probe_attempts,
            &self.probe_results,
            &self.probes_in_flight,
            &self.client_delay,
            &self.archive_up,
            &self.archive_dropped,
            &self.archive_write_failures,
            &self.archive_size,
            &self.http_connections_refused,
            &self.leader,
            &self.lease_request_failures,
            &self.build_info,
            &self.config_last_reload_successful,
            &self.config_last_reload_success,
        ]
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn lay_out<K: LabelSet, V: Value<Shape = ()>>(family: &Family<K, V>, keys: &BTreeSet<K>) {
    family.lay_out(&(), keys);
}
