//! A target's base URL: what may be one, and how a protocol's path is joined to it.

use std::fmt::{self, Write};

use http::Uri;

#[cfg(test)]
mod tests;

/// A base URL: `http` or `https`, no userinfo, query or fragment; the path is kept as written, less trailing slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    text: String,
    uri: Uri,
}

/// Why a text is no base URL; it says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrlError(String);

/// Paths that protocols add themselves, as people paste them.
const PROTOCOL_PATHS: [&str; 5] =
    ["/chat/completions", "/completions", "/responses", "/messages", "/embeddings"];
/// Longest base URL, so that a joined one stays far below what a URI may be.
const BYTES_MAX: usize = 2048;

impl BaseUrl {
    /// Checks a base URL.
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        let text = text.trim();
        check_text(text)?;
        let trimmed = text.trim_end_matches('/');
        let uri: Uri = trimmed.parse().map_err(|error| {
            BaseUrlError(format!("is not a URL ({error}); write one like \"https://host/v1\""))
        })?;
        check_authority(&uri)?;
        for path in PROTOCOL_PATHS {
            if let Some(cut) = trimmed.strip_suffix(path) {
                return Err(BaseUrlError(format!(
                    "ends in \"{path}\", which tokenprobe adds itself; cut it: \"{cut}\""
                )));
            }
        }
        Ok(Self { text: trimmed.to_owned(), uri })
    }

    /// This URL with a protocol's path (and query) written behind it. Characters a URI may not hold are
    /// percent-encoded; a path too long for a URI is left out.
    #[must_use]
    pub fn join(&self, path: &str) -> Uri {
        let separator = if path.starts_with('/') { "" } else { "/" };
        let joined = format!("{}{separator}{}", self.text, encoded(path));
        joined.parse().unwrap_or_else(|_| self.uri.clone())
    }

    /// As written, less trailing slashes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Name or address of the host, an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, the scheme's own when none is written.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_tls() { 443 } else { 80 })
    }

    /// Whether the scheme is `https`.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for BaseUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BaseUrlError {}

fn check_text(text: &str) -> Result<(), BaseUrlError> {
    let refuse = |what: &str| Err(BaseUrlError(what.to_owned()));
    if text.is_empty() {
        return refuse("is empty; write a URL like \"https://host/v1\"");
    }
    if text.len() > BYTES_MAX {
        return refuse("is longer than 2048 bytes; a base URL is a host and a short path");
    }
    // First what may hold a credential: later messages repeat the text.
    let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#']).next().unwrap_or(after_scheme);
    if authority.contains('@') {
        return refuse("holds a user name or password; put the credential into `api_key` or `extra_headers`");
    }
    if text.contains('?') {
        return refuse(
            "has a query; cut it from the '?' on and write query = { name = \"value\" } beside it",
        );
    }
    let Some((scheme, _)) = text.split_once("://") else {
        return Err(BaseUrlError(format!("has no scheme; write \"https://{text}\" or \"http://{text}\"")));
    };
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(BaseUrlError(format!("has the scheme \"{scheme}\"; only http and https are spoken")));
    }
    if authority.is_empty() || authority.starts_with(':') {
        return refuse("names no host; write one like \"https://host/v1\"");
    }
    if !authority.is_ascii() {
        return refuse("has a host outside ASCII; write its punycode form (xn--...)");
    }
    if text.contains('#') {
        return refuse("has a fragment; cut it from the '#' on");
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return refuse("holds white space; a URL has none");
    }
    Ok(())
}

fn check_authority(uri: &Uri) -> Result<(), BaseUrlError> {
    let host = uri.host().unwrap_or_default();
    let authority = uri.authority().map_or("", http::uri::Authority::as_str);
    if host.is_empty() || host == "[]" {
        return Err(BaseUrlError("names no host; write one like \"https://host/v1\"".to_owned()));
    }
    let port = authority.strip_prefix(host).and_then(|rest| rest.strip_prefix(':'));
    match port.map(str::parse::<u16>) {
        None | Some(Ok(1..)) => Ok(()),
        Some(_) => Err(BaseUrlError("has no valid port; a port is a number from 1 to 65535".to_owned())),
    }
}

fn encoded(path: &str) -> String {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte);
    path.bytes().fold(String::with_capacity(path.len()), |mut text, byte| {
        if allowed(byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a String never fails.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}
