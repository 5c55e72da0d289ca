//! One daemon to a file: two would each have the whole budget, and neither would know what the other spends.
//!
//! The kernel forgets the claim with the process, however that ends. Commands that read the file, or write a run of their
//! own into it, need none.

use std::{
    fs::{File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
};

/// The claim to a file, until it is dropped.
#[derive(Debug)]
pub struct Owner(#[expect(dead_code, reason = "held for the lock that goes with it")] File);

impl Owner {
    /// Claims a file. `None` where that cannot be noted down: such a file cannot be written either.
    ///
    /// # Errors
    /// Another process has it: one line that says what to do.
    pub fn claim(archive: &Path) -> Result<Option<Self>, String> {
        // However the file is reached, it is one file.
        let path = note_beside(&resolved(archive));
        if std::fs::metadata(&path).is_ok_and(|note| !note.is_file()) {
            tracing::warn!(file = %path.display(), "no file: the archive is not claimed");
            return Ok(None);
        }
        let file = match OpenOptions::new().create(true).append(true).open(&path) {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!(%error, file = %path.display(), "the archive is not claimed");
                return Ok(None);
            }
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Err(format!(
                "another tokenprobe keeps its archive in {}: end it, or give this one a path of its own ([archive] path)",
                archive.display()
            )),
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, file = %path.display(), "the archive is not claimed");
                Ok(None)
            }
        }
    }
}

/// Where a file is, or will be, whatever links lead there.
fn resolved(archive: &Path) -> PathBuf {
    let parent = archive.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let in_parent = || Some(parent.canonicalize().ok()?.join(archive.file_name()?));
    archive.canonicalize().ok().or_else(in_parent).unwrap_or_else(|| archive.to_owned())
}

fn note_beside(archive: &Path) -> PathBuf {
    let mut name = archive.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
