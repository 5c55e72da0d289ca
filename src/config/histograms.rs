//! `[histograms]`: bucket bounds, the objectives as further bounds, and the limit of series.

use super::{
    Histograms, Objectives,
    diagnostic::Placed,
    file::{Bound, MaxSeries},
    section::Section,
};

/// vLLM's own bounds, so that what the client saw and what the server says can be laid over each other.
const TIME_TO_FIRST_TOKEN_SECONDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const TIME_PER_OUTPUT_TOKEN_SECONDS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const REQUEST_DURATION_SECONDS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
/// vLLM has no such histogram: from a machine without a graphics card to the fastest services.
const OUTPUT_TOKENS_PER_SECOND: [f64; 16] =
    [1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1000.0];
const MAX_SERIES: usize = 20_000;
const BOUNDS_MAX: usize = 100;

impl Default for Histograms {
    fn default() -> Self {
        Self {
            time_to_first_token_seconds: TIME_TO_FIRST_TOKEN_SECONDS.into(),
            time_per_output_token_seconds: TIME_PER_OUTPUT_TOKEN_SECONDS.into(),
            request_duration_seconds: REQUEST_DURATION_SECONDS.into(),
            output_tokens_per_second: OUTPUT_TOKENS_PER_SECOND.into(),
            max_series: MAX_SERIES,
        }
    }
}

impl Histograms {
    /// Adds a sweep's objectives as bounds: the share within an objective is then exact.
    pub fn add_objectives(&mut self, objectives: &Objectives) {
        let edges = [
            (&mut self.time_to_first_token_seconds, objectives.ttft),
            (&mut self.time_per_output_token_seconds, objectives.tpot),
            (&mut self.request_duration_seconds, objectives.duration),
        ];
        for (bounds, objective) in edges {
            let Some(edge) = objective.map(|objective| objective.as_secs_f64()) else { continue };
            let place = bounds.partition_point(|bound| *bound < edge);
            if bounds.get(place) != Some(&edge) {
                bounds.insert(place, edge);
            }
        }
    }
}

/// Reads `[histograms]`.
pub(super) fn read(section: Section<'_>) -> Histograms {
    let default = Histograms::default();
    let histograms = Histograms {
        time_to_first_token_seconds: bounds(&section, "time_to_first_token_seconds")
            .unwrap_or(default.time_to_first_token_seconds),
        time_per_output_token_seconds: bounds(&section, "time_per_output_token_seconds")
            .unwrap_or(default.time_per_output_token_seconds),
        request_duration_seconds: bounds(&section, "request_duration_seconds")
            .unwrap_or(default.request_duration_seconds),
        output_tokens_per_second: bounds(&section, "output_tokens_per_second")
            .unwrap_or(default.output_tokens_per_second),
        max_series: section
            .value::<MaxSeries>("max_series")
            .map_or(default.max_series, |max| max.value.0 as usize),
    };
    section.finish();
    histograms
}

fn bounds(section: &Section<'_>, key: &'static str) -> Option<Vec<f64>> {
    let list: Placed<Vec<Placed<Bound>>> = section.list(key)?;
    if list.value.len() > BOUNDS_MAX {
        section
            .notes()
            .complain(&list.at, format!("has more than {BOUNDS_MAX} bounds; each is a series per cell"));
        return None;
    }
    for (lower, upper) in list.value.iter().zip(list.value.iter().skip(1)) {
        if upper.value.0 <= lower.value.0 {
            let message = format!("must be above the bound before it, {}; sort the list", lower.value.0);
            section.notes().complain(&upper.at, message);
            return None;
        }
    }
    Some(list.value.iter().map(|bound| bound.value.0).collect())
}
