//! The archive as the surface reads it: opened for each question, read beside the threads that probe, by few at a time.

use std::{path::PathBuf, sync::Arc};

use tokio::sync::Semaphore;

use crate::archive::{ArchiveError, Store, open_existing};

/// Questions that are answered at a time: a page that is looked at by many must not take the machine from the probes.
const READERS_MAX: usize = 2;
/// And those that wait for their turn or have it: each holds a connection of the surface, which must answer scrapes.
const WAITING_MAX: usize = 32;

/// Where history is read; cheap to clone.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    readers: Semaphore,
    seats: Semaphore,
}

impl Memory {
    /// Of an archive's file; of none, nothing is remembered.
    #[must_use]
    pub fn new(path: Option<PathBuf>) -> Self {
        let (readers, seats) = (Semaphore::new(READERS_MAX), Semaphore::new(WAITING_MAX));
        Self(Arc::new(Inner { path, readers, seats }))
    }

    /// Whether anything is kept at all.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.0.path.is_some()
    }

    /// What an archive says.
    ///
    /// # Errors
    /// Why it says nothing, for whoever asked.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Store) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let path = self.0.path.clone().ok_or(
            "nothing is kept: set path in [archive], and history, runs and failures are shown here after the next sweep",
        )?;
        let Ok(_seat) = self.0.seats.try_acquire() else {
            return Err("many read the archive at this moment: try again in a second".into());
        };
        let turn = self.0.readers.acquire().await;
        let answered = tokio::task::spawn_blocking(move || {
            let store = open_existing(&path).map_err(|error| why(&error))?;
            question(&store).map_err(|error| format!("the archive cannot be read: {error}"))
        });
        let answer = answered.await.unwrap_or_else(|error| Err(format!("the archive was not read: {error}")));
        drop(turn);
        answer
    }
}

/// Why an archive is not read, for whoever looks at a page: the daemon is to write it, and says in its log why it cannot.
fn why(error: &ArchiveError) -> String {
    if let ArchiveError::Missing(path) = error {
        return format!(
            "there is no archive at {}: it could not be written so far, and the log says why",
            path.display()
        );
    }
    error.to_string()
}
