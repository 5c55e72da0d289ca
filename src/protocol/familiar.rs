//! Events that differ from one before them only in their text: told by comparing bytes, without reading them as JSON.
//!
//! Most events of a stream repeat everything but a word. One of them is read properly and kept, with the place of its text
//! in it; whatever has the same bytes before and behind that place, and plain text in it, says the same but for that text.
//! That the text is read from this place, and nothing else is, is not guessed: the event is read once more with another
//! text there. Knows nothing of wire formats, nor of time.

use std::ops::Range;

use memchr::memmem;

use super::gist::{Channel, Gist};

/// Longer events are read each time.
const EVENT_BYTES_MAX: usize = 4096;
/// Places that are tried for the text of one event.
const PLACES_MAX: usize = 4;
/// Events that were kept in vain, one after the other: a stream in which every event differs (by a time, a number) is
/// not compared any more.
const VAIN_MAX: u8 = 4;
/// What is put behind the text to see whether it is read from there.
const OTHER: &[u8] = b"~";

/// The event that others are compared with.
#[derive(Debug, Default)]
pub(super) struct Familiar {
    event: Vec<u8>,
    /// Where its text is; empty while there is none.
    text: Range<usize>,
    said: Option<(Channel, u64)>,
    vain: u8,
}

impl Familiar {
    /// What the event says if all of it but its text is familiar: channel, choice and text, which is not empty.
    pub(super) fn recognize<'e>(&mut self, event: &'e [u8]) -> Option<(Channel, u64, &'e str)> {
        let (channel, choice) = self.said?;
        let text = self.between(event).filter(|text| is_plain(text))?;
        let text = std::str::from_utf8(text).ok().filter(|text| !text.is_empty())?;
        self.vain = 0;
        Some((channel, choice, text))
    }

    /// Keeps an event that was read, if it says nothing but one text. `read` reads an event into a gist.
    pub(super) fn keep(
        &mut self,
        event: &[u8],
        gist: &Gist,
        read: impl Fn(&[u8], &mut Gist) -> Result<(), serde_json::Error>,
    ) {
        // One whose text alone was not plain says nothing against the one that is kept.
        if self.vain >= VAIN_MAX || event.len() > EVENT_BYTES_MAX || self.between(event).is_some() {
            return;
        }
        let Some((channel, choice, text)) = gist.only_text().filter(|(.., text)| is_plain(text.as_bytes()))
        else {
            return;
        };
        self.vain += 1;
        self.said = None;
        let quoted = format!("\"{text}\"");
        let places = memmem::find_iter(event, quoted.as_bytes()).take(PLACES_MAX);
        let mut other = Gist::default();
        for place in places.map(|quote| quote + 1..quote + 1 + text.len()) {
            let (Some(head), Some(tail)) = (event.get(..place.end), event.get(place.end..)) else { continue };
            other.clear();
            if read(&[head, OTHER, tail].concat(), &mut other).is_ok() && says_instead(&other, gist) {
                self.event.clear();
                self.event.extend_from_slice(event);
                self.text = place;
                self.said = Some((channel, choice));
                return;
            }
        }
    }

    /// What stands where the text is in the kept event, if all else is the same.
    fn between<'e>(&self, event: &'e [u8]) -> Option<&'e [u8]> {
        self.said?;
        let (head, tail) = (self.event.get(..self.text.start)?, self.event.get(self.text.end..)?);
        event.strip_prefix(head)?.strip_suffix(tail)
    }
}

/// Whether a string of JSON with these bytes is just them.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a branch for each would keep it from going many bytes at a time"
)]
fn is_plain(text: &[u8]) -> bool {
    // Without a way out at the first that is not: so it is done many bytes at a time.
    text.iter().fold(true, |plain, byte| plain & (*byte >= b' ') & (*byte != b'"') & (*byte != b'\\'))
}

/// Whether `other` says the same as `gist` but for [`OTHER`] behind its text.
fn says_instead(other: &Gist, gist: &Gist) -> bool {
    let (Some((channel, choice, text)), Some(expected)) = (other.only_text(), gist.only_text()) else {
        return false;
    };
    (channel, choice, text.as_bytes().strip_suffix(OTHER))
        == (expected.0, expected.1, Some(expected.2.as_bytes()))
        && other.names() == gist.names()
}

#[cfg(test)]
mod tests;
