//! What was measured, on disk: one SQLite file that outlives restarts, `kill -9` and full disks.
//!
//! A [`Keeper`] turns a sweep's events into [`Entry`]s ([`Recorder`]) and queues them for the one thread that writes
//! ([`Archive`]);
//! [`Store`] is the file: written by that thread, read by `history`, `compare` and the daemon's start. Nothing here
//! makes a probe or the daemon's loop wait: a queue that is full or a file that cannot be written costs history, is
//! counted, and heals. Only what a level may come to is waited for, for two seconds at most, before it is spent.

mod details;
mod exchange;
mod history;
mod keeper;
mod owner;
mod pairing;
mod plan;
mod read;
mod recall;
mod recorder;
mod retention;
mod row;
mod schema;
mod select;
mod sketch;
mod store;
mod table;
mod writer;

#[cfg(test)]
mod tests;

pub use self::{
    details::{Details, LevelIntervals},
    exchange::{ExportFormat, ImportError, Imported, export, import},
    history::{Failed, FailureFilter, Moment, thin},
    keeper::Keeper,
    owner::Owner,
    pairing::{Difference, LikeCell, Part, differences, pair},
    plan::run_plan,
    read::{RunFilter, RunListing, SweepRecord},
    recall::{Recalled, RecalledCell, RecalledLadder, RecalledSweep},
    recorder::Recorder,
    row::{Entry, LadderRow, LevelRow, ProbeRow, RunRow, Spread},
    schema::{ArchiveError, is_of_others, open, open_existing},
    select::{SelectError, Selector, baseline_name},
    sketch::Sketch,
    store::Store,
    writer::{Archive, Health, Standing},
};
