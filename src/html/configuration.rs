//! A configuration as a table of paths and values.

use maud::{Markup, html};
use serde_json::Value;

use super::number::{grouped, latency};

/// Every setting of a JSON object; what is unset is left out.
#[must_use]
pub fn settings(caption: &str, value: &Value) -> Markup {
    let mut rows = Vec::new();
    flatten(String::new(), value, &mut rows);
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table.settings {
                caption.unseen { (caption) }
                tbody {
                    @for (path, text) in rows { tr { th scope="row" { code { (path) } } td { (text) } } }
                }
            }
        }
    }
}

fn flatten(path: String, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                flatten(if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, member, rows);
            }
        }
        Value::Array(elements)
            if elements.iter().all(|element| !element.is_object() && !element.is_array()) =>
        {
            let texts: Vec<String> = elements.iter().map(text).collect();
            if !texts.is_empty() {
                rows.push((path, texts.join(", ")));
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                flatten(format!("{path}[{index}]"), element, rows);
            }
        }
        Value::Null => {}
        Value::Number(number) if is_time(&path) => {
            let seconds = number.as_f64().unwrap_or_default();
            rows.push((path, latency(seconds)));
        }
        Value::Number(number) if path.ends_with("_bytes") => {
            let bytes = number.as_f64().unwrap_or_default();
            rows.push((path, format!("{} bytes", grouped(bytes))));
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => rows.push((path, text(value))),
    }
}

/// Whether a setting is a number of seconds.
fn is_time(path: &str) -> bool {
    path.starts_with("timeout.")
        || path.ends_with("_seconds")
        || ["objectives.ttft", "objectives.tpot", "objectives.duration"].contains(&path)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string().trim_end_matches(".0").to_owned(), str::to_owned)
}
