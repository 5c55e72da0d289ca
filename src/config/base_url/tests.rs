//! What may be a base URL, and joining.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> BaseUrl {
    BaseUrl::parse(text).unwrap_or_else(|error| panic!("{text} {error}"))
}

#[test]
fn paths_are_joined_as_written() {
    let check = |base: &str, expected: &str| {
        assert_eq!(parse(base).join("/chat/completions").to_string(), expected, "{base}");
    };
    check("https://host/v1", "https://host/v1/chat/completions");
    check("https://host/v1/", "https://host/v1/chat/completions");
    check("https://host/api", "https://host/api/chat/completions");
    check("https://host", "https://host/chat/completions");
    check("https://host//", "https://host/chat/completions");
    check("http://host:8080/a//b%2Fc", "http://host:8080/a//b%2Fc/chat/completions");
    check("http://[::1]:8080", "http://[::1]:8080/chat/completions");
    check(" HTTPS://host/v1 ", "https://host/v1/chat/completions");
    let models = "models/org model|x:stream?alt=sse";
    assert_eq!(parse("http://h/v1").join(models), "http://h/v1/models/org%20model%7Cx:stream?alt=sse");
}

#[test]
fn parts() {
    let check = |text: &str, host: &str, port: u16, tls: bool| {
        let url = parse(text);
        assert_eq!((url.host(), url.port(), url.is_tls()), (host, port, tls), "{text}");
    };
    check("https://llm.example.com/v1", "llm.example.com", 443, true);
    check("http://llm.example.com", "llm.example.com", 80, false);
    check("http://[2001:db8::1]:8000/v1", "2001:db8::1", 8000, false);
}

#[test]
fn refusals_say_what_to_write() {
    let check = |text: &str, expected: &str| {
        let error = BaseUrl::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    };
    check("", "is empty");
    check("llm.example.com/v1", "write \"https://llm.example.com/v1\"");
    check("localhost:8000", "has no scheme");
    check("user:hunter2@host/v1", "user name or password");
    check("https://user:hunter2@host/v1", "user name or password");
    check("https://host/v1?key=hunter2", "has a query");
    check("host/v1?key=hunter2", "has a query");
    check("https://host/v1#hunter2", "has a fragment");
    check("https://host/v1/chat/completions", "cut it: \"https://host/v1\"");
    check("https://host/v1/chat/completions/", "cut it: \"https://host/v1\"");
    check("https://host/v1/completions", "cut it: \"https://host/v1\"");
    check("ws://host", "only http and https");
    check("https://", "https://host/v1");
    check("https://:8000/v1", "https://host/v1");
    check("https://host:0/v1", "port");
    check("https://host:65536/v1", "port");
    check("https://host:http/v1", "");
    check("https://ho st/v1", "white space");
    check("https://b\u{fc}cher.example/v1", "punycode");
    check(&format!("https://host/{}", "x".repeat(3000)), "2048");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(https?://)?\\PC{0,40}", path in "\\PC{0,40}") {
        if let Ok(url) = BaseUrl::parse(&text) {
            let joined = url.join(&path);
            prop_assert!(joined.to_string().to_lowercase().starts_with("http"));
            prop_assert_eq!(joined.port_u16(), url.join("/x").port_u16());
            prop_assert!(!url.host().is_empty());
        }
    }
}
