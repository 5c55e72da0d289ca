use chrono::TimeDelta;

use super::*;
use crate::{
    archive::Moment,
    cell::Cell,
    html::Window,
    server::{
        CellStatus, Progress, Readiness, Status,
        models::{ModelState, ModelStatus, models},
        tests::{cell, now, status, summary},
    },
};

fn shell(status: &Status) -> Shell<'_> {
    Shell { status, readiness: Readiness::Ready, may_change: true, now: now() }
}

fn front(status: &Status) -> String {
    overview(&shell(status), &models(status), &Sought::default(), None)
}

/// The page of the model of the snapshot; its history is `moments`.
fn of_model(status: &Status, query: &str, moments: Vec<Moment>) -> String {
    let query = format!("http://x/?target=gateway&model=org%2Fmodel:1&{query}");
    let uri: axum::http::Uri = query.parse().unwrap();
    let axum::extract::Query(asked) = axum::extract::Query::<Asked>::try_from_uri(&uri).unwrap();
    let chosen = asked.choose(status, now()).unwrap();
    model_page(
        &shell(status),
        &ModelPage { asked: &asked, chosen: &chosen, remembered: Ok((moments, Vec::new())) },
    )
}

/// What a reader sees: the text, without markup.
fn text(page: &str) -> String {
    let mut text = String::new();
    for part in page.split('<').skip(1) {
        text.push(' ');
        text.push_str(part.split_once('>').map_or("", |(_, text)| text));
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_front_page_shows_every_model_and_sweep() {
    insta::assert_snapshot!(text(&front(&status())));
}

#[test]
fn what_hardly_changed_is_as_last_week() {
    let status = status();
    let mut models = models(&status);
    let told = |models: &[ModelStatus]| text(&overview(&shell(&status), models, &Sought::default(), None));
    for (share, words) in [(1.001, "as last week"), (0.999, "as last week"), (1.25, "-20% on last week")] {
        let ttft = &mut models[0].ttft_p95_seconds;
        ttft.last_week = ttft.latest.map(|latest| latest * share);
        assert!(told(&models).contains(words), "{share}: {}", told(&models));
    }
}

#[test]
fn a_models_page_shows_its_ladders_and_history() {
    let moment = |hours: i64, ttft: f64| Moment {
        at: (now() - TimeDelta::hours(hours)).timestamp_millis(),
        levels: 1,
        requests: 42,
        ok: 42,
        ttft_p50_seconds: Some(ttft),
        ttft_p95_seconds: Some(ttft * 1.5),
        tpot_p50_seconds: Some(0.02),
        tpot_p95_seconds: Some(0.03),
        throughput_tokens_per_second: Some(300.0),
    };
    let page = of_model(&status(), "level=8", vec![moment(5, 0.2), moment(3, 0.25), moment(1, 0.21)]);
    insta::assert_snapshot!(text(&page));
    assert_eq!(page.matches("<svg class=\"chart").count(), 5);
    assert!(of_model(&status(), "level=8", Vec::new()).contains("No level of this cell ended in this time."));
}

#[test]
fn a_level_that_was_not_run_says_why() {
    let page = text(&of_model(&status(), "", Vec::new()));
    assert!(page.contains("16 not run: 2 of 42 requests failed at concurrency 8"), "{page}");
    assert!(page.contains("32 not measured yet"), "{page}");
}

#[test]
fn a_range_is_taken_as_it_is_written() {
    let status = status();
    let choose = |query: &str| {
        let uri: axum::http::Uri =
            format!("http://x/?target=gateway&model=org%2Fmodel:1&{query}").parse().unwrap();
        let axum::extract::Query(asked) = axum::extract::Query::<Asked>::try_from_uri(&uri).unwrap();
        asked.choose(&status, now()).map(|chosen| chosen.window)
    };
    let here = now().timestamp_millis();
    let hour = 3_600_000;
    assert_eq!(choose(""), Some(Window { from: here - 7 * 24 * hour, to: here }));
    assert_eq!(choose("range=24h"), Some(Window { from: here - 24 * hour, to: here }));
    assert_eq!(choose("from=1000&to=9000"), Some(Window { from: 1000, to: 9000 }));
    let written = choose("from=1970-01-01T00:01&to=1970-01-01T00:02").unwrap();
    assert_eq!(written, Window { from: 60_000, to: 120_000 });
    let backwards = choose("from=9000&to=1000").unwrap();
    assert!(backwards.from < backwards.to, "{backwards:?}");
    let nonsense = choose("from=yesterday&range=always").unwrap();
    assert_eq!(nonsense.to, here);
}

#[test]
fn a_model_is_as_its_lightest_level_is() {
    let mut status = status();
    status.sweeps[0].objectives.success_ratio = Some(0.9);
    let state = |status: &Status| (models(status)[0].state, models(status)[0].reason.clone());
    assert_eq!(state(&status), (ModelState::Slow, Some("TTFT beyond its objective".into())));
    status.sweeps[0].objectives.ttft_seconds = None;
    assert_eq!(state(&status), (ModelState::Good, None));
    status.sweeps[0].objectives.success_ratio = None;
    let failing = Some("2 of 42 requests failed: rate_limited".to_owned());
    assert_eq!(state(&status), (ModelState::Failing, failing));
    status.cells[0] = CellStatus::left_out(&cell(), "auth at concurrency 1".into());
    assert_eq!(state(&status), (ModelState::Failing, Some("not run: auth at concurrency 1".into())));
    status.cells[0] = CellStatus::left_out(&cell(), "quiet hours".into());
    assert_eq!(state(&status).0, ModelState::Waiting);
    status.cells = vec![CellStatus::unmeasured(&cell())];
    assert_eq!(state(&status), (ModelState::Waiting, None));
}

#[test]
fn percentiles_that_rest_on_too_few_samples_are_marked() {
    let marks = |count| {
        let mut status = status();
        status.cells = vec![CellStatus::measured(&cell(), &summary(count), now())];
        of_model(&status, "", Vec::new()).matches("class=\"low\" title=\"only").count()
    };
    assert_eq!(marks(8), 3, "P95 and P99 of TTFT, P95 of TPOT");
    assert_eq!(marks(40), 1, "P99");
    assert_eq!(marks(100), 0);
}

#[test]
fn names_cannot_become_markup() {
    let mut status = status();
    let odd = Cell { model: "<b onload='x'>\"&".into(), ..cell() };
    status.cells = vec![CellStatus::measured(&odd, &summary(8), now())];
    status.sweeps[0].name = "<script>\"".into();
    status.cells[0].sweep = status.sweeps[0].name.clone();
    let page = front(&status);
    assert!(
        page.contains("&lt;b onload='x'&gt;&quot;&amp;") && page.contains("&lt;script&gt;&quot;"),
        "{page}"
    );
    assert!(!page.contains("<b onload") && page.matches("<script").count() == 1);
}

#[test]
fn an_empty_status_says_what_is_missing() {
    let page = text(&front(&Status::new(now())));
    assert!(page.contains("No sweep is configured: add [[targets]] and [[sweeps]]"), "{page}");
}

#[test]
fn what_may_not_be_done_is_not_offered() {
    let status = status();
    let looking = Shell { may_change: false, ..shell(&status) };
    let page = overview(&looking, &models(&status), &Sought::default(), None);
    assert!(!page.contains("<form method=\"post\"") && page.contains("--web.enable-lifecycle"));
    assert!(front(&status).contains("action=\"api/v1/sweeps/hourly/resume\""));
}

#[test]
fn a_running_sweep_shows_how_far_it_is() {
    let mut status = status();
    let mut progress = Progress { levels: 3, requests: 126, ..Progress::default() };
    progress.request_ended();
    progress.level_ended();
    progress.request_ended();
    assert_eq!((progress.levels_done, progress.requests_done), (1, 43));
    status.sweeps[0].running = true;
    status.sweeps[0].progress = Some(progress);
    assert!(text(&front(&status)).contains("43 of 126 requests"));
}

#[test]
fn many_models_fit_on_a_page() {
    let mut status = status();
    status.cells = (0..50)
        .flat_map(|target| (0..5).map(move |model| (format!("target-{target}"), format!("model-{model}"))))
        .map(|(target, model)| {
            let cell = Cell { target: target.into(), model: model.into(), ..cell() };
            CellStatus::measured(&cell, &summary(40), now())
        })
        .collect();
    let page = front(&status);
    assert_eq!(page.matches("<th scope=\"row\"><a href=\"model?").count(), 250);
    assert!(page.len() < 512 * 1024, "{} bytes", page.len());
}
