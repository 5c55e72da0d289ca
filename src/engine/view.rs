//! Where the time to first token of a level went, by the engine's own account of the requests between two looks.

use super::{names::Quantity, snapshot::Snapshot};

/// The parts must add up to the client's time to first token within this share of it to be believed.
const BALANCE_TOLERANCE: f64 = 0.1;
/// More requests than this share beyond one's own, and the engine's means are of somebody else's as well.
const OTHERS_MAX: f64 = 0.2;
/// A part is where the time goes when it is more than this share of it.
const DOMINANT: f64 = 0.5;

/// What the client saw of the same requests: all of them, warm-up and fillers too, as the engine counts them all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FirstTokens {
    /// How many there were.
    pub count: u32,
    /// Their mean time, seconds.
    pub mean_seconds: f64,
}

/// A part of the time to first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Network, gateway, and whatever else is before the engine.
    Outside,
    /// Waiting to be scheduled.
    Queue,
    /// Reading the prompt, up to the first token.
    Prefill,
    /// What the engine does beside that: tokenizing, handing over.
    Rest,
}

impl Part {
    /// Every one, in the order in which they pass.
    pub const ALL: &[Self] = &[Self::Outside, Self::Queue, Self::Prefill, Self::Rest];

    /// The name used in labels and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Queue => "queue",
            Self::Prefill => "prefill",
            Self::Rest => "rest",
        }
    }
}

/// The engine's account of one level. Times are means over all its requests, in seconds; unknown is what it does not tell.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineView {
    /// Whose names the metrics have.
    pub engine: &'static str,
    /// Requests that got a first token, as the engine counted them.
    pub requests: Option<f64>,
    /// As the client did.
    pub own_requests: u32,
    /// Mean time to first token at the client.
    pub ttft_seconds: f64,
    /// Time of each part, as far as it is known.
    pub parts: Vec<(Part, f64)>,
    /// Share of the KV cache in use under the level's load, of the fullest engine.
    pub kv_cache_usage: Option<f64>,
    /// Requests being worked on under the level's load.
    pub running: Option<f64>,
    /// Requests waiting under the level's load.
    pub waiting: Option<f64>,
    /// Requests put back during the level because the KV cache was full.
    pub preemptions: Option<f64>,
    /// Share of the prompt tokens that the prefix cache answered.
    pub prefix_cache_hit_ratio: Option<f64>,
}

impl EngineView {
    /// From looks before and after a level, and one while its load was still on; `None` when the pages tell nothing
    /// that is known, or the client saw no first token.
    #[must_use]
    pub fn between(
        before: &Snapshot,
        loaded: Option<&Snapshot>,
        after: &Snapshot,
        client: FirstTokens,
    ) -> Option<Self> {
        let change = Change { before, after, own_requests: client.count };
        let mean = |quantity| change.mean(quantity);
        let (first, queue, prefill) =
            (mean(Quantity::FirstToken), mean(Quantity::Queue), mean(Quantity::Prefill));
        let engine = first.or(queue).or(prefill)?.1;
        let seconds = |part: Option<(f64, &'static str)>| part.map(|(seconds, _)| seconds);
        let within = seconds(queue).unwrap_or(0.0) + seconds(prefill).unwrap_or(0.0);
        // An engine that does not tell its own time to first token hides what is before it in the rest.
        let rest = seconds(first).unwrap_or(client.mean_seconds) - within;
        let parts = [
            (Part::Outside, seconds(first).map(|first| client.mean_seconds - first)),
            (Part::Queue, seconds(queue)),
            (Part::Prefill, seconds(prefill)),
            (Part::Rest, Some(rest)),
        ];
        let known = parts.into_iter().filter_map(|(part, seconds)| Some((part, seconds?.max(0.0))));
        let under_load =
            |quantity| loaded.and_then(|page| page.total(quantity, page)).map(|(_, total, _)| total);
        Some(Self {
            engine,
            requests: change.first_tokens(),
            own_requests: client.count,
            ttft_seconds: client.mean_seconds,
            parts: known.collect(),
            kv_cache_usage: under_load(Quantity::CacheUse).and_then(|total| amount(total.largest)),
            running: under_load(Quantity::Running).and_then(|total| amount(total.sum)),
            waiting: under_load(Quantity::Waiting).and_then(|total| amount(total.sum)),
            preemptions: change.of(Quantity::Preemptions),
            prefix_cache_hit_ratio: change.hit_ratio(),
        })
    }

    /// The time of a part, seconds; `None` where the engine does not tell it.
    #[must_use]
    pub fn part(&self, part: Part) -> Option<f64> {
        self.parts.iter().find(|(each, _)| *each == part).map(|(_, seconds)| *seconds)
    }

    /// The parts' sum as a share of the client's time to first token. Not 1 where the engine's clocks and the client's
    /// disagree, or the requests they speak of are not the same.
    #[must_use]
    pub fn balance(&self) -> f64 {
        self.parts.iter().map(|(_, seconds)| seconds).sum::<f64>() / self.ttft_seconds.max(f64::MIN_POSITIVE)
    }

    /// Whether the parts can be believed.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        (self.balance() - 1.0).abs() <= BALANCE_TOLERANCE
    }

