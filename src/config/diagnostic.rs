//! What is wrong with a file, and how it is shown: place, mend, source line and caret.
//!
//! Knows nothing of what the keys mean. It is careful what of the file it repeats: values that may be secrets
//! are masked in source lines.

use std::{cell::RefCell, collections::BTreeSet, fmt, ops::Range};

/// A configuration that cannot be used: everything found wrong with it, in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    problems: Vec<Located>,
}

/// One problem as it is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Located {
    text: String,
    /// Line and column, from 1, and the excerpt; absent when the file could not be read at all.
    position: Option<Position>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    line: usize,
    column: usize,
    excerpt: String,
}

/// Where in the file a value stands: for the caret, and in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct At {
    /// Bytes of the file.
    pub span: Range<usize>,
    /// Like `sweeps[1] "hourly": key "schedule"`; empty for the file as a whole.
    pub place: String,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Placed<T> {
    pub value: T,
    pub at: At,
}

/// What was noticed while a file was read.
#[derive(Debug, Default)]
pub(super) struct Notes {
    problems: RefCell<Vec<(At, String)>>,
    warnings: RefCell<Vec<String>>,
    masks: RefCell<Vec<Range<usize>>>,
    known_keys: RefCell<BTreeSet<String>>,
}

/// How much of a long source line is shown before and after the caret.
const EXCERPT_CHARS_BEFORE: usize = 60;
const EXCERPT_CHARS_MAX: usize = 140;
/// More problems than this help nobody.
const PROBLEMS_MAX: usize = 50;

impl Notes {
    /// Something is wrong here; the message says what, and what to write instead.
    pub fn complain(&self, at: &At, message: impl Into<String>) {
        self.problems.borrow_mut().push((at.clone(), message.into()));
    }

    /// Legal, but unwise.
    pub fn warn(&self, at: &At, message: &str) {
        self.warnings.borrow_mut().push(format!("{}: {message}", at.place));
    }

    /// These bytes may hold a secret.
    pub fn mask(&self, span: Range<usize>) {
        self.masks.borrow_mut().push(span);
    }

    /// The parser knows this key.
    pub fn know(&self, path: String) {
        self.known_keys.borrow_mut().insert(path);
    }

    /// Every key the parser asked for, as `sweeps.timeout.connect`.
    #[cfg(test)]
    pub fn known_keys(&self) -> BTreeSet<String> {
        self.known_keys.borrow().clone()
    }

    pub fn has_problems(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    pub fn into_warnings(self) -> Vec<String> {
        self.warnings.into_inner()
    }

    pub fn into_error(self, file: &str, text: &str) -> ConfigError {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(at, _)| at.span.start);
        problems.dedup();
        let left_out = problems.len().saturating_sub(PROBLEMS_MAX);
        problems.truncate(PROBLEMS_MAX);
        let mut masks = self.masks.into_inner();
        masks.extend(doubtful_lines(text));
        let mut problems: Vec<_> =
            problems.into_iter().map(|(at, message)| locate(text, &masks, &at, &message)).collect();
        if left_out > 0 {
            problems
                .push(Located { text: format!("{left_out} more problems are not shown"), position: None });
        }
        ConfigError { file: file.to_owned(), problems }
    }
}

impl ConfigError {
    /// A file that could not be read or is no TOML at all.
    pub(super) fn whole_file(file: &str, message: String) -> Self {
        Self { file: file.to_owned(), problems: vec![Located { text: message, position: None }] }
    }

    /// A syntax error. Nothing is known of what stands where, so a line that may hold a secret is not shown.
    pub(super) fn syntax(file: &str, text: &str, span: Range<usize>, message: &str) -> Self {
        let masks = suspicious_lines(text);
        let at = At { span, place: "not TOML".to_owned() };
        Self { file: file.to_owned(), problems: vec![locate(text, &masks, &at, message)] }
    }

