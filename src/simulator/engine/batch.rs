//! The engine that behaves like vLLM: a line, slots, chunked prefill and continuous batching.
//!
//! Prompts are read chunk by chunk, answers are written step by step: a step produces one token of every sequence
//! whose prompt is in memory. Both share the hardware, so each is slower the more there is of either; how much is
//! settled when a chunk or step begins. From this follow, without being written anywhere, a TTFT that grows with
//! prompt length and load, a TPOT that grows with load, and a throughput that does not grow for ever.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{Answer, Emission, Event, Job, JobId, Load, dice::Dice, prefix::PrefixCache};
use crate::simulator::{profile::Batching, tokens::Prompt};

#[derive(Debug)]
pub(super) struct BatchEngine {
    costs: Batching,
    kv_tokens: u64,
    dice: Dice,
    cache: PrefixCache,
    jobs_seen: JobId,
    /// Still being tokenized, by the time they will join the line.
    arriving: BTreeMap<(Duration, JobId), Sequence>,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    step_end: Option<Duration>,
}

#[derive(Debug)]
struct Sequence {
    id: JobId,
    prompt: Prompt,
    answer: Answer,
    /// How long this request takes compared with the median one.
    pace: f64,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Has a place in line, or a slot and no chunk yet; so many tokens are to be read.
    Unread(u32),
    /// A chunk is being read; so many tokens are left after it.
    Reading { chunk_end: Duration, left: u32 },
    /// The prompt was read during the step under way: part of the next one.
    Read,
    /// Part of the step under way.
    Decoding,
}

impl BatchEngine {
    pub(super) fn new(costs: Batching, kv_tokens: u64, seed: u64) -> Self {
        Self {
            costs,
            kv_tokens,
            dice: Dice::new(seed),
            cache: PrefixCache::new(kv_tokens),
            jobs_seen: 0,
            arriving: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            step_end: None,
        }
    }

    pub(super) fn submit(&mut self, now: Duration, job: Job) -> JobId {
        self.jobs_seen += 1;
        let id = self.jobs_seen;
        let pace = self.dice.factor(self.costs.request_spread);
        let answer = Answer::new(&job);
        let sequence =
            Sequence { id, answer, pace, phase: Phase::Unread(job.prompt.tokens), prompt: job.prompt };
        self.arriving.insert((now + self.costs.admission.mul_f64(pace), id), sequence);
        id
    }

    pub(super) fn cancel(&mut self, job: JobId) {
        self.arriving.retain(|(_, id), _| *id != job);
        self.waiting.retain(|sequence| sequence.id != job);
        self.running.retain(|sequence| sequence.id != job);
    }

    pub(super) fn next_event(&self) -> Option<Duration> {
        let arrival = self.arriving.first_key_value().map(|((at, _), _)| *at);
        let chunk_end = self.running.iter().filter_map(Sequence::chunk_end).min();
        [arrival, chunk_end, self.step_end].into_iter().flatten().min()
    }

