use std::{
    fs,
    io::{Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use tempfile::TempDir;

use super::{retention, schema::open, *};
use crate::{
    analysis::{
        Basis, Decided, Finding, Found, Interval, Knee, LevelSummary, Little, PercentileIntervals,
        Percentiles, Scaling, Traits,
    },
    cell::Cell,
    config::{ArchiveSettings, BaseUrl, Config, Redactor, Sweep, Target},
    measurement::{Failure, FailureClass, GapSketch, Measurement, Outcome, Timeline},
    probe::TraceId,
    protocol::Protocol,
    sweep::{Event, LadderReport, NotRun, Role, SweepResult},
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn start() -> DateTime<Utc> {
    at("2026-06-01T12:00:00Z")
}

fn sweep(name: &str) -> Arc<Sweep> {
    let base_url = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let target = Target::ad_hoc(base_url, Protocol::OpenAiChat, vec![Arc::from("m")]);
    let mut sweep = Sweep::ad_hoc(Arc::new(target), vec![100], vec![1, 2]);
    sweep.name = Arc::from(name);
    Arc::new(sweep)
}

fn cell(sweep: &Sweep, concurrency: u32) -> Arc<Cell> {
    Arc::new(sweep.cells().find(|cell| cell.concurrency == concurrency).unwrap())
}

fn summary(concurrency: u32, ttft: f64) -> LevelSummary {
    let of = |p50| {
        Some(Percentiles {
            count: 3,
            mean: p50,
            p50,
            p95: p50,
            p99: p50,
            // Exact in four bytes.
            intervals: PercentileIntervals {
                p50: Interval::new(0.0625, 0.25),
                ..PercentileIntervals::default()
            },
        })
    };
    LevelSummary {
        offered: None,
        little: Some(Little { in_flight: 1.96, holds: true }),
        throughput_standard_error: Some(1.5),
        traits: Traits {
            connections_opened: 2,
            output_tokens_p50: Some(64.0),
            served_models: [u64::MAX, 7].into(),
            ..Traits::default()
        },
        engine: None,
        concurrency,
        requests: 4,
        ok: 3,
        failures: [(FailureClass::Timeout, 1)].into(),
        ttft_seconds: of(ttft),
        first_answer_token_seconds: of(ttft + 0.1),
        tpot_seconds: of(0.01),
        request_tps: of(100.0),
        duration_seconds: of(1.0),
        throughput_tokens_per_second: Some(50.0),
        throughput_requests_per_second: Some(2.0),
        prompt_tokens_measured: Some(101.5),
        cached_ratio: None,
        client_saturated: Some(false),
        incomplete: false,
    }
}

fn good(ttft_millis: u64) -> Measurement {
    let millis = Duration::from_millis;
    let timeline = Timeline {
        first_answer_token: Some(millis(ttft_millis)),
        last_token: Some(millis(500)),
        end: millis(510),
        ..Timeline::default()
    };
    Measurement { served_model: Some("m-1".into()), ..Measurement::bare(Outcome::Ok, timeline) }
}

fn bad() -> Measurement {
    let failure = Failure {
        class: FailureClass::Timeout,
        subclass: Some("first_token".into()),
        http_status: Some(200),
        retry_after: None,
        message: "no token within 60s".into(),
    };
    Measurement::bare(
        Outcome::Error(failure),
        Timeline { end: Duration::from_secs(60), ..Timeline::default() },
    )
}

/// One whole run of a sweep that starts at `now`: two levels, of which the second was not run when `cut`.
fn run(sweep: &Arc<Sweep>, now: DateTime<Utc>, ttft: f64, cut: bool) -> Vec<Entry> {
    let mut recorder = Recorder::default();
    let started = recorder.started(&sweep.name, run_plan(sweep, &Redactor::default()), now);
    let mut entries = vec![Entry::RunStarted(started)];
    let mut levels = Vec::new();
    let mut observe = |event: Event, seconds| {
        entries.extend(recorder.observe(&event, now + TimeDelta::seconds(seconds)));
    };
    for concurrency in if cut { 1..=1 } else { 1..=2 } {
        let cell = cell(sweep, concurrency);
        observe(Event::LevelStarted { cell: cell.clone(), requests: 4 }, 1);
        let probe = |role, measurement| {
            let (measurement, trace_id) = (Box::new(measurement), TraceId::random());
            Event::Probed { cell: cell.clone(), role, measurement, trace_id }
        };
        observe(probe(Role::WarmUp, good(900)), 2);
        for ttft_millis in [100, 110, 120] {
            observe(probe(Role::Measured, good(ttft_millis)), 3);
        }
        observe(probe(Role::Measured, bad()), 4);
        levels.push(summary(concurrency, ttft));
        let summary = Box::new(summary(concurrency, ttft));
        observe(Event::LevelEnded { cell, summary, delays: Box::new(GapSketch::default()) }, 5);
    }
    let not_run =
        NotRun { concurrency: 2, rate: None, reason: "3 of 4 requests failed at concurrency 1".into() };
    let report = LadderReport {
        sweep: sweep.name.clone(),
        target: sweep.targets[0].0.name.clone(),
        model: Arc::from("m"),
        prompt_tokens: 100,
        levels,
        not_run: if cut { vec![not_run] } else { Vec::new() },
        knee: Knee::Found(1),
        decided: Some(Decided::Gain { to: 2, gain: 0.1, interval: Interval { low: None, high: Some(0.2) } }),
        safe_concurrency: Some(1),
        safe_rate: None,
        scaling: Some(law()),
        growth: None,
        control: None,
        findings: vec![knee_found()],
    };
    observe(Event::LadderEnded { report: Box::new(report) }, 6);
    entries.extend(recorder.ended(&sweep.name, SweepResult::Completed, now + TimeDelta::seconds(7)));
    entries
}

fn law() -> Scaling {
    Scaling {
        gamma: 40.0,
        contention: 0.1,
        coherency: 0.0,
        peak_concurrency: None,
        peak_throughput: Some(400.0),
        r_squared: 0.99,
    }
}

fn knee_found() -> Found {
    let evidence = [("gain".into(), 0.1)].into();
    Found { finding: Finding::ThroughputKnee, level: Some(1), rate: None, evidence, basis: Basis::Observed }
}

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("archive.db")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn lines(store: &Store) -> String {
    let runs = store.runs(&RunFilter::default()).unwrap();
    let mut out = Vec::new();
    export(store, &runs, ExportFormat::Jsonl, true, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_run_comes_back_as_it_was() {
    let place = Place::new();
    let mut store = open(&place.file()).unwrap();
    store.write(&run(&sweep("s"), start(), 0.11, false)).unwrap();
    drop(store);
    let store = open_existing(&place.file()).unwrap();
    let listed = store.runs(&RunFilter::default()).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].levels, listed[0].requests, listed[0].ok), (2, 8, 6));
    assert_eq!(listed[0].run.result.as_deref(), Some("completed"));
    assert_eq!(listed[0].run.ended_at, Some((start() + TimeDelta::seconds(7)).timestamp_millis()));
    assert_eq!(listed[0].run.plan["concurrency"], serde_json::json!([1, 2]));
    let record = store.run(listed[0].id).unwrap().unwrap();
    assert_eq!(record.levels[0].served_model.as_deref(), Some("m-1"));
    let report = record.report();
    assert_eq!(report.result, SweepResult::Completed);
    assert_eq!(report.ladders[0].levels, [summary(1, 0.11), summary(2, 0.11)]);
    assert_eq!((report.ladders[0].knee, report.ladders[0].safe_concurrency), (Knee::Found(1), Some(1)));
    assert_eq!(
        report.ladders[0].decided,
        Some(Decided::Gain { to: 2, gain: 0.1, interval: Interval { low: None, high: Some(0.2) } })
    );
    assert_eq!(report.ladders[0].scaling, Some(law()));
    assert_eq!(report.ladders[0].findings, [knee_found()]);
    let sketch = record.levels[0].ttft_sketch.as_ref().unwrap();
    assert_eq!(sketch.count(), 3);
    let text = lines(&store);
    assert_eq!(text.matches("\"role\":\"measured\"").count(), 8, "warm-ups that went well are not kept");
    assert!(text.contains("no token within 60s"), "failures in full");
}

#[test]
fn a_sketch_is_exact_to_a_thousandth_and_small() {
    let samples: Vec<f64> = (1..=40).map(|n| 0.1 + f64::from(n) * 0.0031).collect();
    let sketch = Sketch::of(samples.iter().copied()).unwrap();
    let bytes = sketch.to_bytes();
    assert!(bytes.len() < 300, "{} bytes", bytes.len());
    let mut back = Sketch::from_bytes(&bytes).unwrap();
    for ((value, count), sample) in back.samples().into_iter().zip(&samples) {
        assert_eq!(count, 1);
        assert!((value / sample - 1.0).abs() < 0.001, "{value} for {sample}");
    }
    back.merge(&Sketch::of([40.0]).unwrap());
    assert_eq!(back.count(), 41);
    assert!((back.quantile(1.0) / 40.0 - 1.0).abs() < 0.001);
    assert!((back.quantile(0.5) / samples[20] - 1.0).abs() < 0.001);
    assert_eq!(Sketch::of([]), None);
    assert_eq!(Sketch::from_bytes(b"something else"), None);
}

#[test]
fn an_export_is_taken_in_once_and_whole() {
    let (place, other) = (Place::new(), Place::new());
    let mut store = open(&place.file()).unwrap();
    store.write(&run(&sweep("s"), start(), 0.11, false)).unwrap();
    store.write(&run(&sweep("s"), start() + TimeDelta::hours(1), 0.12, true)).unwrap();
    let text = lines(&store);
    let mut copy = open(&other.file()).unwrap();
    let cut = &text[..text.len() - 20];
    let error = import(&mut copy, &mut cut.as_bytes()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("line {} ", text.lines().count())), "{error}");
    assert!(copy.runs(&RunFilter::default()).unwrap().is_empty(), "all or nothing");
    let imported = import(&mut copy, &mut text.as_bytes()).unwrap();
    assert_eq!(imported, Imported { runs: 2, known: 0, levels: 3, probes: 12 });
    assert_eq!(lines(&copy), text);
    assert_eq!(
        import(&mut copy, &mut text.as_bytes()).unwrap(),
        Imported { known: 2, ..Imported::default() }
    );
    assert_eq!(lines(&copy), text);
    let orphan = text.lines().nth(1).unwrap();
    assert!(import(&mut copy, &mut orphan.as_bytes()).unwrap_err().to_string().contains("line 1"));
}

#[test]
fn a_text_that_a_server_chose_is_no_formula_of_a_spreadsheet() {
    let place = Place::new();
    let mut store = open(&place.file()).unwrap();
    let mut entries = run(&sweep("s"), start(), 0.11, true);
    for entry in &mut entries {
        if let Entry::Level(_, level) = entry {
            level.served_model = Some("=HYPERLINK(\"http://evil.example\")".into());
        }
    }
    store.write(&entries).unwrap();
    let runs = store.runs(&RunFilter::default()).unwrap();
    let mut table = Vec::new();
    export(&store, &runs, ExportFormat::Csv, true, &mut table).unwrap();
    let text = String::from_utf8(table).unwrap();
    assert!(text.contains("\"'=HYPERLINK("), "{text}");
    // The run of longest ago is none, not the latest.
    let ago: Selector = "4294967295 weeks ago".parse().unwrap();
    assert!(ago.find(&store, None, start()).is_err());
}

#[test]
fn what_steers_a_terminal_is_not_imported() {
    let place = Place::new();
    let mut store = open(&place.file()).unwrap();
    store.write(&run(&sweep("s"), start(), 0.11, true)).unwrap();
    let runs = store.runs(&RunFilter::default()).unwrap();
    let mut lines = Vec::new();
    export(&store, &runs, ExportFormat::Jsonl, true, &mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let other = Place::new();
    let mut other = open(&other.file()).unwrap();
    for evil in ["\\u001b[31m", "\\u0000", "\u{9b}31m", "\\u007F"] {
        let lines = lines.replace("\"m-1\"", &format!("\"m-1{evil}\""));
        let error = import(&mut other, &mut lines.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("control characters"), "{evil}: {error}");
    }
    assert_eq!(import(&mut other, &mut lines.as_bytes()).unwrap().runs, 1);
}

#[test]
fn a_text_that_is_named_as_the_archive_stays_what_it_is() {
    let place = Place::new();
    for text in ["[archive]\npath = \"self.toml\"\n", "-----BEGIN PRIVATE KEY-----\n", "grün\n"] {
        fs::write(place.file(), text).unwrap();
        assert!(matches!(open(&place.file()), Err(ArchiveError::Other(_))), "{text}");
        assert!(matches!(open_existing(&place.file()), Err(ArchiveError::Other(_))), "{text}");
        assert_eq!(fs::read_to_string(place.file()).unwrap(), text);
    }
}

#[test]
fn csv_and_parquet_hold_the_same_table() {
    use parquet::{
        file::reader::{FileReader as _, SerializedFileReader},
        record::Field,
    };
    let place = Place::new();
    let mut store = open(&place.file()).unwrap();
    store.write(&run(&sweep("s"), start(), 0.11, false)).unwrap();
    store.write(&run(&sweep("s"), start() + TimeDelta::hours(1), 0.12, true)).unwrap();
    let runs = store.runs(&RunFilter::default()).unwrap();
    let written = |format| {
        let mut table = Vec::new();
        export(&store, &runs, format, true, &mut table).unwrap();
        table
    };
    let text = written(ExportFormat::Csv);
    let mut csv = csv::Reader::from_reader(text.as_slice());
    let parquet = SerializedFileReader::new(bytes::Bytes::from(written(ExportFormat::Parquet))).unwrap();
    let names = csv.headers().unwrap().clone();
    let lines: Vec<_> = csv.records().map(Result::unwrap).collect();
    let rows: Vec<_> = parquet.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!((lines.len(), rows.len()), (3, 3));
    for (line, row) in lines.iter().zip(&rows) {
        for ((text, name), (column, field)) in line.iter().zip(&names).zip(row.get_column_iter()) {
            assert_eq!(column, name);
            #[expect(clippy::wildcard_enum_match_arm, reason = "no column is of another kind")]
            let shown = match field {
                Field::Null => String::new(),
                Field::Str(text) => text.clone(),
                Field::Double(number) => number.to_string(),
                Field::TimestampMillis(at) => chrono::DateTime::from_timestamp_millis(*at)
                    .unwrap()
                    .to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
                Field::Long(number) => number.to_string(),
                Field::Bool(flag) => flag.to_string(),
                _ => panic!("{name}: {field:?}"),
            };
            assert_eq!(shown, text, "{name}");
        }
    }
}

#[test]
fn the_plan_holds_no_secret() {
    let environment = |_: &str| Ok("sk-canary-7f3a91c2".to_owned());
    let text = r#"
        [[targets]]
        name = "t"
        base_url = "http://127.0.0.1:1/v1"
        models = ["m"]
        api_key = { env = "KEY" }
        extra_body = { note = "sk-canary-7f3a91c2", session_key = "hunter2", top_k = 1 }
        extra_headers = { X-Token = { env = "KEY" } }
        proxy = "http://user:hunter2@proxy.example:3128"
        [[sweeps]]
        name = "s"
        every = "1m"
        targets = ["t"]
        prompt_tokens = [100]
        concurrency = [1]
    "#;
    let config = Config::parse(text, Path::new("t.toml"), &environment).unwrap();
    let plan = run_plan(&config.sweeps[0], &config.redactor()).to_string();
    assert!(!plan.contains("canary") && !plan.contains("hunter2"), "{plan}");
    assert!(plan.contains("\"x-token\"") && plan.contains("\"top_k\":1"), "{plan}");
}

#[test]
fn a_restart_shows_the_last_whole_levels_with_their_times() {
    let place = Place::new();
    let (kept, gone) = (sweep("kept"), sweep("gone"));
    let mut store = open(&place.file()).unwrap();
    let later = start() + TimeDelta::hours(1);
    store.write(&run(&kept, start(), 0.11, false)).unwrap();
    store.write(&run(&gone, later, 0.5, false)).unwrap();
    let mut killed = run(&kept, later, 0.12, false);
    killed.truncate(killed.iter().position(|entry| matches!(entry, Entry::Level(..))).unwrap() + 1);
    store.write(&killed).unwrap();
    let recalled = Recalled::from_file(&place.file(), std::slice::from_ref(&kept)).unwrap();
    let cells: Vec<_> = recalled
        .cells
        .iter()
        .map(|cell| (cell.cell.concurrency, cell.summary.ttft_seconds.unwrap().p50, cell.ended_at))
        .collect();
    let after = TimeDelta::seconds(5);
    assert_eq!(cells, [(1, 0.12, later + after), (2, 0.11, start() + after)]);
    assert_eq!(recalled.ladders.len(), 1);
    let sweeps = &recalled.sweeps;
    assert_eq!(sweeps.len(), 1);
    assert_eq!(sweeps[0].last_start, later);
    assert_eq!(sweeps[0].last_ended, Some((start(), start() + TimeDelta::seconds(7), "completed".into())));

    // A level that the last ladder left out for a reason is not shown again.
    store.write(&run(&kept, later + TimeDelta::hours(1), 0.13, true)).unwrap();
    let recalled = store.recall(std::slice::from_ref(&kept)).unwrap();
    assert_eq!(recalled.cells.iter().map(|cell| cell.cell.concurrency).collect::<Vec<_>>(), [1]);
    let nothing = Recalled::from_file(&place.dir.path().join("none.db"), &[kept]).unwrap();
    assert!(nothing.cells.is_empty());
}

/// A file as the first published program left it, with one run of one level and its ladder.
const FIRST: &str = "
    INSERT INTO plans VALUES (1, '{}');
    INSERT INTO runs VALUES (1, 'a', 's', 1780315200000, 1780315207000, 'completed', '0.1.0', 'r', 1);
    INSERT INTO levels (run_id, target, model, prompt_tokens, concurrency, started_at, ended_at, requests, ok,
                        ttft_count, ttft_mean, ttft_p50, ttft_p95, ttft_p99, incomplete)
    VALUES (1, 't', 'm', 100, 1, 1780315200000, 1780315205000, 4, 4, 4, 0.1, 0.1, 0.2, 0.2, 0);
    INSERT INTO ladders (run_id, target, model, prompt_tokens, ended_at, state, whole, report)
    VALUES (1, 't', 'm', 100, 1780315206000, 'not_reached', 1, '{}');";

#[test]
fn a_file_of_an_older_program_is_brought_up_to_date() {
    let steps = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];
    for version in 1..=steps.len() {
        let place = Place::new();
        let connection = rusqlite::Connection::open(place.file()).unwrap();
        connection.execute_batch(&steps[..version].concat()).unwrap();
        connection.execute_batch(FIRST).unwrap();
        let marks = format!("PRAGMA application_id = 1953459056; PRAGMA user_version = {version}");
        connection.execute_batch(&marks).unwrap();
        drop(connection);
        // Even by one who only wants to read.
        let mut store = open_existing(&place.file()).unwrap();
        assert!(store.recall(&[]).unwrap().notes.is_empty());
        let now = "user_version";
        let now: i32 = store.connection.pragma_query_value(None, now, |row| row.get(0)).unwrap();
        assert_eq!(now, 3);
        let report = store.run(1).unwrap().unwrap().report();
        let level = &report.ladders[0].levels[0];
        assert!((level.ttft_seconds.unwrap().p95 - 0.2).abs() < 1e-9);
        assert_eq!((level.little, level.throughput_standard_error), (None, None));
        assert_eq!((report.ladders[0].knee, &report.ladders[0].decided), (Knee::NotReached, &None));
        store.write(&run(&sweep("s"), start(), 0.11, false)).unwrap();
        assert_eq!(store.run(2).unwrap().unwrap().report().ladders[0].levels[0], summary(1, 0.11));
    }
}

#[tokio::test]
async fn notes_come_back_the_latest_of_each_name() {
    let place = Place::new();
    let keeper = Keeper::start(place.file(), ArchiveSettings::default()).unwrap();
    keeper.note("spent", &[1, 2], start());
    keeper.note("spent", &[1, 3], start());
    keeper.note("calibration", &"m", start());
    keeper.close(Duration::from_secs(20)).await;
    let notes = Recalled::from_file(&place.file(), &[]).unwrap().notes;
    assert_eq!(serde_json::to_string(&notes).unwrap(), "{\"calibration\":\"m\",\"spent\":[1,3]}");
}

#[test]
fn what_is_old_or_too_much_is_given_up_the_oldest_first() {
    let place = Place::new();
    let mut store = open(&place.file()).unwrap();
    for day in 0..10 {
        store.write(&run(&sweep("s"), start() + TimeDelta::days(day), 0.1, false)).unwrap();
    }
    let now = (start() + TimeDelta::days(10)).timestamp_millis();
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let settings = ArchiveSettings { measurements: days(3), runs: days(5), ..ArchiveSettings::default() };
    while retention::step(&store, &settings, now).unwrap().more {}
    let count = |what: &str| {
        let count: i64 =
            store.connection.query_row(&format!("SELECT count(*) FROM {what}"), [], |r| r.get(0)).unwrap();
        count
    };
    assert_eq!(count("runs"), 5);
    assert_eq!(count("levels"), 10);
    assert_eq!(count("probes WHERE class IS NULL"), 3 * 6 - 6 + 6);
    assert_eq!(count("probes WHERE class IS NOT NULL"), 5 * 2);
    assert_eq!(count("plans"), 1);

    let small = ArchiveSettings { size_max: 1, ..settings };
    while retention::step(&store, &small, now).unwrap().more {}
    assert_eq!(count("probes WHERE class IS NULL"), 0, "measurements go before runs");
    assert_eq!(count("runs"), 1, "the latest run stays");
}

/// Puts entries into a running archive and waits until they are written.
async fn keep(path: PathBuf, entries: Vec<Entry>) -> Standing {
    let archive = Archive::start(path, ArchiveSettings::default()).unwrap();
    for entry in entries {
        archive.put(entry);
    }
    archive.close(Duration::from_secs(20)).await
}

#[tokio::test]
async fn what_was_put_is_written_when_it_is_closed() {
    let place = Place::new();
    let standing = keep(place.file(), run(&sweep("s"), start(), 0.1, false)).await;
    assert_eq!((standing.up, standing.dropped_unwritten, standing.write_failures), (Some(true), 0, 0));
    assert_eq!(open_existing(&place.file()).unwrap().runs(&RunFilter::default()).unwrap()[0].levels, 2);
}

#[tokio::test]
async fn a_broken_file_is_set_aside_and_a_new_one_begun() {
    // Not a database at all; and one whose pages were overwritten.
    for garbage_at in [0, 4096] {
        let place = Place::new();
        open(&place.file()).unwrap().write(&run(&sweep("s"), start(), 0.1, false)).unwrap();
        let mut file = fs::OpenOptions::new().write(true).open(place.file()).unwrap();
        file.seek(std::io::SeekFrom::Start(garbage_at)).unwrap();
        file.write_all(&vec![0xA5; 64 * 1024]).unwrap();
        drop(file);
        let standing = keep(place.file(), run(&sweep("s"), start(), 0.2, false)).await;
        assert_eq!((standing.up, standing.dropped_unwritten), (Some(true), 0));
        let store = open_existing(&place.file()).unwrap();
        assert_eq!(store.runs(&RunFilter::default()).unwrap().len(), 1, "the run is in the new file, whole");
        assert!(
            place.names().iter().any(|name| name.starts_with("archive.db.corrupt-20")),
            "{:?}",
            place.names()
        );
    }
}

#[tokio::test]
async fn a_locked_file_is_written_once_it_is_free() {
    let place = Place::new();
    let locker = open(&place.file()).unwrap();
    locker.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let archive = Archive::start(place.file(), ArchiveSettings::default()).unwrap();
    for entry in run(&sweep("s"), start(), 0.1, false) {
        archive.put(entry);
    }
    while archive.standing().write_failures == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(archive.standing().up, Some(false));
    locker.connection.execute_batch("ROLLBACK").unwrap();
    while archive.standing().up != Some(true) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let standing = archive.close(Duration::from_secs(20)).await;
    assert_eq!((standing.dropped_queue_full, standing.dropped_unwritten), (0, 0));
    assert_eq!(locker.runs(&RunFilter::default()).unwrap()[0].levels, 2);
}

#[tokio::test]
async fn a_write_that_fails_costs_history_and_nothing_else() {
    let place = Place::new();
    let store = open(&place.file()).unwrap();
    // Fails in the midst of a transaction, as a full disk does.
    store
        .connection
        .execute_batch(
            "CREATE TRIGGER full BEFORE INSERT ON levels BEGIN SELECT abs(-9223372036854775808); END",
        )
        .unwrap();
    let standing = keep(place.file(), run(&sweep("s"), start(), 0.1, false)).await;
    assert!(standing.write_failures > 0);
    assert!(standing.dropped_unwritten > 0);
    store.connection.execute_batch("DROP TRIGGER full").unwrap();
    assert_eq!(keep(place.file(), run(&sweep("s"), start(), 0.1, false)).await.dropped_unwritten, 0);
}

#[tokio::test]
async fn files_of_others_and_of_the_future_are_left_alone() {
    for (statements, words) in [
        ("CREATE TABLE bookmarks (url TEXT)", "no archive of tokenprobe"),
        ("PRAGMA application_id = 1953459056; PRAGMA user_version = 99", "newer tokenprobe"),
    ] {
        let place = Place::new();
        rusqlite::Connection::open(place.file()).unwrap().execute_batch(statements).unwrap();
        let before = fs::read(place.file()).unwrap();
        let error = open(&place.file()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        let entries = run(&sweep("s"), start(), 0.1, false);
        let count = entries.len() as u64;
        assert_eq!(keep(place.file(), entries).await.dropped_unwritten, count);
        assert_eq!(fs::read(place.file()).unwrap(), before);
        assert_eq!(place.names(), ["archive.db"]);
    }
    let missing = open_existing(Path::new("no/such.db")).unwrap_err().to_string();
    assert!(missing.contains("--archive"), "{missing}");
}

#[test]
fn runs_are_found_by_what_people_call_them() {
    let place = Place::new();
    let mut store = open(&place.file()).unwrap();
    for day in 0..10 {
        store.write(&run(&sweep("s"), start() + TimeDelta::days(day), 0.1, false)).unwrap();
    }
    store
        .write(&run(&sweep("other"), start() + TimeDelta::days(9) + TimeDelta::hours(1), 0.1, false))
        .unwrap();
    let now = start() + TimeDelta::days(9) + TimeDelta::hours(2);
    for (text, sweep, expect) in [
        ("3", None, Some(3)),
        ("#3", None, Some(3)),
        ("99", None, None),
        ("latest", None, Some(11)),
        ("latest", Some("s"), Some(10)),
        ("previous", Some("s"), Some(9)),
        ("last week", Some("s"), Some(3)),
        ("Yesterday", None, Some(9)),
        ("2 days 1h ago", None, Some(8)),
        ("2026-06-04", None, Some(4)),
        ("2026-05-04", None, None),
        ("2026-06-04T11:59:59Z", None, Some(3)),
        ("2026-06-04T12:00:00Z", None, Some(4)),
        ("2026-06-04t14:00:00+02:00", None, Some(4)),
    ] {
        let selector: Selector = text.parse().unwrap();
        let found = selector.find(&store, sweep, now).ok().map(|listing| listing.id);
        assert_eq!(found, expect, "{text} of {sweep:?}");
    }
    for (text, told) in [("last week", "7 days ago or earlier"), ("2 days 1h ago", "2days 1h ago or earlier")]
    {
        assert_eq!(text.parse::<Selector>().unwrap().to_string(), told);
    }
    assert!("next week".parse::<Selector>().unwrap_err().contains("last week"));
}

/// A level of 40 requests whose latencies scatter as they do.
fn measured_level(cell: &Cell, at: i64) -> LevelRow {
    let samples = |middle: f64| (0..40).map(|_| middle * (0.9 + 0.3 * fastrand::f64())).collect::<Vec<_>>();
    let (ttft, tpot, duration) = (samples(0.2), samples(0.02), samples(1.5));
    let tps = tpot.iter().map(|seconds| 1.0 / seconds).collect();
    let traits = Traits {
        output_tokens_p50: Some(64.0),
        served_models: [fastrand::u64(..)].into(),
        ..Traits::default()
    };
    let summary = LevelSummary {
        requests: 40,
        ok: 40,
        failures: std::collections::BTreeMap::new(),
        ttft_seconds: Percentiles::of(ttft.clone()),
        first_answer_token_seconds: Percentiles::of(ttft.clone()),
        tpot_seconds: Percentiles::of(tpot.clone()),
        request_tps: Percentiles::of(tps),
        duration_seconds: Percentiles::of(duration.clone()),
        traits,
        ..summary(cell.concurrency, 0.2)
    };
    LevelRow {
        ttft_sketch: Sketch::of(ttft),
        tpot_sketch: Sketch::of(tpot),
        duration_sketch: Sketch::of(duration),
        ..LevelRow::new(cell, &summary, at, at)
    }
}

/// Five models, four prompt lengths, four levels: 80 cells.
fn year_sweep() -> Arc<Sweep> {
    let base_url = BaseUrl::parse("http://127.0.0.1:9/v1").unwrap();
    let models: Vec<Arc<str>> = (0..5).map(|model| Arc::from(format!("model-{model}"))).collect();
    let target = Target { name: "gateway".into(), ..Target::ad_hoc(base_url, Protocol::OpenAiChat, models) };
    let mut sweep = Sweep::ad_hoc(Arc::new(target), vec![1000, 4000, 16_000, 32_000], vec![1, 4, 8, 16]);
    sweep.name = Arc::from("hourly");
    Arc::new(sweep)
}

const HOURS: i64 = 365 * 24;

/// A failure in every run, and the single measurements of the last day.
fn year_of_runs(store: &mut Store, sweep: &Arc<Sweep>) {
    let plan = run_plan(sweep, &Redactor::default());
    let cells: Vec<Cell> = sweep.cells().collect();
    let begin = Utc::now() - TimeDelta::days(365);
    for hour in 0..HOURS {
        let mut recorder = Recorder::default();
        let now = begin + TimeDelta::hours(hour);
        let run = recorder.started(&sweep.name, plan.clone(), now);
        let mut entries = vec![Entry::RunStarted(run.clone())];
        for ladder in cells
            .chunk_by(|one, other| (&one.model, one.prompt_tokens) == (&other.model, other.prompt_tokens))
        {
            let at = now.timestamp_millis();
            entries.extend(
                ladder.iter().map(|cell| Entry::Level(run.clone(), Box::new(measured_level(cell, at)))),
            );
            let report = LadderReport {
                sweep: sweep.name.clone(),
                target: ladder[0].target.clone(),
                model: ladder[0].model.clone(),
                prompt_tokens: ladder[0].prompt_tokens,
                levels: vec![summary(1, 0.2)],
                not_run: Vec::new(),
                knee: Knee::Found(8),
                decided: Some(Decided::Gain { to: 16, gain: 0.1, interval: Interval::new(0.05, 0.15) }),
                safe_concurrency: Some(5),
                safe_rate: None,
                growth: None,
                control: None,
                scaling: Some(law()),
                findings: vec![knee_found(), knee_found()],
            };
            entries.extend(recorder.observe(&Event::LadderEnded { report: Box::new(report) }, now));
        }
        let mut probe = |index: usize, measurement: Measurement| {
            let (cell, measurement) = (Arc::new(cells[index % 80].clone()), Box::new(measurement));
            let trace_id = TraceId::random();
            recorder.observe(&Event::Probed { cell, role: Role::Measured, measurement, trace_id }, now)
        };
        entries.extend(probe(usize::try_from(hour).unwrap(), bad()));
        if hour >= HOURS - 24 {
            entries.extend((0..80 * 40).filter_map(|index| probe(index, good(fastrand::u64(150..400)))));
        }
        entries.extend(recorder.ended(&sweep.name, SweepResult::Completed, now));
        store.write(&entries).unwrap();
    }
}

/// What the pages ask of a year of hourly sweeps of 80 cells; `TOKENPROBE_YEAR` names a file that is to stay. The release
/// build is what is measured: `cargo test --release --lib a_year -- --ignored --nocapture`.
#[test]
#[ignore = "writes a gigabyte"]
#[allow(clippy::disallowed_methods, reason = "a test's own switch")]
fn a_year_of_hourly_sweeps_is_read_quickly() {
    let place = Place::new();
    let path = std::env::var("TOKENPROBE_YEAR").map_or_else(|_| place.file(), PathBuf::from);
    let sweep = year_sweep();
    let mut store = open(&path).unwrap();
    if store.runs(&RunFilter { limit: Some(1), ..RunFilter::default() }).unwrap().is_empty() {
        year_of_runs(&mut store, &sweep);
    }
    println!("file: {} MB", retention::size(&store).unwrap() / 1_000_000);
    drop(store);
    let store = open_existing(&path).unwrap();
    let timed = |what: &str, work: &dyn Fn()| {
        let begun = tokio::time::Instant::now();
        work();
        println!("{what}: {:?}", begun.elapsed());
        begun.elapsed()
    };
    let cells: Vec<Cell> = sweep.cells().collect();
    let latest = |limit| RunFilter { limit: Some(limit), ..RunFilter::default() };
    let failures =
        |limit, filter: FailureFilter| store.failures(&FailureFilter { limit, ..filter }).unwrap().len();
    let model = Some(("gateway".to_owned(), "model-3".to_owned()));
    let of_model = FailureFilter { model, ..FailureFilter::default() };
    let of_run = FailureFilter { run: Some(HOURS), ..FailureFilter::default() };
    timed("restart: last levels of all cells", &|| {
        assert_eq!(store.recall(std::slice::from_ref(&sweep)).unwrap().cells.len(), 80);
    });
    let asked = [
        timed("trends of all cells", &|| {
            for cell in &cells {
                assert_eq!(store.moments(cell, (0, i64::MAX), 48).unwrap().len(), 48);
            }
        }),
        timed("a year of one cell, thinned", &|| {
            let moments = store.moments(&cells[40], (0, i64::MAX), 20_000).unwrap();
            assert_eq!(moments.len(), usize::try_from(HOURS).unwrap());
            assert!((250..=300).contains(&thin(&moments, 300).len()));
        }),
        timed("the latest 100 runs", &|| assert_eq!(store.runs(&latest(100)).unwrap().len(), 100)),
        timed("one whole run", &|| assert_eq!(store.run(4000).unwrap().unwrap().levels.len(), 80)),
        timed("the slowest probes of a run", &|| assert_eq!(store.slowest(HOURS, 10).unwrap().len(), 10)),
        timed("the failures of a run", &|| assert_eq!(failures(10, of_run.clone()), 1)),
        timed("the latest failures of a model", &|| assert_eq!(failures(20, of_model.clone()), 20)),
        timed("the latest failures of all", &|| assert_eq!(failures(100, FailureFilter::default()), 100)),
    ];
    assert!(asked.iter().all(|took| *took < Duration::from_millis(100)), "{asked:?}");
}
