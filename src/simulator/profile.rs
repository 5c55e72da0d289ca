//! What a simulated model costs: the few numbers from which its latency at every prompt length and load follows.
//!
//! Data only: knows nothing of the engine that spends these costs.

use std::time::Duration;

/// One model of the simulator.
#[derive(Debug, Clone)]
pub struct ModelProfile {
    /// The name a request asks for, without fault suffixes.
    pub name: String,
    /// How long things take.
    pub timing: Timing,
    /// Longest prompt and answer together; more is refused with 400, as vLLM does.
    pub context_tokens: u32,
    /// Tokens of an answer that nothing cuts short (`max_tokens` unset or larger).
    pub answer_tokens: u32,
    /// Tokens of thought before the answer when asked for as `NAME+reasoning`.
    pub reasoning_tokens: u32,
    /// Prefix cache and key-value memory, in tokens.
    pub kv_tokens: u64,
}

/// Where the time of an answer comes from.
#[derive(Debug, Clone)]
pub enum Timing {
    /// Exactly known, whatever the load: the oracle of accuracy tests.
    Fixed {
        /// From the request's last byte to its first token.
        ttft: Duration,
        /// Between tokens, on an absolute schedule.
        gap: Duration,
    },
    /// An engine with a queue, chunked prefill and continuous batching.
    Batched(Batching),
}

/// Costs of a batching engine. A step of `n` answers takes
/// `step + (n - 1) * step_per_sequence + max(0, n - crowd)² * step_per_crowding`, longer beside prompts being read.
#[derive(Debug, Clone)]
pub struct Batching {
    /// Most sequences running at once; the rest wait in line.
    pub slots: usize,
    /// Prompt tokens read at a time.
    pub chunk_tokens: u32,
    /// From a request's last byte to its place in line: tokenizing and scheduling.
    pub admission: Duration,
    /// Reading one prompt token that is not cached, alone on the machine.
    pub prefill_per_token: Duration,
    /// Added to the time of reading, as a share, by each other prompt being read.
    pub prefill_contention: f64,
    /// How much of the slowdown that a step of all running sequences would suffer also slows reading.
    pub prefill_interference: f64,
    /// One decode step of one sequence.
    pub step: Duration,
    /// Added by each further sequence.
    pub step_per_sequence: Duration,
    /// Sequences beyond which memory bandwidth runs short.
    pub crowd: u32,
    /// Added by the square of the number of sequences beyond `crowd`.
    pub step_per_crowding: Duration,
    /// Added to the time of a step, as a share, by each prompt being read.
    pub step_contention: f64,
    /// Spread (sigma of the logarithm) of one request's admission and prefill.
    pub request_spread: f64,
    /// How much of that spread each other running sequence adds to prefill: tails grow with load.
    pub request_spread_growth: f64,
    /// Spread (sigma of the logarithm) of a step.
    pub step_spread: f64,
}

impl ModelProfile {
    /// A model whose first token comes exactly `ttft` after the request and every further one `gap` later: no
    /// jitter, no queue.
    pub fn fixed(name: impl Into<String>, ttft: Duration, gap: Duration) -> Self {
        Self::new(name, Timing::Fixed { ttft, gap }, 1_000_000)
    }

    /// The smaller demo model: at a 16 000 token prompt its TTFT P50 is 168 ms alone and 269 ms at concurrency 16.
    #[must_use]
    pub fn qwen3_8b() -> Self {
        let batching = Batching {
            slots: 16,
            chunk_tokens: 2048,
            admission: Duration::from_micros(61_300),
            prefill_per_token: Duration::from_nanos(6_690),
            prefill_contention: 0.01,
            prefill_interference: 0.445,
            step: Duration::from_millis(18),
            step_per_sequence: Duration::from_micros(1_900),
            crowd: 8,
            step_per_crowding: Duration::from_micros(150),
            step_contention: 0.05,
            request_spread: 0.08,
            request_spread_growth: 0.13,
            step_spread: 0.03,
        };
        Self::new("qwen3-8b", Timing::Batched(batching), 640_000)
    }

    /// The larger demo model: 215 ms alone, 352 ms at concurrency 16.
    #[must_use]
    pub fn qwen3_14b() -> Self {
        let batching = Batching {
            slots: 16,
            chunk_tokens: 2048,
            admission: Duration::from_micros(54_600),
            prefill_per_token: Duration::from_micros(10),
            prefill_contention: 0.01,
            prefill_interference: 0.415,
            step: Duration::from_millis(26),
            step_per_sequence: Duration::from_millis(3),
            crowd: 8,
            step_per_crowding: Duration::from_micros(150),
            step_contention: 0.05,
            request_spread: 0.07,
            request_spread_growth: 0.14,
            step_spread: 0.03,
        };
        Self::new("qwen3-14b", Timing::Batched(batching), 640_000)
    }

    fn new(name: impl Into<String>, timing: Timing, kv_tokens: u64) -> Self {
        Self {
            name: name.into(),
            timing,
            context_tokens: 131_072,
            answer_tokens: 512,
            reasoning_tokens: 12,
            kv_tokens,
        }
    }

    /// The same model, everything taking `factor` times as long.
    #[must_use]
    pub fn slowed(&self, factor: u32) -> Self {
        let timing = match &self.timing {
            Timing::Fixed { ttft, gap } => Timing::Fixed { ttft: *ttft * factor, gap: *gap * factor },
            Timing::Batched(batching) => Timing::Batched(batching.slowed(factor)),
        };
        Self { timing, ..self.clone() }
    }
}

impl Batching {
    fn slowed(&self, factor: u32) -> Self {
        Self {
            admission: self.admission * factor,
            step: self.step * factor,
            step_per_sequence: self.step_per_sequence * factor,
            step_per_crowding: self.step_per_crowding * factor,
            prefill_per_token: self.prefill_per_token * factor,
            ..self.clone()
        }
    }
}
