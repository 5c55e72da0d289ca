//! The engines, event by event, in simulated time.

use super::*;
use crate::simulator::{profile::Batching, tokens};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A batching engine with round numbers and no jitter.
fn plain() -> Batching {
    Batching {
        slots: 2,
        chunk_tokens: 100,
        admission: MS(5),
        prefill_per_token: MS(1),
        prefill_contention: 0.0,
        prefill_interference: 0.0,
        step: MS(10),
        step_per_sequence: MS(1),
        crowd: 8,
        step_per_crowding: Duration::ZERO,
        step_contention: 0.0,
        request_spread: 0.0,
        request_spread_growth: 0.0,
        step_spread: 0.0,
    }
}

fn engine(batching: Batching) -> Engine {
    let mut profile = ModelProfile::qwen3_8b();
    profile.timing = Timing::Batched(batching);
    Engine::new(&profile, 1)
}

fn job(prompt: &str, output_tokens: u32) -> Job {
    Job { prompt: tokens::count([prompt], 0), reasoning_tokens: 0, output_tokens, finish: Finish::Length }
}

fn prompt_of(tokens: usize, letter: &str) -> String {
    letter.repeat(tokens * 5)
}

/// Each token's job and time in milliseconds.
type Tokens = Vec<(JobId, u128)>;

/// Each admitted job and its cached tokens.
type Admissions = Vec<(JobId, u32)>;

/// Runs until idle.
fn run(engine: &mut Engine) -> (Tokens, Admissions) {
    let mut happened = Vec::new();
    while let Some(at) = engine.next_event() {
        engine.advance(at, &mut happened);
    }
    let mut tokens = Vec::new();
    let mut cached = Vec::new();
    for Emission { job, at, event } in happened {
        match event {
            Event::Admitted { cached_tokens } => cached.push((job, cached_tokens)),
            Event::Token { .. } => tokens.push((job, at.as_millis())),
        }
    }
    (tokens, cached)
}

#[test]
fn a_fixed_engine_keeps_an_absolute_schedule_whatever_the_load() {
    let mut engine = Engine::new(&ModelProfile::fixed("m", MS(150), MS(20)), 1);
    engine.submit(MS(7), job("a", 3));
    engine.submit(MS(8), job("b", 2));
    let (tokens, _) = run(&mut engine);
    assert_eq!(tokens, [(1, 157), (2, 158), (1, 177), (2, 178), (1, 197)]);
    assert_eq!(engine.load(), Load::default());
}

#[test]
fn late_driving_does_not_shift_the_schedule() {
    let mut engine = Engine::new(&ModelProfile::fixed("m", MS(10), MS(10)), 1);
    engine.submit(MS(0), job("a", 3));
    let mut happened = Vec::new();
    engine.advance(MS(25), &mut happened);
    engine.advance(MS(99), &mut happened);
    let at: Vec<_> = happened.iter().map(|emission| emission.at.as_millis()).collect();
    assert_eq!(at, [0, 10, 20, 30]);
}

#[test]
fn prefill_takes_time_by_tokens_and_decode_by_steps() {
    let mut engine = engine(plain());
    engine.submit(MS(0), job(&prompt_of(250, "a"), 3));
    // Admission 5, three chunks of 100, 100 and 50, then steps of 10.
    assert_eq!(run(&mut engine).0, [(1, 255), (1, 265), (1, 275)]);
}

#[test]
fn a_batch_emits_one_token_each_and_slows_every_step() {
    let mut engine = engine(plain());
    engine.submit(MS(0), job(&prompt_of(20, "a"), 3));
    engine.submit(MS(0), job(&prompt_of(20, "b"), 3));
    assert_eq!(run(&mut engine).0, [(1, 25), (2, 25), (1, 36), (2, 36), (1, 47), (2, 47)]);
}

