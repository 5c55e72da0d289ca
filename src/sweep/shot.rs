//! What a level's probes ask: a fresh prompt each, and what the target has shown it does not accept.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::toll::Toll;
use crate::{
    analysis::LevelSummary,
    cell::Cell,
    config::{LevelSettings, PrefixCache, PromptLanguage},
    measurement::{FailureClass, Measurement},
    probe::{Endpoint, Shot, TraceId},
    prompt::{
        self, Nonce, Prompt, Shape,
        calibration::{self, Calibration, Reading, Verdict, is_close},
    },
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
    calibrations: Mutex<HashMap<CalibrationKey, Counting>>,
}

/// What a calibration holds for: the words of other prompts are counted otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CalibrationKey {
    model: Arc<str>,
    language: PromptLanguage,
    prefix_cache: PrefixCache,
    /// Of the text that prompts are cut from.
    text: Arc<str>,
}

/// One calibration as it is kept over a restart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    target: Arc<str>,
    base_url: String,
    model: Arc<str>,
    language: PromptLanguage,
    prefix_cache: String,
    text: Arc<str>,
    calibration: Calibration,
}

impl CalibrationKey {
    pub(super) fn new(model: &Arc<str>, settings: &LevelSettings) -> Self {
        Self {
            model: model.clone(),
            language: settings.prompt_language,
            prefix_cache: settings.prefix_cache,
            text: settings.prompts.mark(),
        }
    }
}

/// How a model counts prompts, as far as known.
#[derive(Debug, Clone, Copy)]
enum Counting {
    /// So.
    Known(Calibration),
    /// So when it was last asked; what it counted since does not agree.
    Doubted(Calibration),
    /// It does not say.
    Unknowable,
}

