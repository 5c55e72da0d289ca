//! Prose that is even: as many letters a word, and as much of each language, in every prompt.
//!
//! Tokenizers see words, letters or bytes where our estimate sees a word and a half. What chance gives one prompt more
//! of, a calibration takes for the tokenizer's habit, and a short prompt holds few sentences over which chance evens out.
//! So the last sentences of a prompt are chosen, of several made, to bring it to the proportions of the rest. Pure.

use super::{Dice, Nonce, chinese, english, estimate_tokens};
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
    text: String,
    /// Estimated tokens there is room for.
    left: f64,
    language: PromptLanguage,
    /// How many more tokens are Chinese than English.
    ahead: f64,
    /// How many more bytes the English part has than its estimate makes one expect.
    skew: f64,
    dice: Dice,
}

impl Prose {
    /// Goes on from the head of a prompt, to its closing request.
    pub(super) fn new(
        text: String,
        left: f64,
        language: PromptLanguage,
        closing: &str,
        nonce: Nonce,
    ) -> Self {
        let mut prose = Self { text, left, language, ahead: 0.0, skew: 0.0, dice: Dice::new(nonce) };
        let is_chinese = language != PromptLanguage::En;
        prose.note(closing, estimate_tokens(closing), is_chinese);
        prose
    }

    /// Writes until there is no room left.
    pub(super) fn finish(mut self) -> String {
        while self.left > self.settles_below() {
            let before = self.left;
            self.push_paragraph();
            if self.left >= before {
                break;
            }
        }
        self.settle();
        self.text
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
            self.push_sentence(is_chinese, number > 0, self.left);
            if self.left <= self.settles_below() {
                return;
            }
        }
    }

    /// Ends a mixed prompt with as much of each language as makes them even, to the word.
    fn settle(&mut self) {
        if self.language != PromptLanguage::Mixed || self.left <= 0.0 {
            return;
        }
        self.push_break();
        let chinese = ((self.left - self.ahead) / 2.0).clamp(0.0, self.left.max(0.0));
        for (is_chinese, end) in [(false, chinese), (true, 0.0)] {
            let mut number = 0;
            while self.left > end {
                let before = self.left;
                self.push_sentence(is_chinese, number > 0, self.left - end);
                if self.left >= before {
                    break;
                }
                number += 1;
            }
        }
    }

    fn push_break(&mut self) {
        const BREAK: &str = "\n\n";
        let tokens = estimate_tokens(BREAK);
        self.note(BREAK, tokens, self.language == PromptLanguage::Zh);
        self.text.push_str(BREAK);
        self.left -= tokens;
    }

    /// Adds a sentence, or as much of it as there is room for.
    fn push_sentence(&mut self, is_chinese: bool, follows: bool, room: f64) {
        // Chinese is estimated by its characters: there every sentence is even.
        let choices = if is_chinese || self.left > CHOSEN_TOKENS { 1 } else { CHOICES };
        let mut best: Option<(f64, String, f64)> = None;
        for _ in 0..choices {
            let (sentence, is_cut) = self.sentence(is_chinese, follows, room);
            let tokens = estimate_tokens(&sentence);
            // The last one of all should also end where the room does.
            let beyond = if is_cut { (tokens - room).abs() * BYTES_PER_TOKEN } else { 0.0 };
            let uneven = (self.skew + bytes_beyond(&sentence, tokens)).abs() + beyond;
            if best.as_ref().is_none_or(|(least, ..)| uneven < *least) {
                best = Some((uneven, sentence, tokens));
            }
        }
        let Some((_, sentence, tokens)) = best else { return };
        self.note(&sentence, tokens, is_chinese);
        self.text.push_str(&sentence);
        self.left -= tokens;
    }

    /// A sentence that fits into the room, and whether it had to be cut to.
    fn sentence(&mut self, is_chinese: bool, follows: bool, room: f64) -> (String, bool) {
        let mut sentence = String::with_capacity(128);
        if is_chinese {
            chinese::push_sentence(&mut sentence, &mut self.dice);
        } else {
            english::push_sentence(&mut sentence, &mut self.dice);
        }
        let is_cut = estimate_tokens(&sentence) > room;
        if is_cut {
            sentence = start(&sentence, is_chinese, room);
        }
        if follows && !is_chinese && !sentence.is_empty() {
            sentence.insert(0, ' ');
        }
        (sentence, is_cut)
    }

    fn note(&mut self, piece: &str, tokens: f64, is_chinese: bool) {
        if is_chinese {
            self.ahead += tokens;
        } else {
            self.ahead -= tokens;
            self.skew += bytes_beyond(piece, tokens);
        }
    }
}

fn bytes_beyond(piece: &str, tokens: f64) -> f64 {
    piece.len() as f64 - tokens * BYTES_PER_TOKEN
}

/// The words (in Chinese, characters) of a sentence for which there is room.
fn start(sentence: &str, is_chinese: bool, room: f64) -> String {
    let mut left = room;
    let mut text = String::new();
    for piece in sentence.split_inclusive(|c| is_chinese || c == ' ') {
        // Rounded to the nearest piece, so that the error is at most half of one.
        let tokens = estimate_tokens(piece);
        if tokens / 2.0 > left {
            break;
        }
        text.push_str(piece);
        left -= tokens;
    }
    text.truncate(text.trim_end_matches(' ').len());
    text
}
