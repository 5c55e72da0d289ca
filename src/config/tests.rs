//! Whole files: those under `tests/config/valid` and `config/` are read, those under `tests/config/invalid`
//! give the errors of their snapshots.

use std::{env::VarError, fs, path::Path};

use chrono::{DateTime, Utc};
use secrecy::ExposeSecret;
use toml::de::DeTable;

use super::{diagnostic::Notes, section::Section, *};

fn environment(name: &str) -> Result<String, VarError> {
    match name {
        "GATEWAY_API_KEY" => Ok("sk-environment-0123456789".to_owned()),
        "EMPTY" => Ok("  \n".to_owned()),
        _ => Err(VarError::NotPresent),
    }
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("test.toml"), &environment)
}

/// Reads a file of this repository under its relative name, so that snapshots are the same everywhere.
fn read(file: &str) -> Result<Config, ConfigError> {
    Config::parse(&fs::read_to_string(file).unwrap(), Path::new(file), &environment)
}

fn files(directory: &str) -> Vec<String> {
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect();
    files.retain(|file| Path::new(file).extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty(), "{directory}");
    files
}

fn snapshot(name: &str, text: &str) {
    insta::with_settings!({
        snapshot_path => "../../tests/config/snapshots",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, text) });
}

#[test]
fn invalid_files_say_what_is_wrong() {
    for file in files("tests/config/invalid") {
        let error = read(&file).expect_err(&file).to_string();
        assert!(!error.contains("hunter2"), "{file} shows its secret: {error}");
        assert!(error.starts_with(&file), "{file}: {error}");
        snapshot(Path::new(&file).file_stem().unwrap().to_str().unwrap(), &error);
    }
}

