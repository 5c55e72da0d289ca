//! What a series holds: counter, sum, gauge, histogram. Cheap to clone, safe to share, consistent when read.
//!
//! Knows nothing of names and labels. No lock is held longer than it takes to add to, or copy, one histogram.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// A value that a [`super::family::Family`] can hold.
pub trait Value: Clone + Send + Sync {
    /// What must be known to create one: a histogram's bounds.
    type Shape: Clone + PartialEq + Default + Send + Sync;

    /// A value that has seen nothing yet.
    fn new(shape: &Self::Shape) -> Self;

    /// How many series one such value is in the text format.
    fn series(shape: &Self::Shape) -> usize;
}

/// Counts whole things.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes over a count that is kept elsewhere; it never falls.
    pub fn raise_to(&self, count: u64) {
        self.0.fetch_max(count, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Value for Counter {
    type Shape = ();

    fn new((): &()) -> Self {
        Self::default()
    }

    fn series((): &()) -> usize {
        1
    }
}

/// Adds up fractions (money).
#[derive(Debug, Clone, Default)]
pub struct Sum(Arc<AtomicU64>);

impl Sum {
    /// Adds `amount`; what is negative or not a number is ignored, as a counter never falls.
    pub fn add(&self, amount: f64) {
        if amount > 0.0 {
            let add = |sum| Some((f64::from_bits(sum) + amount).to_bits());
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// What was added up so far.
    #[must_use]
    pub fn total(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Value for Sum {
    type Shape = ();

    fn new((): &()) -> Self {
        Self::default()
    }

    fn series((): &()) -> usize {
        1
    }
}

/// The latest value, or nothing: an unknown gauge is not exposed, so that its series has a room but no zero.
#[derive(Debug, Clone)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Sets the value, or forgets it.
    pub fn set(&self, value: Option<f64>) {
        self.0.store(value.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
    }

    /// The latest value.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        let value = f64::from_bits(self.0.load(Ordering::Relaxed));
        (!value.is_nan()).then_some(value)
    }
}

impl Value for Gauge {
    type Shape = ();

    fn new((): &()) -> Self {
        Self(Arc::new(AtomicU64::new(f64::NAN.to_bits())))
    }

    fn series((): &()) -> usize {
        1
    }
}

/// Counts per bucket, and the sum of what was observed.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: Arc<[f64]>,
    content: Arc<Mutex<Content>>,
}

/// A histogram's content at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Observations per bucket, not cumulative; the last bucket has no upper bound.
    pub counts: Box<[u64]>,
    /// Sum of the observations.
    pub sum: f64,
}

impl Histogram {
    /// Adds one observation.
    pub fn observe(&self, value: f64) {
        self.observe_many(value, 1);
    }

    /// Adds `count` equal observations. A bound is the largest value of its bucket.
    pub fn observe_many(&self, value: f64, count: u32) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = content.counts.get_mut(bucket) {
            *slot += u64::from(count);
            content.sum += value * f64::from(count);
        }
    }

    /// Copies the content.
    #[must_use]
    pub fn content(&self) -> Content {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Value for Histogram {
    type Shape = Arc<[f64]>;

    fn new(bounds: &Arc<[f64]>) -> Self {
        let content = Content { counts: vec![0; bounds.len() + 1].into(), sum: 0.0 };
        Self { bounds: bounds.clone(), content: Arc::new(Mutex::new(content)) }
    }

    /// A bucket per bound, the infinite one, sum and count.
    fn series(bounds: &Arc<[f64]>) -> usize {
        bounds.len() + 3
    }
}