    /// How many problems there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there are none, which never happens to an error that was returned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match &problem.position {
                Some(Position { line, column, excerpt }) => {
                    write!(f, "{}:{line}:{column}: {}\n{excerpt}", self.file, problem.text)?;
                }
                None => write!(f, "{}: {}", self.file, problem.text)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

fn locate(text: &str, masks: &[Range<usize>], at: &At, message: &str) -> Located {
    let start = (0..=at.span.start.min(text.len())).rev().find(|start| text.is_char_boundary(*start));
    let start = start.unwrap_or_default();
    let before = text.get(..start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
    let excerpt = excerpt(text, masks, line, column, line_start, &at.span);
    let separator = if at.place.is_empty() { "" } else { ": " };
    let text = format!("{}{separator}{message}", at.place);
    Located { text, position: Some(Position { line, column, excerpt }) }
}

/// The source line with a caret under the span, cut to a readable width.
fn excerpt(
    text: &str,
    masks: &[Range<usize>],
    line: usize,
    column: usize,
    line_start: usize,
    span: &Range<usize>,
) -> String {
    let source = text.get(line_start..).unwrap_or_default();
    let source = source.split(['\n', '\r']).next().unwrap_or_default();
    let userinfo = userinfo_spans(source, line_start);
    let hidden = |offset: usize| masks.iter().chain(&userinfo).any(|mask| mask.contains(&offset));
    let skipped = column.saturating_sub(1 + EXCERPT_CHARS_BEFORE);
    let shown: String = source
        .char_indices()
        .map(|(offset, c)| match c {
            _ if hidden(line_start + offset) => '*',
            c if c.is_control() => ' ',
            c => c,
        })
        .skip(skipped)
        .take(EXCERPT_CHARS_MAX)
        .collect();
    let caret_start = column - 1 - skipped;
    let marked = text.get(span.start..span.end.min(line_start + source.len())).unwrap_or_default();
    let room = shown.chars().count().saturating_sub(caret_start);
    let carets = "^".repeat(marked.chars().count().min(room).max(1));
    let gutter = " ".repeat(line.to_string().len());
    format!("{gutter} |\n{line} | {shown}\n{gutter} | {}{carets}", " ".repeat(caret_start))
}

/// User names and passwords of URLs, wherever they stand.
fn userinfo_spans(source: &str, line_start: usize) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    for (scheme_end, marker) in source.match_indices("://") {
        let start = scheme_end + marker.len();
        let rest = source.get(start..).unwrap_or_default();
        let authority =
            rest.split(|c: char| c.is_whitespace() || "/?#\"'".contains(c)).next().unwrap_or(rest);
        if let Some(end) = authority.rfind('@') {
            spans.push(line_start + start..line_start + start + end);
        }
    }
    spans
}

/// In a file that does not parse: everything behind `=` on lines that look like credentials, and on any other line what
/// is long enough to be one.
fn suspicious_lines(text: &str) -> Vec<Range<usize>> {
    const WORDS: [&str; 8] = ["key", "header", "auth", "token", "secret", "bearer", "pass", "cookie"];
    each_line(text, |line| {
        let equals = line.find('=');
        let lower = line.to_ascii_lowercase();
        if WORDS.iter().any(|word| lower.contains(word)) {
            return std::iter::once(equals.map_or(0, |equals| equals + 1)..line.len()).collect();
        }
        // A line without is a table's name, or goes on from the one before.
        match equals {
            Some(equals) => long_values(line, equals + 1),
            None if line.trim_start().starts_with('[') => long_values(line, 0),
            None => std::iter::once(0..line.len()).collect(),
        }
    })
}

/// In a file that parses: long values on lines whose keys may hold credentials in any form, right or wrong.
fn doubtful_lines(text: &str) -> Vec<Range<usize>> {
    const KEYS: [&str; 4] = ["query", "extra_headers", "extra_body", "token_command"];
    each_line(text, |line| match line.find('=') {
        Some(equals) if KEYS.iter().any(|key| line.contains(key)) => long_values(line, equals + 1),
        _ => Vec::new(),
    })
}

/// The spans of all lines, as places in the text.
fn each_line(text: &str, spans: impl Fn(&str) -> Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').flat_map(|line| {
        let line_start = start;
        start += line.len();
        spans(line).into_iter().map(move |span| line_start + span.start..line_start + span.end)
    });
    lines.collect()
}

/// Shorter texts are no credentials.
const SECRET_BYTES_MIN: usize = 8;

/// What stands together behind a place, quoted or not, if it is that long and no key.
fn long_values(line: &str, from: usize) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut at = from;
    for piece in line
        .get(from..)
        .unwrap_or_default()
        .split_inclusive(|c: char| c.is_whitespace() || ",{}[]".contains(c))
    {
        let value = piece.trim_end_matches(|c: char| c.is_whitespace() || ",{}[]".contains(c));
        let next = line.get(at + piece.len()..).unwrap_or_default().trim_start();
        if value.len() >= SECRET_BYTES_MIN && !next.starts_with('=') {
            spans.push(at..at + value.len());
        }
        at += piece.len();
    }
    spans
}
