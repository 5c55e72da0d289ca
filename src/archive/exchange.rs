//! Runs for others: JSON lines that another archive takes in whole, or the levels as a [`table`].

use std::{
    fmt,
    io::{self, BufRead, Write},
    sync::Arc,
};

use rusqlite::{Transaction, TransactionBehavior};
use serde::{Deserialize, Serialize};

use super::{
    read::{RunListing, SweepRecord},
    row::{Entry, LadderRow, LevelRow, ProbeRow, RunRow},
    store::{Store, has_run, write_all},
    table,
};

/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Entries held before they are written.
const BATCH_MAX: usize = 2_000;

/// Shape of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// Everything, one object a line.
    Jsonl,
    /// One row a level.
    Csv,
    /// The same, for programs that read columns.
    Parquet,
}

/// One line of an export. A run's line comes before those of its parts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "schema")]
enum Line {
    #[serde(rename = "tokenprobe.run/1")]
    Run(RunRow),
    #[serde(rename = "tokenprobe.level/1")]
    Level(Box<Part<LevelRow>>),
    #[serde(rename = "tokenprobe.ladder/1")]
    Ladder(Part<LadderRow>),
    #[serde(rename = "tokenprobe.probe/1")]
    Probe(Box<Part<ProbeRow>>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Part<T> {
    /// The run's uid.
    run: String,
    #[serde(flatten)]
    row: T,
}

/// What an import came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Runs taken in.
    pub runs: u64,
    /// Runs that were there already and were left as they are.
    pub known: u64,
    /// Levels taken in.
    pub levels: u64,
    /// Probes taken in.
    pub probes: u64,
}

/// Why an export or import ended early.
#[derive(Debug)]
pub enum ImportError {
    /// A line is not one of an export.
    Line(u64, String),
    /// Reading or writing the text.
    Io(io::Error),
    /// The archive.
    Sqlite(rusqlite::Error),
}

/// Writes runs, the oldest first.
///
/// # Errors
/// The archive cannot be read, or the text not be written.
pub fn export(
    store: &Store,
    runs: &[RunListing],
    format: ExportFormat,
    probes: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), ImportError> {
    match format {
        ExportFormat::Jsonl => runs.iter().rev().try_for_each(|run| export_run(store, run, probes, out)),
        ExportFormat::Csv => table::csv(store, runs, out),
        ExportFormat::Parquet => table::parquet(store, runs, out),
    }
}

fn export_run(store: &Store, run: &RunListing, probes: bool, out: &mut dyn Write) -> Result<(), ImportError> {
    let Some(SweepRecord { listing, ladders, levels }) = store.run(run.id)? else { return Ok(()) };
    let uid = listing.run.uid.clone();
    line(out, &Line::Run(listing.run))?;
    for row in levels {
        line(out, &Line::Level(Box::new(Part { run: uid.clone(), row })))?;
    }
    for row in ladders {
        line(out, &Line::Ladder(Part { run: uid.clone(), row }))?;
    }
    if probes {
        store.each_probe(run.id, |row| line(out, &Line::Probe(Box::new(Part { run: uid.clone(), row }))))?;
    }
    Ok(())
}

fn line(out: &mut dyn Write, line: &Line) -> Result<(), ImportError> {
    serde_json::to_writer(&mut *out, line).map_err(|error| ImportError::Io(error.into()))?;
    out.write_all(b"\n").map_err(ImportError::Io)
}

/// Takes in the lines of an export. A run that is there already is left as it is, with all its lines.
///
/// # Errors
/// A line is not one of an export (its number is told), or the archive cannot be written. Nothing was taken in then.
pub fn import(store: &mut Store, lines: &mut dyn BufRead) -> Result<Imported, ImportError> {
    let transaction = store.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let imported = take_in(&transaction, lines)?;
    transaction.commit()?;
    Ok(imported)
}

/// Whether a line holds, as such or escaped, a character that a terminal obeys. What was measured here holds none: names
/// and words of servers are cleaned when they come in.
fn steers_a_terminal(line: &str) -> bool {
    let raw = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let escaped = |at: usize| {
        let code = line.get(at + 2..at + 6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        code.and_then(char::from_u32).is_some_and(raw)
    };
    line.contains(raw) || line.match_indices("\\u").any(|(at, _)| escaped(at))
}

fn take_in(transaction: &Transaction<'_>, lines: &mut dyn BufRead) -> Result<Imported, ImportError> {
    let mut imported = Imported::default();
    let mut current: Option<(Arc<RunRow>, bool)> = None;
    let mut batch = Vec::new();
    for number in 1.. {
        let Some(text) = next_line(lines, number)? else { break };
        if text.trim().is_empty() {
            continue;
        }
        if steers_a_terminal(&text) {
            let why = "holds control characters, which no export does";
            return Err(ImportError::Line(number, why.into()));
        }
        let line: Line = serde_json::from_str(&text).map_err(|error| {
            ImportError::Line(number, format!("is not a line of `history export --format jsonl`: {error}"))
        })?;
        if let Line::Run(run) = line {
            flush(transaction, &mut batch)?;
            let known = has_run(transaction, &run.uid)?;
            let run = Arc::new(run);
            if known {
                imported.known += 1;
            } else {
                imported.runs += 1;
                batch.push(Entry::RunStarted(run.clone()));
            }
            current = Some((run, known));
            continue;
        }
        let entry = part(line, current.as_ref(), number)?;
        match &entry {
            Some(Entry::Level(..)) => imported.levels += 1,
            Some(Entry::Probe(..)) => imported.probes += 1,
            Some(
                Entry::RunStarted(_)
                | Entry::Ladder(..)
                | Entry::RunEnded { .. }
                | Entry::Note { .. }
                | Entry::Mark(_),
            )
            | None => {}
        }
        batch.extend(entry);
        if batch.len() >= BATCH_MAX {
            flush(transaction, &mut batch)?;
        }
    }
    flush(transaction, &mut batch)?;
    Ok(imported)
}

/// The entry of a run's part; `None` when the run was known.
fn part(
    line: Line,
    current: Option<&(Arc<RunRow>, bool)>,
    number: u64,
) -> Result<Option<Entry>, ImportError> {
    let uid = match &line {
        Line::Run(run) => &run.uid,
        Line::Level(part) => &part.run,
        Line::Ladder(part) => &part.run,
        Line::Probe(part) => &part.run,
    };
    let Some((run, known)) = current.filter(|(run, _)| run.uid == *uid) else {
        let message = format!("belongs to run {uid}, whose own line does not come before it");
        return Err(ImportError::Line(number, message));
    };
    let run = run.clone();
    let entry = match line {
        Line::Run(_) => Entry::RunStarted(run),
        Line::Level(part) => Entry::Level(run, Box::new(part.row)),
        Line::Ladder(part) => Entry::Ladder(run, Box::new(part.row)),
        Line::Probe(part) => Entry::Probe(run, Box::new(part.row)),
    };
    Ok((!known).then_some(entry))
}

fn next_line(lines: &mut dyn BufRead, number: u64) -> Result<Option<String>, ImportError> {
    use io::Read as _;
    let mut bytes = Vec::new();
    let read = lines.take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes).map_err(ImportError::Io)?;
    if read as u64 == LINE_BYTES_MAX {
        return Err(ImportError::Line(number, format!("is longer than {LINE_BYTES_MAX} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| ImportError::Line(number, "is not UTF-8".into()))?;
    Ok((read > 0).then_some(text))
}

fn flush(transaction: &Transaction<'_>, batch: &mut Vec<Entry>) -> Result<(), ImportError> {
    write_all(transaction, batch)?;
    batch.clear();
    Ok(())
}

impl From<rusqlite::Error> for ImportError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number, message) => write!(f, "line {number} {message}"),
            Self::Io(error) => write!(f, "{error}"),
            Self::Sqlite(error) => write!(f, "the archive: {error}"),
        }
    }
}

impl std::error::Error for ImportError {}
