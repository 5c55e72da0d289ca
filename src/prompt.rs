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
mod prose;

use std::fmt::Write as _;

pub use self::book::Prompts;
use self::prose::Prose;
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

/// Builds a prompt. Its estimated length is within 3% or one token of the wanted one, except that the nonce
/// alone has about 14 tokens and is never cut.
#[must_use]
pub fn build(nonce: Nonce, shape: Shape) -> String {
    write(&Prompts::Generated, nonce, shape)
}

/// Writes a prompt as [`build`] does, from where prompts come from. A real one is taken as it is, behind the nonce.
#[must_use]
pub fn write(prompts: &Prompts, nonce: Nonce, shape: Shape) -> String {
    let budget = shape.budget().clamp(0.0, BUDGET_MAX);
    let mut text = String::with_capacity(capacity(shape.tokens));
    if let Nonce::Shared(_, share) = nonce {
        text.push_str("[probe shared]");
        let room = budget * share.ratio() - estimate_tokens(&text);
        text = push_body(text, prompts, Nonce::Warm, room, shape.language, "");
        text.push_str("\n\n");
    }
    match nonce {
        Nonce::Fresh(number) | Nonce::Shared(number, _) => {
            // Writing into memory never fails.
            let _ = write!(text, "[probe {number:016x}]");
        }
        Nonce::Warm => text.push_str("[probe warm]"),
    }
    if let Prompts::Real(real) = prompts {
        return format!("{text}\n\n{}", real.pick(nonce));
    }
    let room = budget - estimate_tokens(&text);
    let closing = closing(shape.language, room);
    let mut text = push_body(text, prompts, nonce, room - estimate_tokens(closing), shape.language, closing);
    text.push_str(closing);
    text
}

/// Appends prose of so many estimated tokens, to which `closing` will be added.
fn push_body(
    mut text: String,
    prompts: &Prompts,
    nonce: Nonce,
    room: f64,
    language: PromptLanguage,
    closing: &str,
) -> String {
    match prompts {
        Prompts::Text(book) => {
            text.push_str("\n\n");
            book.push_excerpt(&mut text, room, nonce);
            text
        }
        Prompts::Generated | Prompts::Real(_) => Prose::new(text, room, language, closing, nonce).finish(),
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

/// About how many tokens a byte-pair tokenizer of today makes of a text: a word is a little more than one, a
/// punctuation mark one, and Chinese has three characters for two.
#[must_use]
pub fn estimate_tokens(text: &str) -> f64 {
    let mut tokens = 0.0;
    let mut run = Run::default();
    // Byte by byte: the prompt of every probe comes through here, and every worker waits for it.
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'\'' {
            run.letters += 1;
            run.digits += u32::from(byte.is_ascii_digit());
            continue;
        }
        if run.letters > 0 {
            tokens += std::mem::take(&mut run).tokens();
        }
        tokens += match byte {
            b' ' => 0.0,
            // A blank line is one token.
            b'\n' => TOKENS_PER_NEWLINE,
            byte if byte.is_ascii() => 1.0,
            // The first byte of a character, which stands for all of it.
            0xc0.. => TOKENS_PER_CHINESE_CHAR,
            _ => 0.0,
        };
    }
    tokens + run.tokens()
}

const TOKENS_PER_CHINESE_CHAR: f64 = 1.0 / 1.5;
const TOKENS_PER_NEWLINE: f64 = 0.5;
/// Numbers and hexadecimal are cut into short pieces.
const TOKENS_PER_DIGIT: f64 = 0.65;
const TOKENS_PER_WORD: f64 = 1.0;
/// What a letter beyond the sixth adds: long words are rarely whole.
const TOKENS_PER_FURTHER_LETTER: f64 = 0.05;
const LETTERS_OF_A_WORD: u32 = 6;

/// Letters and digits without a break between them.
#[derive(Default)]
struct Run {
    letters: u32,
    digits: u32,
}

impl Run {
    fn tokens(self) -> f64 {
        if self.letters == 0 {
            return 0.0;
        }
        if self.digits > 0 {
            return f64::from(self.letters) * TOKENS_PER_DIGIT;
        }
        let further = self.letters.saturating_sub(LETTERS_OF_A_WORD);
        TOKENS_PER_WORD + f64::from(further) * TOKENS_PER_FURTHER_LETTER
    }
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
        self.next() % limit.max(1)
    }

    /// One of a list.
    fn pick(&mut self, list: &[&'static str]) -> &'static str {
        let index = self.below(list.len() as u64);
        usize::try_from(index).ok().and_then(|index| list.get(index)).copied().unwrap_or_default()
    }
}
