//! Documents, rules and dashboards speak only of metrics and labels that exist, and what is generated is current.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

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

#[test]
fn only_metrics_and_labels_that_exist_are_spoken_of() {
    let mut checked = 0;
    for file in files(&["README.md", "deploy", "grafana"], &["md", "yaml", "json", "tpl"]) {
        let text = fs::read_to_string(&file).unwrap();
        for use_ in uses(&text) {
            checked += 1;
            let known = labels_of(&use_.name);
            assert!(known.is_some(), "{}: {} does not exist", file.display(), use_.name);
            for label in use_.labels {
                let exists = known.as_ref().is_some_and(|known| known.contains(label.as_str()));
                assert!(exists, "{}: {} has no label {label}", file.display(), use_.name);
            }
        }
        let records: BTreeSet<&str> = if file.extension().is_some_and(|extension| extension == "md") {
            BTreeSet::new()
        } else {
            text.split(|char: char| !(char.is_ascii_alphanumeric() || "_:".contains(char)))
                .filter(|word| word.matches(':').count() == 2 && word.contains(":tokenprobe_"))
                .collect()
        };
        let rules = fs::read_to_string("deploy/prometheus/rules/tokenprobe-recording.yaml").unwrap();
        for record in records {
            assert!(
                rules.contains(&format!("record: {record}\n")),
                "{}: {record} is not recorded",
                file.display()
            );
        }
    }
    assert!(checked > 100, "{checked} uses found");
}

#[test]
fn every_alert_has_its_runbook_and_its_proof() {
    let rules = fs::read_to_string("deploy/prometheus/rules/tokenprobe-alerts.yaml").unwrap();
    let runbooks = fs::read_to_string("deploy/runbooks.md").unwrap();
    let proofs = files(&["deploy/prometheus/tests"], &["yaml"]);
    let proofs: String = proofs.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    for alert in &alerts {
        assert!(runbooks.contains(&format!("\n## {alert}\n")), "{alert} has no runbook");
        assert!(
            rules.contains(&format!("runbooks.md#{}\n", alert.to_lowercase())),
            "{alert} names no runbook"
        );
        assert!(proofs.contains(&format!("alertname=\"{alert}\"")), "{alert} is never shown to fire");
    }
    let entries = runbooks.lines().filter_map(|line| line.strip_prefix("## "));
    assert_eq!(
        entries.collect::<BTreeSet<_>>(),
        alerts.iter().copied().collect(),
        "runbooks without an alert"
    );
}

/// The operator's resource cannot name a file, and kustomize does not read outside of its folder: hence a copy.
#[test]
fn the_rules_for_the_operator_are_those_of_prometheus() {
    let mut text = String::from("# Written by the tests from deploy/prometheus/rules.\n");
    for name in ["tokenprobe-alerts", "tokenprobe-recording"] {
        let rules = fs::read_to_string(format!("deploy/prometheus/rules/{name}.yaml")).unwrap();
        write!(
            text,
            "---\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: {name}\nspec:\n"
        )
        .unwrap();
        for line in rules.lines().skip_while(|line| line.starts_with('#')) {
            let indent = if line.is_empty() { "" } else { "  " };
            writeln!(text, "{indent}{line}").unwrap();
        }
    }
    rewrite(Path::new("deploy/kubernetes/prometheusrule.yaml"), &text);
}

/// A metric that a text names, with the labels that it names right behind.
struct Use {
    name: String,
    labels: Vec<String>,
}

fn uses(text: &str) -> Vec<Use> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("tokenprobe_") {
        let before = text[..at].chars().next_back();
        // Within a longer word, or within the name of a recording rule.
        if before.is_some_and(|char| char.is_ascii_alphanumeric() || "_:/".contains(char)) {
            continue;
        }
        let rest = &text[at..];
        let end =
            rest.find(|char: char| !(char.is_ascii_alphanumeric() || char == '_')).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        if name == "tokenprobe_" || rest.starts_with(':') {
            continue;
        }
        let selector = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
        let labels = selector.split(',').filter_map(|matcher| matcher.split(['=', '!']).next());
        let labels = labels.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
        found.push(Use { name: name.to_owned(), labels: labels.collect() });
    }
    found
}

/// Labels that a metric has in Prometheus; `None` when there is no such metric.
fn labels_of(name: &str) -> Option<BTreeSet<&'static str>> {
    let part = |suffix| {
        CATALOGUE
            .iter()
            .find(|spec| spec.kind == Kind::Histogram && name.strip_suffix(suffix) == Some(spec.name))
    };
    let whole = CATALOGUE.iter().find(|spec| spec.name == name);
    let spec = whole.or_else(|| ["_bucket", "_sum", "_count"].into_iter().find_map(part))?;
    let le = name.ends_with("_bucket").then_some("le");
    Some(spec.labels.iter().copied().chain(["job", "instance", "location"]).chain(le).collect())
}

/// Files below these paths with these extensions.
fn files(roots: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
    let mut waiting: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|each| extension == *each)) {
            found.push(path);
        }
    }
    found.sort();
    found
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
