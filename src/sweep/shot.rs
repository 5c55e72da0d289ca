//! What a level's probes ask: a fresh prompt each, and what the target has shown it does not accept.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use super::toll::Toll;
use crate::{
    cell::Cell,
    config::{LevelSettings, PrefixCache},
    measurement::{FailureClass, Measurement},
    probe::{Endpoint, Shot, TraceId},
    prompt::{self, Nonce, Shape},
    protocol::Ask,
};

/// An endpoint and what was learned about it; shared by everything that probes it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// How to reach it.
    pub endpoint: Arc<Endpoint>,
    learned: Arc<Learned>,
}

/// What a target refused once and is not asked again, by model.
#[derive(Debug, Default)]
struct Learned {
    usage_refused: Mutex<HashSet<Arc<str>>>,
}

impl Prepared {
    /// Nothing learned yet.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint: Arc::new(endpoint), learned: Arc::default() }
    }

    /// Whether to ask this model for usage in the stream.
    #[must_use]
    pub fn asks_usage(&self, model: &str) -> bool {
        !self.refused().contains(model)
    }

    /// Takes note of a refusal of `stream_options`; `true` when that was news and the probe should be repeated.
    pub fn learn(&self, model: &Arc<str>, measurement: &Measurement) -> bool {
        let Some(failure) = measurement.outcome.failure() else { return false };
        let refused = failure.class == FailureClass::BadRequest
            && failure.subclass.as_deref() == Some("unsupported_param:stream_options");
        let news = refused && self.refused().insert(model.clone());
        if news {
            tracing::warn!(
                target = %self.endpoint.target().name, %model,
                "refuses stream_options: going on without the server's token counts, time per output token is withheld"
            );
        }
        news
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, HashSet<Arc<str>>> {
        self.learned.usage_refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One worker's supply of probes to send.
pub(super) struct Shots {
    cell: Arc<Cell>,
    settings: LevelSettings,
    prepared: Prepared,
    gap_bounds: Arc<[f64]>,
    trace_id: TraceId,
    toll: Toll,
}

/// One probe with its own prompt.
pub(super) struct Loaded<'a> {
    shots: &'a Shots,
    prompt: String,
    include_usage: bool,
}

impl Shots {
    pub(super) fn new(
        cell: &Arc<Cell>,
        settings: &LevelSettings,
        prepared: &Prepared,
        gap_bounds: Arc<[f64]>,
    ) -> Self {
        Self {
            cell: cell.clone(),
            settings: settings.clone(),
            prepared: prepared.clone(),
            gap_bounds,
            trace_id: TraceId::random(),
            toll: Toll::new(cell, settings, prepared.endpoint.target()),
        }
    }

    /// What its probes cost.
    pub(super) fn toll(&self) -> Toll {
        self.toll.clone()
    }

    /// The next probe, with a fresh prompt and trace id.
    pub(super) fn next(&mut self) -> Loaded<'_> {
        self.trace_id = TraceId::random();
        let nonce = match self.settings.prefix_cache {
            PrefixCache::Cold => Nonce::Fresh(fastrand::u64(..)),
            PrefixCache::Warm => Nonce::Warm,
        };
        let shape = Shape::new(self.cell.prompt_tokens, self.settings.prompt_language);
        let prompt = prompt::build(nonce, shape);
        let include_usage = self.prepared.asks_usage(&self.cell.model);
        Loaded { shots: self, prompt, include_usage }
    }

    /// The trace id of the latest probe.
    pub(super) fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// See [`Prepared::learn`].
    pub(super) fn learn(&self, measurement: &Measurement) -> bool {
        self.prepared.learn(&self.cell.model, measurement)
    }
}

impl Loaded<'_> {
    /// About how many tokens the prompt has.
    pub(super) fn prompt_tokens(&self) -> f64 {
        prompt::estimate_tokens(&self.prompt)
    }

    pub(super) fn as_shot(&self) -> Shot<'_> {
        let target = self.shots.prepared.endpoint.target();
        let settings = &self.shots.settings;
        Shot {
            ask: Ask {
                model: &self.shots.cell.model,
                prompt: &self.prompt,
                max_tokens: settings.output_tokens_max(),
                max_tokens_field: target.max_tokens_field,
                temperature: settings.temperature,
                include_usage: self.include_usage,
                extra_body: &target.extra_body,
            },
            timeouts: settings.timeouts,
            keep_text: false,
            gap_bounds: self.shots.gap_bounds.clone(),
            trace_id: self.shots.trace_id,
        }
    }
}
