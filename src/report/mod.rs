//! What a sweep found, as text people and programs read: a table, Markdown, CSV, JSON, HTML.
//!
//! Pure: a [`SweepReport`] in, text out. The JSON's shape is public API (`tokenprobe.sweep/1`).

mod account;
mod comparison;
mod html;
mod json;
mod markdown;
mod table;

#[cfg(test)]
mod tests;

pub use comparison::{Compared, RunName, comparison, comparison_json};
pub use html::{RunReport, comparison_body, document, run_body};
pub use json::{findings_value, ladder_value, sweep_json, sweep_value};
pub use markdown::run_markdown;
pub use table::{Style, csv, legend, table};

use crate::sweep::SweepReport;

/// A sweep's report with what identifies the run.
#[derive(Debug)]
pub struct Named<'a> {
    /// Name of the sweep; `ad-hoc` without a configuration.
    pub sweep: &'a str,
    /// RFC 3339.
    pub started_at: &'a str,
    /// What it found.
    pub report: &'a SweepReport,
}
