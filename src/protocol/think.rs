//! Thinking written into the answer: tells `<think>..</think>` from the answer proper while the text streams in.
//!
//! The opener counts only at the start of the reply. A closer without an opener turns what came before into
//! reasoning. A piece that may still become a tag is held back and keeps the stamp of its own arrival. Knows nothing of
//! clocks: a stamp is carried through, not looked at.

use memchr::memchr;

const OPENER: &str = "<think>";
const CLOSER: &str = "</think>";
/// White space before an opener that is waited through; more is an answer.
const BLANK_BYTES_MAX: usize = 64;

/// What a stretch of text turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The answer, as far as can be told.
    Answer,
    /// Thinking.
    Reasoning,
}

/// What becomes known while text streams in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding<'a, S> {
    /// A stretch of text, and the delta it came in.
    Text(Part, &'a str, &'a mut Origin<S>),
    /// The reply opened with a tag.
    Opened,
    /// A closer came without an opener: all text of the answer so far was thinking.
    Relabel,
}

/// The delta a stretch of text came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin<S> {
    /// When it came.
    pub(super) stamp: S,
    /// It was counted as a chunk.
    pub(super) counted: bool,
    /// It was counted as a chunk of the answer.
    pub(super) counted_answer: bool,
}

impl<S> Origin<S> {
    /// A delta that was not counted yet.
    pub(super) fn new(stamp: S) -> Self {
        Self { stamp, counted: false, counted_answer: false }
    }
}

/// Splits the text of one reply.
#[derive(Debug)]
pub(super) struct ThinkSplitter<S> {
    state: State,
    held: String,
    /// Where in `held` each delta ends.
    origins: Vec<(usize, Origin<S>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but what may be an opener.
    Start,
    Thinking,
    /// An answer that began without an opener: a closer may still come.
    Answering,
    /// Tags mean nothing any more.
    Settled,
}

impl<S: Copy> ThinkSplitter<S> {
    pub(super) fn new() -> Self {
        Self { state: State::Start, held: String::new(), origins: Vec::new() }
    }

