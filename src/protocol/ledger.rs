//! Token counts of one answer: which of the numbers a server gives to believe, and where they came from.
//!
//! Knows nothing of wire formats, and nothing of time.

use super::gist::{Counts, Gist};
use crate::measurement::TokenSource;

/// No answer and no prompt has more tokens: a larger count is a server's mistake, and would stay in every sum for ever.
const TOKENS_MAX: u64 = 20_000_000;
/// A token that was sent takes a byte of the body at least, and in practice many. Far beyond that a count is a mistake;
/// not sooner, for servers that think in silence bill that, too, and some do not say how much of it there was.
const TOKENS_PER_BYTE_MAX: u64 = 16;

/// Counts seen so far. Usage is cumulative: the last value counts, never a sum.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    usage: Counts,
    vendor: Option<(&'static str, Counts)>,
    /// Frames with a usage that says something of the output.
    frames: u32,
    /// The first of them came while the answer was still being generated.
    growing: bool,
    /// A usage object came, whatever it said.
    pub(super) has_usage: bool,
}

/// What to believe.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) counts: Counts,
    pub(super) source: TokenSource,
    /// The server said zero although it sent text.
    pub(super) zero_distrusted: bool,
    /// The server said more than it can have sent.
    pub(super) excess_distrusted: bool,
    /// Usage came again and again.
    pub(super) repeated: bool,
}

impl Ledger {
    /// Takes in an event that holds text and no counts.
    pub(super) fn hear(&mut self) {
        // Text behind a usage shows that it was not the last word.
        self.growing |= self.frames > 0;
    }

    /// Takes in the counts of one event; `ended`: the answer was complete with this event or before.
    pub(super) fn take(&mut self, gist: &Gist, ended: bool) {
        if gist.piece_count() > 0 {
            self.hear();
        }
        let usage = gist.usage.plausible();
        if usage != Counts::default() {
            self.has_usage = true;
            let mut usage = usage;
            if gist.provisional {
                usage.output = None;
                usage.reasoning = None;
            }
            if usage.output.is_some_and(|output| output > 0) {
                self.growing |= self.frames == 0 && !ended;
                self.frames += 1;
            }
            self.usage.merge(usage);
        }
        if let Some((place, counts)) = gist.vendor.map(|(place, counts)| (place, counts.plausible())) {
            match &mut self.vendor {
                Some((before, known)) if *before == place => known.merge(counts),
                vendor => *vendor = Some((place, counts)),
            }
        }
    }

    /// Reasoning tokens the server counted.
    pub(super) fn reasoning(&self) -> u64 {
        let vendor = self.vendor.and_then(|(_, counts)| counts.reasoning);
        self.usage.reasoning.or(vendor).unwrap_or(0)
    }

    /// What to believe beside `chunks` chunks of text in a body of so many bytes.
    pub(super) fn verdict(&self, chunks: u64, bytes: u64) -> Verdict {
        let (vendor_place, vendor) = self.vendor.unwrap_or_default();
        let hidden = self.reasoning();
        let sent_max = bytes.saturating_mul(TOKENS_PER_BYTE_MAX);
        let excessive = |output: u64| chunks > 0 && output.saturating_sub(hidden) > sent_max;
        let credible = |output: &u64| (*output > 0 || chunks == 0) && !excessive(*output);
        let repeated = self.frames >= 2 && self.growing;
        let (output, source) = if let Some(output) = self.usage.output.filter(credible) {
            (Some(output), if repeated { TokenSource::UsageCumulative } else { TokenSource::Usage })
        } else if let Some(output) = vendor.output.filter(credible) {
            (Some(output), TokenSource::Vendor(vendor_place))
        } else if chunks > 0 {
            (Some(chunks), TokenSource::ChunkCount)
        } else {
            (None, TokenSource::None)
        };
        let said = self.usage.output.or(vendor.output);
        let zero_distrusted = chunks > 0 && said == Some(0);
        let excess_distrusted = said.is_some_and(excessive);
        let prompt = self.usage.prompt.or(vendor.prompt);
        let cached = self.usage.cached_prompt.or(vendor.cached_prompt);
        let reasoning = self.usage.reasoning.or(vendor.reasoning);
        // Some count what was thought beside the output instead of in it.
        let output = output.map(|output| match reasoning {
            Some(thought) if thought > output && source != TokenSource::ChunkCount => {
                output.saturating_add(thought)
            }
            _ => output,
        });
        let counts = Counts {
            // Who says zero of the output says it of the prompt too.
            prompt: prompt.filter(|prompt| *prompt > 0 || !zero_distrusted),
            // A part of the prompt cannot be more than the whole.
            cached_prompt: cached.filter(|cached| prompt.is_none_or(|prompt| *cached <= prompt)),
            output,
            reasoning,
        };
        Verdict { counts, source, zero_distrusted, excess_distrusted, repeated }
    }
}

impl Counts {
    /// Without the counts that cannot be.
    fn plausible(self) -> Self {
        let sane = |count: Option<u64>| count.filter(|count| *count <= TOKENS_MAX);
        Self {
            prompt: sane(self.prompt),
            cached_prompt: sane(self.cached_prompt),
            output: sane(self.output),
            reasoning: sane(self.reasoning),
        }
    }

    fn merge(&mut self, newer: Self) {
        self.prompt = newer.prompt.or(self.prompt);
        self.cached_prompt = newer.cached_prompt.or(self.cached_prompt);
        self.output = newer.output.or(self.output);
        self.reasoning = newer.reasoning.or(self.reasoning);
    }
}
