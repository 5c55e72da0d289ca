//! When the requests of an open loop are due: rates, and the instants of their arrivals.
//!
//! Pure: a schedule is fixed by its rate, its kind and its seed before anything is sent. Knows nothing of who sends, and
//! so cannot be held up by an answer that is late.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

/// Requests per second, exact to a millionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate {
    micros: u64,
}

/// How arrivals are spaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// As independent users come: exponential gaps.
    #[default]
    Poisson,
    /// At equal gaps.
    Constant,
}

/// The instants at which requests are due, since the schedule began. It never ends.
#[derive(Debug, Clone)]
pub struct Schedule {
    rate: Rate,
    arrivals: Arrivals,
    dice: fastrand::Rng,
    count: u32,
    at: Duration,
}

const MICROS: f64 = 1e6;
/// One an hour.
const PER_SECOND_MIN: f64 = 1.0 / 3600.0;
const PER_SECOND_MAX: f64 = 10_000.0;

impl Rate {
    /// So many requests per second; `None` outside of one an hour to ten thousand a second.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within a range that fits")]
    pub fn new(per_second: f64) -> Option<Self> {
        let fits = (PER_SECOND_MIN..=PER_SECOND_MAX).contains(&per_second);
        fits.then(|| Self { micros: (per_second * MICROS).round() as u64 })
    }

    /// Requests per second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.micros as f64 / MICROS
    }

    /// How long it takes for so many to arrive, on average.
    #[must_use]
    pub fn time_for(self, requests: u32) -> Duration {
        Duration::from_secs_f64(f64::from(requests) / self.per_second())
    }

    /// How many arrive in this time on average, rounded up.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and a time is never negative"
    )]
    pub fn arriving_in(self, time: Duration) -> u32 {
        (time.as_secs_f64() * self.per_second()).ceil() as u32
    }

    /// This share of it.
    #[must_use]
    pub fn share(self, share: f64) -> Option<Self> {
        Self::new(self.per_second() * share)
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> Self {
        rate.per_second()
    }
}

impl TryFrom<f64> for Rate {
    type Error = &'static str;

    fn try_from(per_second: f64) -> Result<Self, Self::Error> {
        Self::new(per_second).ok_or("not between one an hour and ten thousand a second")
    }
}

/// Requests per second without a unit: the label's value.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.per_second())
    }
}

/// `5/s`, `30/m`, `100/h`.
impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a rate; write one like \"5/s\", \"30/m\" or \"100/h\"");
        let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
        let seconds = match unit.trim() {
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        Self::new(number / seconds)
            .ok_or_else(|| format!("\"{text}\" is not between \"1/h\" and \"10000/s\""))
    }
}

impl Arrivals {
    /// The name used in configuration and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Poisson => "poisson",
            Self::Constant => "constant",
        }
    }
}

impl Schedule {
    /// The schedule of a seed.
    #[must_use]
    pub fn new(rate: Rate, arrivals: Arrivals, seed: u64) -> Self {
        Self { rate, arrivals, dice: fastrand::Rng::with_seed(seed), count: 0, at: Duration::ZERO }
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.at = match self.arrivals {
            // From the beginning each time: steps added up would drift.
            Arrivals::Constant => self.rate.time_for(self.count),
            // 1 - U is never zero, so that its logarithm is finite.
            Arrivals::Poisson => {
                let gap = -(1.0 - self.dice.f64()).ln() / self.rate.per_second();
                self.at + Duration::from_secs_f64(gap)
            }
        };
        self.count = self.count.saturating_add(1);
        Some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn rates_are_read_per_second_minute_and_hour_and_nothing_else_is() {
        for (text, per_second, label) in [
            ("5/s", 5.0, "5"),
            ("0.5/s", 0.5, "0.5"),
            ("30/m", 0.5, "0.5"),
            ("90 / min", 1.5, "1.5"),
            ("100/h", 0.027_778, "0.027778"),
        ] {
            assert!((rate(text).per_second() - per_second).abs() < 1e-9, "{text}");
            assert_eq!(rate(text).to_string(), label, "{text}");
        }
        for text in ["5", "5/d", "/s", "x/s", "-1/s", "0/s", "nan/s", "inf/s", "10001/s", "0.5/h", ""] {
            assert!(text.parse::<Rate>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn constant_arrivals_keep_their_distance_and_do_not_drift() {
        let at: Vec<Duration> = Schedule::new(rate("3/s"), Arrivals::Constant, 0).take(3_000_001).collect();
        assert_eq!(at[0], Duration::ZERO);
        assert_eq!(at[3], Duration::from_secs(1));
        assert_eq!(at[3_000_000], Duration::from_secs(1_000_000));
    }

    #[test]
    fn a_seed_is_a_schedule() {
        let of = |seed| Schedule::new(rate("5/s"), Arrivals::Poisson, seed).take(50).collect::<Vec<_>>();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    /// Kolmogorov and Smirnov's distance to the exponential distribution, whose 1% point for many samples is
    /// 1.63 / sqrt(n); seeds are fixed, so that this either always passes or never does.
    #[test]
    fn gaps_of_poisson_arrivals_are_exponential() {
        for seed in [1, 2, 3] {
            let at: Vec<Duration> =
                Schedule::new(rate("20/s"), Arrivals::Poisson, seed).take(20_000).collect();
            let starts = [Duration::ZERO].into_iter().chain(at.iter().copied());
            let mut gaps: Vec<f64> =
                starts.zip(&at).map(|(from, to)| to.as_secs_f64() - from.as_secs_f64()).collect();
            gaps.sort_by(f64::total_cmp);
            let count = gaps.len() as f64;
            let distance = gaps
                .iter()
                .zip(0_u32..)
                .map(|(gap, index)| {
                    let expected = 1.0 - (-20.0 * gap).exp();
                    let seen = f64::from(index) / count;
                    (expected - seen).abs().max((seen + 1.0 / count - expected).abs())
                })
                .fold(0.0, f64::max);
            assert!(distance < 1.63 / count.sqrt(), "seed {seed}: {distance}");
        }
    }
}
