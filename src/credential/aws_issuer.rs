//! Keys from AWS's own platform: the security token service, the agent beside a container, the instance's metadata.

use std::time::Duration;

use chrono::Utc;
use http::header;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use url::form_urlencoded;

use super::{
    aws,
    endpoint::{Answer, ask, failure},
    issuer::{Issue, LIFETIME_UNKNOWN},
};
use crate::{
    config::AwsIssuer,
    measurement::{Failure, FailureClass},
};

/// The metadata service is on the same machine; where there is none, nobody answers.
const INSTANCE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a session with the metadata service lasts; it is used at once.
const INSTANCE_SESSION_SECONDS: &str = "60";

/// Asks the issuer for keys.
pub(super) async fn fetch(issuer: &AwsIssuer, client: &reqwest::Client) -> Result<Issue, Failure> {
    let (who, text) = match issuer {
        AwsIssuer::WebIdentity { sts, role, session, token } => {
            let who = format!("AWS security token service {}", sts.host().unwrap_or_default());
            let form = form_urlencoded::Serializer::new(String::new())
                .append_pair("Action", "AssumeRoleWithWebIdentity")
                .append_pair("Version", "2011-06-15")
                .append_pair("RoleArn", role)
                .append_pair("RoleSessionName", session)
                .append_pair("WebIdentityToken", token.reveal().expose_secret().trim())
                .finish();
            let request = client
                .post(sts.to_string())
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form);
            let xml = text(request, &who).await?;
            (who, keys_of_xml(xml.expose_secret()))
        }
        AwsIssuer::Container { url, authorization } => {
            let who = format!("AWS container agent {}", url.host().unwrap_or_default());
            let mut request = client.get(url.to_string());
            if let Some(authorization) = authorization {
                request = request.header(header::AUTHORIZATION, authorization.reveal().expose_secret());
            }
            let keys = text(request, &who).await?;
            (who, keys)
        }
        AwsIssuer::Instance { endpoint } => {
            let base = endpoint.to_string();
            let who = format!("AWS instance metadata {}", endpoint.host().unwrap_or_default());
            let keys = of_instance(base.trim_end_matches('/'), client, &who).await?;
            (who, keys)
        }
    };
    let printed = aws::keys(text.expose_secret(), Utc::now())
        .map_err(|_| failure(FailureClass::Auth, &who, "the answer holds no keys"))?;
    Ok(Issue { values: printed.values, lifetime: printed.lifetime.unwrap_or(LIFETIME_UNKNOWN) })
}

/// A session, the name of the instance's role, its keys.
async fn of_instance(base: &str, client: &reqwest::Client, who: &str) -> Result<SecretString, Failure> {
    let session = client
        .put(format!("{base}/latest/api/token"))
        .header("x-aws-ec2-metadata-token-ttl-seconds", INSTANCE_SESSION_SECONDS)
        .timeout(INSTANCE_TIMEOUT);
    let session = text(session, who).await.map_err(|mut failure| {
        failure.message.push_str(
            "; it is asked because AWS_ACCESS_KEY_ID is not set and there is no shared credentials file",
        );
        failure
    })?;
    let roles = format!("{base}/latest/meta-data/iam/security-credentials/");
    let get = |url: &str| {
        client.get(url).header("x-aws-ec2-metadata-token", session.expose_secret()).timeout(INSTANCE_TIMEOUT)
    };
    let found = text(get(&roles), who).await?;
    let Some(role) = found.expose_secret().lines().map(str::trim).find(|role| !role.is_empty()) else {
        return Err(failure(FailureClass::Auth, who, "the instance has no role: attach one"));
    };
    text(get(&format!("{roles}{role}")), who).await
}

/// The body of a good answer. What it says is not repeated: it may hold keys.
async fn text(request: reqwest::RequestBuilder, who: &str) -> Result<SecretString, Failure> {
    let Answer { status, body, .. } = ask(request, who).await?;
    let text = String::from_utf8(body)
        .map_err(|_| failure(FailureClass::Protocol, who, "the answer is not UTF-8"))?;
    if status.is_success() {
        return Ok(SecretString::from(text));
    }
    let class = if status.is_client_error() { FailureClass::Auth } else { FailureClass::UpstreamError };
    let word = |code: &&str| code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let code = element(&text, "Code").filter(word).map(|code| format!(" {code}")).unwrap_or_default();
    let mut failure = failure(class, who, &format!("HTTP {}{code}", status.as_u16()));
    failure.http_status = Some(status.as_u16());
    Err(failure)
}

/// The answer of the security token service as the other issuers write it.
fn keys_of_xml(xml: &str) -> SecretString {
    let keys = json!({
        "AccessKeyId": element(xml, "AccessKeyId"),
        "SecretAccessKey": element(xml, "SecretAccessKey"),
        "SessionToken": element(xml, "SessionToken"),
        "Expiration": element(xml, "Expiration"),
    });
    SecretString::from(keys.to_string())
}

/// The text of an element without attributes and children.
fn element<'x>(xml: &'x str, name: &str) -> Option<&'x str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    (!text.contains('<')).then(|| text.trim())
}
