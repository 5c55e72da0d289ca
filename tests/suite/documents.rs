//! Documents, rules and dashboards speak only of metrics and labels that exist, and what is generated is current.

use std::{fmt::Write as _, fs, path::Path};

use tokenprobe::metrics::names::{CATALOGUE, Kind, Spec};

const CELL: [&str; 5] = ["sweep", "target", "model", "prompt_tokens", "concurrency"];
const LADDER: [&str; 4] = ["sweep", "target", "model", "prompt_tokens"];

#[test]
fn the_readme_lists_every_metric() {
    let (begin, end) =
        ("<!-- metrics: written by the tests from src/metrics/names.rs -->\n", "<!-- metrics end -->");
    let text = fs::read_to_string("README.md").unwrap();
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    rewrite(Path::new("README.md"), &format!("{before}{begin}{}{end}{after}", table()));
}

/// Writes what is generated if it is not current, and fails so that somebody looks at it.
fn rewrite(path: &Path, current: &str) {
    if fs::read_to_string(path).is_ok_and(|text| text == current) {
        return;
    }
    fs::write(path, current).unwrap();
    panic!("{} was out of date and is rewritten: commit it", path.display());
}

fn table() -> String {
    let mut out = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for spec in CATALOGUE.iter().filter(|spec| spec.name.starts_with("tokenprobe_")) {
        let name = spec.name.trim_start_matches("tokenprobe_");
        let help = spec
            .help
            .trim_end_matches(" From tokenprobe's own probes on its schedule, not from user traffic.");
        let kind = match spec.kind {
            Kind::Summary => "gauge",
            Kind::Counter | Kind::Gauge | Kind::Histogram => spec.kind.as_str(),
        };
        writeln!(out, "| `{name}` | {kind} | {} | {help} |", labels(spec)).unwrap();
    }
    out
}

/// Label names, those of a cell or a ladder in one word.
fn labels(spec: &Spec) -> String {
    let (word, rest) = match spec.labels {
        labels if labels.starts_with(&CELL) => (Some("cell"), &labels[CELL.len()..]),
        labels if labels.starts_with(&LADDER) => (Some("ladder"), &labels[LADDER.len()..]),
        labels => (None, labels),
    };
    let rest = rest.iter().map(|label| format!("`{label}`"));
    word.map(str::to_owned).into_iter().chain(rest).collect::<Vec<_>>().join(", ")
}
