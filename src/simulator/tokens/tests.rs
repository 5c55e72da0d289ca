//! The estimator against known densities, and its prefix property.

use proptest::prelude::*;

use super::*;

#[test]
fn densities_are_those_promised() {
    let check = |text: &str, tokens: u32| assert_eq!(count([text], 0).tokens, tokens, "{text:.20}");
    check("", 0);
    check("a", 1);
    check("abcde", 1);
    check("abcdef", 2);
    check(&"a".repeat(80_000), 16_000);
    check(&"中".repeat(24_000), 16_000);
    check(&"ж".repeat(1000), 500);
}

#[test]
fn a_template_costs_tokens_per_message() {
    assert_eq!(count(["abcde", "abcde"], 4).tokens, 10);
}

#[test]
fn a_block_is_full_only_at_sixteen_tokens() {
    assert_eq!(count([&*"a".repeat(79)], 0).blocks.len(), 0);
    assert_eq!(count([&*"a".repeat(80)], 0).blocks.len(), 1);
}

proptest! {
    #[test]
    fn equal_prefixes_share_their_blocks(head in "[a-z]{80,300}", one in "[a-z]{1,99}", two in "[A-Z]{1,99}") {
        let (one, two) = (count([&*format!("{head}{one}")], 0), count([&*format!("{head}{two}")], 0));
        let shared = one.blocks.iter().zip(&two.blocks).take_while(|(a, b)| a == b).count();
        prop_assert_eq!(shared, head.len() / 80);
    }
}
