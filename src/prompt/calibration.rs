//! From our estimate of a prompt's length to the server's count: a line, learned from the server's own `usage`.
//!
//! Pure. Two short prompts of different lengths give what the server adds around a text (its chat template) and what
//! it makes of one estimated token; every further count moves the line a little, so that it follows the server.

use serde::{Deserialize, Serialize};

use super::Shape;
use crate::config::PromptLanguage;

/// Requests that a calibration may cost.
pub const REQUESTS_MAX: u32 = 4;
/// Enough output for a calibration: some servers refuse to write less.
pub const MAX_TOKENS: u32 = 16;
/// A count within this share of the wanted one is good.
pub const TOLERANCE: f64 = 0.02;
/// Half a word more or less cannot be helped.
const TOLERANCE_TOKENS: f64 = 3.0;
/// The first, short prompt's length in estimated tokens, and the longest and shortest of the second.
const SHORT: u32 = 80;
const LONG_MAX: u32 = 640;
const LONG_MIN: u32 = 240;
/// No tokenizer makes less or more of an estimated token.
const SLOPE_MIN: f64 = 0.2;
const SLOPE_MAX: f64 = 8.0;
/// No template is longer.
const OVERHEAD_MAX: f64 = 20_000.0;
/// Nor can our estimate of a nonce be wrong by more.
const OVERHEAD_MIN: f64 = -150.0;
/// A count so far off is no noise: the server cut the prompt, or is another one than it was.
const ASTRAY: f64 = 0.15;
/// What was learned weighs at most so many times as much as the longest prompt counted.
const MEMORY: f64 = 4.0;

/// One prompt, as we estimate it and as the server counted it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// [`super::estimate_tokens`] of the text.
    pub estimated: f64,
    /// Prompt tokens of the server's usage.
    pub counted: f64,
}

/// The line from estimated to counted tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Tokens the server counts beside the text.
    overhead: f64,
    /// Counted tokens per estimated one.
    slope: f64,
    /// Estimated tokens it rests on.
    weight: f64,
    longest: f64,
}

/// What a further count says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As expected, or nearly: the line was moved a little.
    Close,
    /// Much less or more than expected: the line was left alone.
    Astray,
}

/// The two lengths, in estimated tokens, of the prompts to calibrate with when this length is wanted.
#[must_use]
pub fn lengths(wanted: u32, language: PromptLanguage) -> [u32; 2] {
    // Room for both languages, and for what makes them even.
    let stretch = if language == PromptLanguage::Mixed { 2 } else { 1 };
    [SHORT, wanted.clamp(LONG_MIN, LONG_MAX)].map(|length| length * stretch)
}

impl Calibration {
    /// The line through two readings; `None` when no tokenizer can have given them.
    #[must_use]
    pub fn through(short: Reading, long: Reading) -> Option<Self> {
        let slope = (long.counted - short.counted) / (long.estimated - short.estimated);
        let overhead = long.counted - slope * long.estimated;
        let plausible =
            (SLOPE_MIN..=SLOPE_MAX).contains(&slope) && (OVERHEAD_MIN..=OVERHEAD_MAX).contains(&overhead);
        let weight = long.estimated - short.estimated;
        plausible.then_some(Self { overhead, slope, weight, longest: long.estimated })
    }

    /// The shape of a prompt that the server will count as `tokens`.
    #[must_use]
    pub fn shape(&self, tokens: u32, language: PromptLanguage) -> Shape {
        Shape { tokens, language, overhead_tokens: self.overhead, scale: 1.0 / self.slope }
    }

    /// Takes a further count into account. Longer prompts tell more of the slope.
    pub fn learn(&mut self, reading: Reading) -> Verdict {
        let expected = self.overhead + self.slope * reading.estimated;
        if (reading.counted / expected - 1.0).abs() > ASTRAY {
            return Verdict::Astray;
        }
        if reading.estimated > 0.0 {
            self.longest = self.longest.max(reading.estimated);
            let observed = (reading.counted - self.overhead) / reading.estimated;
            let share = reading.estimated / (reading.estimated + self.weight);
            self.slope += (observed.clamp(SLOPE_MIN, SLOPE_MAX) - self.slope) * share;
            self.weight = (self.weight + reading.estimated).min(MEMORY * self.longest);
        }
        Verdict::Close
    }

    /// Tokens the server counts beside the text.
    #[must_use]
    pub fn overhead_tokens(&self) -> f64 {
        self.overhead
    }
}

