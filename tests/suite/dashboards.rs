//! The dashboards are what their generator writes, and keep the rules of grafana/dashboard-linter and of our own.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;

#[test]
fn the_dashboards_are_what_the_generator_writes() {
    succeeds(&["grafana/generate.py", "--check"]);
}

#[test]
fn the_dashboards_keep_the_rules_of_the_published_linter() {
    succeeds(&["grafana/lint.py"]);
}

#[test]
fn the_lists_of_the_proof_are_current() {
    succeeds(&["deploy/prove", "--check"]);
}

/// Without Python nothing can be said here; `.ci/run` brings it and asks again.
fn succeeds(arguments: &[&str]) {
    let Ok(output) = Command::new("python3").args(arguments).output() else {
        return;
    };
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn every_dashboard_can_be_found_linked_and_narrowed_down() {
    let mut uids = BTreeSet::new();
    for dashboard in dashboards() {
        let title = dashboard["title"].as_str().unwrap();
        assert!(uids.insert(dashboard["uid"].as_str().unwrap().to_owned()), "{title}: uid");
        assert_eq!(dashboard["editable"], false, "{title}: what is provisioned cannot be saved");
        assert_eq!(dashboard["links"][0]["tags"][0], "tokenprobe", "{title}");
        let variables: Vec<&Value> = dashboard["templating"]["list"].as_array().unwrap().iter().collect();
        let named = |name: &str| variables.iter().find(|variable| variable["name"] == name);
        for name in ["datasource", "job", "instance"] {
            assert!(named(name).is_some(), "{title}: variable {name}");
        }
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            assert_eq!(variable["refresh"], 2, "{title}: {} must follow the time range", variable["name"]);
            assert!(
                variable["multi"] == false || [".+", ".*"].iter().any(|every| variable["allValue"] == *every),
                "{title}: {}",
                variable["name"]
            );
        }
        let text = dashboard.to_string();
        for (at, _) in text.match_indices("var-") {
            let name = text[at + 4..].split('=').next().unwrap();
            assert!(["target", "model"].contains(&name), "{title}: a link sets {name}");
        }
    }
    assert_eq!(uids.len(), 5);
}

#[test]
fn every_panel_says_what_it_shows_and_has_a_place_of_its_own() {
    for dashboard in dashboards() {
        let mut taken = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            let place = &panel["gridPos"];
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| place[key].as_u64().unwrap());
            assert!(x + w <= 24, "{title}");
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{title} lies over another panel");
            }
            if panel["type"] == "row" {
                continue;
            }
            assert!(
                panel["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{title}: description"
            );
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{title}: no query");
        }
    }
}

fn dashboards() -> Vec<Value> {
    let files = fs::read_dir("grafana/dashboards").unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.map(|file| serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()).collect()
}
