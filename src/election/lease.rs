//! The Lease of `coordination.k8s.io/v1` as it crosses the wire. What is not ours in it goes back as it came.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Carried;

const API_VERSION: &str = "coordination.k8s.io/v1";
/// Annotation with the due instants that were dealt with, by sweep.
const STARTS: &str = "tokenprobe/starts";
/// Annotation with what was spent under the budgets.
const SPENT: &str = "tokenprobe/spent";
/// Sweeps whose last start is kept: reloads under ever new names must not fill the object.
const STARTS_MAX: usize = 1000;

/// One lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lease {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_version: Option<String>,
    #[serde(default)]
    annotations: Map<String, Value>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    holder_identity: Option<String>,
    #[serde(default)]
    lease_duration_seconds: Option<u32>,
    #[serde(default)]
    acquire_time: Option<String>,
    #[serde(default)]
    renew_time: Option<String>,
    #[serde(default)]
    lease_transitions: Option<u32>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Lease {
    /// One that nobody holds and that does not exist yet.
    pub(super) fn new(name: &str) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Lease".to_owned(),
            metadata: Metadata { name: name.to_owned(), ..Metadata::default() },
            spec: Spec::default(),
        }
    }

    /// Who holds it; `None` when nobody does.
    pub(super) fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// For how long, from the last change on.
    pub(super) fn length(&self) -> Duration {
        Duration::from_secs(u64::from(self.spec.lease_duration_seconds.unwrap_or(0)))
    }

    /// What tells one version from another.
    pub(super) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }

    /// What it carries. Whatever cannot be read counts as nothing: somebody edited it by hand.
    pub(super) fn carried(&self) -> Carried {
        let text = |key: &str| self.metadata.annotations.get(key).and_then(Value::as_str);
        Carried {
            starts: text(STARTS).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
            spent: text(SPENT).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default(),
        }
    }

    /// Whether what it says is what was wished for: the server adds to what is around it only.
    pub(super) fn says_the_same(&self, wish: &Self) -> bool {
        self.spec == wish.spec && self.metadata.annotations == wish.metadata.annotations
    }

    /// The same held by `identity` from `now` on.
    pub(super) fn held_by(
        &self,
        identity: &str,
        seconds: u32,
        carried: &Carried,
        now: DateTime<Utc>,
    ) -> Self {
        let mut lease = self.clone();
        let stamp = now.to_rfc3339_opts(SecondsFormat::Micros, true);
        let spec = &mut lease.spec;
        if spec.holder_identity.as_deref() != Some(identity) {
            spec.acquire_time = Some(stamp.clone());
            let transitions = spec.lease_transitions.unwrap_or(0);
            spec.lease_transitions = Some(transitions.saturating_add(u32::from(self.version().is_some())));
        }
        spec.holder_identity = Some(identity.to_owned());
        spec.lease_duration_seconds = Some(seconds);
        spec.renew_time = Some(stamp);
        lease.carry(carried);
        lease
    }

    /// The same given up: whoever comes first may have it.
    pub(super) fn given_up(&self, carried: &Carried, now: DateTime<Utc>) -> Self {
        let mut lease = self.clone();
        lease.spec.holder_identity = Some(String::new());
        lease.spec.lease_duration_seconds = Some(1);
        lease.spec.renew_time = Some(now.to_rfc3339_opts(SecondsFormat::Micros, true));
        lease.carry(carried);
        lease
    }

    fn carry(&mut self, carried: &Carried) {
        let mut starts: Vec<_> = carried.starts.iter().collect();
        starts.sort_by_key(|(_, due)| std::cmp::Reverse(**due));
        starts.truncate(STARTS_MAX);
        let starts: std::collections::BTreeMap<_, _> = starts.into_iter().collect();
        let texts =
            [(STARTS, serde_json::to_string(&starts)), (SPENT, serde_json::to_string(&carried.spent))];
        for (key, text) in texts {
            if let Ok(text) = text {
                self.metadata.annotations.insert(key.to_owned(), Value::String(text));
            }
        }
    }
}
