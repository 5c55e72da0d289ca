//! Keys that AWS's platform issues: which service is asked by which variables, with what, and that requests are signed
//! with what it answered.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::to_bytes,
    extract::{Request, State},
    http::{Method, StatusCode},
};
use tokenprobe::{
    config::{Config, ConnectionPolicy},
    measurement::FailureClass,
    probe::{Endpoint, Lane},
};
use tokio::{net::TcpListener, task::JoinSet};

use super::credentials::{failure, probe};

const ISSUED: &str = r#"{"Code":"Success","AccessKeyId":"KIND","SecretAccessKey":"hidden-key","Token":"hidden-session","Expiration":"2100-01-01T00:00:00Z"}"#;
const TAKEN: &str = "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
    <AssumeRoleWithWebIdentityResult><Credentials><SessionToken>hidden-session</SessionToken>\
    <SecretAccessKey>hidden-key</SecretAccessKey><Expiration>2100-01-01T00:00:00Z</Expiration>\
    <AccessKeyId>ROLE</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
const REFUSED: &str = "<ErrorResponse><Error><Code>ExpiredTokenException</Code><Message>hidden-token is old</Message>\
    </Error></ErrorResponse>";

#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

/// The platform's services, and an endpoint that tells who signed; each as it would answer.
async fn answer(State(asked): State<Asked>, request: Request) -> (StatusCode, String) {
    let (head, body) = request.into_parts();
    let body = String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap();
    let header = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let session = header("x-aws-ec2-metadata-token");
    let path = head.uri.path();
    let (said, reply) = match (&head.method, path) {
        (&Method::PUT, "/latest/api/token") => {
            (header("x-aws-ec2-metadata-token-ttl-seconds"), Ok("a-session".to_owned()))
        }
        (_, "/latest/meta-data/iam/security-credentials/") => (session, Ok("the-role\n".to_owned())),
        (_, "/latest/meta-data/iam/security-credentials/the-role") => {
            (session, Ok(ISSUED.replace("KIND", "INSTANCE")))
        }
        (_, "/agent") => (header("authorization"), Ok(ISSUED.replace("KIND", "CONTAINER"))),
        (&Method::POST, "/sts") => (body, Ok(TAKEN.to_owned())),
        (&Method::POST, "/refusing") => (String::new(), Err((StatusCode::BAD_REQUEST, REFUSED.to_owned()))),
        _ => (header("authorization"), Err((StatusCode::NOT_FOUND, String::new()))),
    };
    asked.0.lock().unwrap().push(format!("{} {path} {said}", head.method));
    reply.map_or_else(|refusal| refusal, |body| (StatusCode::OK, body))
}

async fn start() -> (Asked, String, JoinSet<()>) {
    let asked = Asked::default();
    let app = Router::new().fallback(answer).with_state(asked.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let mut task = JoinSet::new();
    task.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (asked, base, task)
}

/// A lane to the site, configured under these variables and no others.
fn lane(base: &str, variables: &[(&str, &str)]) -> Lane {
    let text = format!(
        "[[targets]]\nname = \"t\"\nmodels = [\"m\"]\nbase_url = \"{base}\"\nprotocol = \"bedrock\"\naws = {{ region = \"us-east-1\" }}\n"
    );
    let environment = |name: &str| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| value.replace("BASE", base)).ok_or(std::env::VarError::NotPresent)
    };
    let config = Config::parse(&text, Path::new("t.toml"), &environment).unwrap();
    let endpoint = Endpoint::new(config.targets[0].clone(), Arc::new(config.redactor())).unwrap();
    Lane::new(Arc::new(endpoint), ConnectionPolicy::Reuse)
}

#[tokio::test]
async fn the_platform_issues_keys_that_sign() {
    let (asked, base, _site) = start().await;
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "hidden-token\n").unwrap();
    let home = ("HOME", directory.path().to_str().unwrap());
    let file = token.to_str().unwrap();
    let signed = |id: &str| format!("POST /model/m/converse-stream AWS4-HMAC-SHA256 Credential={id}/");
    let role = ("AWS_ROLE_ARN", "arn:aws:iam::1:role/probe");
    let form = "POST /sts Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fprobe\
                &RoleSessionName=tokenprobe&WebIdentityToken=hidden-token";
    for (variables, expect) in [
        (
            vec![home, ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "BASE/")],
            vec![
                "PUT /latest/api/token 60".to_owned(),
                "GET /latest/meta-data/iam/security-credentials/ a-session".to_owned(),
                "GET /latest/meta-data/iam/security-credentials/the-role a-session".to_owned(),
                signed("INSTANCE"),
                // Once is enough.
                signed("INSTANCE"),
            ],
        ),
        (
            vec![
                home,
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "BASE/agent"),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file),
            ],
            vec!["GET /agent hidden-token".to_owned(), signed("CONTAINER"), signed("CONTAINER")],
        ),
        (
            vec![home, ("AWS_WEB_IDENTITY_TOKEN_FILE", file), role, ("AWS_ENDPOINT_URL_STS", "BASE/sts")],
            vec![form.to_owned(), signed("ROLE"), signed("ROLE")],
        ),
    ] {
        let mut lane = lane(&base, &variables);
        probe(&mut lane).await;
        probe(&mut lane).await;
        let seen = std::mem::take(&mut *asked.0.lock().unwrap());
        assert_eq!(seen.len(), expect.len(), "{seen:#?}");
        assert!(
            seen.iter().zip(&expect).all(|(seen, expect)| seen.starts_with(expect.as_str())),
            "{seen:#?}"
        );
    }
}

#[tokio::test]
async fn a_platform_that_refuses_fails_the_probe_and_is_not_repeated() {
    let (_, base, _site) = start().await;
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "hidden-token").unwrap();
    let home = ("HOME", directory.path().to_str().unwrap());
    let refusing = [
        home,
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
        ("AWS_ROLE_ARN", "r"),
        ("AWS_ENDPOINT_URL_STS", "BASE/refusing"),
    ];
    let (class, subclass, message) = failure(&probe(&mut lane(&base, &refusing)).await);
    assert_eq!((class, subclass.as_str()), (FailureClass::Auth, "token_endpoint"));
    assert_eq!(message, "AWS security token service 127.0.0.1: HTTP 400 ExpiredTokenException");
    let nowhere = [home, ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")];
    let (class, _, message) = failure(&probe(&mut lane(&base, &nowhere)).await);
    assert_eq!(class, FailureClass::Connect);
    assert!(message.contains("asked because AWS_ACCESS_KEY_ID is not set"), "{message}");
}
