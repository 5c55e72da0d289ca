//! How long this process's threads were ready to run and had to wait for a core.
//!
//! The kernel's own account (`/proc/self/task/*/schedstat`): it sees every wake-up, where a timer of ours only samples
//! some, and what it counts is nobody's fault but the machine's. Nothing where there is no such file.

use std::{fs, time::Duration};

/// A starved process waited at least this many times as long as it ran. One that loads its cores by itself waits
/// about as long as it runs; one that shares a core with a busy loop, five to twenty times.
const WAITS_PER_RUN: u32 = 3;
/// And it waited for at least this part of the time: one in twenty.
const PARTS_OF_SPAN: u32 = 20;

/// The account so far, summed over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct KeptWaiting {
    /// Time on a core.
    pub(super) ran: Duration,
    /// Time ready and not on a core.
    pub(super) waited: Duration,
}

impl KeptWaiting {
    /// The account of this process; `None` where the kernel keeps none.
    pub(super) fn read() -> Option<Self> {
        let mut sum = None;
        for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
            // A thread may end while we look: what it did is missing then, and no harm is done.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let Some(account) = Self::parse(&text) else { continue };
            let sum: &mut Self = sum.get_or_insert_default();
            sum.ran += account.ran;
            sum.waited += account.waited;
        }
        sum
    }

    /// What came to it since an earlier account.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self { ran: self.ran.saturating_sub(earlier.ran), waited: self.waited.saturating_sub(earlier.waited) }
    }

    /// Whether the process got too little of the machine during `span`.
    pub(super) fn is_starved(self, span: Duration) -> bool {
        self.waited > self.ran * WAITS_PER_RUN && self.waited > span / PARTS_OF_SPAN
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Self { ran: Duration::from_nanos(next()?), waited: Duration::from_nanos(next()?) })
    }
}
