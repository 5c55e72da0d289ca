//! What a level's row holds beside counts and percentiles: how sure the percentiles are, and what its requests had in
//! common.
//!
//! Wire types: names are only ever added, each with a default, so that rows of older and newer programs can be read.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::analysis::{Interval, LevelSummary, Little, PercentileIntervals, Percentiles, Traits};

/// Known of a level by name; what is not known is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// How many requests were in flight on average, by Little's law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<f64>,
    /// Whether that is the level's concurrency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
    /// Good requests that opened their connection.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections_opened: u32,
    /// Good requests whose answer of many tokens came in one or two reads.
    #[serde(skip_serializing_if = "is_zero")]
    pub bursts: u32,
    /// Good requests whose reasoning was billed and not streamed.
    #[serde(skip_serializing_if = "is_zero")]
    pub hidden_reasoning: u32,
    /// Requests that were refused because the prompt is longer than the model takes.
    #[serde(skip_serializing_if = "is_zero")]
    pub context_refusals: u32,
    /// Median of the output tokens that the server counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_p50: Option<f64>,
    /// Model names in the answers, hashed.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub served_models: BTreeSet<u64>,
    /// Fingerprints in the answers, hashed.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub fingerprints: BTreeSet<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Details {
    /// Of a level.
    #[must_use]
    pub fn of(summary: &LevelSummary) -> Self {
        let Traits {
            connections_opened,
            bursts,
            hidden_reasoning,
            context_refusals,
            output_tokens_p50,
            served_models,
            fingerprints,
        } = summary.traits.clone();
        Self {
            in_flight: summary.little.map(|little| little.in_flight),
            steady: summary.little.map(|little| little.holds),
            connections_opened,
            bursts,
            hidden_reasoning,
            context_refusals,
            output_tokens_p50,
            served_models,
            fingerprints,
        }
    }

    /// Whether the level was in a steady state.
    #[must_use]
    pub fn little(&self) -> Option<Little> {
        Some(Little { in_flight: self.in_flight?, holds: self.steady? })
    }

    /// What its requests had in common.
    #[must_use]
    pub fn traits(&self) -> Traits {
        Traits {
            connections_opened: self.connections_opened,
            bursts: self.bursts,
            hidden_reasoning: self.hidden_reasoning,
            context_refusals: self.context_refusals,
            output_tokens_p50: self.output_tokens_p50,
            served_models: self.served_models.clone(),
            fingerprints: self.fingerprints.clone(),
        }
    }
}

/// Lower and upper bounds of P50, P95 and P99; `null` where the samples set none.
type Bounds = [[Option<f32>; 2]; 3];
/// A number of four bytes is exact to a ten-millionth: more than any sample supports.
const BYTES: usize = 5 * 3 * 2 * 4;

/// 95% intervals of a level's percentiles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LevelIntervals {
    /// Time to first token, seconds.
    pub ttft: Bounds,
    /// Time to the first token that is not reasoning, seconds.
    pub first_answer: Bounds,
    /// Time per output token, seconds.
    pub tpot: Bounds,
    /// Output tokens per second of single requests.
    pub request_tps: Bounds,
    /// Duration of good requests, seconds.
    pub duration: Bounds,
}

impl LevelIntervals {
    /// Of a level; `None` when no percentile is bounded.
    #[must_use]
    pub fn of(summary: &LevelSummary) -> Option<Self> {
        let intervals = Self {
            ttft: bounds(summary.ttft_seconds),
            first_answer: bounds(summary.first_answer_token_seconds),
            tpot: bounds(summary.tpot_seconds),
            request_tps: bounds(summary.request_tps),
            duration: bounds(summary.duration_seconds),
        };
        (intervals != Self::default()).then_some(intervals)
    }

    /// The form they have in the file.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        let all = [self.ttft, self.first_answer, self.tpot, self.request_tps, self.duration];
        let sides = all.iter().flatten().flatten();
        sides.flat_map(|side| side.unwrap_or(f32::NAN).to_le_bytes()).collect()
    }

    /// Reads the form they have in the file; `None` when it is none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != BYTES {
            return None;
        }
        let (sides, _) = bytes.as_chunks::<4>();
        let mut sides =
            sides.iter().map(|side| Some(f32::from_le_bytes(*side)).filter(|side| !side.is_nan()));
        let mut next = || {
            let mut bounds = Bounds::default();
            for side in bounds.iter_mut().flatten() {
                *side = sides.next().flatten();
            }
            bounds
        };
        let (ttft, first_answer, tpot) = (next(), next(), next());
        Some(Self { ttft, first_answer, tpot, request_tps: next(), duration: next() })
    }
}

fn bounds(percentiles: Option<Percentiles>) -> Bounds {
    let Some(Percentiles { intervals, .. }) = percentiles else { return Bounds::default() };
    #[allow(clippy::cast_possible_truncation, reason = "seven digits are more than any sample supports")]
    let side = |side: Option<f64>| side.map(|side| side as f32);
    [intervals.p50, intervals.p95, intervals.p99].map(|interval| [side(interval.low), side(interval.high)])
}

/// The intervals as the analysis knows them.
#[must_use]
pub(super) fn intervals([p50, p95, p99]: Bounds) -> PercentileIntervals {
    let of = |[low, high]: [Option<f32>; 2]| Interval { low: low.map(f64::from), high: high.map(f64::from) };
    PercentileIntervals { p50: of(p50), p95: of(p95), p99: of(p99) }
}
