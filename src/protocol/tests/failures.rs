//! Failures: what servers and gateways say, and what it is called.

use std::{io::Write, time::Duration};

use super::{Play, content, ms, outcome};
use crate::{
    measurement::FailureClass,
    protocol::{Deadline, TransportFailure},
};

fn check(status: u16, body: &str, expected: &str) {
    check_at("api.example.test", status, body, expected);
}

fn check_at(host: &str, status: u16, body: &str, expected: &str) {
    let measurement = Play { host, status, ..Play::default() }.texts(&[body]);
    assert_eq!(outcome(&measurement), format!("error {expected}"), "{status} {body}");
    let message = &measurement.outcome.failure().unwrap().message;
    assert!(message.chars().count() <= 220 && !message.contains(char::is_control), "{message:?}");
    assert!(measurement.flags.is_empty());
}

#[test]
fn credentials() {
    let cases = [
        (401, r#"{"error":"Unauthorized"}"#, "auth/invalid_key"),
        (
            401,
            r#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#,
            "auth/invalid_key",
        ),
        (401, "Unauthorized", "auth/invalid_key"),
        (401, "", "auth/invalid_key"),
        (401, r#"{"error":{"message":"No auth credentials found","code":401}}"#, "auth/invalid_key"),
        (
            401,
            r#"{"error":{"message":"Authentication Error, Invalid proxy server token passed","type":"auth_error","param":"None","code":"401"}}"#,
            "auth/invalid_key",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}"#,
            "auth/invalid_key",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"API key expired. Please renew the API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
            "auth/expired",
        ),
        (
            400,
            r#"{"error":{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}}"#,
            "auth/invalid_key",
        ),
        (400, r#"{"error":"invalid_grant","error_description":"Token has been revoked"}"#, "auth/revoked"),
        (400, r#"{"error":"invalid_grant"}"#, "auth/expired"),
        (
            401,
            r#"{"error":{"code":"account_deactivated","message":"Your account has been deactivated"}}"#,
            "auth/revoked",
        ),
        (
            403,
            r#"{"error":{"code":403,"message":"Permission denied","status":"PERMISSION_DENIED"}}"#,
            "auth/forbidden",
        ),
        (
            403,
            r#"{"error":{"code":"unsupported_country_region_territory","message":"Country not supported","type":"request_forbidden"}}"#,
            "auth/forbidden",
        ),
        (403, r#"{"message":"Forbidden"}"#, "auth/forbidden"),
        (403, "Forbidden", "auth/forbidden"),
        (403, r#"{"code":"AccessDenied","message":"Access denied."}"#, "auth/forbidden"),
        (401, r#"{"code":"InvalidApiKey","message":"No API-key provided."}"#, "auth/invalid_key"),
        (
            401,
            r#"{"statusCode":401,"message":"Unauthorized. Access token is missing, invalid, audience is incorrect, or have expired."}"#,
            "auth/invalid_key",
        ),
        (401, r#"{"error":{"code":"1003","message":"Authentication Token expired"}}"#, "auth/expired"),
    ];
    for (status, body, expected) in cases {
        check(status, body, expected);
    }
}

#[test]
fn money_and_allowances() {
    let cases = [
        (
            402,
            r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","code":"invalid_request_error"}}"#,
            "quota/balance",
        ),
        (402, r#"{"error":{"message":"This request requires more credits","code":402}}"#, "quota/balance"),
        (402, "{}", "quota/billing"),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API. Please go to Plans & Billing."}}"#,
            "quota/balance",
        ),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details."}}"#,
            "quota/billing",
        ),
        (
            400,
            r#"{"error":{"message":"Budget has been exceeded! Current cost: 1","type":"budget_exceeded","code":"400"}}"#,
            "quota/exhausted",
        ),
        (
            429,
            r#"{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}"#,
            "quota/exhausted",
        ),
        (429, r#"{"error":{"code":"1113","message":"arrears"}}"#, "quota/balance"),
        (200, r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#, "quota/balance"),
    ];
    for (status, body, expected) in cases {
        check(status, body, expected);
    }
}

#[test]
fn filters() {
    let cases = [
        (
            400,
            r#"{"code":"DataInspectionFailed","message":"Input data may contain inappropriate content."}"#,
            "content_filter/prompt",
        ),
        (
            400,
            r#"{"code":"data_inspection_failed","message":"Output data may contain inappropriate content."}"#,
            "content_filter/output",
        ),
        (400, r#"{"error":{"code":"content_policy_violation","message":"no"}}"#, "content_filter/prompt"),
        (
            403,
            r#"{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged for \"violence\""}}"#,
            "content_filter/prompt",
        ),
        (400, r#"{"error":{"code":"1301","message":"unsafe"}}"#, "content_filter/prompt"),
    ];
    for (status, body, expected) in cases {
        check(status, body, expected);
    }
}

#[test]
fn our_own_requests() {
    let cases = [
        (
            400,
            r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}"#,
            "bad_request/unsupported_param:max_tokens",
        ),
        (
            400,
            r#"{"error":{"message":"Unrecognized request argument supplied: stream_options","type":"invalid_request_error","param":null,"code":null}}"#,
            "bad_request/unsupported_param:stream_options",
        ),
        (
            400,
            r#"{"error":{"message":"property 'stream_options' is unsupported","type":"invalid_request_error"}}"#,
            "bad_request/unsupported_param:stream_options",
        ),
        (
            422,
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted","input":7}]}"#,
            "bad_request/unsupported_param:seed",
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"stream_options: Extra inputs are not permitted"}}"#,
            "bad_request/unsupported_param:stream_options",
        ),
        (
            400,
            r#"{"error":{"message":"openai does not support parameters: ['temperature'], for model=o1","type":"None"}}"#,
            "bad_request/unsupported_param:temperature",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"foo\" at 'generation_config': Cannot find field.","status":"INVALID_ARGUMENT"}}"#,
            "bad_request/unsupported_param:foo",
        ),
        (
            400,
            r#"{"error":{"message":"1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required'}","type":"Bad Request","param":"body.messages","code":400}}"#,
            "bad_request/other",
        ),
        (
            400,
            r#"{"error":{"message":"Streaming is not supported for this model","type":"invalid_request_error"}}"#,
            "bad_request/stream_not_allowed",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"'messages' is required","type":"invalid_request_error"}}"#,
            "bad_request/other",
        ),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            "bad_request/context_length",
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            "bad_request/context_length",
        ),
        (
            413,
            r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            "bad_request/context_length",
        ),
        (
            422,
            r#"{"error":"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096","error_type":"validation"}"#,
            "bad_request/context_length",
        ),
        (
            400,
            r#"{"code":"InvalidParameter","message":"Range of input length should be [1, 30720]"}"#,
            "bad_request/context_length",
        ),
        (400, "bad", "bad_request/other"),
    ];
    for (status, body, expected) in cases {
        check(status, body, expected);
    }
}

#[test]
fn what_is_not_there() {
    let cases = [
        (
            404,
            r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#,
            "endpoint_not_found",
        ),
        (405, r#"{"detail":"Method Not Allowed"}"#, "endpoint_not_found"),
        (
            404,
            r#"{"error":{"message":"Invalid URL (POST /v1/v1/chat/completions)","type":"invalid_request_error","param":null,"code":null}}"#,
            "endpoint_not_found",
        ),
        (
            404,
            r#"{"error":{"message":"Unknown request URL: POST /chat/completions. Please check the URL for typos","type":"invalid_request_error","code":"unknown_url"}}"#,
            "endpoint_not_found",
        ),
        (404, r#"{"error":{"code":"404","message":"Resource not found"}}"#, "endpoint_not_found"),
        (404, r#"{"message":"no Route matched with those values"}"#, "endpoint_not_found"),
        (404, "", "endpoint_not_found"),
        (404, "null", "endpoint_not_found"),
        (
            400,
            "<html><center>The plain HTTP request was sent to HTTPS port</center></html>",
            "endpoint_not_found",
        ),
        (302, "", "endpoint_not_found/redirect"),
        (308, r#"{"redirect":true}"#, "endpoint_not_found/redirect"),
        (
            404,
            r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
            "model_not_found",
        ),
        (
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}"#,
            "model_not_found",
        ),
        (
            404,
            r#"{"error":{"code":404,"message":"models/foo is not found for API version v1beta","status":"NOT_FOUND"}}"#,
            "model_not_found",
        ),
        (404, r#"{"error":"model 'demo' not found"}"#, "model_not_found"),
        (404, r#"{"error":{"message":"No endpoints found for x/y.","code":404}}"#, "model_not_found"),
        (400, r#"{"error":{"message":"x/y is not a valid model ID","code":400}}"#, "model_not_found"),
        (
            400,
            r#"{"error":{"message":"Invalid model name passed in model=foo. Call `/v1/models`","type":"invalid_request_error","code":"400"}}"#,
            "model_not_found",
        ),
        (
            400,
            r#"{"code":20012,"message":"Model does not exist. Please check it carefully."}"#,
            "model_not_found",
        ),
    ];
    for (status, body, expected) in cases {
        check(status, body, expected);
    }
}

#[test]
fn load_and_faults() {
    let cases = [
        (
            503,
            r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
            "overloaded/loading",
        ),
        (
            503,
            r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#,
            "overloaded",
        ),
        (503, r#"{"error":{"message":"Service Unavailable"}}"#, "overloaded"),
        (529, "", "overloaded"),
        (
            429,
            r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}"#,
            "overloaded",
        ),
        (
            429,
            r#"{"error":{"message":"Rate limit reached for model `x` on tokens per minute (TPM)","type":"tokens","code":"rate_limit_exceeded"}}"#,
            "rate_limited",
        ),
        (
            429,
            r#"{"code":"Throttling.AllocationQuota","message":"Allocated quota exceeded, please increase your quota limit."}"#,
            "rate_limited",
        ),
        (429, "Too Many Requests", "rate_limited"),
        (429, "{}", "rate_limited"),
        (400, r#"{"error":{"code":"1302","message":"concurrency"}}"#, "rate_limited"),
        (500, r#"{"error":{"message":"boom","type":"api_error"}}"#, "upstream_error"),
        (502, r#"{"error":{"message":"Bad gateway"}}"#, "upstream_error"),
        (500, "Internal Server Error", "edge/gateway_500"),
        (502, "<html><title>502 Bad Gateway</title></html>", "edge/gateway_502"),
        (522, "<!DOCTYPE html><title>522</title>", "edge/gateway_522"),
        (403, "<html><title>Just a moment...</title></html>", "edge/challenge"),
        (403, "<html><title>403 Forbidden</title></html>", "edge/html_403"),
        (503, "upstream connect error or disconnect/reset before headers", "edge/upstream_connect"),
        (503, "no healthy upstream", "edge/upstream_connect"),
        (407, "", "edge/proxy_auth"),
    ];
    for (status, body, expected) in cases {
        check(status, body, expected);
    }
}

#[test]
fn the_same_words_mean_another_thing_elsewhere() {
    let quota = r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details."}}"#;
    check_at("dashscope.aliyuncs.com", 429, quota, "rate_limited");
    check_at("dashscope-intl.aliyuncs.com", 429, quota, "rate_limited");
    check_at("notaliyuncs.com", 429, quota, "quota/billing");
}

#[test]
fn a_challenge_header_beats_the_page() {
    let play = Play { status: 403, headers: &[("cf-mitigated", "challenge")], ..Play::default() };
    assert_eq!(outcome(&play.texts(&["<html></html>"])), "error edge/challenge");
}

#[test]
fn error_bodies_are_unwrapped() {
    let limit = "data: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n";
    check(400, limit, "rate_limited");
    check(500, &format!(": hi\n\nevent: error\n{limit}"), "rate_limited");
    check(400, r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]"#, "rate_limited");
    check(400, "\u{feff} {\"error\":{\"code\":\"rate_limit_exceeded\"}}", "rate_limited");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(br#"{"error":{"code":"invalid_api_key"}}"#).unwrap();
    let gzip = gzip.finish().unwrap();
    let play = Play { status: 401, headers: &[("content-encoding", "gzip")], ..Play::default() };
    assert_eq!(outcome(&play.texts(&[&gzip])), "error auth/invalid_key");
    let bytes: Vec<&[u8]> = gzip.chunks(1).collect();
    assert_eq!(outcome(&play.texts(&bytes)), "error auth/invalid_key");
}

#[test]
fn other_compressions() {
    let body = content("A") + &super::finish("stop");
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(body.as_bytes()).unwrap();
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    raw.write_all(body.as_bytes()).unwrap();
    let deflate = Play { headers: &[("content-encoding", "deflate")], ..Play::default() };
    assert_eq!(outcome(&deflate.texts(&[zlib.finish().unwrap()])), "ok");
    assert_eq!(outcome(&deflate.texts(&[raw.finish().unwrap()])), "ok");
    let gzip = Play { headers: &[("content-encoding", "gzip")], ..Play::default() };
    assert_eq!(outcome(&gzip.texts(&[&body])), "ok", "the header lies");
    let brotli = Play { headers: &[("content-encoding", "br")], ..Play::default() };
    assert_eq!(outcome(&brotli.texts(&["\u{1}\u{2}"])), "error protocol");
    assert_eq!(outcome(&gzip.texts(&[b"\x1f\x8bbroken data here".as_slice()])), "error protocol");
}

fn retry_after(headers: &[(&str, &str)], body: &str) -> Option<Duration> {
    let measurement = Play { status: 429, headers, ..Play::default() }.texts(&[body]);
    measurement.outcome.failure().unwrap().retry_after
}

#[test]
fn retry_hints_come_in_order() {
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let date = ("date", "Thu, 01 Jan 2026 00:00:00 GMT");
    let cases: &[(Headers<'_>, Option<u64>)] = &[
        (&[], None),
        (&[("retry-after", "2")], Some(2000)),
        (&[("retry-after", "1.5")], Some(1500)),
        (&[("retry-after", "0")], Some(0)),
        (&[("retry-after", "-1")], None),
        (&[("retry-after", "soon")], None),
        (&[("retry-after-ms", "1450"), ("retry-after", "2")], Some(1450)),
        (&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT"), date], Some(30_000)),
        (&[("retry-after", "Wed, 31 Dec 2025 23:59:30 GMT"), date], Some(0)),
        (&[("retry-after", "Thu, 01 Jan 2026 00:00:30 GMT")], None),
        (&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")], Some(360_000)),
        (&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "120ms")], Some(120)),
        (
            &[
                ("x-ratelimit-remaining-requests", "5"),
                ("x-ratelimit-reset-requests", "120ms"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "1h2m3.5s"),
            ],
            Some(3_723_500),
        ),
        (&[("x-ratelimit-remaining-requests", "5"), ("x-ratelimit-reset-requests", "120ms")], None),
        (
            &[
                ("anthropic-ratelimit-tokens-remaining", "0"),
                ("anthropic-ratelimit-tokens-reset", "2026-01-01T00:01:00Z"),
                date,
            ],
            Some(60_000),
        ),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1767225610000"), date], Some(10_000)),
        (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "7")], Some(7000)),
    ];
    for (headers, expected) in cases {
        assert_eq!(retry_after(headers, "{}"), expected.map(ms), "{headers:?}");
        assert_eq!(retry_after(headers, "plain words"), expected.map(ms), "{headers:?}");
    }
    let info =
        r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"26s"}]}}"#;
    assert_eq!(retry_after(&[], info), Some(ms(26_000)));
    assert_eq!(retry_after(&[("retry-after", "2")], info), Some(ms(2000)));
    assert_eq!(retry_after(&[], r#"{"error":"busy","estimated_time":20.5}"#), Some(ms(20_500)));
}

#[test]
fn messages_say_what_happened_and_what_to_do() {
    let message = |play: Play<'_>, body: &str| play.texts(&[body]).outcome.failure().unwrap().message.clone();
    let at = |status| Play { status, ..Play::default() };
    insta::assert_snapshot!(message(at(404), "404 page not found"), @"HTTP 404: 404 page not found (the base URL is joined as written: check a missing or doubled /v1, and http or https)");
    insta::assert_snapshot!(message(at(401), "{\"error\":{\"message\":\"Incorrect\\n  API key\\u0000\",\"code\":\"invalid_api_key\"}}"), @"HTTP 401: Incorrect API key (check the key: stray spaces, the wrong key, or disabled)");
    insta::assert_snapshot!(message(at(504), "<html><title>504 Gateway Time-out</title></html>"), @r#"HTTP 504: an HTML page, "504 Gateway Time-out" (a gateway answered in place of the model server)"#);
    let redirect = Play { headers: &[("location", "https://user:pw@example.test/v1?key=x")], ..at(301) };
    insta::assert_snapshot!(message(redirect, ""), @"HTTP 301 to https://example.test/v1 (redirects are not followed: put the final address into the base URL)");
    let long = format!("{{\"error\":{{\"message\":\"{}\"}}}}", "long ".repeat(500));
    assert!(message(at(500), &long).chars().count() < 130);
}

#[test]
fn failures_before_any_answer() {
    let words = || "words\nof the system".to_owned();
    let cases = [
        (TransportFailure::Dns(words()), "connect/dns"),
        (TransportFailure::Refused(words()), "connect/refused"),
        (TransportFailure::ResetBeforeHeaders(words()), "connect/reset_before_headers"),
        (TransportFailure::TlsUntrusted(words()), "tls/untrusted"),
        (TransportFailure::TlsHandshake(words()), "tls/handshake"),
        (TransportFailure::ProxyAuth(words()), "edge/proxy_auth"),
        (TransportFailure::Deadline(Deadline::Connect), "timeout/connect"),
        (TransportFailure::Deadline(Deadline::Headers), "timeout/headers"),
        (TransportFailure::Deadline(Deadline::Total), "timeout/total"),
        (TransportFailure::NotHttp(words()), "protocol"),
    ];
    for (failure, expected) in cases {
        let measurement = failure.into_measurement(ms(70));
        assert_eq!(outcome(&measurement), format!("error {expected}"));
        assert_eq!(measurement.timeline.end, ms(70));
        assert!(!measurement.outcome.failure().unwrap().message.contains('\n'));
    }
    assert_eq!(FailureClass::ALL.len(), 17);
}
