//! Web configurations from files: what is read, what is refused, and that a bad one leaves the old one in force.

use std::fs;

use axum::http::{HeaderMap, HeaderValue, header};

use super::{gatekeeper::Entry, *};

fn write(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("web.yml");
    fs::write(&path, text).unwrap();
    path
}

/// The hash of `secret`, cheap enough for a test.
fn hash() -> String {
    bcrypt::hash_with_salt("secret", 8, *b"0123456789abcdef").unwrap().to_string()
}

#[test]
fn what_cannot_be_used_is_refused_with_the_mend() {
    let dir = tempfile::tempdir().unwrap();
    let check = |text: &str, expected: &str| {
        let error = Web::load(&write(dir.path(), text)).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    };
    check("basic_auth_user: {}", "basic_auth_user");
    check("basic_auth_users: { alice: hunter2 }", "alice: is no bcrypt hash");
    let dear = hash().replace("$08$", "$20$");
    check(&format!("basic_auth_users: {{ alice: '{dear}' }}"), "a bcrypt cost of 20");
    check("tls_server_config: { cert_file: a.pem }", "key_file is missing");
    check("tls_server_config: { cert_file: a.pem, key_file: b.pem }", "cannot read");
    check("tls_server_config: { client_auth_type: RequireAnyClientCert }", "RequireAnyClientCert");
    check("http_server_config: { headers: { Set-Cookie: a } }", "Set-Cookie cannot be set");
    check("bearer_token_files: [none]", "cannot read");
    fs::write(dir.path().join("short"), "short\n").unwrap();
    check("bearer_token_files: [short]", "fewer than 16 characters");
    check("- 1", "");
}

#[test]
fn an_empty_file_asks_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for text in ["", "# nothing\n", "\n\n"] {
        assert!(!Web::load(&write(dir.path(), text)).unwrap().asks_for_credential());
    }
}

#[tokio::test]
async fn users_and_tokens_are_known() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("token"), "0123456789abcdef0123\n").unwrap();
    let text = format!("basic_auth_users: {{ alice: '{}' }}\nbearer_token_files: [token]\n", hash());
    let web = Web::load(&write(dir.path(), &text)).unwrap();
    let lets_in = async |value: Option<&str>| {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        web.current().gatekeeper.look(&headers).await == Entry::Granted
    };
    let basic = |plain: &str| {
        use base64::Engine as _;
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(plain))
    };
    for (value, expect) in [
        (None, false),
        (Some(basic("alice:secret")), true),
        (Some(basic("alice:secret")), true),
        (Some(basic("alice:wrong")), false),
        (Some(basic("alice:")), false),
        (Some(basic("bob:secret")), false),
        (Some(basic("alice")), false),
        (Some("Basic ???".into()), false),
        (Some("Bearer 0123456789abcdef0123".into()), true),
        (Some("bearer 0123456789abcdef0123".into()), true),
        (Some("Bearer 0123456789abcdef012".into()), false),
        (Some("Bearer".into()), false),
        (Some("Digest x".into()), false),
    ] {
        assert_eq!(lets_in(value.as_deref()).await, expect, "{value:?}");
    }
}

#[test]
fn a_changed_file_is_taken_over_and_a_bad_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("token"), "0123456789abcdef0123").unwrap();
    let path = write(dir.path(), "");
    let web = Web::load(&path).unwrap();
    fs::write(&path, "bearer_token_files: [token]").unwrap();
    web.look();
    assert!(web.asks_for_credential());
    fs::write(&path, "bearer_token_files: [nowhere]").unwrap();
    web.look();
    assert!(web.asks_for_credential(), "a mistake opens nothing");
    // Whoever writes a file anew empties it first.
    fs::write(&path, "").unwrap();
    web.look();
    assert!(web.asks_for_credential(), "nor does an empty file");
    // A token that is replaced in its own file is another one.
    fs::write(&path, "bearer_token_files: [token]").unwrap();
    let before = web.current().digest;
    fs::write(dir.path().join("token"), "another-token-of-length").unwrap();
    web.look();
    assert_ne!(web.current().digest, before);
}
