//! Frames that repeat earlier text: tells what is new in each, without keeping the text.
//!
//! Length and a running hash stand for the text so far, so memory does not grow with the answer. Knows nothing of what
//! the text is.

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
    hash: u64,
    deltas: u32,
    has_word: bool,
    cumulative: bool,
    /// Streams of this kind may repeat the whole text in every frame.
    may_accumulate: bool,
}

const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;

impl Echo {
    /// `may_accumulate`: streams of this kind may repeat the whole text in every frame, the last one included.
    pub(super) fn new(may_accumulate: bool) -> Self {
        Self { len: 0, hash: HASH_SEED, deltas: 0, has_word: false, cumulative: false, may_accumulate }
    }

    /// Whether frames of this stream repeat the whole text.
    pub(super) fn is_cumulative(&self) -> bool {
        self.cumulative
    }

    /// Takes in one delta; `is_last`: the answer ends with this event.
    pub(super) fn news<'a>(&mut self, delta: &'a str, is_last: bool) -> News<'a> {
        if let Some((head, tail)) = delta.split_at_checked(self.len)
            && !head.is_empty()
            && hash(HASH_SEED, head) == self.hash
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
        self.hash = hash(self.hash, text);
        self.deltas = self.deltas.saturating_add(1);
        self.has_word = self.has_word || text.contains(char::is_alphanumeric);
    }
}

/// FNV-1a: can be continued, and nobody gains by a collision here.
fn hash(seed: u64, text: &str) -> u64 {
    text.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
