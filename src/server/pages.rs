//! The pages' paths: asks the snapshot and the archive, and has it drawn.

use axum::{
    Router,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
    routing::get,
};
use chrono::Utc;
use maud::Markup;
use serde::Deserialize;

use super::{
    Status, Surface,
    models::{ModelStatus, models, remember},
    page::{self, Asked, Chosen, ModelPage, Shell, Sought, excuse},
};
use crate::{
    archive::{Failed, FailureFilter, Moment, RunFilter, Store, thin},
    html::{ICON, STYLE},
    report::{RunReport, run_body},
};

/// Failures on one page.
const FAILURES_MAX: u32 = 100;
/// Failures on a model's page.
const MODEL_FAILURES_MAX: u32 = 20;
/// Runs on one page.
const RUNS_MAX: u32 = 100;
/// Moments that a chart is drawn of: more than it has columns says nothing.
pub(super) const MOMENTS_MAX: usize = 300;
/// Levels that a history is made of, at most; the latest ones of a longer span.
pub(super) const LEVELS_MAX: u32 = 20_000;
/// Probes shown of a run, slowest and failed.
const PROBES_MAX: u32 = 10;

/// Every page.
pub(super) fn router() -> Router<Surface> {
    Router::new()
        .route("/", get(overview))
        .route("/model", get(model))
        .route("/failures", get(failures))
        .route("/runs", get(runs))
        .route("/run", get(run))
        .route("/configuration", get(configuration))
        .route("/page.css", get(style))
        .route("/live.js", get(script))
        .route("/icon.svg", get(icon))
}

/// The models, with what the archive knows of them; why it says nothing.
pub(super) async fn remembered_models(
    surface: &Surface,
    status: &Status,
) -> (Vec<ModelStatus>, Option<String>) {
    let known = models(status);
    let mut more = known.clone();
    let asked = surface.memory.ask(move |store| {
        remember(&mut more, store, Utc::now())?;
        Ok(more)
    });
    match asked.await {
        Ok(models) => (models, None),
        Err(why) => (known, Some(why)),
    }
}

async fn overview(State(surface): State<Surface>, Query(sought): Query<Sought>) -> Response {
    let status = surface.status.borrow().clone();
    let (models, complaint) = remembered_models(&surface, &status).await;
    // The demo and a prober without an archive are told once, below, not as a complaint on every page.
    let complaint = complaint.filter(|_| surface.memory.is_kept());
    html(page::overview(&shell(&surface, &status), &models, &sought, complaint.as_deref()))
}

async fn model(State(surface): State<Surface>, Query(asked): Query<Asked>) -> Response {
    let status = surface.status.borrow().clone();
    let shell = shell(&surface, &status);
    let Some(chosen) = asked.choose(&status, shell.now) else {
        let why = format!("There is no model {} at {} in the configuration.", asked.model, asked.target);
        return missing(excuse(&shell, "No such model", "model", &why));
    };
    let question = chosen.clone();
    let remembered = surface.memory.ask(move |store| remembered(store, &question)).await;
    html(page::model_page(&shell, &ModelPage { asked: &asked, chosen: &chosen, remembered }))
}

fn remembered(store: &Store, chosen: &Chosen) -> rusqlite::Result<(Vec<Moment>, Vec<Failed>)> {
    let window = (chosen.window.from, chosen.window.to.saturating_add(1));
    let moments = store.moments(&chosen.cell, window, LEVELS_MAX)?;
    let model = Some((chosen.cell.target.to_string(), chosen.cell.model.to_string()));
    let filter = FailureFilter { model, limit: MODEL_FAILURES_MAX, ..FailureFilter::default() };
    Ok((thin(&moments, MOMENTS_MAX), store.failures(&filter)?))
}

async fn failures(State(surface): State<Surface>) -> Response {
    let status = surface.status.borrow().clone();
    let filter = FailureFilter { limit: FAILURES_MAX, ..FailureFilter::default() };
    let shell = shell(&surface, &status);
    match surface.memory.ask(move |store| store.failures(&filter)).await {
        Ok(failures) => html(page::failures(&shell, &failures)),
        Err(why) => html(excuse(&shell, "Failures", "failures", &why)),
    }
}

async fn runs(State(surface): State<Surface>) -> Response {
    let status = surface.status.borrow().clone();
    let filter = RunFilter { limit: Some(RUNS_MAX), ..RunFilter::default() };
    let shell = shell(&surface, &status);
    match surface.memory.ask(move |store| store.runs(&filter)).await {
        Ok(runs) => html(page::runs(&shell, &runs)),
        Err(why) => html(excuse(&shell, "Runs", "runs", &why)),
    }
}

#[derive(Debug, Deserialize)]
struct RunQuery {
    id: i64,
}

async fn run(State(surface): State<Surface>, Query(RunQuery { id }): Query<RunQuery>) -> Response {
    let status = surface.status.borrow().clone();
    let shell = shell(&surface, &status);
    match surface.memory.ask(move |store| drawn(store, id)).await {
        Ok(Some(report)) => html(page::run(&shell, id, &report)),
        Ok(None) => missing(excuse(&shell, "No such run", "run", &format!("The archive has no run {id}."))),
        Err(why) => html(excuse(&shell, "Run", "run", &why)),
    }
}

fn drawn(store: &Store, id: i64) -> rusqlite::Result<Option<Markup>> {
    let Some(record) = store.run(id)? else { return Ok(None) };
    let slowest = store.slowest(id, PROBES_MAX)?;
    let filter = FailureFilter { run: Some(id), limit: PROBES_MAX, ..FailureFilter::default() };
    let failures = store.failures(&filter)?;
    Ok(Some(run_body(&RunReport { record: &record, slowest: &slowest, failures: &failures })))
}

async fn configuration(State(surface): State<Surface>) -> Response {
    let status = surface.status.borrow().clone();
    html(page::configuration(&shell(&surface, &status)))
}

fn shell<'a>(surface: &Surface, status: &'a Status) -> Shell<'a> {
    let readiness = *surface.readiness.borrow();
    Shell { status, readiness, may_change: surface.may_change(), now: Utc::now() }
}

fn html(page: String) -> Response {
    let mut response = Response::new(Body::from(page));
    let fixed = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
    ];
    set(response.headers_mut(), fixed);
    response
}

fn missing(page: String) -> Response {
    let mut response = html(page);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

async fn script() -> Response {
    asset("text/javascript; charset=utf-8", page::SCRIPT)
}

async fn icon() -> Response {
    asset("image/svg+xml", ICON)
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    set(response.headers_mut(), [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")]);
    response
}

fn set<const N: usize>(headers: &mut HeaderMap, fixed: [(HeaderName, &'static str); N]) {
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
