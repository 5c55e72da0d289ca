//! Prompts that somebody brought along: a text to cut them from, or whole ones, one a line. Pure.

use std::{fmt, sync::Arc};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{Dice, Draft, Nonce, estimate_tokens};

/// Largest file that is read.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most prompts of a file, and the longest.
const PROMPTS_MAX: usize = 100_000;
const PROMPT_BYTES_MAX: usize = 4 << 20;
/// A text shorter than this repeats itself within one prompt, and a prefix cache would answer.
const TEXT_TOKENS_MIN: f64 = 500.0;

/// Where prompts come from.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Prompts {
    /// Written by this program, of any length.
    #[default]
    Generated,
    /// Cut from a text, of any length.
    Text(Arc<Text>),
    /// As somebody sent them, each of its own length.
    Real(Arc<Real>),
}

/// A text to cut prompts from.
#[derive(Clone, PartialEq)]
pub struct Text {
    text: String,
    mark: Arc<str>,
}

/// Whole prompts.
#[derive(Clone, PartialEq)]
pub struct Real {
    prompts: Vec<String>,
    median_tokens: f64,
    longest_tokens: f64,
}

/// One line of the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Bare(String),
    Named {
        #[serde(alias = "text")]
        prompt: String,
    },
}

impl Prompts {
    /// Tells texts apart whose words are counted differently; the same for the same text, also after a restart.
    #[must_use]
    pub fn mark(&self) -> Arc<str> {
        match self {
            Self::Generated => Arc::from(""),
            Self::Text(text) => text.mark.clone(),
            Self::Real(_) => Arc::from("real"),
        }
    }

    /// Whether prompts have the length that is wanted, rather than their own.
    #[must_use]
    pub fn have_wanted_length(&self) -> bool {
        !matches!(self, Self::Real(_))
    }
}

impl Text {
    /// A text of enough words.
    ///
    /// # Errors
    /// It is too short.
    pub fn parse(text: String) -> Result<Prompts, String> {
        let tokens = estimate_tokens(&text);
        if tokens < TEXT_TOKENS_MIN {
            return Err(format!(
                "holds about {tokens:.0} tokens of text; prompts are cut from it, so give it {TEXT_TOKENS_MIN} or more"
            ));
        }
        let digest = Sha256::digest(text.as_bytes());
        let head: [u8; 8] = digest.get(..8).and_then(|head| head.try_into().ok()).unwrap_or_default();
        let mark = format!("{:016x}", u64::from_be_bytes(head)).into();
        Ok(Prompts::Text(Arc::new(Self { text, mark })))
    }

    /// Appends as much of the text as there is room for, from a place that follows from the nonce, and from its start again
    /// behind its end.
    pub(super) fn push_excerpt(&self, draft: &mut Draft, nonce: Nonce) {
        let length = self.text.len().max(1) as u64;
        let from = usize::try_from(Dice::new(nonce).below(length)).unwrap_or(0);
        let start =
            self.text.char_indices().map(|(at, _)| at).find(|at| *at >= from && self.begins_word(*at));
        let (before, after) = self.text.split_at_checked(start.unwrap_or(0)).unwrap_or(("", &self.text));
        while draft.left > 0.0 {
            for piece in pieces(after).chain(pieces(before)) {
                let tokens = estimate_tokens(piece);
                // Rounded to the nearest piece, so that the error is at most half of one.
                if tokens / 2.0 > draft.left {
                    return;
                }
                draft.text.push_str(piece);
                draft.left -= tokens;
            }
        }
    }

    fn begins_word(&self, at: usize) -> bool {
        let before = self.text.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|c| c.is_whitespace() || !c.is_ascii())
    }
}

/// Words with the white space behind them; of scripts without spaces, characters.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(|c: char| c.is_whitespace() || !c.is_ascii())
}

