//! What can be known without a socket: signatures by AWS's published example, and what programs print.

use std::time::{Duration, UNIX_EPOCH};

use secrecy::ExposeSecret as _;

use super::{
    command::{Printed, token},
    *,
};
use crate::config::{Aws, AwsKeys};

/// The example of AWS's documentation of signature version 4.
#[test]
fn signatures_are_those_of_the_published_example() {
    let secret = |text: &str| Secret::literal(text).unwrap();
    let keys = AwsKeys {
        access_key_id: secret("AKIDEXAMPLE"),
        secret_access_key: secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        session_token: Secret::issued(),
    };
    let aws = Aws { region: "us-east-1".into(), service: "iam".into(), keys, source: AwsSource::Fixed };
    let uri = Uri::from_static("https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08");
    let request = Outgoing {
        method: &Method::GET,
        uri: &uri,
        content_type: "application/x-www-form-urlencoded; charset=utf-8",
        body: b"",
    };
    let headers = aws::sign(&aws, UNIX_EPOCH + Duration::from_secs(1_440_938_160), &request).unwrap();
    let authorization = headers.iter().find(|(name, _)| name == header::AUTHORIZATION).unwrap();
    assert!(authorization.1.is_sensitive());
    assert_eq!(
        authorization.1,
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date, \
         Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    );
}

#[test]
fn programs_may_print_a_token_in_many_ways() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let check = |text: &str, expect: Result<(&str, Option<u64>), ()>| {
        let printed = token(text, now).map_err(drop);
        let printed = printed.as_ref().map(|Printed { values, lifetime }| {
            (values[0].expose_secret(), lifetime.map(|lifetime| lifetime.as_secs()))
        });
        assert_eq!(printed, expect.as_ref().copied(), "{text}");
    };
    check("tok\n", Ok(("tok", None)));
    check(r#"{"access_token":"a","expires_in":300}"#, Ok(("a", Some(300))));
    check(r#"{"access_token":"a","expires_in":"300"}"#, Ok(("a", Some(300))));
    check(r#"{"accessToken":"a","expires_on":1767225660}"#, Ok(("a", Some(60))));
    check(
        r#"{"kind":"ExecCredential","status":{"token":"a","expirationTimestamp":"2026-01-01T01:00:00Z"}}"#,
        Ok(("a", Some(3600))),
    );
    check(r#"{"token":"a","expires_at":"2025-01-01T00:00:00Z"}"#, Ok(("a", Some(0))));
    check("", Err(()));
    check("two words", Err(()));
    check(r#"{"token":""}"#, Err(()));
    check(r#"{"token":3}"#, Err(()));
}

proptest::proptest! {
    #[test]
    fn no_output_breaks_the_reader(text in "\\PC{0,80}", number in proptest::num::f64::ANY) {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let _ = token(&text, now);
        let _ = aws::keys(&text, now);
        let _ = token(&format!("{{\"token\":\"a\",\"expires_in\":{number},\"expires_on\":{number}}}"), now);
    }
}
