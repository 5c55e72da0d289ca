//! Whether two runs differ: cell by cell, with the doubt that is left. Pure: samples in, verdicts out.
//!
//! Latencies are compared by rank (Mann-Whitney), since they are skewed and have outliers; the difference is the
//! Hodges-Lehmann shift with its interval. Failures are compared by Fisher's exact test. All tests of a comparison
//! share one error budget (Holm): of comparisons in which nothing changed, at most one in a hundred says anything
//! did, and half of those say worse. A change must also be large enough to matter.
//!
//! What changes an endpoint mostly changes all its cells, and one cell of some hundred samples cannot tell ten percent
//! from chance where latencies scatter: beside the cells' own tests, one over all of them takes their ranks together.

mod distribution;
mod overall;
mod proportion;
mod rank;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use distribution::Distribution;
pub use overall::OverallChange;

/// Share of comparisons of equals in which anything may be called changed.
pub const ALPHA: f64 = 0.01;
/// Smallest change of a latency or speed that is called one unless told otherwise, as a share of what it was before:
/// two runs an hour apart differ by a few percent without anybody having changed anything.
pub const CHANGE_MIN: f64 = 0.05;
/// Samples that each side needs.
const SAMPLES_MIN: u64 = 20;
/// Independent samples that each side needs.
const INDEPENDENT_MIN: f64 = 8.0;

/// What is compared of one level.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// Time to first token of good requests, seconds.
    pub ttft: Option<Distribution>,
    /// Time per output token of good requests, seconds.
    pub tpot: Option<Distribution>,
    /// Measured requests.
    pub requests: u32,
    /// How many got a whole answer.
    pub ok: u32,
    /// Tokens per second of the whole level.
    pub throughput_tokens_per_second: Option<f64>,
}

/// One cell of both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair<K> {
    /// Which.
    pub cell: K,
    /// The run that is compared with.
    pub before: Side,
    /// The run that is judged.
    pub after: Side,
}

/// What became of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellComparison<K> {
    /// Which.
    #[serde(flatten)]
    pub cell: K,
    /// The worst of the four.
    pub verdict: Verdict,
    /// Time to first token, seconds.
    pub ttft_seconds: Change,
    /// Time per output token, seconds.
    pub tpot_seconds: Change,
    /// Output tokens per second of single requests. The same test as the time per token, of which it is the inverse.
    pub request_tps: Change,
    /// Share of requests that failed, 0 to 1.
    pub failure_ratio: Change,
    /// Tokens per second of the whole level: one number a run, shown without a verdict.
    pub throughput_tokens_per_second: Shown,
}

/// How one quantity changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Samples before.
    pub samples_before: u64,
    /// Samples after.
    pub samples_after: u64,
    /// Median before; of failures, the share.
    pub before: Option<f64>,
    /// The same after.
    pub after: Option<f64>,
    /// How much larger it is now: the median of all differences between a sample after and one before.
    pub difference: Option<f64>,
    /// The difference as a share of what it was before.
    pub relative: Option<f64>,
    /// The 95% interval of the difference.
    pub interval: Option<[f64; 2]>,
    /// Probability of a difference like this between equals, all tests of the comparison taken together.
    pub p_value: Option<f64>,
    /// Of a sample after and one before, how much more often the former is larger: -1 to 1 (Cliff's delta). Of
    /// failures, Cohen's h.
    pub effect: Option<f64>,
    /// What to make of it.
    pub verdict: Verdict,
}

/// A number of each run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shown {
    /// Before.
    pub before: Option<f64>,
    /// After.
    pub after: Option<f64>,
}

/// What to make of a change, the most telling last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing can be said.
    TooFewSamples,
    /// No change that can be told from chance, or none that matters.
    Unchanged,
    /// Changed for the better.
    Improved,
    /// Changed for the worse.
    Worse,
}

impl Verdict {
    /// The name used in tables and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooFewSamples => "too_few_samples",
            Self::Unchanged => "unchanged",
            Self::Improved => "improved",
            Self::Worse => "worse",
        }
    }
}

/// What became of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison<K> {
    /// Time to first token over all cells taken together; `None` with fewer than two that have samples enough.
    pub overall_ttft: Option<OverallChange>,
    /// Time per output token over all cells taken together.
    pub overall_tpot: Option<OverallChange>,
    /// Each cell.
    pub cells: Vec<CellComparison<K>>,
}

impl<K> Comparison<K> {
    /// Whether a cell, or all of them taken together, has this verdict.
    #[must_use]
    pub fn has(&self, verdict: Verdict) -> bool {
        let overall =
            self.overall_ttft.iter().chain(&self.overall_tpot).any(|change| change.verdict == verdict);
        overall || self.cells.iter().any(|cell| cell.verdict == verdict)
    }
}

