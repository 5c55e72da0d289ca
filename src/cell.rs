//! A cell: one point of a sweep's grid, and the labels every latency metric carries.

use std::{fmt, sync::Arc};

use crate::arrivals::Rate;

/// One point of the grid. Cells that differ only in their load form a ladder.
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
    /// Requests in flight; at a rate, the most there may be.
    pub concurrency: u32,
    /// Rate at which requests arrive, in an open loop.
    pub rate: Option<Rate>,
}

/// What tells the levels of a ladder apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Load {
    /// So many requests in flight: a closed loop.
    Concurrency(u32),
    /// So many requests per second: an open loop.
    Rate(Rate),
}

/// Names of the cell labels, in the order of [`Cell::labels`].
pub const CELL_LABELS: [&str; 6] = ["sweep", "target", "model", "prompt_tokens", "concurrency", "rate"];

impl Cell {
    /// Label values in the order of [`CELL_LABELS`]. A level has a concurrency or a rate; the other one is empty, which
    /// to Prometheus is the same as a label that is not there.
    #[must_use]
    pub fn labels(&self) -> [String; 6] {
        let (concurrency, rate) = match self.load() {
            Load::Concurrency(concurrency) => (concurrency.to_string(), String::new()),
            Load::Rate(rate) => (String::new(), rate.to_string()),
        };
        [
            self.sweep.to_string(),
            self.target.to_string(),
            self.model.to_string(),
            self.prompt_tokens.to_string(),
            concurrency,
            rate,
        ]
    }

    /// What tells it apart from the other cells of its ladder.
    #[must_use]
    pub fn load(&self) -> Load {
        Load::of(self.concurrency, self.rate)
    }
}

impl Load {
    /// The rate where there is one.
    #[must_use]
    pub fn of(concurrency: u32, rate: Option<Rate>) -> Self {
        rate.map_or(Self::Concurrency(concurrency), Self::Rate)
    }

    /// For a column that holds both kinds: `8`, `5/s`.
    #[must_use]
    pub fn short(self) -> String {
        match self {
            Self::Concurrency(concurrency) => concurrency.to_string(),
            Self::Rate(rate) => format!("{rate}/s"),
        }
    }
}

/// `concurrency 8`, `rate 5/s`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Concurrency(concurrency) => write!(f, "concurrency {concurrency}"),
            Self::Rate(rate) => write!(f, "rate {rate}/s"),
        }
    }
}
