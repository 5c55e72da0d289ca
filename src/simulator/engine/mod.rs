//! The model of an inference engine: jobs go in with the time, tokens come out with theirs.
//!
//! Pure: time is an argument (since the engine's start), so a whole ladder runs in a unit test at once. Knows
//! nothing of HTTP, of sockets, of the wall clock or of who waits for the tokens.
//!
//! Drive it so: after [`Engine::submit`] or [`Engine::cancel`], and whenever [`Engine::next_event`] is due, call
//! [`Engine::advance`].

mod batch;
mod dice;
mod fixed;
mod prefix;

use std::time::Duration;

use self::{batch::BatchEngine, fixed::FixedEngine};
use super::{
    profile::{ModelProfile, Timing},
    tokens::Prompt,
};

/// Names one job of one engine.
pub type JobId = u64;

/// What is asked of the engine.
#[derive(Debug, Clone)]
pub struct Job {
    /// The prompt, counted.
    pub prompt: Prompt,
    /// Tokens of thought, at the head of `output_tokens`.
    pub reasoning_tokens: u32,
    /// Tokens to generate, at least one.
    pub output_tokens: u32,
    /// Why the last one will be the last.
    pub finish: Finish,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model had said all.
    Stop,
    /// `max_tokens` was reached.
    Length,
}

/// Something that happened to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emission {
    /// The job.
    pub job: JobId,
    /// When, since the engine's start.
    pub at: Duration,
    /// What.
    pub event: Event,
}

/// What can happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It left the line and holds a slot.
    Admitted {
        /// Prompt tokens that the prefix cache held.
        cached_tokens: u32,
    },
    /// It produced a token.
    Token {
        /// Counts from zero.
        index: u32,
        /// Whether it is thought, not answer.
        reasoning: bool,
        /// Set on the last one.
        finish: Option<Finish>,
    },
}

/// How full an engine is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Jobs that hold a slot.
    pub running: usize,
    /// Jobs in line.
    pub waiting: usize,
    /// Share of key-value memory in use, 0 to 1.
    pub kv_usage: f64,
}

/// One model's engine.
#[derive(Debug)]
pub struct Engine(Kind);

#[derive(Debug)]
enum Kind {
    Fixed(FixedEngine),
    Batch(Box<BatchEngine>),
}

impl Engine {
    /// An idle engine at time zero. The same seed and jobs give the same times.
    #[must_use]
    pub fn new(profile: &ModelProfile, seed: u64) -> Self {
        Self(match &profile.timing {
            Timing::Fixed { ttft, gap } => Kind::Fixed(FixedEngine::new(*ttft, *gap, profile.kv_tokens)),
            Timing::Batched(batching) => {
                Kind::Batch(Box::new(BatchEngine::new(batching.clone(), profile.kv_tokens, seed)))
            }
        })
    }

    /// Takes a job in.
    pub fn submit(&mut self, now: Duration, job: Job) -> JobId {
        match &mut self.0 {
            Kind::Fixed(engine) => engine.submit(now, &job),
            Kind::Batch(engine) => engine.submit(now, job),
        }
    }

    /// Forgets a job; unknown or finished ones are ignored.
    pub fn cancel(&mut self, job: JobId) {
        match &mut self.0 {
            Kind::Fixed(engine) => engine.cancel(job),
            Kind::Batch(engine) => engine.cancel(job),
        }
    }

    /// When [`Self::advance`] next has something to do; `None` while idle.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        match &self.0 {
            Kind::Fixed(engine) => engine.next_event(),
            Kind::Batch(engine) => engine.next_event(),
        }
    }

    /// Lets everything happen that is due at `now`, in order.
    pub fn advance(&mut self, now: Duration, happened: &mut Vec<Emission>) {
        match &mut self.0 {
            Kind::Fixed(engine) => engine.advance(now, happened),
            Kind::Batch(engine) => engine.advance(now, happened),
        }
    }

    /// How full it is.
    #[must_use]
    pub fn load(&self) -> Load {
        match &self.0 {
            Kind::Fixed(engine) => engine.load(),
            Kind::Batch(engine) => engine.load(),
        }
    }
}

/// How far a job's answer has come; shared by both kinds of engine.
#[derive(Debug, Clone, Copy)]
struct Answer {
    produced: u32,
    reasoning_tokens: u32,
    output_tokens: u32,
    finish: Finish,
}

impl Answer {
    fn new(job: &Job) -> Self {
        Self {
            produced: 0,
            reasoning_tokens: job.reasoning_tokens,
            output_tokens: job.output_tokens.max(1),
            finish: job.finish,
        }
    }

    fn next(&mut self) -> Event {
        let index = self.produced;
        self.produced += 1;
        Event::Token {
            index,
            reasoning: index < self.reasoning_tokens,
            finish: self.is_over().then_some(self.finish),
        }
    }

    fn is_over(&self) -> bool {
        self.produced >= self.output_tokens
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
