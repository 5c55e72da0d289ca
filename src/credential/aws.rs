//! AWS signature version 4, by AWS's own library. Time is an argument.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign as sign_request},
    sign::v4,
};
use chrono::{DateTime, Utc};
use http::{HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::{
    Outgoing,
    command::{Printed, lifetime},
};
use crate::config::Aws;

/// The headers that sign a request made at `now`.
///
/// # Errors
/// One line: the request cannot be signed.
pub(super) fn sign(
    aws: &Aws,
    now: SystemTime,
    request: &Outgoing<'_>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let failed = |what: &dyn std::fmt::Display| format!("the request cannot be signed: {what}");
    let keys = &aws.keys;
    let token = keys.session_token.reveal();
    let identity = Credentials::new(
        keys.access_key_id.reveal().expose_secret(),
        keys.secret_access_key.reveal().expose_secret(),
        Some(token.expose_secret().to_owned()).filter(|token| !token.is_empty()),
        None,
        "tokenprobe",
    )
    .into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(&aws.region)
        .name(&aws.service)
        .time(now)
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| failed(&error))?
        .into();
    let uri = request.uri.to_string();
    let headers = std::iter::once((header::CONTENT_TYPE.as_str(), request.content_type));
    let signable =
        SignableRequest::new(request.method.as_str(), uri, headers, SignableBody::Bytes(request.body))
            .map_err(|error| failed(&error))?;
    let (instructions, _) = sign_request(signable, &params).map_err(|error| failed(&error))?.into_parts();
    let mut signed = Vec::new();
    for (name, value) in instructions.headers() {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| failed(&error))?;
        let mut value = HeaderValue::from_str(value).map_err(|error| failed(&error))?;
        value.set_sensitive(true);
        signed.push((name, value));
    }
    Ok(signed)
}

/// Keys as `credential_process` programs and `aws configure export-credentials` print them, and the platform's own
/// services write them, who call the session token `Token`.
pub(super) fn keys(text: &str, now: DateTime<Utc>) -> Result<Printed, &'static str> {
    let value: Value = serde_json::from_str(text.trim()).map_err(|_| "has to print keys as JSON")?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(id), Some(secret)) = (text("AccessKeyId"), text("SecretAccessKey")) else {
        return Err("printed JSON without AccessKeyId and SecretAccessKey");
    };
    let session = text("SessionToken").or_else(|| text("Token"));
    let values = [id, secret, session.unwrap_or_default()];
    Ok(Printed { values: values.map(SecretString::from).into(), lifetime: lifetime(&value, now) })
}
