//! Prose that is even: as many letters a word, and as much of each language, in every prompt.
//!
//! Tokenizers see words, letters or bytes where our estimate sees a word and a half. What chance gives one prompt more
//! of, a calibration takes for the tokenizer's habit, and a short prompt holds few sentences over which chance evens out.
//! So the last sentences of a prompt are chosen, of several made, to bring it to the proportions of the rest. Pure.

use super::{Dice, Draft, Nonce, chinese, english, estimate_tokens, sentence::Sentence};
use crate::config::PromptLanguage;

/// Sentences of a paragraph at least, and how many more there may be.
const SENTENCES_MIN: u64 = 4;
const SENTENCES_MORE: u64 = 4;
/// What is left of a mixed prompt when its two languages are made even: more than the longest sentence has.
const SETTLED_TOKENS: f64 = 64.0;
/// Bytes of English prose for one estimated token, on the average of its parts.
pub(super) const BYTES_PER_TOKEN: f64 = 4.97;
/// How much of a prompt's end is chosen ...
const CHOSEN_TOKENS: f64 = 400.0;
/// ... each sentence from so many.
const CHOICES: usize = 8;

/// A text that grows sentence by sentence.
pub(super) struct Prose {
    draft: Draft,
    language: PromptLanguage,
    /// How many more tokens are Chinese than English.
    ahead: f64,
    /// How many more bytes the English part has than its estimate makes one expect.
    skew: f64,
    dice: Dice,
}

impl Prose {
    /// Goes on from the head of a prompt, to its closing request.
    pub(super) fn new(draft: Draft, language: PromptLanguage, closing: &str, nonce: Nonce) -> Self {
        let mut prose = Self { draft, language, ahead: 0.0, skew: 0.0, dice: Dice::new(nonce) };
        let is_chinese = language != PromptLanguage::En;
        prose.note(closing.len(), estimate_tokens(closing), is_chinese);
        prose
    }

    /// Writes until there is no room left.
    pub(super) fn finish(mut self) -> Draft {
        while self.draft.left > self.settles_below() {
            let before = self.draft.left;
            self.push_paragraph();
            if self.draft.left >= before {
                break;
            }
        }
        self.settle();
        self.draft
    }

    /// With how much left the paragraphs end and [`Self::settle`] begins.
    fn settles_below(&self) -> f64 {
        match self.language {
            PromptLanguage::En | PromptLanguage::Zh => 0.0,
            PromptLanguage::Mixed => SETTLED_TOKENS,
        }
    }

    /// Adds a paragraph, or as much of it as there is room for.
    fn push_paragraph(&mut self) {
        self.push_break();
        for number in 0..SENTENCES_MIN + self.dice.below(SENTENCES_MORE) {
            // Of mixed prompts every one holds as much of each: a tokenizer may treat them very differently.
            let is_chinese = match self.language {
                PromptLanguage::En => false,
                PromptLanguage::Zh => true,
                PromptLanguage::Mixed => self.ahead < 0.0,
            };
            self.push_sentence(is_chinese, number > 0, self.draft.left);
            if self.draft.left <= self.settles_below() {
                return;
            }
        }
    }

    /// Ends a mixed prompt with as much of each language as makes them even, to the word.
    fn settle(&mut self) {
        if self.language != PromptLanguage::Mixed || self.draft.left <= 0.0 {
            return;
        }
        self.push_break();
        let chinese = ((self.draft.left - self.ahead) / 2.0).clamp(0.0, self.draft.left.max(0.0));
        for (is_chinese, end) in [(false, chinese), (true, 0.0)] {
            let mut number = 0;
            while self.draft.left > end {
                let before = self.draft.left;
                self.push_sentence(is_chinese, number > 0, self.draft.left - end);
                if self.draft.left >= before {
                    break;
                }
                number += 1;
            }
        }
    }

    fn push_break(&mut self) {
        const BREAK: &str = "\n\n";
        self.note(BREAK.len(), estimate_tokens(BREAK), self.language == PromptLanguage::Zh);
        self.draft.push(BREAK);
    }

    /// Adds a sentence, or as much of it as there is room for.
    fn push_sentence(&mut self, is_chinese: bool, follows: bool, room: f64) {
        // Chinese is estimated by its characters: there every sentence is even.
        let choices = if is_chinese || self.draft.left > CHOSEN_TOKENS { 1 } else { CHOICES };
        let separator = if follows && !is_chinese { " " } else { "" };
        let (mut best, mut other) = (Sentence::new(), Sentence::new());
        let mut least = f64::INFINITY;
        for _ in 0..choices {
            other.clear();
            if is_chinese {
                chinese::push_sentence(&mut other, &mut self.dice);
            } else {
                english::push_sentence(&mut other, &mut self.dice);
            }
            let uneven = self.unevenness(&other, is_chinese, separator, room);
            if uneven < least {
                least = uneven;
                std::mem::swap(&mut best, &mut other);
            }
        }
        let start = self.draft.text.len();
        self.draft.text.push_str(separator);
        let sentence = self.draft.text.len();
        best.write(&mut self.draft.text);
        let (end, tokens) = self.cut(sentence, best.tokens(), is_chinese, room);
        // Nor is there room for what would stand before a sentence of which nothing fits.
        self.draft.text.truncate(if end == sentence { start } else { end });
        self.note(self.draft.text.len() - start, tokens, is_chinese);
        self.draft.left -= tokens;
    }

    /// How far from its proportions the text would be with this sentence, in bytes.
    fn unevenness(&mut self, sentence: &Sentence, is_chinese: bool, separator: &str, room: f64) -> f64 {
        let tokens = sentence.tokens();
        if tokens <= room {
            return (self.skew + bytes_beyond(separator.len() + sentence.bytes(), tokens)).abs();
        }
        // Written for a try, behind the text.
        let start = self.draft.text.len();
        sentence.write(&mut self.draft.text);
        let (end, tokens) = self.cut(start, tokens, is_chinese, room);
        self.draft.text.truncate(start);
        // The last one of all should also end where the room does.
        let beyond = (tokens - room).abs() * BYTES_PER_TOKEN;
        (self.skew + bytes_beyond(separator.len() + end - start, tokens)).abs() + beyond
    }

    /// Where the sentence from `start` on has to end for the room there is, and its tokens up to there: at a word, or in
    /// Chinese at a character.
    fn cut(&self, start: usize, tokens: f64, is_chinese: bool, room: f64) -> (usize, f64) {
        let sentence = self.draft.text.get(start..).unwrap_or_default();
        if tokens <= room {
            return (start + sentence.len(), tokens);
        }
        let (mut bytes, mut left) = (0, room);
        for piece in sentence.split_inclusive(|c| is_chinese || c == ' ') {
            // Rounded to the nearest piece, so that the error is at most half of one.
            let tokens = estimate_tokens(piece);
            if tokens / 2.0 > left {
                break;
            }
            bytes += piece.len();
            left -= tokens;
        }
        let kept = sentence.get(..bytes).unwrap_or_default().trim_end_matches(' ');
        (start + kept.len(), room - left)
    }

    fn note(&mut self, bytes: usize, tokens: f64, is_chinese: bool) {
        if is_chinese {
            self.ahead += tokens;
        } else {
            self.ahead -= tokens;
            self.skew += bytes_beyond(bytes, tokens);
        }
    }
}

fn bytes_beyond(bytes: usize, tokens: f64) -> f64 {
    bytes as f64 - tokens * BYTES_PER_TOKEN
}
