//! How long this process's threads were ready to run and others had the core.
//!
//! The kernel's own account (`/proc/self/task/*/schedstat`): it sees every wake-up, where a timer of ours only samples
//! some. Nothing where there is no such file.

use std::{collections::BTreeMap, fs, time::Duration};

/// A process is starved when others kept it waiting for at least this part of the time that it ran. One that shares its
/// core with a single busy loop waits about as long as it runs, however little that is; one that has its core for
/// itself, for less than a tenth of it.
const WAITED_PER_RUN: f64 = 0.25;
/// And for at least this part of the whole time: less delays nothing.
const WAITED_PER_SPAN: f64 = 0.005;

/// The account so far, thread by thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeptWaiting(BTreeMap<String, Account>);

/// What one thread did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Time on a core.
    pub(super) ran: Duration,
    /// Time ready and not on a core.
    pub(super) waited: Duration,
}

impl KeptWaiting {
    /// The account of this process; `None` where the kernel keeps none.
    pub(super) fn read() -> Option<Self> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
            // A thread may end while we look: what it did is missing then, and no harm is done.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let Some(account) = Account::parse(&text) else { continue };
            threads.insert(thread.file_name().to_string_lossy().into_owned(), account);
        }
        (!threads.is_empty()).then_some(Self(threads))
    }

    /// What came to it since an earlier account.
    pub(super) fn since(self, earlier: &Self) -> Self {
        let before = |thread: &String| earlier.0.get(thread).copied().unwrap_or_default();
        Self(self.0.into_iter().map(|(thread, now)| (thread.clone(), now.since(before(&thread)))).collect())
    }

    /// Whether others had too much of the process's cores during `span`.
    pub(super) fn is_starved(&self, span: Duration, cores: u32) -> bool {
        let waited = self.waited_for_others(cores).as_secs_f64();
        waited > self.ran().as_secs_f64() * WAITED_PER_RUN && waited > span.as_secs_f64() * WAITED_PER_SPAN
    }

    /// How long threads waited at least that cannot have been for one another: one waits for its kin only while they
    /// hold all the cores there are.
    fn waited_for_others(&self, cores: u32) -> Duration {
        let ran = self.ran();
        let by_others = |account: &Account| {
            let for_kin = ran.saturating_sub(account.ran) / cores.max(1);
            account.waited.saturating_sub(for_kin)
        };
        self.0.values().map(by_others).sum()
    }

    fn ran(&self) -> Duration {
        self.0.values().map(|account| account.ran).sum()
    }
}

impl Account {
    fn since(self, earlier: Self) -> Self {
        Self { ran: self.ran.saturating_sub(earlier.ran), waited: self.waited.saturating_sub(earlier.waited) }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Self { ran: Duration::from_nanos(next()?), waited: Duration::from_nanos(next()?) })
    }
}

impl<const N: usize> From<[Account; N]> for KeptWaiting {
    fn from(threads: [Account; N]) -> Self {
        Self((0..N).map(|thread| thread.to_string()).zip(threads).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether threads that ran and waited so many milliseconds of ten seconds were starved.
    fn check<const N: usize>(threads: [(u64, u64); N], cores: u32, starved: bool) {
        let accounts = threads.map(|(ran, waited)| Account {
            ran: Duration::from_millis(ran),
            waited: Duration::from_millis(waited),
        });
        let kept = KeptWaiting::from(accounts);
        assert_eq!(kept.is_starved(Duration::from_secs(10), cores), starved, "{threads:?} on {cores}");
    }

    #[test]
    fn who_waits_about_as_long_as_it_runs_is_starved() {
        check([(240, 190), (20, 20)], 1, true);
        check([(240, 4000), (20, 20)], 1, true);
        check([(240, 20), (20, 5)], 1, false);
    }

    #[test]
    fn waiting_for_ones_own_threads_is_no_starvation() {
        check([(5000, 3000), (4000, 4900)], 1, false);
        check([(500, 400), (500, 400)], 1, false);
        check([(500, 400), (500, 400)], 2, true);
    }

    #[test]
    fn what_delays_nothing_is_none() {
        check([(20, 30)], 1, false);
    }

    #[test]
    fn an_account_is_what_came_since() {
        let account =
            |ran, waited| Account { ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited) };
        assert_eq!(Account::parse("7 5 3\n"), Some(account(7, 5)));
        assert_eq!(Account::parse("7"), None);
        let (before, now) =
            (KeptWaiting::from([account(5, 5)]), KeptWaiting::from([account(7, 9), account(3, 1)]));
        assert_eq!(now.since(&before), KeptWaiting::from([account(2, 4), account(3, 1)]));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_an_account() {
        assert!(KeptWaiting::read().is_some_and(|kept| kept.ran() > Duration::ZERO));
    }
}
