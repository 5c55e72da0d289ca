//! Whether the configuration file has changed, for `--config.auto-reload`.
//!
//! By its content, so that neither a `touch` nor a clock matters, and through symbolic links, which is how Kubernetes
//! swaps mounted files. The decision is pure: it is told what the file holds now.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest as _, Sha256};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::config;

/// How often the file is looked at; a change is taken over at the second look.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks at the configuration file for as long as it lives.
#[derive(Debug)]
pub(super) struct Changes {
    changed: mpsc::Receiver<()>,
    _looking: JoinSet<()>,
}

impl Changes {
    /// Starts looking, from what the file holds now.
    pub(super) fn of(path: PathBuf) -> Self {
        // One reload waiting is as good as ten.
        let (sender, changed) = mpsc::channel(1);
        let mut looking = JoinSet::new();
        let mut watcher = Watcher::new(digest(&path));
        looking.spawn(async move {
            loop {
                sleep(LOOK_EVERY).await;
                let path = path.clone();
                let now = tokio::task::spawn_blocking(move || digest(&path)).await.ok().flatten();
                if watcher.look(now) {
                    let _ = sender.try_send(());
                }
            }
        });
        Self { changed, _looking: looking }
    }

    /// The next change.
    pub(super) async fn next(&mut self) {
        if self.changed.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// What the file held, as far as anybody looked.
#[derive(Debug)]
struct Watcher {
    /// What was taken over or refused last.
    settled: Digest,
    /// Something else, seen once: perhaps half written.
    fresh: Digest,
}

/// What a file holds; `None` while it cannot be read, as between the two steps of a swap.
type Digest = Option<[u8; 32]>;

/// Reads a file as it is now. Blocks.
fn digest(path: &Path) -> Digest {
    // A pipe would keep whoever opens it.
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    config::read_file(path).ok().map(|bytes| Sha256::digest(bytes).into())
}

impl Watcher {
    /// Starts from what is in force.
    fn new(settled: Digest) -> Self {
        Self { settled, fresh: None }
    }

    /// Whether it is time to reload: something new is there that did not change between two looks.
    fn look(&mut self, now: Digest) -> bool {
        if now.is_none() || now == self.settled {
            self.fresh = None;
            return false;
        }
        if self.fresh != now {
            self.fresh = now;
            return false;
        }
        // Whether it is any good or not: it is tried once.
        self.settled = self.fresh.take();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_once_it_stands_still() {
        let (a, b, c) = (Some([1; 32]), Some([2; 32]), Some([3; 32]));
        let mut watcher = Watcher::new(a);
        let looks = [
            (a, false),
            (b, false),
            (c, false),
            (None, false),
            (c, false),
            (c, true),
            (c, false),
            (a, false),
            (a, true),
        ];
        for (index, (now, expect)) in looks.into_iter().enumerate() {
            assert_eq!(watcher.look(now), expect, "look {index}");
        }
    }

    #[test]
    fn a_file_without_end_is_not_read() {
        assert_eq!(digest(Path::new("/dev/zero")), None);
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("long");
        std::fs::File::create(&long).unwrap().set_len(1 << 30).unwrap();
        assert_eq!(digest(&long), None);
    }

    #[test]
    fn a_swapped_link_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("tokenprobe.toml");
        for (version, text) in [("v1", "one"), ("v2", "two")] {
            std::fs::create_dir(dir.path().join(version)).unwrap();
            std::fs::write(dir.path().join(version).join("tokenprobe.toml"), text).unwrap();
        }
        // As Kubernetes does: tokenprobe.toml -> ..data/tokenprobe.toml, ..data -> v1, renamed over.
        let data = dir.path().join("..data");
        std::os::unix::fs::symlink("v1", &data).unwrap();
        std::os::unix::fs::symlink("..data/tokenprobe.toml", &link).unwrap();
        let mut watcher = Watcher::new(digest(&link));
        assert!(!watcher.look(digest(&link)));
        std::os::unix::fs::symlink("v2", dir.path().join("..new")).unwrap();
        std::fs::rename(dir.path().join("..new"), &data).unwrap();
        assert!(!watcher.look(digest(&link)));
        assert!(watcher.look(digest(&link)));
    }
}
