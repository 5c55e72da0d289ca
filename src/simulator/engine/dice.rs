//! Reproducible jitter: positive factors around one with a tail to the right.

use std::f64::consts::TAU;

/// A seeded source of factors.
#[derive(Debug)]
pub(super) struct Dice(fastrand::Rng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A log-normal factor: median 1, `spread` its sigma. Held below five sigma, so that no throw is absurd.
    pub(super) fn factor(&mut self, spread: f64) -> f64 {
        // Box-Muller; the first uniform must not be zero.
        let radius = (-2.0 * (1.0 - self.0.f64()).ln()).sqrt();
        let normal = radius * (TAU * self.0.f64()).cos();
        (spread * normal.clamp(-5.0, 5.0)).exp()
    }
}
