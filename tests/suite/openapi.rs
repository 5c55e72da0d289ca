//! The API's description, held against what the program really answers.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{Daemon, Server, fixed};

/// Everything in which an answer differs from its schema.
fn differences(schema: &Value, value: &Value, document: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        return differences(target.expect(reference), value, document, at, found);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let matching = choices.iter().filter(|choice| {
            let mut found = Vec::new();
            differences(choice, value, document, at, &mut found);
            found.is_empty()
        });
        if matching.count() != 1 {
            let object = choices.iter().find(|choice| choice["type"] != "null").unwrap();
            found.push(format!("{at}: is not one of the choices"));
            differences(object, value, document, at, found);
        }
        return;
    }
    if schema["const"] != Value::Null && schema["const"] != *value {
        found.push(format!("{at}: {value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|names| !names.contains(value)) {
        found.push(format!("{at}: {value} is not among {}", schema["enum"]));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|name| is(value, name)) {
        found.push(format!("{at}: {value} is not {types:?}"));
    }
    if let Value::Array(elements) = value {
        for (index, element) in elements.iter().enumerate() {
            differences(&schema["items"], element, document, &format!("{at}[{index}]"), found);
        }
    }
    let Value::Object(members) = value else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(name) {
            found.push(format!("{at}: {name} is missing"));
        }
    }
    for (name, member) in members {
        let at = format!("{at}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => found.push(format!("{at}: is not described")),
            (Value::Null, other) => differences(other, member, document, &at, found),
            (property, _) => differences(property, member, document, &at, found),
        }
    }
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

async fn ask(daemon: &Daemon, path: &str) -> (u16, Value) {
    let (status, text) = daemon.get(path).await;
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}")))
}

async fn daemon(server: &Server) -> (Daemon, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        r#"
        [archive]
        path = "{}"
        [[targets]]
        name = "sim"
        base_url = "{}"
        models = ["fixed", "none"]
        [[sweeps]]
        name = "s"
        every = "1d"
        run_on_start = true
        targets = ["sim"]
        prompt_tokens = [50]
        concurrency = [1, 2]
        requests_per_level = 4
        max_tokens = 4
        objectives = {{ ttft = "1ms" }}
        "#,
        dir.path().join("a.db").display(),
        server.base_url()
    );
    (Daemon::start(&text, &["--web.enable-lifecycle"], &[]).await, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_as_the_api_describes_it() {
    let server = Server::start(|settings| settings.models = vec![fixed("fixed")]).await;
    let (daemon, _dir) = daemon(&server).await;
    daemon
        .until("the run is kept", async |daemon| {
            let (_, runs) = ask(daemon, "/api/v1/runs").await;
            runs["runs"][0]["result"].is_string()
        })
        .await;
    let (_, document) = ask(&daemon, "/api/v1/openapi.json").await;
    let asked = [
        ("/api/v1/openapi.json", "/api/v1/openapi.json"),
        ("/api/v1/status", "/api/v1/status"),
        ("/api/v1/models", "/api/v1/models"),
        ("/api/v1/sweeps", "/api/v1/sweeps"),
        ("/api/v1/history", "/api/v1/history?sweep=s&target=sim&model=fixed&prompt_tokens=50&concurrency=2"),
        ("/api/v1/failures", "/api/v1/failures?target=sim&model=none"),
        ("/api/v1/failures", "/api/v1/failures?run=1&limit=1"),
        ("/api/v1/runs", "/api/v1/runs?sweep=s"),
        ("/api/v1/runs/{id}", "/api/v1/runs/1"),
        ("/api/v1/runs/{id}", "/api/v1/runs/99"),
        ("/api/v1/configuration", "/api/v1/configuration"),
    ];
    let mut covered = BTreeSet::new();
    for (path, url) in asked {
        let (status, answer) = ask(&daemon, url).await;
        let schema = &document["paths"][path]["get"]["responses"][status.to_string()];
        let schema = &schema["content"]["application/json"]["schema"];
        assert!(schema.is_object(), "{url}: an answer of {status} is not described: {answer}");
        let mut found = Vec::new();
        differences(schema, &answer, &document, url, &mut found);
        assert!(found.is_empty(), "{}\n{answer:#}", found.join("\n"));
        covered.insert(path.to_owned());
    }
    let described = document["paths"].as_object().unwrap();
    let readable = described.iter().filter(|(_, path)| path["get"].is_object()).map(|(path, _)| path.clone());
    assert_eq!(readable.collect::<BTreeSet<_>>(), covered, "every path is asked");

    // What was seen was not all empty.
    let (_, models) = ask(&daemon, "/api/v1/models").await;
    assert_eq!(models["models"][0]["state"], "slow");
    assert_eq!(models["models"][1]["state"], "failing");
    let (_, status) = ask(&daemon, "/api/v1/status").await;
    let left_out = status["cells"][3]["not_run"].as_str().unwrap();
    assert!(left_out.contains("model_not_found"), "{left_out}");
    let (_, history) = ask(&daemon, asked[4].1).await;
    assert_eq!(history["moments"][0]["requests"], 4);

    for verb in ["pause", "resume", "run"] {
        let path = format!("/api/v1/sweeps/{{name}}/{verb}");
        for name in ["s", "none"] {
            let (status, text) = daemon.post(&format!("/api/v1/sweeps/{name}/{verb}")).await;
            let described = &document["paths"][&path]["post"]["responses"][status.to_string()];
            assert!(described.is_object(), "{verb} {name}: {status} {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prober_without_an_archive_says_so() {
    let server = Server::start(|_| {}).await;
    let text = format!(
        "[[targets]]\nname = \"t\"\nbase_url = \"{}\"\nmodels = [\"fixed\"]\n[[sweeps]]\nname = \"s\"\nevery = \"1d\"\n\
         targets = [\"t\"]\nprompt_tokens = [50]\nconcurrency = [1]\n",
        server.base_url()
    );
    let daemon = Daemon::start(&text, &[], &[]).await;
    let (status, answer) = ask(&daemon, "/api/v1/runs").await;
    assert_eq!(status, 503);
    assert!(answer["error"].as_str().unwrap().contains("[archive]"), "{answer}");
    for path in ["/", "/model?target=t&model=fixed", "/failures", "/runs"] {
        assert_eq!(daemon.get(path).await.0, 200, "{path}");
    }
    assert!(
        daemon.get("/model?target=t&model=fixed").await.1.contains("nothing is kept: set path in [archive]")
    );
    assert_eq!(daemon.get("/model?target=t&model=none").await.0, 404);
    assert_eq!(daemon.get("/run").await.0, 400);
}
