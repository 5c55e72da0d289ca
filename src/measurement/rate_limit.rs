//! What a server says of the allowance it keeps for this client: pure numbers, whichever headers they came in.

use std::time::Duration;

use serde::Serialize;

use super::named;

named! {
    /// What an allowance counts: the `unit` label.
    RateLimitUnit {
        /// Requests.
        Requests = "requests",
        /// Tokens of prompts and answers together.
        Tokens = "tokens",
        /// Prompt tokens.
        InputTokens = "input_tokens",
        /// Output tokens.
        OutputTokens = "output_tokens",
    }
}

/// One allowance, as far as the server told of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// What it counts.
    pub unit: RateLimitUnit,
    /// How much there is when it is full.
    pub limit: Option<f64>,
    /// How much is left.
    pub remaining: Option<f64>,
    /// How long until it is full again.
    pub reset: Option<Duration>,
}
