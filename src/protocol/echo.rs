//! Frames that repeat earlier text: tells what is new in each, without keeping the text.
//!
//! Length and a running checksum stand for the text so far, so memory does not grow with the answer. Knows nothing of what
//! the text is.

use flate2::Crc;

/// What is new in a delta.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News<'a> {
    /// This much.
    Fresh(&'a str),
    /// Nothing: the frame repeats the whole text, as every frame of this stream does.
    Nothing,
    /// Nothing: a stream that sends deltas repeated all of its text.
    Repeat,
}

/// Text so far, and how the stream sends it.
#[derive(Debug)]
pub(super) struct Echo {
    len: usize,
    checksum: Crc,
    deltas: u32,
    has_word: bool,
    cumulative: bool,
    /// Streams of this kind may repeat the whole text in every frame.
    may_accumulate: bool,
}

impl Echo {
    /// `may_accumulate`: streams of this kind may repeat the whole text in every frame, the last one included.
    pub(super) fn new(may_accumulate: bool) -> Self {
        Self { len: 0, checksum: Crc::new(), deltas: 0, has_word: false, cumulative: false, may_accumulate }
    }

    /// Whether frames of this stream repeat the whole text.
    pub(super) fn is_cumulative(&self) -> bool {
        self.cumulative
    }

    /// Takes in one delta; `is_last`: the answer ends with this event.
    pub(super) fn news<'a>(&mut self, delta: &'a str, is_last: bool) -> News<'a> {
        if let Some((head, tail)) = delta.split_at_checked(self.len)
            && !head.is_empty()
            && checksum(head) == self.checksum.sum()
            && let Some(news) = self.repeated(head, tail, is_last)
        {
            return news;
        }
        self.extend(delta);
        News::Fresh(delta)
    }

    /// The frame begins with all text so far.
    fn repeated<'a>(&mut self, head: &str, tail: &'a str, is_last: bool) -> Option<News<'a>> {
        if tail.is_empty() {
            self.cumulative |= self.may_accumulate && is_last;
            return match self.deltas {
                _ if self.cumulative => Some(News::Nothing),
                0 | 1 => None,
                _ => Some(News::Repeat),
            };
        }
        // "ha" then "haha", "-" then "---": a model may well say that.
        let says_it_again = tail.len().is_multiple_of(head.len())
            && tail.as_bytes().chunks(head.len()).all(|chunk| chunk == head.as_bytes());
        if !self.cumulative && (!self.has_word || says_it_again) {
            return None;
        }
        self.cumulative = true;
        self.extend(tail);
        Some(News::Fresh(tail))
    }

    fn extend(&mut self, text: &str) {
        self.len += text.len();
        self.checksum.update(text.as_bytes());
        self.deltas = self.deltas.saturating_add(1);
        self.has_word = self.has_word || text.contains(char::is_alphanumeric);
    }
}

/// Fast, and can be continued from delta to delta; nobody gains by a collision here.
fn checksum(text: &str) -> u32 {
    let mut checksum = Crc::new();
    checksum.update(text.as_bytes());
    checksum.sum()
}