impl Real {
    /// One prompt a line: a JSON string, or an object whose member `prompt` (or `text`) is one.
    ///
    /// # Errors
    /// The first line that is no prompt, or there are none or too many.
    pub fn parse(text: &str) -> Result<Prompts, String> {
        let mut prompts = Vec::new();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        for (index, line) in lines {
            let refuse = |what: String| format!("line {}: {what}", index + 1);
            let prompt = match serde_json::from_str(line) {
                Ok(Line::Bare(prompt) | Line::Named { prompt }) => prompt,
                Err(error) if error.is_data() => {
                    return Err(refuse(r#"is no prompt; write {"prompt": "..."} or "...""#.to_owned()));
                }
                Err(error) => return Err(refuse(format!("is not JSON: {error}"))),
            };
            if prompt.trim().is_empty() {
                return Err(refuse("the prompt is empty; remove the line".to_owned()));
            }
            if prompt.len() > PROMPT_BYTES_MAX {
                return Err(refuse(format!(
                    "the prompt is longer than {} MiB; cut it",
                    PROMPT_BYTES_MAX >> 20
                )));
            }
            if prompts.len() == PROMPTS_MAX {
                return Err(format!("holds more than {PROMPTS_MAX} prompts; so many do as well"));
            }
            prompts.push(prompt);
        }
        let mut lengths: Vec<f64> = prompts.iter().map(|prompt| estimate_tokens(prompt)).collect();
        lengths.sort_by(f64::total_cmp);
        let (Some(median), Some(longest)) = (lengths.get(lengths.len() / 2), lengths.last()) else {
            return Err(r#"holds no prompts; write one a line: {"prompt": "..."}"#.to_owned());
        };
        Ok(Prompts::Real(Arc::new(Self { median_tokens: *median, longest_tokens: *longest, prompts })))
    }

    /// The length by which its cells are called: the median of the prompts' estimated ones, to two digits, so that a
    /// prompt more or less does not make other cells of them.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "lengths are small and positive"
    )]
    pub fn nominal_tokens(&self) -> u32 {
        let digit = 10_f64.powf((self.median_tokens.max(1.0).log10().floor() - 1.0).max(0.0));
        ((self.median_tokens / digit).round() * digit).max(1.0) as u32
    }

    /// The longest of them, estimated.
    #[must_use]
    pub fn longest_tokens(&self) -> f64 {
        self.longest_tokens
    }

    pub(super) fn pick(&self, nonce: Nonce) -> &str {
        let index = match nonce {
            Nonce::Fresh(number) | Nonce::Shared(number, _) => number % self.prompts.len().max(1) as u64,
            Nonce::Warm => 0,
        };
        usize::try_from(index).ok().and_then(|index| self.prompts.get(index)).map_or("", String::as_str)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes, {})", self.text.len(), self.mark)
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Real({} prompts)", self.prompts.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::PromptLanguage,
        prompt::{Shape, write},
    };

    fn real(text: &str) -> Arc<Real> {
        let Prompts::Real(real) = Real::parse(text).unwrap() else { panic!() };
        real
    }

    #[test]
    fn whole_prompts_are_read_line_by_line() {
        let book = real("\"one\"\n\n{\"prompt\": \"two words\", \"id\": 7}\r\n{\"text\": \"three\"}\n");
        let mut seen: Vec<&str> = (0..3).map(|number| book.pick(Nonce::Fresh(number))).collect();
        seen.sort_unstable();
        assert_eq!(seen, ["one", "three", "two words"]);
        assert_eq!(book.pick(Nonce::Warm), "one");
        let long = format!("{{\"prompt\": \"{}\"}}", "word ".repeat(1234));
        assert_eq!(real(&long).nominal_tokens(), 1200);
        assert_eq!(real("\"a\"").nominal_tokens(), 1);
    }

    #[test]
    fn a_line_that_is_no_prompt_is_named() {
        let check = |text: &str, expect: &str| {
            let error = Real::parse(text).unwrap_err();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("", "holds no prompts");
        check("\"a\"\n[1]", "line 2: is no prompt");
        check("\"a\"\n{\"question\": \"x\"}", "line 2: is no prompt");
        check("\"a\"\nplain", "line 2: is not JSON");
        check("\"a\"\n\"  \"", "line 2: the prompt is empty");
        assert!(Text::parse("short".to_owned()).unwrap_err().contains("about 1 tokens"));
    }

    #[test]
    fn excerpts_have_the_wanted_length_and_begin_anywhere() {
        let prose = super::super::build(Nonce::Fresh(5), Shape::new(3_000, PromptLanguage::Mixed));
        let Prompts::Text(text) = Text::parse(prose).unwrap() else { panic!() };
        let book = Prompts::Text(text.clone());
        for tokens in [60, 500, 8_000] {
            let prompt = write(&book, Nonce::Fresh(3), Shape::new(tokens, PromptLanguage::En));
            let estimate = estimate_tokens(&prompt.text);
            assert!((estimate / f64::from(tokens) - 1.0).abs() < 0.05, "{tokens}: {estimate}");
            assert!((prompt.estimated_tokens - estimate).abs() < 1.0, "{}", prompt.estimated_tokens);
            let other = write(&book, Nonce::Fresh(4), Shape::new(tokens, PromptLanguage::En));
            assert_ne!(prompt.text.get(26..60), other.text.get(26..60));
        }
        assert_eq!(book.mark(), Prompts::Text(text).mark());
        assert_eq!(book.mark().len(), 16);
    }
}
