//! `aws`: signed requests, and where the keys to sign with come from.
//!
//! In this order: keys in the file, a command that prints them, a profile of the shared credentials file, the
//! environment, the default profile, and where there is none of these the services of the platform ([`platform`]).
//! Knows nothing of signing.

mod platform;

use std::path::{Path, PathBuf};

use http::Uri;

use super::{
    BaseUrl,
    credential::{self, TokenCommand, needed_secret},
    diagnostic::At,
    file::Text,
    secret::Secret,
    section::Section,
    target::Surroundings,
};

/// Signature version 4 with which keys, for which service.
#[derive(Debug, Clone)]
pub struct Aws {
    /// Region signed for.
    pub region: String,
    /// Service signed for.
    pub service: String,
    /// The keys of now.
    pub keys: AwsKeys,
    /// Where they come from when they change.
    pub source: AwsSource,
}

/// What a request is signed with.
#[derive(Debug, Clone)]
pub struct AwsKeys {
    /// Names the key.
    pub access_key_id: Secret,
    /// The key.
    pub secret_access_key: Secret,
    /// Goes with temporary keys; empty for lasting ones.
    pub session_token: Secret,
}

/// Where keys come from.
#[derive(Debug, Clone)]
pub enum AwsSource {
    /// They are what they are.
    Fixed,
    /// A profile of a shared credentials file, read again when the file changes.
    Profile {
        /// The whole file.
        file: Secret,
        /// Section of it.
        profile: String,
    },
    /// A program that prints them as JSON, as `aws configure export-credentials` does.
    Command(TokenCommand),
    /// A service of the platform.
    Issuer(AwsIssuer),
}

/// A service that issues keys to whatever runs on the platform.
#[derive(Debug, Clone)]
pub enum AwsIssuer {
    /// Takes a role by a token that the platform writes into a file, as for service accounts of EKS.
    WebIdentity {
        /// The security token service.
        sts: Uri,
        /// The role.
        role: String,
        /// What the session is called in the audit log.
        session: String,
        /// The token, read again when the file changes.
        token: Secret,
    },
    /// The agent beside a container: task roles of ECS, pod identities of EKS.
    Container {
        /// Where it answers.
        url: Uri,
        /// What it wants to see.
        authorization: Option<Secret>,
    },
    /// The metadata service of an EC2 instance (`IMDSv2`).
    Instance {
        /// Where it answers.
        endpoint: Uri,
    },
}

impl Aws {
    pub(super) fn secrets(&self) -> Vec<Secret> {
        let mut secrets = vec![self.keys.secret_access_key.clone(), self.keys.session_token.clone()];
        match &self.source {
            AwsSource::Issuer(AwsIssuer::WebIdentity { token, .. }) => secrets.push(token.clone()),
            AwsSource::Issuer(AwsIssuer::Container { authorization, .. }) => {
                secrets.extend(authorization.clone());
            }
            AwsSource::Issuer(AwsIssuer::Instance { .. })
            | AwsSource::Fixed
            | AwsSource::Profile { .. }
            | AwsSource::Command(_) => {}
        }
        secrets
    }
}

impl AwsKeys {
    /// Id, key and session token: what issuers fill.
    #[must_use]
    pub fn rooms(&self) -> [&Secret; 3] {
        [&self.access_key_id, &self.secret_access_key, &self.session_token]
    }

    fn issued() -> Self {
        Self {
            access_key_id: Secret::issued(),
            secret_access_key: Secret::issued(),
            session_token: Secret::issued(),
        }
    }

    /// Takes the keys of a profile; `false` when the text has none.
    #[must_use]
    pub fn take_profile(&self, text: &str, profile: &str) -> bool {
        let found = |key: &str| profile_value(text, profile, key);
        let (Some(id), Some(secret)) = (found("aws_access_key_id"), found("aws_secret_access_key")) else {
            return false;
        };
        self.access_key_id.renew(id);
        self.secret_access_key.renew(secret);
        self.session_token.renew(found("aws_session_token").unwrap_or_default());
        true
    }
}

/// A value of a section of an INI file.
fn profile_value<'t>(text: &'t str, profile: &str, key: &str) -> Option<&'t str> {
    let mut within = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            let name = name.trim();
            within = name.strip_prefix("profile ").map_or(name, str::trim) == profile;
        } else if within
            && let Some((name, value)) = line.split_once('=')
            && name.trim().eq_ignore_ascii_case(key)
        {
            return Some(value.trim()).filter(|value| !value.is_empty());
        }
    }
    None
}

pub(super) fn read(
    section: Section<'_>,
    surroundings: &Surroundings<'_>,
    base_url: Option<&BaseUrl>,
) -> Option<Aws> {
    let variable = |name: &str| surroundings.environment.variable(name).ok().filter(|text| !text.is_empty());
    let text = |key: &'static str| section.value::<Text>(key).map(|text| text.value.0);
    let region = text("region")
        .or_else(|| base_url.and_then(|url| region_of(url.host())))
        .or_else(|| variable("AWS_REGION"))
        .or_else(|| variable("AWS_DEFAULT_REGION"));
    if region.is_none() {
        section.missing("region", "add region = \"us-east-1\", or set AWS_REGION");
    }
    let service = text("service").unwrap_or_else(|| "bedrock".to_owned());
    let keys = keys(&section, surroundings, region.as_deref());
    section.finish();
    let (keys, source) = keys?;
    Some(Aws { region: region?, service, keys, source })
}

