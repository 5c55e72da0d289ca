//! Label values as types: a metric cannot be asked for with the wrong labels, or with the right ones in the wrong order.
//!
//! Knows nothing of label names (they stand in `names.rs`) or of values.

use std::{borrow::Cow, sync::Arc};

use serde::Serialize;

use crate::{
    analysis::Knee,
    budget::Cap,
    cell::Cell,
    engine::Part,
    measurement::{FailureClass, named, rate_limit::RateLimitUnit},
    sweep::{Fate, Role},
    version,
};

/// Values of a metric's labels, in the order of its label names.
pub trait LabelSet: Ord + Clone + Send + Sync {
    /// Appends the values.
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>);
}

/// A model as one sweep asks one target for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SweepModel {
    /// Name of the sweep.
    pub sweep: Arc<str>,
    /// Name of the target.
    pub target: Arc<str>,
    /// Model, exactly as asked for.
    pub model: Arc<str>,
}

/// The cells that differ only in concurrency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ladder {
    /// Sweep, target and model.
    pub sweep_model: SweepModel,
    /// Wanted prompt length in tokens.
    pub prompt_tokens: u32,
}

/// A model at a target, whichever sweep asks for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Name of the target.
    pub target: Arc<str>,
    /// Model, exactly as asked for.
    pub model: Arc<str>,
}

/// What a budget limits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BudgetScope {
    /// The whole prober (`all`), or a target or sweep: `target:NAME`, `sweep:NAME`.
    pub scope: Arc<str>,
    /// `requests`, `tokens` or `cost`.
    pub unit: Arc<str>,
    /// `hour`, `day` or `month`.
    pub period: Arc<str>,
}

impl From<&Cap> for BudgetScope {
    fn from(cap: &Cap) -> Self {
        Self {
            scope: cap.scope.to_string().into(),
            unit: cap.unit.as_str().into(),
            period: cap.period.as_str().into(),
        }
    }
}

/// The running program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Build;

impl From<&Cell> for SweepModel {
    fn from(cell: &Cell) -> Self {
        let Cell { sweep, target, model, .. } = cell.clone();
        Self { sweep, target, model }
    }
}

impl From<&Cell> for Ladder {
    fn from(cell: &Cell) -> Self {
        Self { sweep_model: cell.into(), prompt_tokens: cell.prompt_tokens }
    }
}

impl Ladder {
    /// By what its cells share.
    #[must_use]
    pub fn new(sweep: &Arc<str>, target: &Arc<str>, model: &Arc<str>, prompt_tokens: u32) -> Self {
        let sweep_model = SweepModel { sweep: sweep.clone(), target: target.clone(), model: model.clone() };
        Self { sweep_model, prompt_tokens }
    }
}

impl From<&Cell> for Endpoint {
    fn from(cell: &Cell) -> Self {
        Self { target: cell.target.clone(), model: cell.model.clone() }
    }
}

named! {
    /// What a good request is good for: the `objective` label.
    ObjectiveKind {
        /// Time to first token.
        Ttft = "ttft",
        /// Time per output token.
        Tpot = "tpot",
        /// The whole request.
        Duration = "duration",
        /// Every configured objective.
        All = "all",
    }
}

named! {
    /// What is known of a ladder's knee: the `state` label.
    LadderState {
        /// There is one.
        Found = "found",
        /// Throughput still grew at the last level.
        NotReached = "not_reached",
        /// The levels contradict each other.
        Unstable = "unstable",
        /// Too much failed to say.
        Failed = "failed",
    }
}

impl From<Knee> for LadderState {
    fn from(knee: Knee) -> Self {
        match knee {
            Knee::Found(_) | Knee::AtRate(_) => Self::Found,
            Knee::NotReached => Self::NotReached,
            Knee::Unstable => Self::Unstable,
            Knee::Failed => Self::Failed,
        }
    }
}

named! {
    /// The exact quantiles of a level: the `quantile` label.
    Quantile {
        /// Median.
        P50 = "0.5",
        /// 95th percentile.
        P95 = "0.95",
        /// 99th percentile.
        P99 = "0.99",
    }
}

