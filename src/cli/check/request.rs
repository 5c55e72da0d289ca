//! One small request of a check.

use std::sync::Arc;

use crate::{
    config::ConnectionPolicy,
    measurement::Measurement,
    probe::{Lane, Shot, TraceId},
    protocol::{Ask, Timeouts},
    sweep::Prepared,
};

/// One small request, on a connection of its own.
pub(super) struct Request {
    pub(super) prepared: Prepared,
    pub(super) model: Arc<str>,
    pub(super) prompt: String,
    pub(super) timeouts: Timeouts,
    pub(super) max_tokens: u32,
}

impl Request {
    /// Sends it; once more without `stream_options` when the server refuses those.
    pub(super) async fn send(self) -> Measurement {
        let mut lane = Lane::new(self.prepared.endpoint.clone(), ConnectionPolicy::New);
        let target = self.prepared.endpoint.target();
        loop {
            let shot = Shot {
                ask: Ask {
                    model: &self.model,
                    prompt: &self.prompt,
                    max_tokens: self.max_tokens,
                    max_tokens_field: target.max_tokens_field,
                    temperature: None,
                    include_usage: self.prepared.asks_usage(&self.model),
                    extra_body: &target.extra_body,
                },
                timeouts: self.timeouts,
                keep_text: false,
                gap_bounds: Arc::from([]),
                trace_id: TraceId::random(),
                due: None,
                again: None,
            };
            let measurement = lane.probe(&shot).await;
            // A server that refuses to count tokens is asked once more, without.
            if !self.prepared.learn(&self.model, &measurement) {
                return measurement;
            }
        }
    }
}
