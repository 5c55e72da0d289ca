//! Lengths, nonces, variety.

use super::*;
use crate::config::PrefixCache;

const LANGUAGES: [PromptLanguage; 3] = [PromptLanguage::En, PromptLanguage::Zh, PromptLanguage::Mixed];

fn check_length(tokens: u32, language: PromptLanguage) {
    let prompt = build(Nonce::Fresh(u64::from(tokens) << 20), Shape::new(tokens, language));
    let estimate = estimate_tokens(&prompt);
    let wanted = f64::from(tokens);
    let allowed = (wanted * 0.03).max(1.0);
    let shortest = estimate_tokens("[probe 0123456789abcdef]");
    assert!(
        (estimate - wanted.max(shortest)).abs() <= allowed,
        "{language:?} {tokens}: estimated {estimate} in {prompt:.200}"
    );
}

#[test]
fn every_length_is_met() {
    for language in LANGUAGES {
        for tokens in (1..600).chain((600..64_000).step_by(2_477)).chain([32_000, 64_000]) {
            check_length(tokens, language);
        }
    }
}

#[test]
fn what_a_prompt_is_estimated_at_is_known_without_reading_it() {
    let Ok(PrefixCache::Shared(share)) = PrefixCache::parse("shared:0.3") else { panic!() };
    for language in LANGUAGES {
        for tokens in [1, 20, 100, 1_000, 8_000] {
            for nonce in [Nonce::Fresh(7), Nonce::Warm, Nonce::Shared(9, share)] {
                let prompt = write(&Prompts::Generated, nonce, Shape::new(tokens, language));
                let known = prompt.estimated_tokens - estimate_tokens(&prompt.text);
                assert!(known.abs() < 1e-6, "{nonce:?} {language:?} {tokens}: {known}");
            }
        }
    }
}

#[test]
fn a_prompt_begins_with_its_nonce_and_differs_from_the_start() {
    let shape = Shape::new(500, PromptLanguage::En);
    let first = build(Nonce::Fresh(1), shape);
    let second = build(Nonce::Fresh(2), shape);
    assert!(first.starts_with("[probe 0000000000000001]\n\n"), "{first:.60}");
    assert_ne!(first.split_once(']').unwrap().1, second.split_once(']').unwrap().1);
    assert_eq!(first, build(Nonce::Fresh(1), shape));
}

#[test]
fn a_warm_prompt_is_always_the_same() {
    let shape = Shape::new(500, PromptLanguage::Mixed);
    assert_eq!(build(Nonce::Warm, shape), build(Nonce::Warm, shape));
    assert!(build(Nonce::Warm, shape).starts_with("[probe warm]"));
}

#[test]
fn prose_is_varied() {
    let prompt = build(Nonce::Fresh(7), Shape::new(4_000, PromptLanguage::En));
    let sentences: Vec<_> = prompt.split(". ").collect();
    let distinct: std::collections::HashSet<_> = sentences.iter().collect();
    assert!(sentences.len() > 150, "{}", sentences.len());
    assert_eq!(distinct.len(), sentences.len());
}

#[test]
fn it_asks_for_a_long_answer() {
    assert!(build(Nonce::Fresh(7), Shape::new(1_000, PromptLanguage::En)).contains("two thousand words"));
    assert!(build(Nonce::Fresh(7), Shape::new(1_000, PromptLanguage::Zh)).contains("至少写三千字"));
    assert!(build(Nonce::Fresh(7), Shape::new(40, PromptLanguage::En)).contains("long story"));
}

#[test]
fn mixed_prompts_hold_both_languages() {
    let prompt = build(Nonce::Fresh(7), Shape::new(2_000, PromptLanguage::Mixed));
    let chinese = prompt.chars().filter(|c| !c.is_ascii()).count();
    assert!(prompt.contains(" the ") && chinese > 300, "{chinese}");
}

#[test]
fn scale_and_overhead_correct_the_length() {
    let shape = Shape { overhead_tokens: 100.0, scale: 0.5, ..Shape::new(2_100, PromptLanguage::En) };
    let estimate = estimate_tokens(&build(Nonce::Fresh(3), shape));
    assert!((estimate - 1_000.0).abs() < 10.0, "{estimate}");
    let runaway = Shape { scale: f64::INFINITY, ..Shape::new(0, PromptLanguage::En) };
    assert!(build(Nonce::Fresh(3), runaway).len() < 100);
}

#[test]
fn the_estimator_knows_both_scripts() {
    let check = |text: &str, tokens: f64| {
        let estimate = estimate_tokens(text);
        assert!((estimate - tokens).abs() < 0.01, "{text}: {estimate}");
    };
    check("", 0.0);
    check("one two three.", 4.0);
    check("三个字", 2.0);
    check("12 34", 2.6);
}

#[test]
fn english_prose_has_the_proportions_that_prompts_are_brought_to() {
    let text = build(Nonce::Fresh(11), Shape::new(64_000, PromptLanguage::En));
    let bytes_per_token = text.len() as f64 / estimate_tokens(&text);
    println!("{bytes_per_token:.3} bytes for one estimated token");
    assert!((bytes_per_token / prose::BYTES_PER_TOKEN - 1.0).abs() < 0.01, "{bytes_per_token}");
}
