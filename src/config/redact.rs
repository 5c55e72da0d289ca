//! Takes secrets out of texts before they reach a log, an error message or a page.
//!
//! Knows only the values; where a text goes is the caller's business.

use std::borrow::Cow;

use secrecy::ExposeSecret;

use super::secret::{REDACTED, Secret};

#[cfg(test)]
mod tests;

/// Replaces every secret of a configuration and every URL's userinfo by `[redacted]`. Clones share the secrets,
/// so values that a file rotates to later are known too.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    secrets: Vec<Secret>,
}

impl Redactor {
    /// A redactor of these secrets.
    #[must_use]
    pub fn new(secrets: Vec<Secret>) -> Self {
        Self { secrets }
    }

    /// The text without secrets.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut clean = Cow::Borrowed(text);
        for needle in self.needles() {
            if clean.contains(needle.expose_secret()) {
                clean = Cow::Owned(clean.replace(needle.expose_secret(), REDACTED));
            }
        }
        match without_userinfo(&clean) {
            Some(cleaner) => Cow::Owned(cleaner),
            None => clean,
        }
    }

    /// What to look for, the longest first so that no part of a longer one is left standing.
    fn needles(&self) -> Vec<secrecy::SecretString> {
        let mut needles = Vec::new();
        for secret in &self.secrets {
            let (values, chars_min) = secret.values();
            for value in values {
                if value.expose_secret().chars().count() < chars_min {
                    continue;
                }
                // In JSON a quote or backslash of the value is escaped.
                let escaped = value.expose_secret().escape_default().to_string();
                let json = serde_json::to_string(value.expose_secret()).unwrap_or_default();
                needles.push(json.trim_matches('"').into());
                needles.push(escaped.into());
                needles.push(value);
            }
        }
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.expose_secret().len()));
        needles
    }
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