/// Compares the cells of two runs. A latency or speed that changed by less than `change_min` (a share) is unchanged.
#[must_use]
pub fn compare<K>(pairs: Vec<Pair<K>>, change_min: f64) -> Comparison<K> {
    let mut overall_ttft = OverallChange::of(pairs.iter().map(|pair| (&pair.before.ttft, &pair.after.ttft)));
    let mut overall_tpot = OverallChange::of(pairs.iter().map(|pair| (&pair.before.tpot, &pair.after.tpot)));
    let mut cells: Vec<CellComparison<K>> = pairs.into_iter().map(observe).collect();
    let tests = cells.iter_mut().flat_map(|cell| {
        [&mut cell.ttft_seconds, &mut cell.tpot_seconds, &mut cell.failure_ratio].into_iter()
    });
    let tests = tests.filter_map(|change| change.p_value.as_mut());
    let overall = overall_ttft.iter_mut().chain(&mut overall_tpot).map(|change| &mut change.p_value);
    holm(tests.chain(overall).collect());
    for change in overall_ttft.iter_mut().chain(&mut overall_tpot) {
        change.judge(change_min);
    }
    for cell in &mut cells {
        judge(&mut cell.ttft_seconds, change_min, Larger::Worse);
        judge(&mut cell.tpot_seconds, change_min, Larger::Worse);
        judge(&mut cell.failure_ratio, 0.0, Larger::Worse);
        cell.request_tps.p_value = cell.tpot_seconds.p_value;
        judge(&mut cell.request_tps, change_min, Larger::Better);
        let changes = [&cell.ttft_seconds, &cell.tpot_seconds, &cell.request_tps, &cell.failure_ratio];
        cell.verdict = changes.map(|change| change.verdict).into_iter().max().unwrap_or(Verdict::Unchanged);
    }
    Comparison { overall_ttft, overall_tpot, cells }
}

/// Everything of a cell but the verdicts, with p-values of single tests.
fn observe<K>(pair: Pair<K>) -> CellComparison<K> {
    let Pair { cell, before, after } = pair;
    let tps = |side: &Side| side.tpot.as_ref().map(Distribution::inverse);
    let request_tps = Change { p_value: None, ..latency(tps(&before).as_ref(), tps(&after).as_ref()) };
    CellComparison {
        cell,
        verdict: Verdict::Unchanged,
        ttft_seconds: latency(before.ttft.as_ref(), after.ttft.as_ref()),
        tpot_seconds: latency(before.tpot.as_ref(), after.tpot.as_ref()),
        request_tps,
        failure_ratio: failures(&before, &after),
        throughput_tokens_per_second: Shown {
            before: before.throughput_tokens_per_second,
            after: after.throughput_tokens_per_second,
        },
    }
}

fn latency(before: Option<&Distribution>, after: Option<&Distribution>) -> Change {
    let count = |side: Option<&Distribution>| side.map_or(0, Distribution::count);
    let median = |side: Option<&Distribution>| side.and_then(|side| side.quantile(0.5));
    let mut change = Change {
        samples_before: count(before),
        samples_after: count(after),
        before: median(before),
        after: median(after),
        difference: None,
        relative: None,
        interval: None,
        p_value: None,
        effect: None,
        verdict: Verdict::TooFewSamples,
    };
    let (Some(before), Some(after)) = (before, after) else { return change };
    let shift = rank::shift(before, after);
    change.difference = Some(shift.middle);
    change.relative = change.before.filter(|median| *median > 0.0).map(|median| shift.middle / median);
    change.interval = Some([shift.low, shift.high]);
    let test = rank::mann_whitney(before, after);
    change.effect = Some(test.effect);
    change.p_value = (is_enough(before) && is_enough(after)).then_some(test.p_value);
    change
}

/// Whether there are samples enough for a test.
fn is_enough(side: &Distribution) -> bool {
    side.count() >= SAMPLES_MIN && side.independent() >= INDEPENDENT_MIN
}

fn failures(before: &Side, after: &Side) -> Change {
    let failed = |side: &Side| side.requests.saturating_sub(side.ok);
    let ratio = |side: &Side| (side.requests > 0).then(|| f64::from(failed(side)) / f64::from(side.requests));
    let (failed_before, failed_after) = (failed(before), failed(after));
    let interval = proportion::interval((failed_before, before.requests), (failed_after, after.requests));
    let enough = u64::from(before.requests.min(after.requests)) >= SAMPLES_MIN;
    // Without any failure there is nothing that a test could find: it must not use up the error budget either.
    let any = failed_before + failed_after > 0;
    let p_value = (enough && any)
        .then(|| proportion::fisher((failed_before, before.requests), (failed_after, after.requests)));
    Change {
        samples_before: before.requests.into(),
        samples_after: after.requests.into(),
        before: ratio(before),
        after: ratio(after),
        difference: ratio(before).zip(ratio(after)).map(|(before, after)| after - before),
        relative: None,
        interval,
        p_value,
        effect: ratio(before).zip(ratio(after)).map(|(before, after)| proportion::cohens_h(before, after)),
        verdict: if enough { Verdict::Unchanged } else { Verdict::TooFewSamples },
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Larger {
    Worse,
    Better,
}

fn judge(change: &mut Change, change_min: f64, larger: Larger) {
    let Some(p_value) = change.p_value else { return };
    let difference = change.difference.unwrap_or(0.0);
    let matters = change.relative.is_none_or(|relative| relative.abs() >= change_min);
    change.verdict = if p_value >= ALPHA || !matters {
        Verdict::Unchanged
    } else if (difference > 0.0) == (larger == Larger::Worse) {
        Verdict::Worse
    } else {
        Verdict::Improved
    };
}

/// Turns p-values of single tests into those of all of them taken together (Holm's step-down).
fn holm(mut p_values: Vec<&mut f64>) {
    p_values.sort_by(|one, other| one.total_cmp(other));
    let count = p_values.len();
    let mut least = 0.0_f64;
    for (index, p_value) in p_values.into_iter().enumerate() {
        least = least.max((*p_value * (count - index) as f64).min(1.0));
        *p_value = least;
    }
}