impl Prepared {
    /// Nothing learned yet.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint: Arc::new(endpoint), learned: Arc::default() }
    }

    /// Goes on with what was learned of the same endpoint under an earlier configuration.
    #[must_use]
    pub(super) fn succeeding(self, before: &Self) -> Self {
        let same = self.endpoint.target().base_url == before.endpoint.target().base_url;
        if same { Self { learned: before.learned.clone(), ..self } } else { self }
    }

    /// The calibrations that hold now.
    pub(super) fn remembered(&self) -> Vec<Remembered> {
        let target = self.endpoint.target();
        let calibrations = self.calibrations();
        let known = calibrations.iter().filter_map(|(key, counting)| match counting {
            Counting::Known(calibration) => Some((key, *calibration)),
            Counting::Doubted(_) | Counting::Unknowable => None,
        });
        let remembered = known.map(|(key, calibration)| Remembered {
            target: target.name.clone(),
            base_url: target.base_url.as_str().to_owned(),
            model: key.model.clone(),
            language: key.language,
            prefix_cache: key.prefix_cache.to_string(),
            text: key.text.clone(),
            calibration,
        });
        remembered.collect()
    }

    /// Takes over a calibration, if it is of this endpoint.
    pub(super) fn remember(&self, remembered: &Remembered) {
        let target = self.endpoint.target();
        let Ok(prefix_cache) = PrefixCache::parse(&remembered.prefix_cache) else { return };
        if target.name != remembered.target || target.base_url.as_str() != remembered.base_url {
            return;
        }
        let key = CalibrationKey {
            model: remembered.model.clone(),
            language: remembered.language,
            prefix_cache,
            text: remembered.text.clone(),
        };
        self.calibrations().entry(key).or_insert(Counting::Known(remembered.calibration));
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

    /// Whether it is known how the model counts, or that it does not.
    pub(super) fn needs_no_calibration(&self, key: &CalibrationKey) -> bool {
        matches!(self.calibrations().get(key), Some(Counting::Known(_) | Counting::Unknowable))
    }

    pub(super) fn calibrated(&self, key: CalibrationKey, calibration: Calibration) {
        self.calibrations().insert(key, Counting::Known(calibration));
    }

    pub(super) fn cannot_calibrate(&self, key: CalibrationKey) {
        self.calibrations().insert(key, Counting::Unknowable);
    }

    /// Looks at what a ladder's prompts were counted as: lengths that do not agree have the model calibrated again
    /// before its next ladder. Returns whether its prompts were calibrated at all.
    pub(super) fn review(
        &self,
        model: &Arc<str>,
        settings: &LevelSettings,
        prompt_tokens: u32,
        levels: &[LevelSummary],
    ) -> bool {
        if !settings.calibrate || !settings.prompts.have_wanted_length() {
            return false;
        }
        let mut calibrations = self.calibrations();
        let Some(counting) = calibrations.get_mut(&CalibrationKey::new(model, settings)) else {
            return false;
        };
        let Some(calibration) = counting.calibration() else { return false };
        let counted = levels.iter().filter_map(|level| level.prompt_tokens_measured);
        if counted.into_iter().any(|counted| !is_close(prompt_tokens, counted)) {
            *counting = Counting::Doubted(calibration);
        }
        true
    }

    /// The shape of a prompt of the wanted length, and whether it is known how the model counts it.
    fn shape(&self, key: &CalibrationKey, tokens: u32) -> (Shape, bool) {
        let calibration = self.calibrations().get(key).and_then(|counting| counting.calibration());
        let uncalibrated = (Shape::new(tokens, key.language), false);
        calibration.map_or(uncalibrated, |line| (line.shape(tokens, key.language), true))
    }

    fn verify(&self, key: &CalibrationKey, reading: Reading) {
        if let Some(Counting::Known(calibration)) = self.calibrations().get_mut(key)
            && calibration.learn(reading) == Verdict::Astray
        {
            tracing::debug!(model = %key.model, ?reading, "the prompt was counted as much shorter or longer than it is");
        }
    }

    fn calibrations(&self) -> MutexGuard<'_, HashMap<CalibrationKey, Counting>> {
        self.learned.calibrations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.learned.usage_refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counting {
    fn calibration(self) -> Option<Calibration> {
        match self {
            Self::Known(calibration) | Self::Doubted(calibration) => Some(calibration),
            Self::Unknowable => None,
        }
    }
}

/// One worker's supply of probes to send.
pub(super) struct Shots {
    cell: Arc<Cell>,
    key: CalibrationKey,
    /// Length of the latest prompt as we estimate it.
    estimated: f64,
    settings: LevelSettings,
    prepared: Prepared,
    gap_bounds: Arc<[f64]>,
    trace_id: TraceId,
    toll: Toll,
}

/// One probe with its own prompt.
pub(super) struct Loaded<'a> {
    shots: &'a Shots,
    prompt: Prompt,
    include_usage: bool,
    max_tokens: u32,
    expected_tokens: Option<f64>,
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
            key: CalibrationKey::new(&cell.model, settings),
            estimated: 0.0,
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
        let tokens = self.cell.prompt_tokens;
        let (shape, calibrated) = if self.settings.calibrate && self.settings.prompts.have_wanted_length() {
            self.prepared.shape(&self.key, tokens)
        } else {
            (Shape::new(tokens, self.key.language), false)
        };
        let expected = calibrated.then_some(f64::from(self.cell.prompt_tokens));
        let prompt = self.write(shape);
        self.load(prompt, self.settings.output_tokens_max(), expected)
    }

    /// A probe with a prompt of this estimated length and a short answer.
    pub(super) fn calibrating(&mut self, length: u32) -> Loaded<'_> {
        let prompt = self.write(Shape::new(length, self.settings.prompt_language));
        self.load(prompt, self.settings.output_tokens_max().min(calibration::MAX_TOKENS), None)
    }

    /// Compares the server's count of the latest prompt with what was expected.
    pub(super) fn verify(&self, measurement: &Measurement) {
        if let Some(counted) = measurement.tokens.prompt.filter(|counted| *counted > 0) {
            let reading = Reading { estimated: self.estimated, counted: counted as f64 };
            self.prepared.verify(&self.key, reading);
        }
    }

    fn write(&self, shape: Shape) -> Prompt {
        let nonce = match self.settings.prefix_cache {
            PrefixCache::Cold => Nonce::Fresh(fastrand::u64(..)),
            PrefixCache::Warm => Nonce::Warm,
            PrefixCache::Shared(common) => Nonce::Shared(fastrand::u64(..), common),
        };
        prompt::write(&self.settings.prompts, nonce, shape)
    }

    fn load(&mut self, prompt: Prompt, max_tokens: u32, expected_tokens: Option<f64>) -> Loaded<'_> {
        self.trace_id = TraceId::random();
        self.estimated = prompt.estimated_tokens;
        let include_usage = self.prepared.asks_usage(&self.cell.model);
        Loaded { shots: self, prompt, include_usage, max_tokens, expected_tokens }
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
    /// The prompt's length as we estimate it.
    pub(super) fn estimated(&self) -> f64 {
        self.prompt.estimated_tokens
    }

    /// About how many tokens the prompt has: as many as were wanted, once it is known how the model counts.
    pub(super) fn prompt_tokens(&self) -> f64 {
        self.expected_tokens.unwrap_or(self.prompt.estimated_tokens)
    }

    pub(super) fn as_shot(&self) -> Shot<'_> {
        let target = self.shots.prepared.endpoint.target();
        let settings = &self.shots.settings;
        Shot {
            ask: Ask {
                model: &self.shots.cell.model,
                prompt: &self.prompt.text,
                max_tokens: self.max_tokens,
                max_tokens_field: target.max_tokens_field,
                temperature: settings.temperature,
                include_usage: self.include_usage,
                extra_body: &target.extra_body,
            },
            timeouts: settings.timeouts,
            keep_text: false,
            gap_bounds: self.shots.gap_bounds.clone(),
            trace_id: self.shots.trace_id,
            due: None,
            again: None,
        }
    }
}
