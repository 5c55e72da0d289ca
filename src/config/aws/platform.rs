//! Which service of the platform issues keys, by the variables that the platform sets; the order is that of AWS's
//! own programs: a role by web identity, the agent beside a container, the instance's metadata.

use std::path::Path;

use http::Uri;

use super::AwsIssuer;
use crate::config::Secret;

/// Where the agent of ECS answers.
const ECS_AGENT: &str = "http://169.254.170.2";
/// Hosts to which an agent's credential may go in the clear: this machine, and the agents of ECS and EKS.
const AGENT_HOSTS: [&str; 6] =
    ["localhost", "127.0.0.1", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];
/// Where the metadata service answers.
const INSTANCE_METADATA: &str = "http://169.254.169.254";

/// The issuer; a message with the mend when there is none, or what the variables say cannot be right.
pub(super) fn issuer(variable: &dyn Fn(&str) -> Option<String>, region: &str) -> Result<AwsIssuer, String> {
    if let (Some(file), Some(role)) = (variable("AWS_WEB_IDENTITY_TOKEN_FILE"), variable("AWS_ROLE_ARN")) {
        let token = Secret::from_file(Path::new(&file))
            .map_err(|error| format!("AWS_WEB_IDENTITY_TOKEN_FILE: {error}"))?;
        let session = variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "tokenprobe".to_owned());
        return Ok(AwsIssuer::WebIdentity {
            sts: security_token_service(variable, region)?,
            role,
            session,
            token,
        });
    }
    if let Some(url) = agent(variable)? {
        return Ok(AwsIssuer::Container { url, authorization: agents_credential(variable)? });
    }
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return Err("finds no keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, there is no shared \
                    credentials file, and AWS_EC2_METADATA_DISABLED forbids to ask the instance; or add command = \
                    [\"aws\", \"configure\", \"export-credentials\"]"
            .to_owned());
    }
    let endpoint =
        variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| INSTANCE_METADATA.to_owned());
    Ok(AwsIssuer::Instance {
        endpoint: parse("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.trim_end_matches('/'))?,
    })
}

fn security_token_service(variable: &dyn Fn(&str) -> Option<String>, region: &str) -> Result<Uri, String> {
    if let Some(url) = variable("AWS_ENDPOINT_URL_STS") {
        return parse("AWS_ENDPOINT_URL_STS", &url);
    }
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    parse("region", &format!("https://sts.{region}.amazonaws.com{china}/"))
}

fn agent(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Uri>, String> {
    if let Some(path) = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return parse("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", &format!("{ECS_AGENT}{path}")).map(Some);
    }
    let name = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let Some(url) = variable(name) else { return Ok(None) };
    let url = parse(name, &url)?;
    let safe =
        url.scheme_str() == Some("https") || url.host().is_some_and(|host| AGENT_HOSTS.contains(&host));
    if safe {
        Ok(Some(url))
    } else {
        Err(format!(
            "{name} is neither https nor this machine nor the platform's agent: keys do not travel so"
        ))
    }
}

fn agents_credential(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Secret>, String> {
    let name = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
    if let Some(file) = variable(name) {
        return Secret::from_file(Path::new(&file)).map(Some).map_err(|error| format!("{name}: {error}"));
    }
    let Some(text) = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN") else { return Ok(None) };
    let secret = Secret::issued();
    secret.renew(text.trim());
    Ok(Some(secret))
}

fn parse(name: &str, url: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = url.trim().parse().ok();
    uri.filter(|uri| uri.scheme().is_some() && uri.host().is_some())
        .ok_or_else(|| format!("{name} makes no URL: correct it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], region: &str, expect: &str) {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let found = match issuer(&variable, region) {
            Ok(AwsIssuer::WebIdentity { sts, role, session, .. }) => {
                format!("{role} as {session} from {sts}")
            }
            Ok(AwsIssuer::Container { url, authorization }) => {
                format!("{url}{}", if authorization.is_some() { " with a credential" } else { "" })
            }
            Ok(AwsIssuer::Instance { endpoint }) => format!("instance {endpoint}"),
            Err(message) => message,
        };
        assert!(found.contains(expect), "{variables:?}: {found}");
    }

    #[test]
    fn the_platform_says_where_keys_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "token\n").unwrap();
        let path = file.path().to_str().unwrap();
        let role = ("AWS_ROLE_ARN", "arn:aws:iam::1:role/probe");
        let web = ("AWS_WEB_IDENTITY_TOKEN_FILE", path);
        check(
            &[web, role],
            "us-east-1",
            "role/probe as tokenprobe from https://sts.us-east-1.amazonaws.com/",
        );
        check(
            &[web, role, ("AWS_ROLE_SESSION_NAME", "n")],
            "cn-north-1",
            "as n from https://sts.cn-north-1.amazonaws.com.cn/",
        );
        check(
            &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/such"), role],
            "us-east-1",
            "AWS_WEB_IDENTITY_TOKEN_FILE: ",
        );
        check(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/c")], "r", "http://169.254.170.2/v2/c");
        let full = |url| ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
        let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path);
        check(
            &[full("http://169.254.170.23/v1/credentials"), token],
            "r",
            "/v1/credentials with a credential",
        );
        check(&[full("https://agent.example.com/")], "r", "https://agent.example.com/");
        check(&[full("http://agent.example.com/")], "r", "keys do not travel so");
        check(&[full("nonsense")], "r", "makes no URL");
        check(&[], "r", "instance http://169.254.169.254/");
        check(&[("AWS_EC2_METADATA_DISABLED", "True")], "r", "finds no keys");
    }
}
