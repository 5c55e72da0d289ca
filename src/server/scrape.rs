//! `/metrics`: written down once for everybody who asks at the same time.
//!
//! Writing megabytes takes a while of a core that probes want. However many ask, one writes at a time, and its text serves
//! all who had come by the time it began.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use flate2::{Compression, write::GzEncoder};
use tokio::{sync::Mutex, time::Instant};

use super::Surface;
use crate::metrics::{self, Metrics};

/// The latest text; whoever holds the lock writes the next.
#[derive(Debug, Clone, Default)]
pub(super) struct Scrapes(Arc<Mutex<Option<Written>>>);

#[derive(Debug, Clone)]
struct Written {
    begun: Instant,
    plain: Bytes,
    packed: Option<Bytes>,
}

pub(super) async fn scrape(
    State((surface, scrapes)): State<(Surface, Scrapes)>,
    headers: HeaderMap,
) -> Response {
    let gzip = accepts_gzip(&headers);
    let Some(body) = scrapes.text(&surface.metrics, gzip).await else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n").into_response();
    };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

impl Scrapes {
    /// Everything as it is now or was a moment after this was asked; `None` when writing broke.
    async fn text(&self, metrics: &Arc<Metrics>, gzip: bool) -> Option<Bytes> {
        let asked = Instant::now();
        let mut latest = self.0.lock().await;
        let known = latest.take().filter(|written| written.begun >= asked);
        if let Some(written) = &known
            && (!gzip || written.packed.is_some())
        {
            let body = if gzip { written.packed.clone() } else { Some(written.plain.clone()) };
            *latest = known;
            return body;
        }
        let metrics = metrics.clone();
        // Off the threads that probe.
        let written = tokio::task::spawn_blocking(move || {
            let mut written = known.unwrap_or_else(|| {
                let begun = Instant::now();
                Written { begun, plain: metrics.encode().into(), packed: None }
            });
            if gzip {
                written.packed = Some(compressed(&written.plain));
            }
            written
        });
        let written = written.await.ok()?;
        let body = if gzip { written.packed.clone() } else { Some(written.plain.clone()) };
        *latest = Some(written);
        body
    }
}

/// `gzip` or `*` is among the accepted encodings, and not with the weight zero.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let items: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
    let weight_of = |wanted: &str| {
        items.iter().find_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            parts.next().filter(|coding| coding.eq_ignore_ascii_case(wanted))?;
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            Some(weight.map_or(1.0, |weight| weight.trim().parse::<f32>().unwrap_or(0.0)))
        })
    };
    weight_of("gzip").or_else(|| weight_of("*")).is_some_and(|weight| weight > 0.0)
}

/// Packed, or empty if that fails, which writing to memory cannot.
fn compressed(text: &[u8]) -> Bytes {
    use std::io::Write as _;
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).unwrap_or_default().into()
}
