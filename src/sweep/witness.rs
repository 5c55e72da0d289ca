//! The engine's own account of a level: looked at before it, under its load once nothing more is measured, and after it.

use std::time::Duration;

use super::shot::Prepared;
use crate::engine::{EngineView, FirstTokens, Snapshot};

/// Engines tell of a request a moment after its last token: so often is asked again, after such a pause.
const TRIES_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// One level's looks at the engine; it does nothing where no page of metrics is configured.
pub(super) struct Witness<'a> {
    prepared: &'a Prepared,
    model: &'a str,
    before: Option<Snapshot>,
    loaded: Option<Snapshot>,
}

impl<'a> Witness<'a> {
    pub(super) async fn before(prepared: &'a Prepared, model: &'a str) -> Self {
        let mut witness = Self { prepared, model, before: None, loaded: None };
        witness.before = witness.look().await;
        witness
    }

    pub(super) async fn under_load(&mut self) {
        if self.before.is_some() {
            self.loaded = self.look().await;
        }
    }

    /// The account, once the engine has counted what the client saw.
    pub(super) async fn after(self, client: Option<FirstTokens>) -> Option<EngineView> {
        let (before, client) = (self.before.as_ref()?, client?);
        let mut after = self.look().await?;
        for _ in 1..TRIES_MAX {
            if after.has_counted(client.count, before) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            after = self.look().await?;
        }
        EngineView::between(before, self.loaded.as_ref(), &after, client)
    }

    async fn look(&self) -> Option<Snapshot> {
        let look = self.prepared.endpoint.engine(self.model).await?;
        look.inspect_err(|error| {
            tracing::warn!(target = %self.prepared.endpoint.target().name, error, "the engine's metrics cannot be read");
        })
        .ok()
    }
}