#[test]
fn jobs_beyond_the_slots_wait_in_line() {
    let mut engine = engine(plain());
    for letter in ["a", "b", "c"] {
        engine.submit(MS(0), job(&prompt_of(20, letter), 2));
    }
    engine.advance(MS(6), &mut Vec::new());
    assert_eq!((engine.load().running, engine.load().waiting), (2, 1));
    // The third starts when the first two end at 36.
    assert_eq!(run(&mut engine).0[4..], [(3, 56), (3, 66)]);
}

#[test]
fn prompts_read_side_by_side_slow_each_other() {
    let mut engine = engine(Batching { prefill_contention: 0.5, ..plain() });
    engine.submit(MS(0), job(&prompt_of(100, "a"), 1));
    engine.submit(MS(0), job(&prompt_of(100, "b"), 1));
    assert_eq!(run(&mut engine).0, [(1, 155), (2, 155)]);
}

#[test]
fn a_repeated_prompt_is_cached_but_for_its_last_block() {
    let mut engine = engine(plain());
    engine.submit(MS(0), job(&prompt_of(160, "a"), 1));
    let (first, cached) = run(&mut engine);
    assert_eq!((first, cached), (vec![(1, 165)], vec![(1, 0)]));
    engine.submit(MS(200), job(&prompt_of(160, "a"), 1));
    // 144 of 160 tokens found, 16 to read.
    assert_eq!(run(&mut engine), (vec![(2, 221)], vec![(2, 144)]));
    engine.submit(MS(300), job(&prompt_of(160, "b"), 1));
    assert_eq!(run(&mut engine).1, [(3, 0)]);
}

#[test]
fn the_prefix_cache_forgets_the_least_recently_used() {
    let mut profile = ModelProfile::fixed("m", MS(1), MS(1));
    profile.kv_tokens = 320;
    let mut engine = Engine::new(&profile, 1);
    let mut cached_of = |letter| {
        engine.submit(MS(0), job(&prompt_of(160, letter), 1));
        run(&mut engine).1[0].1
    };
    assert_eq!(cached_of("a"), 0);
    assert_eq!(cached_of("b"), 0);
    assert_eq!(cached_of("a"), 144);
    assert_eq!(cached_of("c"), 0);
    assert_eq!(cached_of("a"), 144);
    assert_eq!(cached_of("b"), 0);
}

#[test]
fn a_cancelled_job_emits_nothing_more_and_frees_its_slot() {
    let mut engine = engine(Batching { slots: 1, ..plain() });
    let first = engine.submit(MS(0), job(&prompt_of(20, "a"), 100));
    engine.submit(MS(0), job(&prompt_of(20, "b"), 1));
    let mut happened = Vec::new();
    engine.advance(MS(40), &mut happened);
    engine.cancel(first);
    engine.advance(MS(41), &mut happened);
    assert_eq!(engine.load().running, 1);
    assert_eq!(run(&mut engine).0, [(2, 61)]);
}

#[test]
fn a_job_that_can_never_fit_the_memory_still_runs_alone() {
    let mut profile = ModelProfile::qwen3_8b();
    profile.kv_tokens = 64;
    profile.timing = Timing::Batched(plain());
    let mut engine = Engine::new(&profile, 1);
    engine.submit(MS(0), job(&prompt_of(100, "a"), 1));
    engine.submit(MS(0), job(&prompt_of(10, "b"), 1));
    assert_eq!(run(&mut engine).0, [(1, 105), (2, 115)]);
}

#[test]
fn thought_comes_before_the_answer_and_only_the_last_token_finishes() {
    let mut engine = Engine::new(&ModelProfile::fixed("m", MS(1), MS(1)), 1);
    engine.submit(MS(0), Job { reasoning_tokens: 2, finish: Finish::Stop, ..job("a", 4) });
    let mut happened = Vec::new();
    engine.advance(MS(99), &mut happened);
    let tokens: Vec<_> = happened
        .iter()
        .filter_map(|emission| match emission.event {
            Event::Admitted { .. } => None,
            Event::Token { index, reasoning, finish } => Some((index, reasoning, finish)),
        })
        .collect();
    assert_eq!(tokens, [(0, true, None), (1, true, None), (2, false, None), (3, false, Some(Finish::Stop))]);
}
