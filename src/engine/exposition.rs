//! Reads Prometheus' text format line by line, as engines write it: 0.0.4, and the samples of `OpenMetrics`.
//!
//! Lenient: a line that is none is left out, for a few numbers are wanted of a page of thousands.

use std::borrow::Cow;

/// One line with a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'t> {
    /// Name as written, `_sum` and the like included.
    pub name: &'t str,
    /// Its labels.
    pub labels: Labels<'t>,
    /// Its value.
    pub value: f64,
}

/// Labels as written between the braces; looked into only when asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Labels<'t>(&'t str);

/// The samples of a page, in its order.
pub fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with('#') {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => {
            let end = closing_brace(rest)?;
            (rest.get(..end)?, rest.get(end + 1..)?)
        }
        None => ("", rest),
    };
    // A timestamp or an exemplar may follow.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels: Labels(labels), value })
}

/// The first `}` that stands in no quotes.
fn closing_brace(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

impl<'t> Labels<'t> {
    /// The value of a label, escapes resolved.
    #[must_use]
    pub fn get(self, name: &str) -> Option<Cow<'t, str>> {
        self.pairs().find(|(label, _)| *label == name).map(|(_, value)| unescaped(value))
    }

    fn pairs(self) -> impl Iterator<Item = (&'t str, &'t str)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (name, quoted) = rest.split_once('=')?;
            let value = quoted.trim_start().strip_prefix('"')?;
            let end = closing_quote(value)?;
            rest = value.get(end + 1..)?.trim_start().trim_start_matches(',');
            Some((name.trim(), value.get(..end)?))
        })
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            (other, false) => text.push(other),
        }
    }
    Cow::Owned(text)
}
