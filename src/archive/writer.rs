//! The one thread that writes, behind a bounded queue. Whoever measures never waits for it.
//!
//! A write that fails is tried again, with growing pauses, while the queue takes what comes and counts what no
//! longer fits. A file whose content is broken is set aside and a new one begun.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, Thread},
    time::Duration,
};

use chrono::Utc;
use rusqlite::ErrorCode;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    retention,
    row::Entry,
    schema::{self, ArchiveError},
    store::Store,
};
use crate::config::ArchiveSettings;

/// Entries that may wait to be written.
const QUEUE_MAX: usize = 8192;
/// Entries written as one transaction.
const BATCH_MAX: usize = 512;
/// How often old entries are looked for.
const TEND_PERIOD: Duration = Duration::from_secs(60);
/// Steps of giving up old entries at a time.
const TEND_STEPS_MAX: u32 = 10;
/// First and longest pause after a write that failed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// Broken files that are kept; a disk that breaks every file must not be filled with them.
const SET_ASIDE_MAX: usize = 5;

/// The queue's end that entries are put into.
#[derive(Debug)]
pub struct Archive {
    sender: SyncSender<Entry>,
    writer: Thread,
    closing: Arc<AtomicBool>,
    closed: oneshot::Receiver<()>,
    health: Arc<Health>,
}

/// How the writing goes; shared with the thread that does it.
#[derive(Debug, Default)]
pub struct Health {
    dropped_queue_full: AtomicU64,
    dropped_unwritten: AtomicU64,
    write_failures: AtomicU64,
    /// 0: nothing tried yet, 1: the last write failed, 2: it succeeded.
    state: AtomicU8,
    size: AtomicU64,
}

/// How the writing goes, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Entries that found the queue full.
    pub dropped_queue_full: u64,
    /// Entries that were given up because they could not be written.
    pub dropped_unwritten: u64,
    /// Attempts to write that failed.
    pub write_failures: u64,
    /// Whether the last attempt succeeded; unknown before the first.
    pub up: Option<bool>,
    /// Size of the file in bytes; unknown before it was opened.
    pub size_bytes: Option<u64>,
}

impl Archive {
    /// Starts the thread. The file itself is opened by it, so that a bad one holds nobody up.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn start(path: PathBuf, settings: ArchiveSettings) -> io::Result<Self> {
        let (sender, inbox) = sync_channel(QUEUE_MAX);
        let (done, closed) = oneshot::channel();
        let (health, closing) = (Arc::<Health>::default(), Arc::<AtomicBool>::default());
        let writer = Writer {
            path,
            settings,
            health: health.clone(),
            closing: closing.clone(),
            store: None,
            pause: BACKOFF.0,
            tended: None,
        };
        let thread = thread::Builder::new().name("archive".into()).spawn(move || {
            writer.run(&inbox);
            let _ = done.send(());
        })?;
        Ok(Self { sender, writer: thread.thread().clone(), closing, closed, health })
    }

    /// Hands an entry over; counts it as dropped when the queue is full. Never waits.
    pub fn put(&self, entry: Entry) {
        if self.sender.try_send(entry).is_err() {
            self.health.dropped_queue_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How the writing goes.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.health.standing()
    }

    /// Writes what is waiting, for as long as `within` at most. What cannot be written is counted as dropped.
    pub async fn close(self, within: Duration) -> Standing {
        drop(self.sender);
        self.closing.store(true, Ordering::Release);
        // It may be pausing after a failure.
        self.writer.unpark();
        if timeout(within, self.closed).await.is_err() {
            tracing::error!("the archive could not be written to its end in time");
        }
        self.health.standing()
    }
}

impl Health {
    fn standing(&self) -> Standing {
        let size = self.size.load(Ordering::Relaxed);
        Standing {
            dropped_queue_full: self.dropped_queue_full.load(Ordering::Relaxed),
            dropped_unwritten: self.dropped_unwritten.load(Ordering::Relaxed),
            write_failures: self.write_failures.load(Ordering::Relaxed),
            up: match self.state.load(Ordering::Relaxed) {
                0 => None,
                state => Some(state == 2),
            },
            size_bytes: (size > 0).then_some(size),
        }
    }

    /// Takes note of a success; `true` when the attempt before it failed.
    fn succeeded(&self) -> bool {
        self.state.swap(2, Ordering::Relaxed) == 1
    }

    /// Takes note of a failure; `true` when it is the first in a row.
    fn failed(&self) -> bool {
        self.write_failures.fetch_add(1, Ordering::Relaxed);
        self.state.swap(1, Ordering::Relaxed) != 1
    }
}

struct Writer {
    path: PathBuf,
    settings: ArchiveSettings,
    health: Arc<Health>,
    closing: Arc<AtomicBool>,
    store: Option<Store>,
    pause: Duration,
    tended: Option<Instant>,
}