/// Whether a counted length is as good as the wanted one.
#[must_use]
pub fn is_close(wanted: u32, counted: f64) -> bool {
    let wanted = f64::from(wanted);
    (counted - wanted).abs() <= (wanted * TOLERANCE).max(TOLERANCE_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::{Nonce, build, estimate_tokens};

    type Tokenizer = fn(&str) -> f64;

    /// Tokenizers that see the world differently, with the templates around the text, and wanted lengths. Of a few
    /// hundred bytes a word more is two percent: no prompt made of words is closer.
    const TOKENIZERS: &[(&str, Tokenizer, &[u32])] = &[
        ("by characters", |text| by_characters(text, 5.0, 1.5) + 4.0, &[300, 1_000, 8_000]),
        ("bytes", |text| text.len() as f64, &[1_000, 8_000]),
        ("words whole, characters single", |text| by_words(text) + 300.0, &[500, 1_000, 8_000]),
        ("poor at Chinese", |text| by_characters(text, 4.0, 0.5) + 21.0, &[300, 1_000, 8_000]),
    ];

    fn by_characters(text: &str, ascii: f64, chinese: f64) -> f64 {
        text.chars().map(|c| if c.is_ascii() { 1.0 / ascii } else { 1.0 / chinese }).sum::<f64>().ceil()
    }

    fn by_words(text: &str) -> f64 {
        let words = text.split_ascii_whitespace().filter(|word| word.is_ascii()).count();
        let marks = text.chars().filter(|c| c.is_ascii_punctuation() || !c.is_ascii()).count();
        (words + marks) as f64
    }

    /// How far the mean of a level's prompts is off, after two short prompts and a warm-up.
    fn off(language: PromptLanguage, count: Tokenizer, wanted: u32, seed: u64) -> f64 {
        let mut nonces = (0..).map(|n| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n));
        let mut read = |shape| {
            let text = build(Nonce::Fresh(nonces.next().unwrap()), shape);
            Reading { estimated: estimate_tokens(&text), counted: count(&text) }
        };
        let [short, long] = lengths(wanted, language).map(|length| read(Shape::new(length, language)));
        let mut calibration = Calibration::through(short, long).unwrap();
        calibration.learn(read(calibration.shape(wanted, language)));
        let shape = calibration.shape(wanted, language);
        let measured: f64 = (0..8).map(|_| read(shape).counted).sum();
        measured / 8.0 / f64::from(wanted) - 1.0
    }

    #[test]
    fn two_short_prompts_and_a_warm_up_are_within_two_percent() {
        for language in [PromptLanguage::En, PromptLanguage::Zh, PromptLanguage::Mixed] {
            for (name, tokenizer, wanted) in TOKENIZERS {
                for wanted in *wanted {
                    let seeds = if *wanted > 1_000 { 4 } else { 40 };
                    let offs = (0..seeds).map(|seed| off(language, *tokenizer, *wanted, seed).abs());
                    let worst = offs.fold(0.0, f64::max);
                    println!("{language:?}, {name}, {wanted} tokens: off by {:.2}% at most", worst * 100.0);
                    assert!(worst <= TOLERANCE, "{language:?}, {name}, {wanted} tokens: {worst}");
                }
            }
        }
    }

    #[test]
    fn it_follows_a_server_that_drifts_and_not_one_that_cuts() {
        let reading = |estimated, counted| Reading { estimated, counted };
        let mut calibration = Calibration::through(reading(80.0, 100.0), reading(640.0, 660.0)).unwrap();
        assert!((calibration.overhead_tokens() - 20.0).abs() < 1e-9);
        for _ in 0..20 {
            assert_eq!(calibration.learn(reading(1000.0, 1120.0)), Verdict::Close);
        }
        let shape = calibration.shape(1120, PromptLanguage::En);
        assert!((shape.scale - 1.0 / 1.1).abs() < 0.002, "{shape:?}");
        let before = calibration;
        assert_eq!(calibration.learn(reading(1000.0, 512.0)), Verdict::Astray);
        assert_eq!(calibration, before);
    }

    #[test]
    fn counts_that_no_tokenizer_gives_make_no_line() {
        let reading = |estimated, counted| Reading { estimated, counted };
        // The same for both lengths; fewer for the longer; as many as bytes of a book.
        for (short, long) in [(100.0, 100.0), (100.0, 50.0), (100.0, 90_000.0)] {
            assert_eq!(Calibration::through(reading(80.0, short), reading(640.0, long)), None);
        }
    }

    #[test]
    fn close_is_two_percent_or_three_tokens() {
        assert!(is_close(1000, 1019.0) && !is_close(1000, 1021.0));
        assert!(is_close(50, 53.0) && !is_close(50, 54.0));
    }
}