#[test]
fn valid_files_are_read() {
    for file in files("tests/config/valid") {
        read(&file).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Each example says what must be set, and warns of nothing once it is.
#[test]
fn the_examples_can_be_used() {
    for file in files("config/examples") {
        let text = fs::read_to_string(&file).unwrap();
        let names = std::cell::RefCell::new(Vec::new());
        let everything = |name: &str| {
            names.borrow_mut().push(name.to_owned());
            Ok(format!("value-of-{name}"))
        };
        let config =
            Config::parse(&text, Path::new(&file), &everything).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.warnings, [""; 0], "{file}");
        let head: String = text.lines().take_while(|line| line.starts_with('#')).collect();
        let optional = ["AWS_SESSION_TOKEN"];
        for name in names.take().iter().filter(|name| !optional.contains(&name.as_str())) {
            assert!(head.contains(name), "{file} does not say that {name} must be set");
        }
        let probed: Vec<_> =
            config.sweeps.iter().flat_map(|sweep| &sweep.targets).map(|(target, _)| &target.name).collect();
        for target in &config.targets {
            assert!(probed.contains(&&target.name), "{file}: nothing probes {}", target.name);
        }
    }
}

#[test]
fn the_shipped_file_runs_against_the_simulator() {
    let config = read("config/tokenprobe.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.warnings, [""; 0]);
    assert_eq!(config.targets[0].base_url.as_str(), "http://127.0.0.1:18999/v1");
    assert_eq!(config.targets[0].models, ["qwen3-8b".into(), "qwen3-14b".into()]);
}

#[test]
fn the_shipped_file_shows_every_key() {
    let file = "tests/config/valid/every_key.toml";
    let text = fs::read_to_string(file).unwrap();
    let notes = Notes::default();
    let table = DeTable::parse(&text).unwrap();
    let surroundings =
        target::Surroundings { environment: &environment, directory: Path::new("tests/config/valid") };
    document::read_document(Section::root(table.get_ref(), &notes), &surroundings);
    let shipped = fs::read_to_string("config/tokenprobe.toml").unwrap();
    let known = notes.known_keys();
    assert!(known.len() > 60, "{known:?}");
    for path in known.into_iter().filter(|path| !path.starts_with("defaults.")) {
        let key = path.rsplit('.').next().unwrap();
        let shown = [format!("{key} = "), format!("[{key}]"), format!("[[{key}]]")];
        assert!(
            shown.iter().any(|form| shipped.contains(form)),
            "config/tokenprobe.toml does not show {path}"
        );
    }
}

/// A person who takes the `#` from any one line has a configuration, or lacks only what the line names.
#[test]
fn every_key_shown_as_a_comment_can_be_used() {
    let shipped = fs::read_to_string("config/tokenprobe.toml").unwrap();
    let is_key = |line: &str| {
        line.starts_with('#') && line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
    };
    let shown: Vec<_> = shipped.lines().enumerate().filter(|(_, line)| is_key(line)).collect();
    assert!(shown.len() > 10, "{shown:?}");
    for (number, line) in shown {
        let lines = shipped.lines().enumerate().map(|(index, source)| match source {
            "every = \"1m\"" if line.starts_with("#schedule") => "",
            "concurrency = [1, 4]" if line.starts_with("#load") => "",
            source if index == number => source.trim_start_matches('#'),
            source => source,
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let Err(error) = parse(&text) else { continue };
        let lacks = [
            "GATEWAY_TOKEN is not set",
            "cannot read /run/secrets/gateway",
            "cannot read ca.pem",
            "cannot read prompts.jsonl",
            "AWS_SECRET_ACCESS_KEY are not set",
        ];
        let error = error.to_string();
        assert!(lacks.iter().any(|lack| error.contains(lack)), "{line}: {error}");
    }
}

#[test]
fn the_shipped_file_states_the_defaults() {
    let shipped = fs::read_to_string("config/tokenprobe.toml").unwrap();
    let uncommented = shipped.replace("\n#time_", "\ntime_").replace("\n#request_d", "\nrequest_d");
    let config =
        parse(&uncommented.replace("\n#output_", "\noutput_")).unwrap_or_else(|error| panic!("{error}"));
    let mut expected = Histograms::default();
    config.sweeps.iter().for_each(|sweep| expected.add_objectives(&sweep.objectives));
    assert_eq!(config.histograms, expected);
    assert_eq!(config.server, Server::default());
    let quick = config.sweep("quick").unwrap();
    assert_eq!(quick.level, LevelSettings { requests: 8, ..LevelSettings::default() });
    assert_eq!(quick.abort, Abort::default());
}

#[test]
fn every_key_arrives() {
    let config = read("tests/config/valid/every_key.toml").unwrap_or_else(|error| panic!("{error}"));
    let text =
        format!("{config:#?}\n{:#?}", config.targets.iter().map(|t| &t.extra_body).collect::<Vec<_>>());
    assert!(
        !text.contains("sk-environment") && !text.contains("file-key") && !text.contains("proxy-password")
    );
    snapshot("every_key", &text);
    let [one, two, ..] = &config.targets[..] else { panic!("two targets") };
    let key = |target: &Target| {
        let Credential::Keys(keys) = &target.credential else { panic!("{:?}", target.credential) };
        keys[0].reveal().expose_secret().to_owned()
    };
    assert_eq!((key(one).as_str(), key(two).as_str()), ("sk-environment-0123456789", "file-key-0123456789"));
    assert_eq!(one.base_url.join("/completions"), "https://host.example/api/completions");
    assert_eq!(one.extra_headers.len(), 2);
    assert_eq!(two.extra_body["stream_options"], Value::Null);
    assert_eq!(config.cells().len(), 3 * 3 + 2 * 2);
    let concurrency: Vec<_> = config.cells().iter().take(3).map(|cell| cell.concurrency).collect();
    assert_eq!(concurrency, [1, 4, 8]);
}

#[test]
fn unwise_files_warn() {
    let config = read("tests/config/valid/literal_key.toml").unwrap();
    let text = config.warnings.join("\n");
    assert!(!text.contains("sk-literal"), "{text}");
    snapshot("warnings", &text);
}

#[test]
fn a_file_that_is_no_toml_is_told_without_its_secrets() {
    let secret = "sk-canary-0123456789";
    for text in [
        format!("query = {{ k = \"{secret}\", k = \"2\" }}\n"),
        format!("api_key = [\n  \"{secret}\"\n  \"b\"]\n"),
        format!("api_key = \"\"\"\n{secret}\n\\q\"\"\"\n"),
        format!("[targets.query]\nsubscription = \"{secret}\" x\n"),
        format!("[targets.extra_body]\nuser = '{secret}\n"),
        format!("key = {secret}\n"),
        format!("query={{k={secret}}}\n"),
        format!("[targets.query]\nk={secret}\n"),
        format!("[targets.query]\nk=\"a\\\"{secret}\" x\n"),
        format!("[[targets]]\nquery = \"{secret}\"\n"),
        format!("[[targets]]\nextra_headers = [\"{secret}\"]\n"),
        format!("[[targets]]\nextra_body = \"{secret}\"\n"),
        format!("[[targets]]\ntoken_command = {{ command = [\"nonexist\", \"{secret}\"], x = 1 }}\n"),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(!error.contains("sk-canary"), "{error}");
    }
    let text = format!(
        "[[targets]]\nname = \"t\"\nbase_url = \"http://h/v1\"\nmodels = [\"m\"]\napi_key = {{ file = \"{secret}\" }}\n"
    );
    let error = parse(&text).unwrap_err().to_string();
    assert!(!error.contains("sk-canary") && error.contains("looks like the key itself"), "{error}");
}

#[test]
fn the_redactor_knows_every_secret() {
    let config = read("tests/config/valid/every_key.toml").unwrap_or_else(|error| panic!("{error}"));
    let text = "sk-environment-0123456789 file-key-0123456789 proxy-password search query-secret";
    assert_eq!(config.redactor().redact(text), "[redacted] [redacted] [redacted] search [redacted]");
}

#[test]
fn files_that_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let check = |path: &Path, expected: &str| {
        let error = Config::load(path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&directory.path().join("none.toml"), "there is no such file");
    check(directory.path(), "is a directory");
    let latin = directory.path().join("latin.toml");
    fs::write(&latin, b"# one\n# caf\xe9\n").unwrap();
    check(&latin, "not UTF-8 (first bad byte in line 2)");
}

#[test]
fn deadlines_that_were_not_written_are_cut_to_the_total() {
    let text = fs::read_to_string("tests/config/valid/smallest.toml").unwrap();
    let config = parse(&format!("{text}timeout = {{ total = \"3s\" }}\n")).unwrap();
    let timeouts = config.sweeps[0].level.timeouts;
    let three = Duration::from_secs(3);
    assert_eq!([timeouts.connect, timeouts.headers, timeouts.first_token, timeouts.stall], [three; 4]);
}

#[test]
fn the_plan_of_the_example() {
    let config = read("config/examples/gateway.toml").unwrap();
    let now: DateTime<Utc> = "2026-06-01T12:34:56Z".parse().unwrap();
    snapshot("plan_gateway", &Plan::new(&config, now).to_string());
}

proptest::proptest! {
    /// Whatever stands in the file, reading it ends in a configuration or an error.
    #[test]
    fn no_text_breaks_the_reader(
        key in "[a-z_]{1,12}",
        value in proptest::prelude::prop_oneof![
            proptest::prelude::Just("[]".to_owned()), proptest::prelude::Just("{}".to_owned()),
            "-?[0-9]{1,20}", "\"\\PC{0,12}\"", "[ \\PC]{0,20}",
        ],
        table in proptest::sample::select(vec!["", "[server]", "[histograms]", "[defaults]", "[[targets]]", "[[sweeps]]"]),
    ) {
        if let Err(error) = parse(&format!("{table}\n{key} = {value}\n")) {
            assert!(error.to_string().starts_with("test.toml:"), "{error}");
        }
    }

    /// A known key with any kind of value.
    #[test]
    fn no_value_breaks_a_known_key(
        line in 0_usize..60,
        value in proptest::sample::select(vec![
            "[]", "{}", "0", "-1", "1e400", "nan", "\"\"", "\"\u{4e2d}\"", "[[]]", "[{}]", "true", "1979-05-27", "\"\"\"\n\n\"\"\"",
        ]),
    ) {
        let text = fs::read_to_string("tests/config/valid/every_key.toml").unwrap();
        let lines = text.lines().enumerate().map(|(index, source)| match source.split_once(" = ") {
            Some((key, _)) if index == line => format!("{key} = {value}\n"),
            _ => format!("{source}\n"),
        });
        let changed: String = lines.collect();
        if let Err(error) = Config::parse(&changed, Path::new("tests/config/valid/every_key.toml"), &environment) {
            assert!(!error.is_empty() && error.to_string().contains(".toml:"), "{error}");
        }
    }
}