    pub(super) fn advance(&mut self, now: Duration, happened: &mut Vec<Emission>) {
        // A cancelled job may have freed a slot for the head of the line.
        self.admit(now, happened);
        self.begin(now);
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.join_line(at);
            self.end_chunks(at, happened);
            self.end_step(at, happened);
            self.admit(at, happened);
            self.begin(at);
        }
    }

    pub(super) fn load(&self) -> Load {
        Load {
            running: self.running.len(),
            waiting: self.waiting.len(),
            kv_usage: self.kv_used() as f64 / self.kv_tokens.max(1) as f64,
        }
    }

    fn join_line(&mut self, now: Duration) {
        while self.arriving.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
            self.waiting.extend(self.arriving.pop_first().map(|(_, sequence)| sequence));
        }
    }

    /// First come, first served; nobody overtakes a job that does not fit yet.
    fn admit(&mut self, at: Duration, happened: &mut Vec<Emission>) {
        while let Some(head) = self.waiting.front() {
            let fits = self.kv_used() + head.kv_tokens() <= self.kv_tokens || self.running.is_empty();
            if self.running.len() >= self.costs.slots.max(1) || !fits {
                return;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { return };
            let cached_tokens = self.cache.cached_tokens(&sequence.prompt);
            sequence.phase = Phase::Unread(sequence.prompt.tokens.saturating_sub(cached_tokens));
            happened.push(Emission { job: sequence.id, at, event: Event::Admitted { cached_tokens } });
            self.running.push(sequence);
        }
    }

    /// Sets to work whoever has none: the next chunk of each prompt, the next step.
    fn begin(&mut self, at: Duration) {
        if self.running.iter().any(|sequence| matches!(sequence.phase, Phase::Unread(_))) {
            self.begin_chunks(at);
        }
        if self.step_end.is_none()
            && self.running.iter().any(|sequence| matches!(sequence.phase, Phase::Read))
        {
            self.begin_step(at);
        }
    }

    fn begin_chunks(&mut self, at: Duration) {
        let (reading, decoding) = self.parties();
        let costs = &self.costs;
        let slowdown = costs.reading_slowdown(reading, decoding);
        let tail = 1.0 + costs.request_spread_growth * f64::from((reading + decoding).saturating_sub(1));
        for sequence in &mut self.running {
            if let Phase::Unread(tokens) = sequence.phase {
                let chunk = tokens.min(costs.chunk_tokens.max(1));
                let factor = f64::from(chunk) * sequence.pace.powf(tail) * slowdown;
                let chunk_end = at + costs.prefill_per_token.mul_f64(factor);
                sequence.phase = Phase::Reading { chunk_end, left: tokens - chunk };
            }
        }
    }

    fn begin_step(&mut self, at: Duration) {
        for sequence in &mut self.running {
            if matches!(sequence.phase, Phase::Read) {
                sequence.phase = Phase::Decoding;
            }
        }
        let (reading, decoding) = self.parties();
        let slowdown = 1.0 + self.costs.step_contention * f64::from(reading);
        let work = self.costs.step_of(decoding).mul_f64(slowdown * self.dice.factor(self.costs.step_spread));
        self.step_end = Some(at + work);
    }

    fn end_chunks(&mut self, at: Duration, happened: &mut Vec<Emission>) {
        for sequence in &mut self.running {
            let Phase::Reading { chunk_end, left } = sequence.phase else { continue };
            if chunk_end > at {
                continue;
            }
            sequence.phase = Phase::Unread(left);
            if left == 0 {
                // The forward pass over the prompt's last token yields the first of the answer.
                sequence.phase = Phase::Read;
                self.cache.insert(&sequence.prompt);
                happened.push(Emission { job: sequence.id, at, event: sequence.answer.next() });
            }
        }
        self.running.retain(|sequence| !sequence.answer.is_over());
    }

    fn end_step(&mut self, at: Duration, happened: &mut Vec<Emission>) {
        if self.step_end.is_none_or(|end| end > at) {
            return;
        }
        self.step_end = None;
        for sequence in &mut self.running {
            if matches!(sequence.phase, Phase::Decoding) {
                sequence.phase = Phase::Read;
                happened.push(Emission { job: sequence.id, at, event: sequence.answer.next() });
            }
        }
        self.running.retain(|sequence| !sequence.answer.is_over());
    }

    /// How many sequences read their prompt, and how many write their answer.
    fn parties(&self) -> (u32, u32) {
        self.running.iter().fold((0, 0), |(reading, decoding), sequence| match sequence.phase {
            Phase::Unread(_) | Phase::Reading { .. } => (reading + 1, decoding),
            Phase::Read | Phase::Decoding => (reading, decoding + 1),
        })
    }

    fn kv_used(&self) -> u64 {
        self.running.iter().map(Sequence::kv_tokens).sum()
    }
}

impl Sequence {
    fn chunk_end(&self) -> Option<Duration> {
        match self.phase {
            Phase::Reading { chunk_end, .. } => Some(chunk_end),
            Phase::Unread(_) | Phase::Read | Phase::Decoding => None,
        }
    }

    /// Memory it may come to need: reserving it all is why nobody is ever preempted.
    fn kv_tokens(&self) -> u64 {
        u64::from(self.prompt.tokens) + u64::from(self.answer.output_tokens)
    }
}

impl Batching {
    fn step_of(&self, sequences: u32) -> Duration {
        let crowding = sequences.saturating_sub(self.crowd);
        self.step
            + self.step_per_sequence * sequences.saturating_sub(1)
            + self.step_per_crowding * crowding.saturating_mul(crowding)
    }

    /// How many times longer a chunk takes beside other prompts and a batch of answers than alone.
    fn reading_slowdown(&self, reading: u32, decoding: u32) -> f64 {
        let step_slowdown =
            self.step_of(reading + decoding).div_duration_f64(self.step.max(Duration::from_nanos(1)));
        1.0 + self.prefill_contention * f64::from(reading.saturating_sub(1))
            + self.prefill_interference * (step_slowdown - 1.0)
    }
}
