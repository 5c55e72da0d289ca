//! The web configuration (`--web.config.file`): TLS, who may ask, and headers of every answer.
//!
//! The file is the one of Prometheus' exporter-toolkit, with bearer tokens beside it. It and the files it names are
//! looked at every few seconds and taken over as a whole when one of them changed; one that cannot be used leaves the
//! old one in force. Knows nothing of paths, except which two are free for health checks.

mod file;
mod gatekeeper;
mod tls;

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use axum::http::{HeaderName, HeaderValue};

pub(super) use self::gatekeeper::guard;
use self::{file::Loaded, gatekeeper::Gatekeeper};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A web configuration in force; cheap to clone.
#[derive(Debug, Clone)]
pub struct Web(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: Option<PathBuf>,
    current: RwLock<Arc<Current>>,
    /// The last complaint, so that it is told once.
    complaint: Mutex<Option<String>>,
}

/// One state of the files.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) gatekeeper: Gatekeeper,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    client_certificates: bool,
    digest: [u8; 32],
}

impl Web {
    /// No file: plain HTTP, and everybody may read.
    #[must_use]
    pub fn open() -> Self {
        Self::with(None, Loaded::default())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it or a file that it names, with the place and the mend.
    pub fn load(path: &Path) -> Result<Self, String> {
        Ok(Self::with(Some(path.to_owned()), file::load(path)?))
    }

    fn with(path: Option<PathBuf>, loaded: Loaded) -> Self {
        let current = RwLock::new(Arc::new(Current::new(loaded)));
        Self(Arc::new(Shared { path, current, complaint: Mutex::default() }))
    }

    pub(super) fn current(&self) -> Arc<Current> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether whoever gets through has shown a credential.
    pub(super) fn asks_for_credential(&self) -> bool {
        self.current().is_closed()
    }

    /// Looks at the files again and again; never ends.
    pub(super) async fn watch(&self) {
        if self.0.path.is_none() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let web = self.clone();
            // Reading files must not hold up probes.
            if let Err(error) = tokio::task::spawn_blocking(move || web.look()).await {
                tracing::error!(%error, "the web configuration was not looked at");
            }
        }
    }

    /// Takes over what changed.
    fn look(&self) {
        let Some(path) = &self.0.path else { return };
        let changed = file::load(path).and_then(|loaded| self.take_over(loaded));
        let mut complaint = self.0.complaint.lock().unwrap_or_else(PoisonError::into_inner);
        match changed {
            Ok(()) => *complaint = None,
            Err(error) => {
                if complaint.as_ref() != Some(&error) {
                    tracing::error!(error, "web configuration not reloaded, the old one stays");
                }
                *complaint = Some(error);
            }
        }
    }

    fn take_over(&self, loaded: Loaded) -> Result<(), String> {
        let before = self.current();
        if loaded.digest == before.digest {
            return Ok(());
        }
        if loaded.tls.is_some() != before.tls.is_some() {
            return Err("tls_server_config was added or removed: that takes a restart".into());
        }
        if before.is_closed() && !loaded.is_closed() {
            // A file that is written anew is empty for a moment.
            return Err("it no longer asks for a credential: that takes a restart".into());
        }
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Current::new(loaded));
        tracing::info!("web configuration reloaded");
        Ok(())
    }
}

impl Current {
    /// Whether whoever gets through has shown a credential.
    fn is_closed(&self) -> bool {
        self.gatekeeper.is_closed() || self.client_certificates
    }

    fn new(loaded: Loaded) -> Self {
        let Loaded { users, tokens, tls, client_certificates, headers, digest } = loaded;
        Self { gatekeeper: Gatekeeper::new(users, tokens), tls, headers, client_certificates, digest }
    }
}
