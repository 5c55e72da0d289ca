//! What proves to a target who asks: one key or several, OAuth2 client credentials, a command, AWS.
//!
//! Only what the file says, and where values that are issued later find their room. Getting and sending them is the
//! business of [`crate::credential`].

use std::{path::PathBuf, time::Duration};

use http::{HeaderName, HeaderValue, Uri};
use secrecy::ExposeSecret;
use toml::{Spanned, de::DeValue};

use super::{
    BaseUrl,
    aws::{self, Aws},
    diagnostic::{At, Placed},
    file::{PositiveDuration, Text},
    secret::Secret,
    section::{Section, kind},
    target::Surroundings,
    written_secret::written_secret,
};

/// Who the prober says it is.
#[derive(Debug, Clone, Default)]
pub enum Credential {
    /// Nobody.
    #[default]
    None,
    /// `api_key`: one key, or several of which each probe takes the next.
    Keys(Vec<Secret>),
    /// `oauth2`
    OAuth2(Box<OAuth2>),
    /// `token_command`
    Command(TokenCommand),
    /// `aws`
    Aws(Box<Aws>),
}

/// `oauth2`: the client credentials grant (RFC 6749, section 4.4).
#[derive(Debug, Clone)]
pub struct OAuth2 {
    /// Where tokens are asked for.
    pub token_url: Uri,
    /// The client.
    pub client_id: Secret,
    /// Its password.
    pub client_secret: Secret,
    /// How the client shows both.
    pub client_auth: ClientAuth,
    /// Asked-for scopes; the server's default when empty.
    pub scopes: Vec<String>,
    /// Further parameters of the token request: `audience`, `resource`.
    pub params: Vec<(String, String)>,
    /// The token of now.
    pub token: Secret,
}

/// How an OAuth2 client shows its id and secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// As HTTP basic authentication, which every server has to take.
    #[default]
    Basic,
    /// In the form.
    Body,
}

/// `token_command`: a program that prints a token.
#[derive(Debug, Clone)]
pub struct TokenCommand {
    /// The program, found by PATH; no shell is involved.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
    /// How long its token is used when it does not say.
    pub ttl: Duration,
    /// The token of now.
    pub token: Secret,
}

const KINDS: [&str; 4] = ["api_key", "oauth2", "token_command", "aws"];
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const COMMAND_TTL: Duration = Duration::from_secs(5 * 60);

impl Credential {
    /// Every secret in it, those that will be issued included.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        match self {
            Self::None => Vec::new(),
            Self::Keys(keys) => keys.clone(),
            Self::OAuth2(oauth2) => vec![oauth2.client_secret.clone(), oauth2.token.clone()],
            Self::Command(command) => vec![command.token.clone()],
            Self::Aws(aws) => aws.secrets(),
        }
    }
}

/// Reads a target's credential; a second kind beside the first is complained about.
pub(super) fn read(
    section: &Section<'_>,
    surroundings: &Surroundings<'_>,
    base_url: Option<&BaseUrl>,
) -> Credential {
    let given: Vec<_> = KINDS.iter().filter_map(|key| Some((*key, section.raw(key)?))).collect();
    if let [(first, _), (second, raw), ..] = given[..] {
        let message = format!("a target has one credential, and `{first}` is one; remove one of the two");
        section.notes().complain(&section.at(second, raw.span()), message);
    }
    let header = section.raw("auth_header").is_some();
    let keys = keys(section, surroundings, header);
    let oauth2 = section.section("oauth2").and_then(|section| oauth2(section, surroundings));
    let command = section.section("token_command").and_then(token_command);
    let aws = section.section("aws").and_then(|section| aws::read(section, surroundings, base_url));
    match (oauth2, command, aws) {
        (Some(oauth2), ..) => Credential::OAuth2(Box::new(oauth2)),
        (_, Some(command), _) => Credential::Command(command),
        (.., Some(aws)) => Credential::Aws(Box::new(aws)),
        (None, None, None) if keys.is_empty() => Credential::None,
        (None, None, None) => Credential::Keys(keys),
    }
}

/// `auth_header`, which carries the credential as it is, without `Bearer`.
pub(super) fn header(section: &Section<'_>, credential: &Credential) -> Option<HeaderName> {
    let text = section.value::<Text>("auth_header")?;
    if matches!(credential, Credential::None | Credential::Aws(_)) {
        section.notes().warn(&text.at, "has no effect without `api_key`, `oauth2` or `token_command`");
    }
    let header = HeaderName::from_bytes(text.value.0.as_bytes()).ok();
    if header.is_none() {
        section.notes().complain(&text.at, "is not a header name; write one like \"api-key\"");
    }
    header
}

fn keys(section: &Section<'_>, surroundings: &Surroundings<'_>, has_header: bool) -> Vec<Secret> {
    let Some(raw) = section.raw("api_key") else { return Vec::new() };
    let one = |raw: &Spanned<DeValue<'_>>| {
        let at = section.at("api_key", raw.span());
        let secret = written_secret(section, "api_key", &at, raw, surroundings, Secret::literal)?;
        check_key(section, &at, &secret, has_header);
        Some(secret)
    };
    let DeValue::Array(list) = raw.get_ref() else { return one(raw).into_iter().collect() };
    if list.is_empty() {
        let message = "must not be empty; list at least one key, or remove it";
        section.notes().complain(&section.at("api_key", raw.span()), message);
    }
    list.iter().filter_map(one).collect()
}

