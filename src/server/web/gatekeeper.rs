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
/// Passwords that are remembered as right: more than there are users is never needed.
const REMEMBERED_MAX: usize = 256;

/// Hashes computed at a time, over all connections.
static HASHING: Semaphore = Semaphore::const_new(1);
/// Requests that wait for one or have it, in the order in which they came. Whoever comes when there are more is turned away
/// at once: a flood of wrong passwords would hold all connections, and with them those that need no password.
static SEATS: Semaphore = Semaphore::const_new(64);

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Entry {
    /// It may ask.
    Granted,
    /// Its credential is none of those.
    Refused,
    /// Too many are looked at already.
    Busy,
}

/// Knows the credentials.
#[derive(Debug)]
pub(in crate::server) struct Gatekeeper {
    users: BTreeMap<String, String>,
    /// The dearest of the hashes: compared with when there is no such user, so that names cannot be found out by time.
    nobody: String,
    tokens: Vec<[u8; 32]>,
    /// So that a remembered digest is of no use to anybody else.
    salt: [u8; 16],
    remembered: Mutex<HashSet<[u8; 32]>>,
}

impl Gatekeeper {
    pub(super) fn new(users: BTreeMap<String, String>, tokens: Vec<[u8; 32]>) -> Self {
        let cost = |hash: &&String| hash.parse::<bcrypt::HashParts>().map_or(0, |parts| parts.get_cost());
        let nobody = users.values().max_by_key(cost).cloned().unwrap_or_default();
        Self { users, nobody, tokens, salt: fastrand::u128(..).to_be_bytes(), remembered: Mutex::default() }
    }

    /// Whether anybody is kept out.
    pub(in crate::server) fn is_closed(&self) -> bool {
        !self.users.is_empty() || !self.tokens.is_empty()
    }

    /// Whether a request's credential is one of those.
    pub(super) async fn look(&self, headers: &HeaderMap) -> Entry {
        if !self.is_closed() {
            return Entry::Granted;
        }
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, credential)) = value.and_then(|value| value.split_once(' ')) else {
            return Entry::Refused;
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            let digest: [u8; 32] = Sha256::digest(credential.trim()).into();
            return if self.tokens.contains(&digest) { Entry::Granted } else { Entry::Refused };
        }
        if scheme.eq_ignore_ascii_case("basic") {
            self.look_up(credential.trim()).await
        } else {
            Entry::Refused
        }
    }

    async fn look_up(&self, credential: &str) -> Entry {
        let plain = STANDARD.decode(credential).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((name, password)) = plain.as_deref().and_then(|plain| plain.split_once(':')) else {
            return Entry::Refused;
        };
        let known = self.users.get(name);
        let hash = known.unwrap_or(&self.nobody).clone();
        let digest = self.digest(name, password, &hash);
        if known.is_some() && self.remembered().contains(&digest) {
            return Entry::Granted;
        }
        let Ok(_seat) = SEATS.try_acquire() else { return Entry::Busy };
        let Ok(_turn) = HASHING.acquire().await else { return Entry::Busy };
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
        if right { Entry::Granted } else { Entry::Refused }
    }

    fn digest(&self, name: &str, password: &str, hash: &str) -> [u8; 32] {
        let digest = Sha256::new().chain_update(self.salt).chain_update(hash).chain_update(name);
        // A name holds no colon.
        digest.chain_update(":").chain_update(password).finalize().into()
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashSet<[u8; 32]>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stands before every path: refuses who may not ask, and adds the headers of every answer.
pub(in crate::server) async fn guard(State(web): State<Web>, request: Request, next: Next) -> Response {
    let current = web.current();
    let free = FREE_PATHS.contains(&request.uri().path());
    let entry = if free { Entry::Granted } else { current.gatekeeper.look(request.headers()).await };
    let mut response = match entry {
        Entry::Granted => next.run(request).await,
        Entry::Refused => refusal(),
        Entry::Busy => busy(),
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

fn busy() -> Response {
    let headers = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
    let text = "too many passwords are being looked at: try again, or use a bearer token\n";
    (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response()
}

fn refusal() -> Response {
    let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"tokenprobe\", charset=\"UTF-8\"")];
    (StatusCode::UNAUTHORIZED, challenge, "a credential is needed\n").into_response()
}
