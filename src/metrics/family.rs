//! All series of one metric, by their labels.
//!
//! The `prometheus` crate's vectors are not used: they know a child by a hash of its label values written one
//! after the other, so a cell of 1 prompt token at concurrency 64 and one of 16 tokens at concurrency 4 would
//! share their series.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use super::{
    labels::LabelSet,
    names::Spec,
    text::{self, Sample},
    value::Value,
};

/// The series of one metric.
pub struct Family<K, V: Value> {
    spec: &'static Spec,
    inner: RwLock<Inner<K, V>>,
}

struct Inner<K, V: Value> {
    shape: V::Shape,
    children: BTreeMap<K, Child<V>>,
}

struct Child<V> {
    /// `name="value",...`, escaped once instead of at every scrape.
    labels: String,
    value: V,
}

impl<K: LabelSet, V: Value> Family<K, V> {
    /// A metric without series.
    pub fn new(spec: &'static Spec) -> Self {
        let inner = Inner { shape: V::Shape::default(), children: BTreeMap::new() };
        Self { spec, inner: RwLock::new(inner) }
    }

    /// Makes the series be exactly those of `keys`: missing ones are added, others removed, the rest keep what
    /// they hold. Another shape (other buckets) starts all of them anew.
    pub fn lay_out(&self, shape: &V::Shape, keys: &BTreeSet<K>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.shape != *shape {
            inner.shape = shape.clone();
            inner.children.clear();
        }
        inner.children.retain(|key, _| keys.contains(key));
        for key in keys {
            if !inner.children.contains_key(key) {
                let child = Child { labels: text::labels(self.spec.labels, key), value: V::new(shape) };
                inner.children.insert(key.clone(), child);
            }
        }
    }

    /// The value of a series, to be kept for as long as it is written to. One that is not laid out is counted
    /// into nothing: a level that still runs when a reload removed its cell must not bring the cell back.
    pub fn child(&self, key: &K) -> V {
        let inner = self.read();
        inner.children.get(key).map_or_else(|| V::new(&inner.shape), |child| child.value.clone())
    }

    /// Does something with the value of every series.
    pub fn each(&self, act: impl Fn(&V)) {
        self.read().children.values().for_each(|child| act(&child.value));
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner<K, V>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A metric that can be written down.
pub trait Exposed {
    /// Appends the metric in text format; nothing when it has nothing to show.
    fn expose(&self, out: &mut String);

    /// How many series it can show.
    #[cfg(test)]
    fn capacity(&self) -> usize;
}

impl<K: LabelSet, V: Value + Sample> Exposed for Family<K, V> {
    fn expose(&self, out: &mut String) {
        let start = out.len();
        text::header(out, self.spec.name, self.spec.kind.as_str(), self.spec.help);
        let body = out.len();
        let inner = self.read();
        let texts = V::texts(self.spec.name, &inner.shape);
        for child in inner.children.values() {
            child.value.write(&texts, &child.labels, out);
        }
        if out.len() == body {
            out.truncate(start);
        }
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        let inner = self.read();
        inner.children.len() * V::series(&inner.shape)
    }
}
