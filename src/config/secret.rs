//! Credentials: where they come from, how they follow a rotation, and that they print as `[redacted]`.
//!
//! The door by which the process environment and secret files enter. It knows nothing of TOML or HTTP.

use std::{
    env::VarError,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use secrecy::{ExposeSecret, SecretString};

use super::bounded;

#[cfg(test)]
mod tests;

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";

/// Most bytes of a secret file: a path that points at something else must not fill the memory.
const SECRET_BYTES_MAX: u64 = 64 * 1024;
/// How many rotated-out values of a file are still redacted.
const FORMER_VALUES_MAX: usize = 8;

/// Looks up environment variables. [`process_environment`] is the real one; tests pass a closure.
pub trait Environment {
    /// The value of a variable.
    fn variable(&self, name: &str) -> Result<String, VarError>;
}

impl<F: Fn(&str) -> Result<String, VarError>> Environment for F {
    fn variable(&self, name: &str) -> Result<String, VarError> {
        self(name)
    }
}

/// The environment of this process.
#[expect(clippy::disallowed_methods, reason = "this is the door by which the environment enters")]
pub fn process_environment(name: &str) -> Result<String, VarError> {
    std::env::var(name)
}

/// A credential. `Debug` and `Display` print `[redacted]`; clones share one value.
#[derive(Clone)]
pub struct Secret(Arc<Inner>);

struct Inner {
    source: Source,
    held: Mutex<Held>,
    /// Whether the value is a credential for certain, so that even a short one is redacted.
    sensitive: bool,
}

enum Source {
    Literal,
    Variable(String),
    File(PathBuf),
    /// Given out by somebody else while the program runs.
    Issued,
}

struct Held {
    value: SecretString,
    former: Vec<SecretString>,
    /// How often the value was replaced.
    generation: u64,
    stamp: Option<Stamp>,
    padded: bool,
    /// Whether the file could not be used when it was last looked at, which was told.
    lost: bool,
}

/// What tells that a file has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// Why there is no usable secret; its text says what to do and never holds the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretError(String);

impl Secret {
    /// A value written in the configuration or given on the command line.
    pub fn literal(value: &str) -> Result<Self, SecretError> {
        let held = Held::new(value, None)
            .ok_or_else(|| SecretError("is empty; write the key, or remove this line".to_owned()))?;
        Ok(Self::with(Source::Literal, held, true))
    }

    /// A header value that is a credential only perhaps: redacted when it is long enough to be one.
    pub fn plain(value: &str) -> Result<Self, SecretError> {
        let held =
            Held::new(value, None).ok_or_else(|| SecretError("is empty; remove this line".to_owned()))?;
        Ok(Self::with(Source::Literal, held, false))
    }

    /// The value of an environment variable, read once.
    pub fn from_variable(name: &str, environment: &dyn Environment) -> Result<Self, SecretError> {
        let value = environment.variable(name).map_err(|error| match error {
            VarError::NotPresent => SecretError(format!(
                "environment variable {name} is not set; set it for this process, or use {{ file = \"...\" }}"
            )),
            VarError::NotUnicode(_) => {
                SecretError(format!("environment variable {name} is not UTF-8; set it to the key's text"))
            }
        })?;
        let held = Held::new(&value, None).ok_or_else(|| {
            SecretError(format!("environment variable {name} is set but empty; set it to the key"))
        })?;
        Ok(Self::with(Source::Variable(name.to_owned()), held, true))
    }

    /// The content of a file, read now and again whenever the file changes.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        let shown = path.display();
        let (value, stamp) = read(path).map_err(|error| {
            SecretError(format!("cannot read {shown}: {error}; create the file or let this user read it"))
        })?;
        let held = Held::new(&value, Some(stamp))
            .ok_or_else(|| SecretError(format!("{shown} is empty; write the key into it")))?;
        Ok(Self::with(Source::File(path.to_owned()), held, true))
    }

    /// A room for a value that is issued while the program runs and changes: empty at first.
    #[must_use]
    pub fn issued() -> Self {
        let held = Held {
            value: SecretString::default(),
            former: Vec::new(),
            generation: 0,
            stamp: None,
            padded: false,
            lost: false,
        };
        Self::with(Source::Issued, held, true)
    }

    /// Takes a newly issued value; those before it stay redacted for a while.
    pub fn renew(&self, value: &str) {
        self.held().replace(SecretString::from(value));
    }

    /// The value as of now, without surrounding white space. A file that has changed is read again; when that
    /// fails, the last good value is given.
    #[must_use]
    pub fn reveal(&self) -> SecretString {
        let mut held = self.held();
        if let Source::File(path) = &self.0.source {
            held.refresh(path);
        }
        held.value.clone()
    }

    /// Whether the value was surrounded by white space when it was last read: a classic cause of 401.
    #[must_use]
    pub fn was_padded(&self) -> bool {
        self.held().padded
    }

    /// Whether it was written down instead of named.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        matches!(self.0.source, Source::Literal)
    }

    /// Whether it is a credential for certain.
    pub(super) fn is_sensitive(&self) -> bool {
        self.0.sensitive
    }

    /// Where it comes from, for a person: `environment variable X`, `file /run/x`, `literal`.
    #[must_use]
    pub fn source(&self) -> String {
        match &self.0.source {
            Source::Literal => "literal".to_owned(),
            Source::Variable(name) => format!("environment variable {name}"),
            Source::File(path) => format!("file {}", path.display()),
            Source::Issued => "issued".to_owned(),
        }
    }

    /// Every value that was ever given out by [`Self::reveal`] (of rotated ones the last few), and the shortest
    /// length from which one is worth hiding.
    pub(super) fn values(&self) -> (Vec<SecretString>, usize) {
        let held = self.held();
        let values = std::iter::once(&held.value).chain(&held.former).cloned();
        (values.collect(), if self.0.sensitive { SENSITIVE_CHARS_MIN } else { PLAIN_CHARS_MIN })
    }

    /// Changes whenever [`Self::values`] do.
    pub(super) fn generation(&self) -> u64 {
        self.held().generation
    }

    fn with(source: Source, held: Held, sensitive: bool) -> Self {
        Self(Arc::new(Inner { source, held: Mutex::new(held), sensitive }))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Every change is a single assignment: a panic elsewhere leaves a value that can be used.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shorter secrets are not replaced in texts: they would blot out ordinary words.
const SENSITIVE_CHARS_MIN: usize = 4;
/// The same for header values that were not named as secrets.
const PLAIN_CHARS_MIN: usize = 12;

impl Held {
    /// `None` when nothing but white space is left.
    fn new(raw: &str, stamp: Option<Stamp>) -> Option<Self> {
        let value = raw.trim();
        // A file's final line break is how files end; in a variable it is a slip.
        let whole = if stamp.is_some() { raw.trim_end_matches(['\n', '\r']) } else { raw };
        let padded = value.len() != whole.len();
        (!value.is_empty()).then(|| Self {
            value: SecretString::from(value),
            former: Vec::new(),
            generation: 0,
            stamp,
            padded,
            lost: false,
        })
    }

    fn refresh(&mut self, path: &Path) {
        if stamp(path).is_ok_and(|current| Some(current) == self.stamp) {
            self.lost = false;
            return;
        }
        let Some(fresh) = read(path).ok().and_then(|(value, stamp)| Self::new(&value, Some(stamp))) else {
            // In the midst of a rotation this is met for a moment, too.
            if !std::mem::replace(&mut self.lost, true) {
                tracing::warn!(file = %path.display(), "a secret's file is gone or empty: its last value stays in use");
            }
            return;
        };
        (self.stamp, self.padded, self.lost) = (fresh.stamp, fresh.padded, false);
        self.replace(fresh.value);
    }

    fn replace(&mut self, fresh: SecretString) {
        if fresh.expose_secret() == self.value.expose_secret() {
            return;
        }
        self.former.insert(0, std::mem::replace(&mut self.value, fresh));
        self.former.truncate(FORMER_VALUES_MAX);
        self.generation += 1;
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        // A pipe would keep whoever opens it until somebody writes.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(Stamp { modified: metadata.modified().ok(), bytes: metadata.len() })
}

fn read(path: &Path) -> io::Result<(String, Stamp)> {
    let stamp = stamp(path)?;
    let text = String::from_utf8(bounded::read(path, SECRET_BYTES_MAX)?).map_err(io::Error::other)?;
    Ok((text, stamp))
}

/// Whether a file holds at least one PEM certificate.
pub(super) fn check_certificates(path: &Path) -> Result<(), SecretError> {
    check_pem(path, &["-----BEGIN CERTIFICATE-----"], "certificate")
}

/// Whether a file holds a PEM private key that needs no passphrase.
pub(super) fn check_private_key(path: &Path) -> Result<(), SecretError> {
    const MARKS: [&str; 3] =
        ["-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----"];
    check_pem(path, &MARKS, "private key without a passphrase")
}

fn check_pem(path: &Path, marks: &[&str], what: &str) -> Result<(), SecretError> {
    /// A system's whole bundle has a quarter of a megabyte.
    const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;
    let shown = path.display();
    let bytes = bounded::read(path, CERTIFICATES_BYTES_MAX)
        .map_err(|error| SecretError(format!("cannot read {shown}: {error}; correct the path")))?;
    let holds = |mark: &&str| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
    if marks.iter().any(holds) {
        return Ok(());
    }
    Err(SecretError(format!("{shown} holds no PEM {what}; export it as PEM")))
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SecretError {}