named! {
    /// Phases of opening a connection: the `phase` label.
    Phase {
        /// Name resolution.
        Dns = "dns",
        /// TCP handshake.
        Tcp = "tcp",
        /// TLS handshake.
        Tls = "tls",
    }
}

named! {
    /// How a run of a sweep ended: the `result` label.
    SweepResult {
        /// Every level ran, or was skipped for a stated reason.
        Completed = "completed",
        /// Stopped by shutdown or reload.
        Aborted = "aborted",
        /// No probe got an answer.
        Failed = "failed",
    }
}

named! {
    /// Why a due start did not happen: the `reason` label of sweep skips.
    SkipReason {
        /// It, or another sweep on its targets, was running.
        Overlap = "overlap",
        /// A budget is spent.
        Budget = "budget",
        /// Within quiet hours.
        Quiet = "quiet",
        /// Paused by hand.
        Paused = "paused",
        /// Another replica probes.
        Standby = "standby",
        /// It passed by while the machine slept or was too busy, or by a clock that was set ahead.
        Late = "late",
    }
}

named! {
    /// Why levels of a ladder were not run: the `reason` label of level skips.
    LevelSkip {
        /// Too many probes of a level failed.
        FailureRatio = "failure_ratio",
        /// The knee had been passed.
        AfterKnee = "after_knee",
        /// Credential, model or URL is wrong: no level can succeed.
        Fatal = "fatal",
        /// It would not fit into a budget.
        Budget = "budget",
        /// The target asked to be left alone for a while.
        RetryAfter = "retry_after",
        /// Quiet hours had begun.
        Quiet = "quiet",
        /// Paused by hand.
        Paused = "paused",
        /// The model fails already where it is asked least of.
        LighterFails = "lighter_fails",
        /// The model sleeps and is not to be woken.
        Asleep = "asleep",
    }
}

named! {
    /// Why an entry is missing in the archive: the `reason` label of archive drops.
    ArchiveDrop {
        /// Too many were waiting to be written.
        QueueFull = "queue_full",
        /// Could not be written.
        Unwritten = "unwritten",
    }
}

impl LabelSet for () {
    fn put<'a>(&'a self, _: &mut Vec<Cow<'a, str>>) {}
}

impl LabelSet for Build {
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
        values.extend([version::PACKAGE, version::REVISION, version::RUSTC].map(Cow::Borrowed));
    }
}

impl LabelSet for Arc<str> {
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
        values.push(Cow::Borrowed(self));
    }
}

impl LabelSet for SweepModel {
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
        values.extend([&self.sweep, &self.target, &self.model].map(|value| Cow::Borrowed(&**value)));
    }
}

impl LabelSet for Ladder {
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
        self.sweep_model.put(values);
        values.push(Cow::Owned(self.prompt_tokens.to_string()));
    }
}

impl LabelSet for Cell {
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
        values.extend(self.labels().map(Cow::Owned));
    }
}

impl LabelSet for Endpoint {
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
        values.extend([&self.target, &self.model].map(|value| Cow::Borrowed(&**value)));
    }
}

impl LabelSet for BudgetScope {
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
        values.extend([&self.scope, &self.unit, &self.period].map(|value| Cow::Borrowed(&**value)));
    }
}

impl<A: LabelSet, B: LabelSet> LabelSet for (A, B) {
    fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
        self.0.put(values);
        self.1.put(values);
    }
}

macro_rules! one_label {
    ($($name:ty),+) => {
        $(impl LabelSet for $name {
            fn put<'a>(&'a self, values: &mut Vec<Cow<'a, str>>) {
                values.push(Cow::Borrowed(self.as_str()));
            }
        })+
    };
}
one_label!(
    ArchiveDrop,
    FailureClass,
    RateLimitUnit,
    ObjectiveKind,
    LadderState,
    Quantile,
    Part,
    Phase,
    SweepResult,
    SkipReason,
    LevelSkip,
    Role,
    Fate
);