    /// Takes in one delta.
    pub(super) fn push(
        &mut self,
        delta: &str,
        origin: &mut Origin<S>,
        found: &mut impl FnMut(Finding<'_, S>),
    ) {
        if self.held.is_empty() && self.is_plain(delta) {
            return self.plain(delta, origin, found);
        }
        self.held.push_str(delta);
        self.origins.push((self.held.len(), *origin));
        let text = std::mem::take(&mut self.held);
        let mut origins = std::mem::take(&mut self.origins);
        let kept = self.split(&text, &mut origins, found);
        if let Some((_, counted)) = origins.last() {
            *origin = *counted;
        }
        self.held.push_str(text.get(kept..).unwrap_or_default());
        origins.retain(|(end, _)| *end > kept);
        self.origins.extend(origins.into_iter().map(|(end, origin)| (end - kept, origin)));
    }

    /// Gives up waiting: what is held back is text.
    pub(super) fn flush(&mut self, found: &mut impl FnMut(Finding<'_, S>)) {
        let held = std::mem::take(&mut self.held);
        let mut origins = std::mem::take(&mut self.origins);
        if !held.is_empty() {
            emit(self.part(), &held, 0..held.len(), &mut origins, found);
            if self.state == State::Start {
                self.state = State::Answering;
            }
        }
    }

    fn part(&self) -> Part {
        if self.state == State::Thinking { Part::Reasoning } else { Part::Answer }
    }

    /// Whether `delta` cannot hold any part of a tag that matters.
    fn is_plain(&self, delta: &str) -> bool {
        match self.state {
            State::Settled => true,
            State::Thinking | State::Answering => memchr(b'<', delta.as_bytes()).is_none(),
            State::Start => memchr(b'<', delta.as_bytes()).is_none() && !delta.trim_ascii_start().is_empty(),
        }
    }

    fn plain(&mut self, delta: &str, origin: &mut Origin<S>, found: &mut impl FnMut(Finding<'_, S>)) {
        if self.state == State::Start {
            self.state = State::Answering;
        }
        found(Finding::Text(self.part(), delta, origin));
    }

    /// Emits what can be told of `text`; the offset from which on it has to be held back.
    fn split(
        &mut self,
        text: &str,
        origins: &mut [(usize, Origin<S>)],
        found: &mut impl FnMut(Finding<'_, S>),
    ) -> usize {
        let mut at = 0;
        loop {
            let rest = text.get(at..).unwrap_or_default();
            match self.state {
                State::Start => match opening(rest) {
                    Opening::Complete(len) => {
                        at += len;
                        self.state = State::Thinking;
                        found(Finding::Opened);
                    }
                    Opening::Undecided => return at,
                    Opening::No => self.state = State::Answering,
                },
                State::Thinking => match rest.find(CLOSER) {
                    Some(closer) => {
                        emit(Part::Reasoning, text, at..at + closer, origins, found);
                        at += closer + CLOSER.len();
                        self.state = State::Settled;
                    }
                    None => return emit_undecided(Part::Reasoning, text, at, origins, found),
                },
                State::Answering => match first_tag(rest) {
                    Some((_, OPENER)) => self.state = State::Settled,
                    Some((closer, _)) => {
                        emit(Part::Answer, text, at..at + closer, origins, found);
                        at += closer + CLOSER.len();
                        self.state = State::Settled;
                        for (_, origin) in origins.iter_mut() {
                            origin.counted_answer = false;
                        }
                        found(Finding::Relabel);
                    }
                    None => return emit_undecided(Part::Answer, text, at, origins, found),
                },
                State::Settled => {
                    emit(Part::Answer, text, at..text.len(), origins, found);
                    return text.len();
                }
            }
        }
    }
}

enum Opening {
    /// The reply opens with a tag that ends here.
    Complete(usize),
    Undecided,
    No,
}

fn opening(text: &str) -> Opening {
    let head = text.trim_ascii_start();
    let blank = text.len() - head.len();
    if head.starts_with(OPENER) {
        Opening::Complete(blank + OPENER.len())
    } else if OPENER.starts_with(head) && blank <= BLANK_BYTES_MAX {
        Opening::Undecided
    } else {
        Opening::No
    }
}

fn first_tag(text: &str) -> Option<(usize, &'static str)> {
    let found = [OPENER, CLOSER].into_iter().filter_map(|tag| text.find(tag).map(|at| (at, tag)));
    found.min_by_key(|(at, _)| *at)
}

/// Emits `text` from `from` on, but for an end that may be the beginning of a tag; where that begins.
fn emit_undecided<S: Copy>(
    part: Part,
    text: &str,
    from: usize,
    origins: &mut [(usize, Origin<S>)],
    found: &mut impl FnMut(Finding<'_, S>),
) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let is_beginning =
        |tail: &str| CLOSER.starts_with(tail) || (part == Part::Answer && OPENER.starts_with(tail));
    let kept = rest.rfind('<').filter(|at| rest.get(*at..).is_some_and(is_beginning));
    let end = from + kept.unwrap_or(rest.len());
    emit(part, text, from..end, origins, found);
    end
}

/// Emits a stretch of `text`, cut where deltas end.
fn emit<S: Copy>(
    part: Part,
    text: &str,
    range: std::ops::Range<usize>,
    origins: &mut [(usize, Origin<S>)],
    found: &mut impl FnMut(Finding<'_, S>),
) {
    let mut from = range.start;
    for (end, origin) in origins.iter_mut().filter(|(end, _)| *end > range.start) {
        let to = range.end.min(*end);
        if let Some(piece) = text.get(from..to).filter(|piece| !piece.is_empty()) {
            found(Finding::Text(part, piece, origin));
        }
        from = to;
        if from >= range.end {
            break;
        }
    }
}
