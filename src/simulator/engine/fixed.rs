//! The engine that keeps time exactly: token `k` of a job is due at `submitted + ttft + k * gap`, whatever the load.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{Answer, Emission, Event, Job, JobId, Load, prefix::PrefixCache};

#[derive(Debug)]
pub(super) struct FixedEngine {
    ttft: Duration,
    gap: Duration,
    jobs_seen: JobId,
    due: BTreeMap<(Duration, JobId), Step>,
    due_of: HashMap<JobId, Duration>,
    cache: PrefixCache,
}

#[derive(Debug)]
enum Step {
    Admit { cached_tokens: u32, answer: Answer },
    Token(Answer),
}

impl FixedEngine {
    pub(super) fn new(ttft: Duration, gap: Duration, kv_tokens: u64) -> Self {
        Self {
            ttft,
            gap,
            jobs_seen: 0,
            due: BTreeMap::new(),
            due_of: HashMap::new(),
            cache: PrefixCache::new(kv_tokens),
        }
    }

    pub(super) fn submit(&mut self, now: Duration, job: &Job) -> JobId {
        self.jobs_seen += 1;
        let id = self.jobs_seen;
        let cached_tokens = self.cache.cached_tokens(&job.prompt);
        self.cache.insert(&job.prompt);
        self.schedule(now, id, Step::Admit { cached_tokens, answer: Answer::new(job) });
        id
    }

    pub(super) fn cancel(&mut self, job: JobId) {
        if let Some(at) = self.due_of.remove(&job) {
            self.due.remove(&(at, job));
        }
    }

    pub(super) fn next_event(&self) -> Option<Duration> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn advance(&mut self, now: Duration, happened: &mut Vec<Emission>) {
        while self.next_event().is_some_and(|at| at <= now) {
            let Some(((at, job), step)) = self.due.pop_first() else { break };
            self.due_of.remove(&job);
            let event = match step {
                Step::Admit { cached_tokens, answer } => {
                    self.schedule(at + self.ttft, job, Step::Token(answer));
                    Event::Admitted { cached_tokens }
                }
                Step::Token(mut answer) => {
                    let event = answer.next();
                    if !answer.is_over() {
                        self.schedule(at + self.gap, job, Step::Token(answer));
                    }
                    event
                }
            };
            happened.push(Emission { job, at, event });
        }
    }

    pub(super) fn load(&self) -> Load {
        Load { running: self.due.len(), ..Load::default() }
    }

    fn schedule(&mut self, at: Duration, job: JobId, step: Step) {
        self.due_of.insert(job, at);
        self.due.insert((at, job), step);
    }
}
