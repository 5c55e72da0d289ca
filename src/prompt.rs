//! Prompts of a wanted length, the same for the same nonce.
//!
//! Pure: no clock, no randomness of its own. Every prompt begins with its nonce, so that no prefix cache can
//! answer it, and goes on with prose made for it from many sentence parts; it ends with a request to write on,
//! so that the output limit is reached. How many tokens a text really has only the server knows: lengths here
//! are estimates, corrected by what [`calibration`]
//! learned from it.

pub mod book;
pub mod calibration;
mod chinese;
mod english;
mod estimate;
mod prose;
mod sentence;

pub use self::{book::Prompts, estimate::estimate_tokens};
use self::{prose::Prose, sentence::Part};
use crate::config::{PromptLanguage, Share};

#[cfg(test)]
mod tests;

/// What makes a prompt different from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nonce {
    /// A number not used before.
    Fresh(u64),
    /// The same prompt every time, for measuring a warm prefix cache.
    Warm,
    /// The same beginning every time, as long as this share; behind it a number not used before.
    Shared(u64, Share),
}

/// How long a prompt should be, and in which language.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Wanted prompt tokens as the server counts them.
    pub tokens: u32,
    /// Language of the prose.
    pub language: PromptLanguage,
    /// Tokens the server adds around the text (chat template, system prompt).
    pub overhead_tokens: f64,
    /// Estimated tokens per real token: wanted lengths are multiplied by it. 1 until calibrated.
    pub scale: f64,
}

impl Shape {
    /// An uncalibrated shape.
    #[must_use]
    pub fn new(tokens: u32, language: PromptLanguage) -> Self {
        Self { tokens, language, overhead_tokens: 0.0, scale: 1.0 }
    }

    /// The length of the text in estimated tokens.
    fn budget(&self) -> f64 {
        (f64::from(self.tokens) - self.overhead_tokens).max(0.0) * self.scale
    }
}

/// The share of a prompt its closing request may take.
const CLOSING_SHARE: f64 = 0.4;
/// The longest prompt built, in estimated tokens: a calibration gone wrong must not fill the memory.
const BUDGET_MAX: f64 = 4_000_000.0;

/// A prompt, and how many tokens it is estimated at.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    /// What is sent.
    pub text: String,
    /// What [`estimate_tokens`] makes of it, known without reading it again.
    pub estimated_tokens: f64,
}

/// Builds a prompt. Its estimated length is within 3% or one token of the wanted one, except that the nonce
/// alone has about 14 tokens and is never cut.
#[must_use]
pub fn build(nonce: Nonce, shape: Shape) -> String {
    write(&Prompts::Generated, nonce, shape).text
}

/// Writes a prompt as [`build`] does, from where prompts come from. A real one is taken as it is, behind the nonce.
#[must_use]
pub fn write(prompts: &Prompts, nonce: Nonce, shape: Shape) -> Prompt {
    let budget = shape.budget().clamp(0.0, BUDGET_MAX);
    let mut draft = Draft { text: String::with_capacity(capacity(shape.tokens)), left: budget };
    if let Nonce::Shared(_, share) = nonce {
        draft.push("[probe shared]");
        let behind = budget * (1.0 - share.ratio());
        draft.left -= behind;
        draft = push_body(draft, prompts, Nonce::Warm, shape.language, "");
        draft.left += behind;
        draft.push("\n\n");
    }
    match nonce {
        Nonce::Fresh(number) | Nonce::Shared(number, _) => draft.push(&format!("[probe {number:016x}]")),
        Nonce::Warm => draft.push("[probe warm]"),
    }
    if let Prompts::Real(real) = prompts {
        draft.push("\n\n");
        draft.push(real.pick(nonce));
    } else {
        let closing = closing(shape.language, draft.left);
        let reserved = estimate_tokens(closing);
        draft.left -= reserved;
        draft = push_body(draft, prompts, nonce, shape.language, closing);
        draft.text.push_str(closing);
    }
    let Draft { text, left } = draft;
    Prompt { text, estimated_tokens: budget - left }
}

/// A text that grows, and the estimated tokens there is room for.
struct Draft {
    text: String,
    left: f64,
}

impl Draft {
    /// Appends a piece that is no part of a longer word.
    fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.left -= estimate_tokens(piece);
    }
}

/// Appends prose until there is no room left, to which `closing` will be added.
fn push_body(
    mut draft: Draft,
    prompts: &Prompts,
    nonce: Nonce,
    language: PromptLanguage,
    closing: &str,
) -> Draft {
    match prompts {
        Prompts::Text(book) => {
            draft.push("\n\n");
            book.push_excerpt(&mut draft, nonce);
            draft
        }
        Prompts::Generated | Prompts::Real(_) => Prose::new(draft, language, closing, nonce).finish(),
    }
}

/// About how many bytes a prompt takes; a guess that is too small costs a copy.
fn capacity(tokens: u32) -> usize {
    const BYTES_PER_TOKEN: usize = 6;
    /// For the nonce, and the sentence that turns out too long.
    const ROOM_BYTES: usize = 256;
    const CAPACITY_MAX: usize = 1 << 20;
    (tokens as usize).saturating_mul(BYTES_PER_TOKEN).saturating_add(ROOM_BYTES).min(CAPACITY_MAX)
}

/// The most explicit request to write on that leaves room for the rest.
fn closing(language: PromptLanguage, room: f64) -> &'static str {
    let closings = match language {
        PromptLanguage::En => english::CLOSINGS,
        PromptLanguage::Zh | PromptLanguage::Mixed => chinese::CLOSINGS,
    };
    let fits = |closing: &&&str| estimate_tokens(closing) <= room * CLOSING_SHARE;
    closings.iter().find(fits).copied().unwrap_or_default()
}

/// A stream of numbers that follows from the nonce (`SplitMix64`).
pub(crate) struct Dice(u64);

impl Dice {
    fn new(nonce: Nonce) -> Self {
        Self(match nonce {
            Nonce::Fresh(number) | Nonce::Shared(number, _) => number,
            Nonce::Warm => u64::MAX,
        })
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product is spread as evenly as a remainder, and far cheaper.
        let product = u128::from(self.next()) * u128::from(limit);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// One of a list.
    fn pick(&mut self, list: &'static [Part]) -> Part {
        let index = self.below(list.len() as u64);
        usize::try_from(index).ok().and_then(|index| list.get(index)).copied().unwrap_or_default()
    }
}
