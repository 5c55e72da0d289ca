//! What proves to a target who asks, as headers of one request: keys in turn, tokens fetched ahead of expiry,
//! signatures.
//!
//! All of it happens before a probe's t0: nobody's token endpoint is measured. Knows nothing of connections and
//! answers; where a credential comes from is said by [`crate::config`].

mod aws;
mod aws_issuer;
mod command;
mod endpoint;
mod issuer;
mod oauth2;

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use http::{HeaderName, HeaderValue, Method, Uri, header};
use secrecy::ExposeSecret as _;

use self::issuer::Issuer;
pub(crate) use self::oauth2::TIMEOUT as TOKEN_TIMEOUT;
use crate::{
    config::{AwsSource, Credential, Secret, Target},
    measurement::{Failure, FailureClass, Measurement},
};

/// A target's credential, ready to be shown; one for all of its probes.
#[derive(Debug)]
pub struct Wallet {
    target: Arc<Target>,
    /// Which key is next.
    turn: AtomicUsize,
    issuer: Option<Issuer>,
}

/// The request that is to be proven.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Method.
    pub method: &'a Method,
    /// Where it goes, query included.
    pub uri: &'a Uri,
    /// `Content-Type`, which signatures cover.
    pub content_type: &'a str,
    /// Its body.
    pub body: &'a [u8],
}

/// What one request carries.
#[derive(Debug, Default)]
pub struct Presented {
    /// Headers to add, marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Which of several keys it is, in words.
    which: Option<String>,
}

impl Wallet {
    /// A wallet that has not asked for anything yet. `client` is what token endpoints are asked with.
    ///
    /// # Errors
    /// One line, when the credential needs a client and there is none.
    pub fn new(
        target: Arc<Target>,
        client: impl Fn() -> Result<reqwest::Client, String>,
    ) -> Result<Self, String> {
        let issuer = match &target.credential {
            Credential::OAuth2(oauth2) => Some(Issuer::oauth2(oauth2.as_ref().clone(), client()?)),
            Credential::Command(command) => Some(Issuer::command(command.clone())),
            Credential::Aws(aws) => match &aws.source {
                AwsSource::Command(command) => Some(Issuer::aws_command(command.clone(), aws.keys.clone())),
                AwsSource::Issuer(issuer) => Some(Issuer::aws(issuer.clone(), aws.keys.clone(), client()?)),
                AwsSource::Fixed | AwsSource::Profile { .. } => None,
            },
            Credential::None | Credential::Keys(_) => None,
        };
        Ok(Self { target, turn: AtomicUsize::new(0), issuer })
    }

    /// The headers that prove this request. Fetches a token when there is none that will last.
    ///
    /// # Errors
    /// Why there is no proof: what the probe fails with.
    pub async fn present(&self, request: &Outgoing<'_>) -> Result<Presented, Failure> {
        if let Some(issuer) = &self.issuer {
            issuer.refresh().await?;
        }
        match &self.target.credential {
            Credential::None => Ok(Presented::default()),
            Credential::Keys(keys) => self.key(keys),
            Credential::OAuth2(oauth2) => self.token(&oauth2.token),
            Credential::Command(command) => self.token(&command.token),
            Credential::Aws(aws) => {
                if let AwsSource::Profile { file, profile } = &aws.source {
                    // While the file is being rewritten the keys of before go on.
                    let _ = aws.keys.take_profile(file.reveal().expose_secret(), profile);
                }
                let headers = aws::sign(aws, SystemTime::now(), request).map_err(unusable)?;
                Ok(Presented { headers, which: None })
            }
        }
    }

    /// Takes note of what the target made of it: a token that was refused is not shown again, and of several keys
    /// the failure names the one.
    pub fn heed(&self, presented: &Presented, measurement: &mut Measurement) {
        let Some(failure) = measurement.outcome.failure_mut() else { return };
        if failure.class == FailureClass::Auth
            && let Some(issuer) = &self.issuer
        {
            issuer.refused();
        }
        let is_the_keys =
            matches!(failure.class, FailureClass::Auth | FailureClass::Quota | FailureClass::RateLimited);
        if let Some(which) = presented.which.as_ref().filter(|_| is_the_keys) {
            failure.message.push_str(" [");
            failure.message.push_str(which);
            failure.message.push(']');
        }
    }

    fn key(&self, keys: &[Secret]) -> Result<Presented, Failure> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % keys.len().max(1);
        let Some(key) = keys.get(turn) else { return Ok(Presented::default()) };
        let value = key.reveal();
        let header = match &self.target.auth_header {
            Some(name) => named(name, value.expose_secret())?,
            None => self
                .target
                .protocol
                .auth_header(value.expose_secret())
                .map_err(|error| unusable(error.to_string()))?,
        };
        let which = (keys.len() > 1).then(|| format!("key {} of {}, {}", turn + 1, keys.len(), key.source()));
        Ok(Presented { headers: vec![header], which })
    }

    /// Tokens are bearer tokens (RFC 6750) whatever the protocol's keys are, unless a header is named.
    fn token(&self, token: &Secret) -> Result<Presented, Failure> {
        let value = token.reveal();
        let name = self.target.auth_header.as_ref().unwrap_or(&header::AUTHORIZATION);
        let header = named(name, value.expose_secret())?;
        Ok(Presented { headers: vec![header], which: None })
    }
}

/// A named header carries the credential as it is; only `Authorization` has no meaning without a scheme.
fn named(name: &HeaderName, credential: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    if *name == header::AUTHORIZATION && !credential.contains(' ') {
        let value = secrecy::SecretString::from(format!("Bearer {credential}"));
        return Ok((name.clone(), sensitive(value.expose_secret())?));
    }
    Ok((name.clone(), sensitive(credential)?))
}

fn sensitive(text: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| unusable("the credential holds characters a header cannot carry".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A credential that cannot be shown at all.
pub(crate) fn unusable(message: String) -> Failure {
    Failure {
        class: FailureClass::Auth,
        subclass: Some("invalid_key".into()),
        http_status: None,
        retry_after: None,
        message,
    }
}
