//! The pages: what the snapshot and the archive say, as HTML that works without its script.
//!
//! Pure: snapshots and answers in, markup out. Links are relative, so that a proxy may put the pages under any path.

mod model;
mod overview;
mod records;
mod shell;

#[cfg(test)]
mod tests;

pub(super) use self::{
    model::{Asked, Chosen, ModelPage, model_page},
    overview::{Sought, overview},
    records::{configuration, failures, run, runs},
    shell::{Shell, excuse},
};

/// The script: live progress, buttons that stay on the page, ranges drawn in a chart. Nothing needs it.
pub(super) const SCRIPT: &str = include_str!("live.js");

/// A query of names and values.
fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// Where a model's page is.
fn model_link(target: &str, model: &str) -> String {
    format!("model?{}", query([("target", target), ("model", model)]))
}

/// A name as one segment of a path.
fn path_segment(name: &str) -> percent_encoding::PercentEncode<'_> {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
}
