//! Takes secrets out of texts before they reach a log, an error message or a page.
//!
//! Knows only the values; where a text goes is the caller's business.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use url::form_urlencoded;

use super::secret::{REDACTED, Secret};

#[cfg(test)]
mod tests;

/// Replaces every secret of a configuration and every URL's userinfo by `[redacted]`. Clones share the secrets,
/// so values that a file rotates to later are known too.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    secrets: Vec<Secret>,
    /// Made anew when a secret was replaced: every probe is redacted.
    needles: Arc<Mutex<Needles>>,
}

/// What to look for, and of which generation of the secrets.
#[derive(Debug, Clone, Default)]
struct Needles {
    generation: Option<u64>,
    all: Arc<[SecretString]>,
}

impl Redactor {
    /// A redactor of these secrets.
    #[must_use]
    pub fn new(secrets: Vec<Secret>) -> Self {
        Self { secrets, needles: Arc::default() }
    }

    /// The text without secrets.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut clean = Cow::Borrowed(text);
        let is_cut = text.contains(CUT);
        for needle in self.needles().iter() {
            let needle = needle.expose_secret();
            if clean.contains(needle) {
                clean = Cow::Owned(clean.replace(needle, REDACTED));
            }
            if let Some(cleaner) = is_cut.then(|| without_beginning(&clean, needle)).flatten() {
                clean = Cow::Owned(cleaner);
            }
        }
        match without_userinfo(&clean) {
            Some(cleaner) => Cow::Owned(cleaner),
            None => clean,
        }
    }

    /// What to look for, the longest first so that no part of a longer one is left standing.
    fn needles(&self) -> Arc<[SecretString]> {
        let generation = Some(self.secrets.iter().map(Secret::generation).sum());
        let mut known = self.needles.lock().unwrap_or_else(PoisonError::into_inner);
        if known.generation != generation {
            *known = Needles { generation, all: self.make_needles().into() };
        }
        known.all.clone()
    }

    fn make_needles(&self) -> Vec<SecretString> {
        let mut needles = Vec::new();
        for secret in &self.secrets {
            let (values, chars_min) = secret.values();
            for value in values {
                if value.expose_secret().chars().count() >= chars_min {
                    needles.extend(guises(value.expose_secret()).map(SecretString::from));
                    needles.push(value);
                }
            }
        }
        needles.sort_by(|one, other| {
            let (one, other) = (one.expose_secret(), other.expose_secret());
            other.len().cmp(&one.len()).then_with(|| one.cmp(other))
        });
        needles.dedup_by(|one, other| one.expose_secret() == other.expose_secret());
        needles
    }
}

/// What a secret looks like in other people's texts: escaped, in JSON, in a query, and within base64 (a basic credential),
/// where its place decides about its letters.
fn guises(secret: &str) -> impl Iterator<Item = String> {
    let json = serde_json::to_string(secret).unwrap_or_default();
    let form: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let percent = utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string();
    // Whoever follows the standard of OAuth 2 writes the secret as in a form first.
    let bases = [secret.to_owned(), form.clone(), percent.clone()];
    let encoded = bases.into_iter().flat_map(|base| {
        let letters: Vec<_> = (0..3).filter_map(|before| within_base64(&base, before)).collect();
        letters
    });
    let plain = [secret.escape_default().to_string(), json.trim_matches('"').to_owned(), form, percent];
    plain.into_iter().chain(encoded)
}

/// The letters that stand for a secret alone when so many bytes (0 to 2) come before it in a group of three.
fn within_base64(secret: &str, before: usize) -> Option<String> {
    let mut bytes = vec![0; before];
    bytes.extend(secret.as_bytes());
    let letters = STANDARD_NO_PAD.encode(&bytes);
    // A letter holds six bits: the first ones, and perhaps the last, are shared with what stands beside the secret.
    let from = (before * 8).div_ceil(6);
    let to = bytes.len() * 8 / 6;
    letters.get(from..to).filter(|letters| letters.len() >= BASE64_LETTERS_MIN).map(str::to_owned)
}

/// Fewer letters would be found in ordinary words.
const BASE64_LETTERS_MIN: usize = 6;
/// What a text ends with that was cut, and the shortest beginning of a secret that is not left before it.
const CUT: char = '…';
const BEGINNING_BYTES_MIN: usize = 4;

/// A text may have been cut in the midst of a secret: the beginning that is left goes, too. `None` when there is none.
fn without_beginning(text: &str, secret: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    let mut found = false;
    while let Some((before, after)) = rest.split_once(CUT) {
        let left = (BEGINNING_BYTES_MIN..secret.len())
            .rev()
            .filter_map(|bytes| secret.get(..bytes))
            .find_map(|beginning| before.strip_suffix(beginning));
        match left {
            Some(left) => {
                found = true;
                clean.push_str(left);
                clean.push_str(REDACTED);
            }
            None => clean.push_str(before),
        }
        clean.push(CUT);
        rest = after;
    }
    clean.push_str(rest);
    found.then_some(clean)
}

/// `scheme://user:password@host` becomes `scheme://[redacted]@host`; `None` when there is no such thing.
fn without_userinfo(text: &str) -> Option<String> {
    let mut clean = String::new();
    let mut rest = text;
    let mut found = false;
    while let Some((before, after)) = rest.split_once("://") {
        let authority =
            after.split(|c: char| c.is_whitespace() || "/?#\"'<>`".contains(c)).next().unwrap_or(after);
        clean.push_str(before);
        clean.push_str("://");
        rest = match authority.rsplit_once('@') {
            Some((userinfo, _)) if !userinfo.is_empty() => {
                found = true;
                clean.push_str(REDACTED);
                after.get(userinfo.len()..).unwrap_or_default()
            }
            _ => after,
        };
    }
    clean.push_str(rest);
    found.then_some(clean)
}
