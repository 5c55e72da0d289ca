//! The JSON under `/api/v1`: what the pages show, for programs. `openapi.json` describes it, and a test holds the answers
//! against that.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Status, Surface, SweepStatus, control,
    models::ModelStatus,
    pages::{LEVELS_MAX, MOMENTS_MAX, remembered_models},
};
use crate::{
    archive::{Failed, FailureFilter, Moment, RunFilter, RunListing, thin},
    arrivals::Rate,
    cell::Cell,
    html::instant,
    report::{Named, sweep_value},
};

/// The description of everything here.
const OPENAPI: &str = include_str!("openapi.json");
/// Failures or runs in one answer.
const LIST_MAX: u32 = 1_000;

/// Every path.
pub(super) fn router() -> Router<Surface> {
    Router::new()
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/status", get(status))
        .route("/api/v1/models", get(models))
        .route("/api/v1/sweeps", get(sweeps))
        .route("/api/v1/history", get(history))
        .route("/api/v1/failures", get(failures))
        .route("/api/v1/runs", get(runs))
        .route("/api/v1/runs/{id}", get(run))
        .route("/api/v1/configuration", get(configuration))
        .route("/api/v1/sweeps/{name}/run", post(control::run_sweep))
        .route("/api/v1/sweeps/{name}/pause", post(control::pause_sweep))
        .route("/api/v1/sweeps/{name}/resume", post(control::resume_sweep))
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn status(State(surface): State<Surface>) -> Json<Arc<Status>> {
    Json(surface.status.borrow().clone())
}

async fn configuration(State(surface): State<Surface>) -> Json<Arc<Value>> {
    Json(surface.status.borrow().configuration.clone())
}

#[derive(Serialize)]
struct Models {
    models: Vec<ModelStatus>,
}

async fn models(State(surface): State<Surface>) -> Json<Models> {
    let status = surface.status.borrow().clone();
    let (models, _) = remembered_models(&surface, &status).await;
    Json(Models { models })
}

#[derive(Serialize)]
struct Sweeps {
    revision: u64,
    sweeps: Vec<SweepStatus>,
}

/// Small enough to be asked for every few seconds.
async fn sweeps(State(surface): State<Surface>) -> Json<Sweeps> {
    let status = surface.status.borrow().clone();
    Json(Sweeps { revision: status.revision, sweeps: status.sweeps.clone() })
}

#[derive(Deserialize)]
struct HistoryQuery {
    sweep: Arc<str>,
    target: Arc<str>,
    model: Arc<str>,
    prompt_tokens: u32,
    concurrency: Option<u32>,
    /// Requests per second, in place of the concurrency.
    rate: Option<Rate>,
    /// Milliseconds since the Unix epoch.
    from: Option<i64>,
    to: Option<i64>,
}

#[derive(Serialize)]
struct History {
    moments: Vec<Moment>,
}

async fn history(
    State(surface): State<Surface>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<History>, (StatusCode, Json<Value>)> {
    let HistoryQuery { sweep, target, model, prompt_tokens, concurrency, rate, from, to } = query;
    let cell = Cell { sweep, target, model, prompt_tokens, concurrency: concurrency.unwrap_or(0), rate };
    let window = (from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX));
    let asked = surface.memory.ask(move |store| store.moments(&cell, window, LEVELS_MAX));
    let moments = asked.await.map_err(unknown)?;
    Ok(Json(History { moments: thin(&moments, MOMENTS_MAX) }))
}

#[derive(Deserialize)]
struct FailuresQuery {
    target: Option<String>,
    model: Option<String>,
    run: Option<i64>,
    limit: Option<u32>,
}

async fn failures(
    State(surface): State<Surface>,
    Query(query): Query<FailuresQuery>,
) -> Result<Json<Value>, (StatusCode, Json<Value>)> {
    let filter = FailureFilter {
        model: query.target.zip(query.model),
        run: query.run,
        limit: query.limit.unwrap_or(100).min(LIST_MAX),
    };
    let failures = surface.memory.ask(move |store| store.failures(&filter)).await.map_err(unknown)?;
    Ok(Json(json!({ "failures": failures.iter().map(failure).collect::<Vec<_>>() })))
}

fn failure(failed: &Failed) -> Value {
    let probe = &failed.probe;
    json!({
        "run": failed.run,
        "sweep": failed.sweep,
        "prompt_tokens": probe.prompt_tokens,
        "concurrency": probe.rate.is_none().then_some(probe.concurrency),
        "rate": probe.rate,
        "role": probe.role,
        "measurement": probe.record,
    })
}

#[derive(Deserialize)]
struct RunsQuery {
    sweep: Option<String>,
    limit: Option<u32>,
}

async fn runs(
    State(surface): State<Surface>,
    Query(query): Query<RunsQuery>,
) -> Result<Json<Value>, (StatusCode, Json<Value>)> {
    let limit = Some(query.limit.unwrap_or(100).min(LIST_MAX));
    let filter = RunFilter { sweep: query.sweep, limit, ..RunFilter::default() };
    let runs = surface.memory.ask(move |store| store.runs(&filter)).await.map_err(unknown)?;
    Ok(Json(json!({ "runs": runs.iter().map(listing).collect::<Vec<_>>() })))
}

fn listing(listing: &RunListing) -> Value {
    let at = |millis| DateTime::<Utc>::from_timestamp_millis(millis).map(instant);
    let run = &listing.run;
    json!({
        "run": listing.id,
        "uid": run.uid,
        "sweep": run.sweep,
        "started_at": at(run.started_at),
        "ended_at": run.ended_at.and_then(at),
        "result": run.result,
        "version": run.version,
        "levels": listing.levels,
        "requests": listing.requests,
        "ok": listing.ok,
    })
}

async fn run(
    State(surface): State<Surface>,
    Path(id): Path<i64>,
) -> Result<Json<Value>, (StatusCode, Json<Value>)> {
    let record = surface.memory.ask(move |store| store.run(id)).await.map_err(unknown)?;
    let Some(record) = record else {
        return Err((
            StatusCode::NOT_FOUND,
            Json(json!({ "error": format!("the archive has no run {id}") })),
        ));
    };
    let report = record.report();
    let started_at = DateTime::<Utc>::from_timestamp_millis(record.listing.run.started_at);
    let started_at = started_at.map(instant).unwrap_or_default();
    let named = Named { sweep: &record.listing.run.sweep, started_at: &started_at, report: &report };
    Ok(Json(sweep_value(&named)))
}

/// The archive says nothing.
#[allow(clippy::needless_pass_by_value, reason = "the shape of an error's conversion")]
fn unknown(why: String) -> (StatusCode, Json<Value>) {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": why })))
}
