//! Texts with and without secrets.

use proptest::prelude::*;

use super::*;

fn check(secrets: &[&str], text: &str, expected: &str) {
    let secrets = secrets.iter().map(|secret| Secret::literal(secret).unwrap()).collect();
    assert_eq!(Redactor::new(secrets).redact(text), expected);
}

#[test]
fn secrets_are_replaced() {
    check(&["sk-12345"], "Bearer sk-12345, twice: sk-12345", "Bearer [redacted], twice: [redacted]");
    check(&["key1", "key1-longer"], "key1-longer key1", "[redacted] [redacted]");
    check(&["abc"], "abc is too short to be told from a word", "abc is too short to be told from a word");
    check(&["a\"b\\c"], r#"{"key":"a\"b\\c"}"#, r#"{"key":"[redacted]"}"#);
    check(&[], "nothing", "nothing");
}

#[test]
fn secrets_in_other_guises_are_replaced() {
    check(&["sk+a/secret=="], "/v1?key=sk%2Ba%2Fsecret%3D%3D", "/v1?key=[redacted]");
    check(&["a secret"], "a+secret a%20secret", "[redacted] [redacted]");
    // A basic credential is base64 of name and secret; the letters next to the secret are of both.
    for (name, secret, sent) in [
        ("id", "sk-canary-0123456789", "sk-canary-0123456789"),
        ("cid", "sk-canary-0123456789", "sk-canary-0123456789"),
        ("name", "sk-canary-0123456789", "sk-canary-0123456789"),
        ("cid", "sk+canary/secret==", "sk%2Bcanary%2Fsecret%3D%3D"),
        ("cid", "sk~canary/secret 123", "sk~canary/secret 123"),
        ("cid", "sk~canary/secret 123", "sk%7Ecanary%2Fsecret+123"),
    ] {
        let basic = STANDARD_NO_PAD.encode(format!("{name}:{sent}"));
        let clean = Redactor::new(vec![Secret::literal(secret).unwrap()]);
        let clean = clean.redact(&basic).into_owned();
        let left = clean.replace(REDACTED, "");
        assert!(clean.contains(REDACTED) && left.len() <= basic.len() - 20, "{clean}");
    }
}

#[test]
fn a_secret_that_is_renewed_is_known_at_once() {
    let token = Secret::issued();
    let redactor = Redactor::new(vec![token.clone()]);
    for value in ["issued-0001", "issued-0002"] {
        assert_eq!(redactor.redact(value), value);
        token.renew(value);
        assert_eq!(redactor.redact(value), REDACTED);
    }
    assert_eq!(redactor.redact("issued-0001 issued-0002"), "[redacted] [redacted]");
}

#[test]
fn what_is_left_of_a_secret_that_was_cut_is_replaced() {
    check(&["sk-12345"], "wrong key sk-123… (check it)", "wrong key [redacted]… (check it)");
    check(&["sk-12345"], "sk-… a… sk-12345", "sk-… a… [redacted]");
    check(&["grün-geheim"], "grün-g…", "[redacted]…");
}

#[test]
fn userinfo_is_replaced() {
    check(&[], "proxy http://user:pw@proxy:3128/ failed", "proxy http://[redacted]@proxy:3128/ failed");
    check(&[], "\"https://a@b@host\" x@y.z", "\"https://[redacted]@host\" x@y.z");
    check(&[], "http://host/path@2 http://@host", "http://host/path@2 http://@host");
}

#[test]
fn header_values_that_may_be_words_need_some_length() {
    let secrets = vec![Secret::plain("search").unwrap(), Secret::plain("0123456789abcdef").unwrap()];
    assert_eq!(Redactor::new(secrets).redact("search 0123456789abcdef"), "search [redacted]");
}

proptest! {
    #[test]
    fn no_secret_survives(secret in "[!-~]{4,40}", before in "\\PC{0,20}", after in "\\PC{0,20}") {
        prop_assume!(!REDACTED.contains(&secret));
        let redactor = Redactor::new(vec![Secret::literal(&secret).unwrap()]);
        let clean = redactor.redact(&format!("{before}{secret}{after}")).into_owned();
        // What is left must not be the secret; it may arise anew only around the mark itself.
        prop_assert!(!clean.replace(REDACTED, "\u{0}").contains(&secret), "{clean}");
        let quoted = serde_json::to_string(&secret).unwrap();
        prop_assert!(!redactor.redact(&quoted).contains(quoted.trim_matches('"')));
    }
}