fn check_key(section: &Section<'_>, at: &At, secret: &Secret, has_header: bool) {
    let notes = section.notes();
    let value = secret.reveal();
    if HeaderValue::from_str(value.expose_secret()).is_err() || !value.expose_secret().is_ascii() {
        let source = secret.source();
        notes.complain(
            at,
            format!("the key ({source}) holds characters a header cannot carry; copy it again"),
        );
    }
    if !has_header && value.expose_secret().to_ascii_lowercase().starts_with("bearer ") {
        notes.complain(at, "the key begins with \"Bearer \", which is added; leave it out");
    } else if !has_header && value.expose_secret().contains(' ') {
        // No token has one (RFC 6750): two keys in one file, or words around the key.
        let source = secret.source();
        notes.complain(
            at,
            format!("the key ({source}) holds a space, so it is not the key alone; copy it again"),
        );
    }
    if secret.is_literal() {
        notes.warn(at, "is written in the file; { env = \"...\" } or { file = \"...\" } keeps it out of it");
    }
    if secret.was_padded() {
        let message = format!("the key ({}) has white space around it, which is cut off", secret.source());
        notes.warn(at, &message);
    }
}

fn oauth2(section: Section<'_>, surroundings: &Surroundings<'_>) -> Option<OAuth2> {
    let token_url = section.value::<Text>("token_url").and_then(|text| token_url(&section, &text));
    let client_id = needed_secret(&section, "client_id", surroundings, Secret::plain);
    let client_secret = needed_secret(&section, "client_secret", surroundings, Secret::literal);
    for (key, mend) in [
        ("token_url", "add token_url = \"https://...\""),
        ("client_id", "add client_id = \"...\""),
        ("client_secret", "add client_secret = { env = \"...\" }"),
    ] {
        if section.raw(key).is_none() {
            section.missing(key, mend);
        }
    }
    let client_auth = section.choice("client_auth", &["basic", "body"]).unwrap_or_default();
    let scopes = texts(&section, "scopes");
    let params = section.section("params").map(|params| pairs(&params)).unwrap_or_default();
    section.finish();
    Some(OAuth2 {
        token_url: token_url?,
        client_id: client_id?,
        client_secret: client_secret?,
        client_auth,
        scopes,
        params,
        token: Secret::issued(),
    })
}

fn token_url(section: &Section<'_>, text: &Placed<Text>) -> Option<Uri> {
    let uri: Option<Uri> = text.value.0.trim().parse().ok();
    let good = uri.filter(|uri| {
        let authority = uri.authority().map_or("", http::uri::Authority::as_str);
        matches!(uri.scheme_str(), Some("http" | "https"))
            && !authority.is_empty()
            && !authority.contains('@')
    });
    if good.is_none() {
        section.notes().mask(text.at.span.clone());
        let message =
            "is not a token endpoint's URL; write one like \"https://login.example.com/oauth2/token\"";
        section.notes().complain(&text.at, message);
    }
    good
}

/// A secret under a key of this table.
pub(super) fn needed_secret(
    section: &Section<'_>,
    key: &'static str,
    surroundings: &Surroundings<'_>,
    literal: fn(&str) -> Result<Secret, super::SecretError>,
) -> Option<Secret> {
    let raw = section.raw(key)?;
    let at = section.at(key, raw.span());
    let secret = written_secret(section, key, &at, raw, surroundings, literal)?;
    if secret.is_literal() && secret.is_sensitive() {
        let message = "is written in the file; { env = \"...\" } or { file = \"...\" } keeps it out of it";
        section.notes().warn(&at, message);
    }
    Some(secret)
}

fn texts(section: &Section<'_>, key: &'static str) -> Vec<String> {
    let list = section.list::<Text>(key).map(|list| list.value).unwrap_or_default();
    list.into_iter().map(|text| text.value.0).collect()
}

/// Every key and text of a table whose keys are the user's own.
fn pairs(section: &Section<'_>) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (name, raw) in section.entries() {
        if let Some(text) = raw.get_ref().as_str() {
            pairs.push((name.value.to_owned(), text.to_owned()));
        } else {
            let message = format!("must be a string, not {}", kind(raw.get_ref()));
            section.notes().complain(&section.at(name.value, raw.span()), message);
        }
    }
    pairs
}

fn token_command(section: Section<'_>) -> Option<TokenCommand> {
    let command = command(&section);
    let timeout = duration(&section, "timeout", COMMAND_TIMEOUT);
    let ttl = duration(&section, "ttl", COMMAND_TTL);
    section.finish();
    let (program, arguments) = command?;
    Some(TokenCommand { program, arguments, timeout, ttl, token: Secret::issued() })
}

/// `command`, a program and its arguments. The program is not looked for: it may come later.
pub(super) fn command(section: &Section<'_>) -> Option<(String, Vec<String>)> {
    let list = section.list::<Text>("command");
    if section.raw("command").is_none() {
        section.missing("command", "add command = [\"program\", \"argument\", ...]");
    }
    let mut words = list?.value.into_iter();
    let program = words.next()?;
    if program.value.0.trim().is_empty() || program.value.0.trim().contains(char::is_whitespace) {
        let message = "is not a program; there is no shell: write each argument on its own, [\"program\", \"argument\"]";
        section.notes().complain(&program.at, message);
    }
    Some((program.value.0, words.map(|word| word.value.0).collect()))
}

pub(super) fn duration(section: &Section<'_>, key: &'static str, default: Duration) -> Duration {
    section.value::<PositiveDuration>(key).map_or(default, |duration| duration.value.0)
}

/// `tls.client_cert_file` and `tls.client_key_file`: who the prober is, by certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// PEM file of the certificate and what vouches for it.
    pub cert_file: PathBuf,
    /// PEM file of its private key.
    pub key_file: PathBuf,
}
