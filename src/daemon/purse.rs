//! Spending over restarts: what was spent is written beside the archive within a second, and read at the start.
//!
//! A crash loop must not get a fresh budget at every start. Writing has a task of its own, and a file that cannot be
//! read or written is told of and stops nothing.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::{budget::Spent, config::Config};

const SCHEMA: &str = "tokenprobe.budget/1";
/// How long the shutdown waits for the last writing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
struct Kept {
    schema: String,
    spent: Vec<Spent>,
}

/// Where spending is kept, if there is an archive to keep it beside.
#[derive(Debug)]
pub(super) struct Purse {
    latest: Option<watch::Sender<Vec<Spent>>>,
    writing: JoinSet<()>,
}

impl Purse {
    /// Reads what an earlier process spent, and begins to keep what this one spends.
    pub(super) fn open(config: &Config) -> (Self, Vec<Spent>) {
        let mut writing = JoinSet::new();
        let Some(archive) = &config.archive.path else { return (Self { latest: None, writing }, Vec::new()) };
        let path = beside(archive);
        let spent = read(&path).unwrap_or_else(|error| {
            tracing::error!(%error, file = %path.display(), "earlier spending is not known: budgets begin anew");
            Vec::new()
        });
        let (latest, changes) = watch::channel(spent.clone());
        writing.spawn(write_changes(path, changes));
        (Self { latest: Some(latest), writing }, spent)
    }

    /// Keeps this; nothing is written when nothing changed.
    pub(super) fn keep(&self, spent: Vec<Spent>) {
        if let Some(latest) = &self.latest {
            latest.send_if_modified(|kept| {
                let news = *kept != spent;
                *kept = spent;
                news
            });
        }
    }

    /// Writes what is not written yet.
    pub(super) async fn close(mut self) {
        drop(self.latest.take());
        let _ = timeout(CLOSE_TIMEOUT, async { while self.writing.join_next().await.is_some() {} }).await;
    }
}

/// `archive.db` is joined by `archive.db.budget.json`.
fn beside(archive: &Path) -> PathBuf {
    let mut path = OsString::from(archive);
    path.push(".budget.json");
    path.into()
}

fn read(path: &Path) -> std::io::Result<Vec<Spent>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let kept: Kept = serde_json::from_slice(&text)?;
    Ok(kept.spent)
}

async fn write_changes(path: PathBuf, mut changes: watch::Receiver<Vec<Spent>>) {
    let mut failed = false;
    // The last value is still seen after the sender is gone.
    while changes.changed().await.is_ok() {
        let kept = Kept { schema: SCHEMA.to_owned(), spent: changes.borrow_and_update().clone() };
        let path = path.clone();
        let written = tokio::task::spawn_blocking(move || write(&path, &kept)).await;
        let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        if let Err(error) = &written
            && !failed
        {
            tracing::error!(%error, "spending is not kept: after a restart budgets begin anew");
        }
        failed = written.is_err();
    }
}

/// As a whole or not at all: a file cut short would be no budget.
fn write(path: &Path, kept: &Kept) -> std::io::Result<()> {
    let mut fresh = OsString::from(path);
    fresh.push(".new");
    std::fs::write(&fresh, serde_json::to_vec(kept)?)?;
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_rubbish_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = beside(&dir.path().join("archive.db"));
        assert!(path.ends_with("archive.db.budget.json"));
        assert_eq!(read(&path).unwrap(), []);
        let spent = vec![Spent {
            scope: "sweep:a\"b".into(),
            period: "day".into(),
            start: 1,
            requests: 2,
            tokens: 3,
            cost: 0.1,
        }];
        let kept = Kept { schema: SCHEMA.into(), spent: spent.clone() };
        write(&path, &kept).unwrap();
        assert_eq!(read(&path).unwrap(), spent);
        std::fs::write(&path, "{").unwrap();
        assert!(read(&path).is_err());
    }
}
