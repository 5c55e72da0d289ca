//! Which run a person means: a number, `latest`, a date, `last week`, a saved baseline.
//!
//! Pure up to the look-up itself: now is an argument.

use std::{fmt, str::FromStr};

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use super::{
    read::{RunFilter, RunListing},
    store::Store,
};

/// A run, as it is named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By its number.
    Id(i64),
    /// The latest, the one before it, and so on.
    Latest(u32),
    /// The last of a day (UTC).
    Day(NaiveDate),
    /// The one that started last at or before this.
    At(DateTime<Utc>),
    /// The one that started last, this long ago or longer.
    Ago(TimeDelta),
    /// The one that was saved under a name.
    Baseline(String),
}

/// Why no run was found.
#[derive(Debug)]
pub enum SelectError {
    /// There is none.
    None(Selector),
    /// The file cannot be read.
    Sqlite(rusqlite::Error),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.trim().strip_prefix("baseline:") {
            return baseline_name(name).map(Self::Baseline);
        }
        let text = text.trim().to_ascii_lowercase();
        match text.as_str() {
            "latest" | "last" | "now" => return Ok(Self::Latest(0)),
            "previous" | "before" => return Ok(Self::Latest(1)),
            "yesterday" => return Ok(Self::Ago(TimeDelta::days(1))),
            "last week" | "last-week" => return Ok(Self::Ago(TimeDelta::days(7))),
            "last month" | "last-month" => return Ok(Self::Ago(TimeDelta::days(30))),
            _ => {}
        }
        if let Ok(id) = text.trim_start_matches('#').parse() {
            return Ok(Self::Id(id));
        }
        if let Ok(day) = text.parse() {
            return Ok(Self::Day(day));
        }
        if let Ok(at) = DateTime::parse_from_rfc3339(&text) {
            return Ok(Self::At(at.to_utc()));
        }
        let ago = text.strip_suffix("ago").and_then(|length| humantime::parse_duration(length.trim()).ok());
        ago.and_then(|length| TimeDelta::from_std(length).ok()).map(Self::Ago).ok_or_else(|| {
            "is not a run: write its number (`tokenprobe history` lists them), latest, previous, a date like \
             2026-06-01 or 2026-06-01T12:00:00Z, \"3 days ago\", yesterday, \"last week\", \"last month\", or baseline:NAME"
                .to_owned()
        })
    }
}

/// A name that a baseline may have.
///
/// # Errors
/// What it should be.
pub fn baseline_name(name: &str) -> Result<String, String> {
    let fits = |char: char| char.is_ascii_alphanumeric() || "._-/+@".contains(char);
    if name.is_empty() || name.len() > 100 || !name.chars().all(fits) {
        return Err("a baseline's name is made of letters, digits and . _ - / + @, 100 at most".to_owned());
    }
    Ok(name.to_owned())
}

impl Selector {
    /// The run that is meant, among those of `sweep` when it is named.
    ///
    /// # Errors
    /// There is none, or the file cannot be read.
    pub fn find(
        &self,
        store: &Store,
        sweep: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<RunListing, SelectError> {
        let filter = |from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>, limit| RunFilter {
            sweep: sweep.map(str::to_owned),
            from: from.map(|at| at.timestamp_millis()),
            to: to.map(|at| at.timestamp_millis().saturating_add(1)),
            limit: Some(limit),
        };
        let last_of = |filter: RunFilter| store.runs(&filter).map(|runs| runs.into_iter().next_back());
        let numbered = |id: i64| store.run(id).map(|run| run.map(|run| run.listing));
        let found = match self {
            Self::Id(id) => numbered(*id),
            Self::Baseline(name) => store.baseline(name).and_then(|id| id.map_or(Ok(None), numbered)),
            Self::Latest(nth) => {
                store.runs(&filter(None, None, nth + 1)).map(|runs| runs.into_iter().nth(*nth as usize))
            }
            Self::Day(day) => {
                let start = day.and_time(chrono::NaiveTime::MIN).and_utc();
                last_of(filter(Some(start), Some(start + TimeDelta::days(1) - TimeDelta::milliseconds(1)), 1))
            }
            Self::At(at) => last_of(filter(None, Some(*at), 1)),
            // Before all times there are, there was no run either.
            Self::Ago(length) => {
                now.checked_sub_signed(*length).map_or(Ok(None), |at| last_of(filter(None, Some(at), 1)))
            }
        };
        found.map_err(SelectError::Sqlite)?.ok_or_else(|| SelectError::None(self.clone()))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "with number {id}"),
            Self::Latest(0) => f.write_str("at all"),
            Self::Latest(nth) => write!(f, "{nth} before the latest"),
            Self::Day(day) => write!(f, "on {day} (UTC)"),
            Self::At(at) => write!(f, "at or before {at}"),
            Self::Ago(length) => {
                let length = humantime::format_duration(length.to_std().unwrap_or_default()).to_string();
                // `7days` is how it may be written, not how it is read.
                let gap =
                    length.find(|char: char| char.is_ascii_alphabetic()).filter(|_| !length.contains(' '));
                let (number, unit) = length.split_at(gap.unwrap_or(0));
                let space = if number.is_empty() { "" } else { " " };
                write!(f, "{number}{space}{unit} ago or earlier")
            }
            Self::Baseline(name) => write!(f, "saved as baseline {name}"),
        }
    }
}

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None(Selector::Baseline(name)) => {
                write!(f, "the archive has no baseline {name}; `tokenprobe baseline list` shows those it has")
            }
            Self::None(selector) => {
                write!(f, "the archive has no run {selector}; `tokenprobe history` lists them")
            }
            Self::Sqlite(error) => write!(f, "the archive cannot be read: {error}"),
        }
    }
}

impl std::error::Error for SelectError {}
