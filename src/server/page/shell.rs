//! What every page has around it.

use chrono::{DateTime, Utc};
use maud::{DOCTYPE, Markup, html};

use crate::{
    html::span,
    server::{Readiness, Status},
};

/// What every page knows.
pub(in crate::server) struct Shell<'a> {
    /// The snapshot.
    pub(in crate::server) status: &'a Status,
    /// What the daemon does.
    pub(in crate::server) readiness: Readiness,
    /// Whether a visitor may run, pause and resume.
    pub(in crate::server) may_change: bool,
    /// Now.
    pub(in crate::server) now: DateTime<Utc>,
}

/// Pages that are reached from everywhere.
const PAGES: [(&str, &str); 4] =
    [(".", "Overview"), ("failures", "Failures"), ("runs", "Runs"), ("configuration", "Configuration")];

impl Shell<'_> {
    /// A whole page.
    pub(super) fn page(&self, title: &str, here: &str, content: &Markup) -> String {
        let (word, class) = match self.readiness {
            Readiness::Ready => ("ready", "good"),
            Readiness::Starting => ("starting", "warn"),
            Readiness::Draining => ("shutting down", "warn"),
        };
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) " · tokenprobe" }
                    link rel="icon" href="icon.svg";
                    link rel="stylesheet" href="page.css";
                    script src="live.js" defer {}
                    noscript { meta http-equiv="refresh" content="15"; }
                }
                body data-revision=(self.status.revision) {
                    a.skip href="#content" { "Skip to the content" }
                    header {
                        a.mark href="." { "tokenprobe" }
                        nav aria-label="Pages" {
                            @for (path, name) in PAGES {
                                @if path == here { a href=(path) aria-current="page" { (name) } } @else { a href=(path) { (name) } }
                            }
                        }
                        p.state {
                            @match self.status.leader {
                                Some(true) => span.badge.good { "leads" },
                                Some(false) => span.badge.idle title="another replica probes" { "stands by" },
                                None => {}
                            }
                            " " span class={ "badge " (class) } { (word) }
                        }
                    }
                    p #said .said role="status" aria-live="polite" {}
                    main #content tabindex="-1" { (content) }
                    footer {
                        p {
                            "tokenprobe " (self.status.version) " · up " (span(self.now - self.status.started_at))
                            " · measured by its own probes on their schedule, not from user traffic · times in UTC · "
                            span.low { "~" } " marks a percentile that rests on too few samples"
                        }
                        p { a href="metrics" { "metrics" } " " a href="api/v1/status" { "status as JSON" } " "
                            a href="api/v1/openapi.json" { "the API" } }
                    }
                }
            }
        };
        page.into_string()
    }
}

/// What cannot be shown, and why.
pub(in crate::server) fn excuse(shell: &Shell<'_>, title: &str, here: &str, why: &str) -> String {
    shell.page(title, here, &html! { h1 { (title) } p.none { (why) } })
}
