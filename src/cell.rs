//! A cell: one point of a sweep's grid, and the labels every latency metric carries.

use std::sync::Arc;

/// One point of the grid. Cells that differ only in `concurrency` form a ladder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell {
    /// Name of the sweep.
    pub sweep: Arc<str>,
    /// Name of the target.
    pub target: Arc<str>,
    /// Model, exactly as asked for.
    pub model: Arc<str>,
    /// Wanted prompt length in tokens.
    pub prompt_tokens: u32,
    /// Requests in flight.
    pub concurrency: u32,
}

/// Names of the cell labels, in the order of [`Cell::labels`].
pub const CELL_LABELS: [&str; 5] = ["sweep", "target", "model", "prompt_tokens", "concurrency"];

impl Cell {
    /// Label values in the order of [`CELL_LABELS`].
    #[must_use]
    pub fn labels(&self) -> [String; 5] {
        [
            self.sweep.to_string(),
            self.target.to_string(),
            self.model.to_string(),
            self.prompt_tokens.to_string(),
            self.concurrency.to_string(),
        ]
    }
}