    /// Requests of others that the engine counted, as a share of one's own; 0 where it counts none.
    #[must_use]
    pub fn others(&self) -> f64 {
        let own = f64::from(self.own_requests.max(1));
        // A filler that was cancelled may have had its first token.
        self.requests.map_or(0.0, |requests| ((requests - own) / own).max(0.0))
    }

    /// Whether others' requests are too many to be overlooked.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.others() > OTHERS_MAX
            && self.requests.is_some_and(|requests| requests - f64::from(self.own_requests) > 2.0)
    }

    /// Where more than half of the time goes, if that is known.
    #[must_use]
    pub fn dominant(&self) -> Option<(Part, f64)> {
        if !self.is_balanced() || self.is_shared() {
            return None;
        }
        self.parts.iter().copied().find(|(_, seconds)| *seconds > DOMINANT * self.ttft_seconds)
    }
}

/// A gauge, if it can be of something that is counted.
fn amount(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// What happened between two looks.
struct Change<'a> {
    before: &'a Snapshot,
    after: &'a Snapshot,
    own_requests: u32,
}

impl Change<'_> {
    /// A mean over the requests between the looks, and whose name it had. `None` when there were none, or the engine
    /// was started again meanwhile.
    fn mean(&self, quantity: Quantity) -> Option<(f64, &'static str)> {
        let (name, before, after) = self.before.total(quantity, self.after)?;
        let count = match name.count {
            Some(_) => after.count - before.count,
            None => f64::from(self.own_requests),
        };
        let sum = after.sum - before.sum;
        (count > 0.0 && sum >= 0.0).then(|| (sum / count, name.engine))
    }

    /// By how much a counter grew.
    fn of(&self, quantity: Quantity) -> Option<f64> {
        let (_, before, after) = self.before.total(quantity, self.after)?;
        Some(after.sum - before.sum).filter(|grown| *grown >= 0.0)
    }

    fn first_tokens(&self) -> Option<f64> {
        Some(self.after.first_tokens()? - self.before.first_tokens()?).filter(|count| *count >= 0.0)
    }

    fn hit_ratio(&self) -> Option<f64> {
        let (hits, queries) = (self.of(Quantity::CacheHits)?, self.of(Quantity::CacheQueries)?);
        (queries > 0.0).then(|| (hits / queries).min(1.0))
    }
}

impl Snapshot {
    /// Whether the engine has counted at least so many first tokens since `before`, or does not count them: what it
    /// tells may come a moment after its last answer.
    #[must_use]
    pub fn has_counted(&self, first_tokens: u32, before: &Self) -> bool {
        match (self.first_tokens(), before.first_tokens()) {
            (Some(now), Some(then)) => now - then >= f64::from(first_tokens),
            _ => true,
        }
    }
}
