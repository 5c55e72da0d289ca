//! The HTTP surface: routes, the way of one request from its body to its answer, and the fault switch.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{ConnectInfo, DefaultBodyLimit, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    clockwork::Clockwork,
    engine::Job,
    fault::{Fault, Faults},
    oracle::{Oracle, Record, lock},
    profile::ModelProfile,
    refusal::{self, Refusal},
    reply::{Reply, closed},
    socket::Connection,
    stats,
    wire::{self, Endpoint, Request, Writer},
};

/// All that the handlers share.
pub(super) struct Server {
    pub(super) models: Vec<ModelProfile>,
    /// Two engines for each model: as it is, and slowed.
    pub(super) clockwork: Clockwork,
    pub(super) api_key: Option<String>,
    pub(super) oracle: Oracle,
    pub(super) lateness: Duration,
    pub(super) keepalive: Duration,
    pub(super) closing: watch::Receiver<bool>,
    /// Faults switched on by `POST /-/fault`, by model.
    pub(super) faults: Mutex<HashMap<String, Faults>>,
    pub(super) requests: AtomicU64,
}

/// The routes, each with and without `/v1`.
pub(super) fn router(server: std::sync::Arc<Server>, allow_fault_api: bool) -> Router {
    // A prompt of a million tokens is a few megabytes.
    const BODY_BYTES_MAX: usize = 16 << 20;
    let mut router = Router::new();
    for prefix in ["", "/v1"] {
        router = router
            .route(&format!("{prefix}/chat/completions"), post(chat))
            .route(&format!("{prefix}/completions"), post(completions))
            .route(&format!("{prefix}/models"), get(models));
    }
    router = router.route("/health", get(|| async {})).route("/metrics", get(metrics));
    if allow_fault_api {
        router = router.route("/-/fault", post(set_fault).delete(clear_faults));
    }
    router
        .fallback(|| async { (StatusCode::NOT_FOUND, Json(json!({"detail": "Not Found"}))) })
        .method_not_allowed_fallback(|| async {
            (StatusCode::METHOD_NOT_ALLOWED, Json(json!({"detail": "Method Not Allowed"})))
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(server)
}

type Handle = State<std::sync::Arc<Server>>;

async fn chat(
    server: Handle,
    connection: ConnectInfo<Connection>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(&server, Endpoint::Chat, &connection, &uri, &headers, &body).await
}

async fn completions(
    server: Handle,
    connection: ConnectInfo<Connection>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    serve(&server, Endpoint::Completions, &connection, &uri, &headers, &body).await
}

async fn serve(
    server: &Server,
    endpoint: Endpoint,
    connection: &Connection,
    uri: &Uri,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response {
    // Opening the record reads the clock: nothing may come before it.
    let record = server.oracle.open(uri.path(), headers, body);
    connection.serves(&record);
    let response = match server.accept(endpoint, headers, body, &record) {
        Err(refusal) => refusal.into_response(),
        Ok(order) if order.faults.has(Fault::Reset) => {
            connection.reset();
            return Response::new(Body::empty());
        }
        Ok(order) => server.answer(order, &record).await,
    };
    record.update(|seen| seen.status = response.status().as_u16());
    response
}

/// A request that was found good.
struct Order {
    endpoint: Endpoint,
    job: Job,
    engine: usize,
    model: String,
    faults: Faults,
    stream: bool,
    include_usage: bool,
    number: u64,
}

impl Server {
    fn accept(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        body: &[u8],
        record: &Record,
    ) -> Result<Order, Refusal> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        self.authorize(headers)?;
        let request: Request =
            serde_json::from_slice(body).map_err(|why| Refusal::bad_json(&why.to_string()))?;
        record.update(|seen| seen.model.clone_from(&request.model));
        let (place, profile, faults) = self.resolve(&request.model)?;
        if let Some(refusal) = Refusal::by_fault(faults, &request, number) {
            return Err(refusal);
        }
        let member = if endpoint == Endpoint::Chat { "messages" } else { "prompt" };
        let prompt = request.prompt(endpoint).ok_or_else(|| Refusal::missing(member))?;
        record.update(|seen| seen.prompt_tokens = prompt.tokens);
        let reasoning_tokens = if faults.has(Fault::Reasoning) { profile.reasoning_tokens } else { 0 };
        let (output_tokens, finish) = refusal::output(&request, profile, prompt.tokens, reasoning_tokens)?;
        Ok(Order {
            endpoint,
            job: Job { prompt, reasoning_tokens, output_tokens, finish },
            engine: 2 * place + usize::from(faults.has(Fault::Slow)),
            faults,
            stream: request.stream && !faults.has(Fault::Json),
            include_usage: request.stream_options.is_some_and(|options| options.include_usage),
            model: request.model,
            number,
        })
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(api_key) = &self.api_key else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        if given == Some(api_key) { Ok(()) } else { Err(Refusal::unauthorized()) }
    }

    /// The model asked for by `NAME` or `NAME+SUFFIX+...`; a name may itself hold a `+`.
    fn resolve(&self, asked: &str) -> Result<(usize, &ModelProfile, Faults), Refusal> {
        let matches = self.models.iter().enumerate().filter_map(|(place, profile)| {
            let rest = asked.strip_prefix(&profile.name)?;
            (rest.is_empty() || rest.starts_with('+')).then_some((place, profile, rest))
        });
        let (place, profile, rest) = matches
            .max_by_key(|(_, profile, _)| profile.name.len())
            .ok_or_else(|| Refusal::unknown_model(asked, &self.models))?;
        let mut faults = Faults::default();
        if let Some(suffixes) = rest.strip_prefix('+') {
            faults = Faults::parse(suffixes).map_err(|suffix| Refusal::unknown_suffix(asked, &suffix))?;
        }
        let switched_on = lock(&self.faults).get(&profile.name).copied().unwrap_or_default();
        Ok((place, profile, faults.and(switched_on)))
    }

    async fn answer(&self, order: Order, record: &Record) -> Response {
        const TOKENS_BEFORE_CUT: u32 = 2;
        let mut closing = self.closing.clone();
        if order.faults.has(Fault::SlowHeaders) {
            tokio::select! {
                () = tokio::time::sleep(self.lateness) => {}
                () = closed(&mut closing) => return Refusal::stopping().into_response(),
            }
        }
        let late = if order.faults.has(Fault::SlowFirst) { self.lateness } else { Duration::ZERO };
        let at = if order.faults.has(Fault::SlowHeaders) {
            tokio::time::Instant::now()
        } else {
            record.received()
        };
        let prompt_tokens = order.job.prompt.tokens;
        let tokens_before_cut = TOKENS_BEFORE_CUT.min(order.job.output_tokens.saturating_sub(1));
        let Some(ticket) = self.clockwork.submit(order.engine, at + late, order.job) else {
            return Refusal::stopping().into_response();
        };
        let writer = Writer {
            endpoint: order.endpoint,
            id: format!(
                "{}-{:016x}",
                if order.endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" },
                order.number
            ),
            model: order.model,
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        let reply = Reply {
            ticket,
            writer,
            faults: order.faults,
            record: record.clone(),
            prompt_tokens,
            tokens_before_cut,
            include_usage: order.include_usage,
            keepalive: self.keepalive,
            closing,
        };
        respond(reply, order.stream).await
    }
}

async fn respond(reply: Reply, stream: bool) -> Response {
    const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    let id = reply.writer.id.clone();
    if stream {
        let kind = "text/event-stream; charset=utf-8".to_owned();
        return ([(header::CONTENT_TYPE, kind), (REQUEST_ID, id)], reply.into_body()).into_response();
    }
    let (writer, faults) = (reply.writer.clone(), reply.faults);
    let Some(mut whole) = reply.whole().await else {
        let error = wire::error(500, "InternalServerError", None, "The answer was cut short.");
        return (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response();
    };
    if faults.has(Fault::Empty) {
        whole.pieces.clear();
        whole.usage.completion_tokens = 0;
    }
    let usage = (!faults.has(Fault::NoUsage)).then_some(whole.usage);
    ([(REQUEST_ID, id)], Json(writer.document(&whole.pieces, whole.finish, usage))).into_response()
}

async fn models(server: Handle, headers: HeaderMap) -> Response {
    if let Err(refusal) = server.authorize(&headers) {
        return refusal.into_response();
    }
    let data: Vec<Value> = server
        .models
        .iter()
        .map(|model| {
            json!({"id": model.name, "object": "model", "created": 0, "owned_by": "tokenprobe", "root": model.name,
                "parent": null, "max_model_len": model.context_tokens})
        })
        .collect();
    Json(json!({"object": "list", "data": data})).into_response()
}

async fn metrics(server: Handle) -> Response {
    let names = server.models.iter().flat_map(|model| [model.name.clone(), format!("{}+slow", model.name)]);
    let names: Vec<String> = names.collect();
    let mut page = String::new();
    server.clockwork.inspect(|all| {
        let shown = names.iter().map(String::as_str).zip(all.iter().copied());
        // The slowed twin of a model is shown once somebody has used it.
        let shown: Vec<_> =
            shown.filter(|(name, stats)| !name.ends_with("+slow") || !stats.is_untouched()).collect();
        page = stats::encode(&shown);
    });
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response()
}

/// The body of `POST /-/fault`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    model: String,
    /// As in a suffix: `429`, or several as `429+slow`.
    fault: String,
}

async fn set_fault(server: Handle, body: Bytes) -> Response {
    let switch: Switch = match serde_json::from_slice(&body) {
        Ok(switch) => switch,
        Err(why) => return Refusal::bad_json(&why.to_string()).into_response(),
    };
    if !server.models.iter().any(|model| model.name == switch.model) {
        return Refusal::unknown_model(&switch.model, &server.models).into_response();
    }
    match Faults::parse(switch.fault.trim_start_matches('+')) {
        Ok(faults) => {
            lock(&server.faults).insert(switch.model, faults);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(suffix) => Refusal::unknown_suffix(&switch.model, &suffix).into_response(),
    }
}

async fn clear_faults(server: Handle) -> StatusCode {
    lock(&server.faults).clear();
    StatusCode::NO_CONTENT
}
