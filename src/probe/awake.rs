//! Whether a model is up, asked of somebody whom that question does not wake.

use std::time::Duration;

use super::{Endpoint, catalogue, trust};

/// A question that takes longer is as good as a no.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest answer that is read.
const BYTES_MAX: usize = 4 << 20;

impl Endpoint {
    /// Whether the target's `awake_url` names this model; true where there is none.
    ///
    /// # Errors
    /// One line that says why nobody knows.
    pub async fn is_awake(&self, model: &str) -> Result<bool, String> {
        let Some(url) = &self.target.awake_url else { return Ok(true) };
        let failed = |error: reqwest::Error| self.redactor.redact(&error.to_string()).into_owned();
        let tls = trust::token_endpoint_config(&self.target.tls).map_err(|error| error.to_string())?;
        let client = catalogue::plain_client(&self.target, tls, TIMEOUT).map_err(failed)?;
        let asked = client.get(url.as_str()).send().await.and_then(reqwest::Response::error_for_status);
        let body = catalogue::bounded(asked.map_err(failed)?, BYTES_MAX).await.map_err(failed)?;
        let body = body.ok_or("the answer of awake_url is too long")?;
        Ok(names(&body, model))
    }
}

/// Whether a text names a model as a whole word: `qwen3` is not named by `qwen3-8b`.
fn names(body: &[u8], model: &str) -> bool {
    let text = String::from_utf8_lossy(body);
    let is_part = |character: char| character.is_alphanumeric() || "-_./:@".contains(character);
    text.match_indices(model).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + model.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_named_as_a_whole_word() {
        let ollama = br#"{"models":[{"name":"qwen3:8b","model":"qwen3:8b"}]}"#;
        for (model, expect) in [("qwen3:8b", true), ("qwen3", false), ("8b", false), ("qwen3:14b", false)] {
            assert_eq!(names(ollama, model), expect, "{model}");
        }
        assert!(names(b"org/model", "org/model"));
        assert!(!names(b"", "m"));
    }
}
