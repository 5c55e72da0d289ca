//! The checklist: steps in order, each with what was seen and, where it failed, what to change.
//!
//! Pure. Knows nothing of how a step is carried out.

use std::fmt::Write as _;

use serde::Serialize;

/// The steps, in the order of diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Configuration,
    Dns,
    Tcp,
    Tls,
    Http,
    Credential,
    Model,
    Stream,
    Usage,
    Cache,
    #[serde(rename = "concurrency_2")]
    Concurrency2,
    #[serde(rename = "concurrency_4")]
    Concurrency4,
}

/// How a step came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Result {
    Ok,
    /// It works, and yet something is worth knowing.
    Warning,
    Failed,
}

/// One line of the checklist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) step: Step,
    pub(super) result: Result,
    /// What was seen.
    pub(super) detail: String,
    /// What to change; empty when nothing is known, or nothing need be.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) mend: String,
}

/// One model of one target.
#[derive(Debug, Serialize)]
pub(super) struct Checklist {
    pub(super) target: String,
    pub(super) base_url: String,
    pub(super) model: String,
    pub(super) ok: bool,
    pub(super) steps: Vec<Line>,
}

/// Everything that was checked.
#[derive(Debug, Serialize)]
pub(super) struct Checked<'a> {
    pub(super) schema: &'static str,
    pub(super) ok: bool,
    pub(super) checks: &'a [Checklist],
}

impl Line {
    pub(super) fn is_warning(&self) -> bool {
        self.result == Result::Warning
    }
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Dns => "DNS",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Http => "HTTP",
            Self::Credential => "credential",
            Self::Model => "model",
            Self::Stream => "stream",
            Self::Usage => "usage",
            Self::Cache => "cache",
            Self::Concurrency2 => "concurrency 2",
            Self::Concurrency4 => "concurrency 4",
        }
    }
}

/// Width of the column of names.
const NAMES_WIDTH: usize = 13;

impl Checklist {
    /// As a person reads it.
    pub(super) fn text(&self) -> String {
        let mut out = format!("{}  {}  {}\n", self.target, self.model, self.base_url);
        for line in &self.steps {
            let mark = match line.result {
                Result::Ok => '✓',
                Result::Warning => '!',
                Result::Failed => '✗',
            };
            let _ = writeln!(out, "  {mark} {:NAMES_WIDTH$}  {}", line.step.name(), line.detail);
            if !line.mend.is_empty() {
                let _ = writeln!(out, "    {:NAMES_WIDTH$}  -> {}", "", line.mend);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_aligned_and_a_mend_stands_below() {
        let line = |step, result, detail: &str, mend: &str| Line {
            step,
            result,
            detail: detail.into(),
            mend: mend.into(),
        };
        let list = Checklist {
            target: "gateway".into(),
            base_url: "https://llm.example.com/v1".into(),
            model: "m".into(),
            ok: false,
            steps: vec![
                line(Step::Dns, Result::Ok, "resolved in 1.2 ms", ""),
                line(Step::Concurrency2, Result::Warning, "slow", "wait"),
                line(Step::Credential, Result::Failed, "HTTP 401", "check the key"),
            ],
        };
        let expect = "gateway  m  https://llm.example.com/v1\n  \
                      ✓ DNS            resolved in 1.2 ms\n  \
                      ! concurrency 2  slow\n                   -> wait\n  \
                      ✗ credential     HTTP 401\n                   -> check the key\n";
        assert_eq!(list.text(), expect);
        let json = serde_json::to_value(&list).unwrap();
        assert_eq!(json["steps"][1]["step"], "concurrency_2");
        assert_eq!(json["steps"][2]["result"], "failed");
        assert_eq!(json["steps"][0].get("mend"), None);
    }
}
