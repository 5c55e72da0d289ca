//! Who may ask: basic credentials against bcrypt hashes, bearer tokens, and the headers that every answer carries.
//!
//! Hashes are slow on purpose. One is computed at a time, off the threads that probe, and what was right once is
//! remembered by a digest, so that neither scrapes nor guesses take time from measurements.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, PoisonError},
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::Web;

/// Paths that tell nothing but that the process lives.
const FREE_PATHS: [&str; 2] = ["/-/healthy", "/-/ready"];
/// Compared with when there is no such user, so that names cannot be found out by time.
const NOBODY: &str = "$2b$10$tsWwGvbKrwvySsfOdnKeZOlsz2v2L/qj6uYvWz/Z6WceuQKxrqJk.";
/// Passwords that are remembered as right: more than there are users is never needed.
const REMEMBERED_MAX: usize = 256;

/// Hashes computed at a time, over all connections.
static HASHING: Semaphore = Semaphore::const_new(1);

/// Knows the credentials.
#[derive(Debug)]
pub(in crate::server) struct Gatekeeper {
    users: BTreeMap<String, String>,
    tokens: Vec<[u8; 32]>,
    /// So that a remembered digest is of no use to anybody else.
    salt: [u8; 16],
    remembered: Mutex<HashSet<[u8; 32]>>,
}

impl Gatekeeper {
    pub(super) fn new(users: BTreeMap<String, String>, tokens: Vec<[u8; 32]>) -> Self {
        Self { users, tokens, salt: fastrand::u128(..).to_be_bytes(), remembered: Mutex::default() }
    }

    /// Whether anybody is kept out.
    pub(in crate::server) fn is_closed(&self) -> bool {
        !self.users.is_empty() || !self.tokens.is_empty()
    }

    /// Whether a request's credential is one of those.
    pub(super) async fn lets_in(&self, headers: &HeaderMap) -> bool {
        if !self.is_closed() {
            return true;
        }
        let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let Some((scheme, credential)) = value.split_once(' ') else { return false };
        if scheme.eq_ignore_ascii_case("bearer") {
            let digest: [u8; 32] = Sha256::digest(credential.trim()).into();
            return self.tokens.contains(&digest);
        }
        scheme.eq_ignore_ascii_case("basic") && self.knows(credential.trim()).await
    }

    async fn knows(&self, credential: &str) -> bool {
        let Some(plain) = STANDARD.decode(credential).ok().and_then(|bytes| String::from_utf8(bytes).ok())
        else {
            return false;
        };
        let Some((name, password)) = plain.split_once(':') else { return false };
        let known = self.users.get(name);
        let hash = known.map_or(NOBODY, String::as_str).to_owned();
        let digest = self.digest(&plain, &hash);
        if known.is_some() && self.remembered().contains(&digest) {
            return true;
        }
        let Ok(_turn) = HASHING.acquire().await else { return false };
        let password = password.to_owned();
        let verified = tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash)).await;
        let right = matches!(verified, Ok(Ok(true))) && known.is_some();
        if right {
            let mut remembered = self.remembered();
            if remembered.len() >= REMEMBERED_MAX {
                remembered.clear();
            }
            remembered.insert(digest);
        }
        right
    }

    fn digest(&self, plain: &str, hash: &str) -> [u8; 32] {
        Sha256::new().chain_update(self.salt).chain_update(hash).chain_update(plain).finalize().into()
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashSet<[u8; 32]>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stands before every path: refuses who may not ask, and adds the headers of every answer.
pub(in crate::server) async fn guard(State(web): State<Web>, request: Request, next: Next) -> Response {
    let current = web.current();
    let free = FREE_PATHS.contains(&request.uri().path());
    let mut response = if free || current.gatekeeper.lets_in(request.headers()).await {
        next.run(request).await
    } else {
        refusal()
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    for (name, value) in &current.headers {
        headers.insert(name.clone(), value.clone());
    }
    response
}

fn refusal() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"tokenprobe\", charset=\"UTF-8\"")];
    (StatusCode::UNAUTHORIZED, challenge, "a credential is needed\n").into_response()
}
