//! `prefix_cache`: what prompts have in common, and so what a prefix cache may answer.

use std::fmt;

use super::nearest::nearest;

/// What is asked of the prefix cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PrefixCache {
    /// A fresh nonce at the head of every prompt: no prefix cache can answer.
    #[default]
    Cold,
    /// The same prompt every time.
    Warm,
    /// The same beginning every time, a fresh rest.
    Shared(Share),
}

/// A share of a prompt between none and all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Share(u16);

/// Shares are kept in thousandths.
const WHOLE: u16 = 1000;
const WORDS: [&str; 3] = ["cold", "warm", "shared:0.5"];

impl PrefixCache {
    /// Reads `cold`, `warm` or `shared:0.5`.
    ///
    /// # Errors
    /// What to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(share) = text.strip_prefix("shared:") {
            return Share::parse(share).map(Self::Shared);
        }
        match text {
            "cold" => Ok(Self::Cold),
            "warm" => Ok(Self::Warm),
            _ => Err(match nearest(text, WORDS) {
                Some(near) => format!("\"{text}\" is not known; did you mean \"{near}\"?"),
                None => format!(
                    "\"{text}\" is not known; write \"cold\", \"warm\" or, for a common half, \"shared:0.5\""
                ),
            }),
        }
    }
}

impl Share {
    fn parse(text: &str) -> Result<Self, String> {
        let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a thousand is between them"
        )]
        let thousandths = share.map(|share| ((share * f64::from(WHOLE)).round() as u16).clamp(1, WHOLE - 1));
        thousandths.map(Self).ok_or_else(|| {
            format!("\"shared:{text}\" needs a share between 0 and 1; write one like \"shared:0.5\"")
        })
    }

    /// The share, above 0 and below 1.
    #[must_use]
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }
}

impl fmt::Display for PrefixCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cold => f.write_str("cold"),
            Self::Warm => f.write_str("warm"),
            Self::Shared(share) => write!(f, "shared:{}", share.ratio()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["cold", "warm", "shared:0.5", "shared:0.125", "shared:0.001"] {
            assert_eq!(PrefixCache::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["shared:0", "shared:1", "shared:", "shared:half", "shared:-0.5", "shared:NaN", "shared", "hot"]
        {
            let error = PrefixCache::parse(text).unwrap_err();
            assert!(error.contains("shared:0.5") || error.contains("did you mean"), "{error}");
        }
    }
}
