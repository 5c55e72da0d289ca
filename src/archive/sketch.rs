//! A latency distribution in some hundred bytes: an HdrHistogram of nanoseconds, exact to 0.1%.
//!
//! Kept as HdrHistogram's own V2 form, which other tools read; as base64 in JSON.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer as HdrReader, Serializer as _, V2Serializer},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Three significant digits: 0.1%.
const DIGITS: u8 = 3;
/// The longest latency that is told apart, in nanoseconds: a day.
const NANOS_MAX: u64 = 24 * 60 * 60 * 1_000_000_000;

/// Every sample of one quantity of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct Sketch(Histogram<u32>);

impl Sketch {
    /// Of samples in seconds; `None` when there are none.
    #[must_use]
    pub fn of(seconds: impl IntoIterator<Item = f64>) -> Option<Self> {
        // Grows by itself: a level's latencies lie close together, and an empty day of nanoseconds would cost 400 KiB.
        let mut histogram = Histogram::<u32>::new(DIGITS).ok()?;
        histogram.auto(true);
        for sample in seconds {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
            let nanos = ((sample * 1e9).round() as u64).min(NANOS_MAX);
            // What may grow takes every value.
            let _ = histogram.record(nanos);
        }
        (!histogram.is_empty()).then_some(Self(histogram))
    }

    /// Takes in the samples of another.
    pub fn merge(&mut self, other: &Self) {
        // Histograms of equal precision that may grow can always be added.
        let _ = self.0.add(&other.0);
    }

    /// How many samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The `q`-quantile, 0 to 1, in seconds.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        self.0.value_at_quantile(q) as f64 / 1e9
    }

    /// `(seconds, how many)`, ascending. A value is the middle of the 0.1% that its samples lie in.
    #[must_use]
    pub fn samples(&self) -> Vec<(f64, u32)> {
        let recorded = self.0.iter_recorded().map(|step| {
            let value = self.0.median_equivalent(step.value_iterated_to());
            (value as f64 / 1e9, step.count_at_value())
        });
        recorded.collect()
    }

    /// HdrHistogram's V2 form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        let _ = V2Serializer::new().serialize(&self.0, &mut bytes);
        bytes
    }

    /// Reads HdrHistogram's V2 form; `None` when it is none.
    #[must_use]
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut histogram: Histogram<u32> = HdrReader::new().deserialize(&mut bytes).ok()?;
        histogram.auto(true);
        Some(Self(histogram))
    }
}

impl Serialize for Sketch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(self.to_bytes()))
    }
}

impl<'de> Deserialize<'de> for Sketch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        Self::from_bytes(&bytes).ok_or_else(|| D::Error::custom("is not an HdrHistogram in V2 form"))
    }
}