/// `us-east-1` of `bedrock-runtime.us-east-1.amazonaws.com`.
fn region_of(host: &str) -> Option<String> {
    let (front, _) = host.split_once(".amazonaws.com").or_else(|| host.split_once(".api.aws"))?;
    let (_, region) = front.rsplit_once('.')?;
    (region.matches('-').count() >= 2).then(|| region.to_owned())
}

fn keys(
    section: &Section<'_>,
    surroundings: &Surroundings<'_>,
    region: Option<&str>,
) -> Option<(AwsKeys, AwsSource)> {
    let variable = |name: &str| surroundings.environment.variable(name).ok().filter(|text| !text.is_empty());
    let profile = section.value::<Text>("profile").map(|text| text.value.0);
    let access_key_id = needed_secret(section, "access_key_id", surroundings, Secret::plain);
    let secret_access_key = needed_secret(section, "secret_access_key", surroundings, Secret::literal);
    let session_token = needed_secret(section, "session_token", surroundings, Secret::literal);
    let command = section.raw("command").is_some();
    if section.raw("access_key_id").is_some() || section.raw("secret_access_key").is_some() {
        for key in ["access_key_id", "secret_access_key"] {
            if section.raw(key).is_none() {
                section.missing(key, "a key has an id and a secret: add both, or neither");
            }
        }
        let session_token = session_token.unwrap_or_else(Secret::issued);
        let keys =
            AwsKeys { access_key_id: access_key_id?, secret_access_key: secret_access_key?, session_token };
        return Some((keys, AwsSource::Fixed));
    }
    let timeout = credential::duration(section, "timeout", credential::COMMAND_TIMEOUT);
    let ttl = credential::duration(section, "ttl", credential::COMMAND_TTL);
    if command {
        let (program, arguments) = credential::command(section)?;
        let command = TokenCommand { program, arguments, timeout, ttl, token: Secret::issued() };
        return Some((AwsKeys::issued(), AwsSource::Command(command)));
    }
    if profile.is_none()
        && let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"))
    {
        let keys = AwsKeys::issued();
        keys.access_key_id.renew(id.trim());
        keys.secret_access_key.renew(secret.trim());
        keys.session_token.renew(variable("AWS_SESSION_TOKEN").unwrap_or_default().trim());
        return Some((keys, AwsSource::Fixed));
    }
    let named = profile.or_else(|| variable("AWS_PROFILE"));
    let file = shared_file(&variable);
    if named.is_none() && !file.exists() {
        let at = section.here();
        let issuer = platform::issuer(&variable, region?)
            .map_err(|message| section.notes().complain(&at, message))
            .ok()?;
        if matches!(issuer, AwsIssuer::Instance { .. }) {
            let message = "finds keys in neither the environment nor a shared credentials file: they will be asked \
                           of the instance's metadata";
            section.notes().warn(&at, message);
        }
        return Some((AwsKeys::issued(), AwsSource::Issuer(issuer)));
    }
    from_profile(section, &section.here(), named.unwrap_or_else(|| "default".to_owned()), &file)
}

fn shared_file(variable: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let standard = || PathBuf::from(variable("HOME").unwrap_or_default()).join(".aws/credentials");
    variable("AWS_SHARED_CREDENTIALS_FILE").map_or_else(standard, PathBuf::from)
}

fn from_profile(
    section: &Section<'_>,
    at: &At,
    profile: String,
    path: &Path,
) -> Option<(AwsKeys, AwsSource)> {
    use secrecy::ExposeSecret as _;
    let keys = AwsKeys::issued();
    let file = match Secret::from_file(path) {
        Ok(file) => file,
        Err(error) => {
            let message = format!(
                "finds no keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and {error}; or add \
                 command = [\"aws\", \"configure\", \"export-credentials\"]"
            );
            section.notes().complain(at, message);
            return None;
        }
    };
    if !keys.take_profile(file.reveal().expose_secret(), &profile) {
        let message = format!(
            "{} has no keys under [{profile}]; correct `profile`, or add command = [\"aws\", \"configure\", \
             \"export-credentials\"] for profiles that sign in or take a role",
            path.display()
        );
        section.notes().complain(at, message);
        return None;
    }
    Some((keys, AwsSource::Profile { file, profile }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_read_from_hosts() {
        for (host, expect) in [
            ("bedrock-runtime.us-east-1.amazonaws.com", Some("us-east-1")),
            ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("bedrock-runtime.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("vpce-1.bedrock-runtime.eu-central-1.vpce.amazonaws.com", None),
            ("gateway.example.com", None),
        ] {
            assert_eq!(region_of(host).as_deref(), expect, "{host}");
        }
    }

    #[test]
    fn profiles_are_read_from_the_shared_file() {
        let text = "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=S\n\n[work]\n\
                    AWS_ACCESS_KEY_ID = B\naws_secret_access_key = T==\naws_session_token = U\n[empty]\n";
        let value = |profile, key| profile_value(text, profile, key);
        assert_eq!(value("default", "aws_access_key_id"), Some("A"));
        assert_eq!(value("default", "aws_session_token"), None);
        assert_eq!(value("work", "aws_access_key_id"), Some("B"));
        assert_eq!(value("work", "aws_secret_access_key"), Some("T=="));
        assert_eq!(value("empty", "aws_access_key_id"), None);
        assert!(!AwsKeys::issued().take_profile(text, "empty"));
    }
}
