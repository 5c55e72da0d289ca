//! Reads the web configuration and the files that it names, as a whole.
//!
//! Its form is exporter-toolkit's; a key that would have no effect here is refused rather than passed over, because it
//! would be about safety.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::http::{HeaderName, HeaderValue};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::tls;

/// What the files say.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// Names and bcrypt hashes.
    pub(super) users: BTreeMap<String, String>,
    /// Digests of the bearer tokens.
    pub(super) tokens: Vec<[u8; 32]>,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether every client must show a certificate.
    pub(super) client_certificates: bool,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Of all files together: when it stays, nothing changed.
    pub(super) digest: [u8; 32],
}

impl Loaded {
    /// Whether whoever gets through has shown a credential.
    pub(super) fn is_closed(&self) -> bool {
        !self.users.is_empty() || !self.tokens.is_empty() || self.client_certificates
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Form {
    tls_server_config: Option<TlsForm>,
    http_server_config: HttpForm,
    basic_auth_users: BTreeMap<String, String>,
    bearer_token_files: Vec<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TlsForm {
    pub(super) cert_file: PathBuf,
    pub(super) key_file: PathBuf,
    pub(super) client_auth_type: ClientAuth,
    pub(super) client_ca_file: Option<PathBuf>,
    pub(super) min_version: Option<TlsVersion>,
    pub(super) max_version: Option<TlsVersion>,
    /// Accepted because files have it; it has had no effect in Go either for years.
    #[allow(dead_code, reason = "accepted and without effect")]
    prefer_server_cipher_suites: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum ClientAuth {
    #[default]
    NoClientCert,
    VerifyClientCertIfGiven,
    RequireAndVerifyClientCert,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) enum TlsVersion {
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HttpForm {
    /// Accepted because files have it: only HTTP/1.1 is spoken here.
    #[allow(dead_code, reason = "accepted and without effect")]
    http2: Option<bool>,
    headers: BTreeMap<String, String>,
}

/// The headers that exporter-toolkit lets a file set.
const HEADERS: [&str; 5] = [
    "content-security-policy",
    "strict-transport-security",
    "x-content-type-options",
    "x-frame-options",
    "x-xss-protection",
];
/// Cheapest hash that keeps guessing slow, and the dearest that a request can wait for.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 8..=14;
const BYTES_MAX: u64 = 1 << 20;
const TOKEN_BYTES_MIN: usize = 16;

/// Reads a web configuration.
pub(super) fn load(path: &Path) -> Result<Loaded, String> {
    let shown = path.display();
    let mut hasher = Sha256::new();
    let bytes = read(path, &mut hasher)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{shown}: is not UTF-8; save it as UTF-8"))?;
    let form = parse(&text).map_err(|error| format!("{shown}: {error}"))?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let users = form.basic_auth_users;
    for (name, hash) in &users {
        check_hash(hash)
            .map_err(|error| format!("{shown}: basic_auth_users: {}: {error}", name.escape_debug()))?;
    }
    let mut tokens = Vec::new();
    for file in &form.bearer_token_files {
        tokens.push(token(&directory.join(file), &mut hasher)?);
    }
    let headers = headers(&form.http_server_config).map_err(|error| format!("{shown}: {error}"))?;
    let mut client_certificates = false;
    let tls = match form.tls_server_config {
        None => None,
        Some(form) => {
            client_certificates = form.client_auth_type == ClientAuth::RequireAndVerifyClientCert;
            let mut pem = |file: &Path| read(&directory.join(file), &mut hasher);
            Some(tls::server_config(&form, &mut pem).map_err(|error| format!("{shown}: {error}"))?)
        }
    };
    let digest = hasher.finalize().into();
    Ok(Loaded { users, tokens, tls, client_certificates, headers, digest })
}

fn parse(text: &str) -> Result<Form, String> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Form::default());
    }
    // Only the message: the excerpt of the source could show a hash.
    serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
}

fn read(path: &Path, hasher: &mut Sha256) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let failed = |error: std::io::Error| format!("cannot read {}: {error}; correct the path", path.display());
    let mut bytes = Vec::new();
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        // A pipe would keep whoever opens it.
        return Err(format!("{} is not a regular file; correct the path", path.display()));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("{} is larger than such a file may be", path.display()));
    }
    hasher.update((bytes.len() as u64).to_be_bytes());
    hasher.update(&bytes);
    Ok(bytes)
}

fn token(path: &Path, hasher: &mut Sha256) -> Result<[u8; 32], String> {
    let bytes = read(path, hasher)?;
    let token = bytes.trim_ascii();
    if token.len() < TOKEN_BYTES_MIN {
        return Err(format!(
            "{} holds a token of fewer than {TOKEN_BYTES_MIN} characters, which can be guessed; make a longer one",
            path.display()
        ));
    }
    Ok(Sha256::digest(token).into())
}

fn check_hash(hash: &str) -> Result<(), String> {
    let parts = hash.parse::<bcrypt::HashParts>();
    let parts = parts.map_err(|_| "is no bcrypt hash; make one with `htpasswd -nBC 10 \"\"`".to_owned())?;
    if BCRYPT_COSTS.contains(&parts.get_cost()) {
        return Ok(());
    }
    let (least, most) = (BCRYPT_COSTS.start(), BCRYPT_COSTS.end());
    Err(format!("has a bcrypt cost of {}; use one from {least} to {most}", parts.get_cost()))
}

fn headers(form: &HttpForm) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    for (name, value) in &form.headers {
        let known = HEADERS.iter().find(|known| known.eq_ignore_ascii_case(name));
        let Some(known) = known else {
            let known = HEADERS.join(", ");
            return Err(format!(
                "http_server_config: headers: {} cannot be set; {known} can",
                name.escape_debug()
            ));
        };
        let value = HeaderValue::from_str(value).map_err(|_| {
            format!("http_server_config: headers: {known}: holds characters a header cannot carry")
        })?;
        headers.push((HeaderName::from_static(known), value));
    }
    Ok(headers)
}