impl Writer {
    fn run(mut self, inbox: &Receiver<Entry>) {
        // Opened before anything is to be written: what is wrong with it shows at the start.
        self.deliver(Vec::new());
        loop {
            match inbox.recv_timeout(TEND_PERIOD) {
                Ok(first) => {
                    let more = inbox.try_iter().take(BATCH_MAX - 1);
                    let batch = std::iter::once(first).chain(more).collect();
                    self.deliver(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tend();
        }
    }

    /// Writes a batch, however long it takes; gives it up only when the program ends.
    fn deliver(&mut self, mut batch: Vec<Entry>) {
        loop {
            let error = match self.attempt(&batch) {
                Ok(()) => return self.delivered(batch),
                Err(error) => error,
            };
            self.store = None;
            let first = self.health.failed();
            if error.is_corruption() && self.set_aside(&error) {
                continue;
            }
            if is_refusal(&error) {
                if batch.len() > 1 {
                    batch.drain(..).for_each(|entry| self.deliver(vec![entry]));
                    return;
                }
                tracing::error!(%error, "an entry cannot be archived and is dropped");
                return self.give_up(&batch);
            }
            if first {
                tracing::error!(%error, "cannot write the archive, trying on; probing goes on without it");
            }
            if self.closing.load(Ordering::Acquire) {
                return self.give_up(&batch);
            }
            thread::park_timeout(self.pause);
            self.pause = (self.pause * 2).min(BACKOFF.1);
        }
    }

    fn attempt(&mut self, batch: &[Entry]) -> Result<(), ArchiveError> {
        // Somebody may have moved the file away; what is written into it then, nobody will find.
        let store = match self.store.take_if(|_| self.path.exists()) {
            Some(store) => store,
            None => schema::open(&self.path)?,
        };
        let store = self.store.insert(store);
        let written = if batch.is_empty() { Ok(()) } else { store.write(batch) };
        written.map_err(|error| ArchiveError::Sqlite(self.path.clone(), error))
    }

    fn delivered(&mut self, batch: Vec<Entry>) {
        self.pause = BACKOFF.0;
        if self.health.succeeded() {
            tracing::info!(archive = %self.path.display(), "the archive is written again");
        }
        for entry in batch {
            match entry {
                Entry::Level(run, level) => tracing::debug!(
                    run = run.uid,
                    sweep = run.sweep,
                    target = level.target,
                    model = level.model,
                    prompt_tokens = level.prompt_tokens,
                    load = %level.load(),
                    "level archived"
                ),
                // Whoever waited may have given up.
                Entry::Mark(reached) => drop(reached.send(())),
                Entry::RunStarted(_)
                | Entry::Probe(..)
                | Entry::Ladder(..)
                | Entry::RunEnded { .. }
                | Entry::Note { .. } => {}
            }
        }
    }

    fn give_up(&self, batch: &[Entry]) {
        self.health.dropped_unwritten.fetch_add(batch.len() as u64, Ordering::Relaxed);
    }

    /// Renames a broken file, with what belongs to it, out of the way of a new one.
    fn set_aside(&self, error: &ArchiveError) -> bool {
        let aside = aside_name(&self.path, &Utc::now().format("%Y%m%dT%H%M%S%3fZ").to_string());
        if set_aside_before(&self.path) >= SET_ASIDE_MAX || fs::rename(&self.path, &aside).is_err() {
            return false;
        }
        for suffix in ["-wal", "-shm"] {
            // A broken log left behind would be played into the new file.
            let _ = fs::rename(with_suffix(&self.path, suffix), with_suffix(&aside, suffix));
        }
        tracing::error!(%error, aside = %aside.display(), "the archive is broken: set aside, a new one is begun");
        true
    }

    fn tend(&mut self) {
        let due = self.tended.is_none_or(|at| at.elapsed() >= TEND_PERIOD);
        let Some(store) = self.store.as_ref().filter(|_| due) else { return };
        self.tended = Some(Instant::now());
        for _ in 0..TEND_STEPS_MAX {
            match retention::step(store, &self.settings, Utc::now().timestamp_millis()) {
                Ok(step) => {
                    self.health.size.store(step.size, Ordering::Relaxed);
                    if !step.more {
                        return;
                    }
                }
                Err(error) => {
                    // The next write meets the same and mends it.
                    tracing::debug!(%error, "old entries of the archive were not given up");
                    return;
                }
            }
        }
        // Much is to be given up: go on soon, but let what waits be written first.
        self.tended = None;
    }
}

/// Whether this entry, not the file, is at fault: writing it again would fail again.
fn is_refusal(error: &ArchiveError) -> bool {
    let ArchiveError::Sqlite(_, error) = error else { return false };
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig)
    )
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn aside_name(path: &Path, date: &str) -> PathBuf {
    with_suffix(path, &format!(".corrupt-{date}"))
}

/// How many broken files lie beside this one.
fn set_aside_before(path: &Path) -> usize {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { return 0 };
    let prefix = format!("{name}.corrupt-");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with(&prefix) && !name.ends_with("-wal") && !name.ends_with("-shm"))
        .count()
}
