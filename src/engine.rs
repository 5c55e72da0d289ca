//! What an inference engine says of itself in its Prometheus metrics, and what that makes of the client's times.
//!
//! Pure: texts and numbers in. Who fetches the text, and when, is the business of `probe` and `sweep`.

mod exposition;
mod names;
mod snapshot;
mod view;

#[cfg(test)]
mod tests;

pub use exposition::{Labels, Sample, samples};
pub use names::ENGINES;
pub use snapshot::Snapshot;
pub use view::{EngineView, FirstTokens, Part};
