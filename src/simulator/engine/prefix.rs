//! The prefix cache: which blocks of which prompts are still in memory. Least recently used ones go first.
//!
//! Knows hashes only: a hash names a whole prefix, so a block is found only behind all its predecessors.

use std::collections::{BTreeMap, HashMap};

use crate::simulator::tokens::{BLOCK_TOKENS, Prompt};

/// A bounded set of block hashes.
#[derive(Debug)]
pub(super) struct PrefixCache {
    blocks_max: usize,
    clock: u64,
    last_use: HashMap<u64, u64>,
    by_age: BTreeMap<u64, u64>,
}

impl PrefixCache {
    pub(super) fn new(kv_tokens: u64) -> Self {
        let blocks_max = usize::try_from(kv_tokens / u64::from(BLOCK_TOKENS)).unwrap_or(usize::MAX);
        Self { blocks_max, clock: 0, last_use: HashMap::new(), by_age: BTreeMap::new() }
    }

    /// Tokens of the longest cached prefix. Never the whole prompt: its last token has to be computed anew.
    pub(super) fn cached_tokens(&mut self, prompt: &Prompt) -> u32 {
        let usable = (prompt.tokens.saturating_sub(1) / BLOCK_TOKENS) as usize;
        let mut found = 0;
        for block in prompt.blocks.iter().take(usable) {
            if !self.last_use.contains_key(block) {
                break;
            }
            self.touch(*block);
            found += BLOCK_TOKENS;
        }
        found
    }

    /// Remembers all full blocks of a prompt.
    pub(super) fn insert(&mut self, prompt: &Prompt) {
        // The head last, so that a prompt loses its tail first.
        for block in prompt.blocks.iter().rev() {
            self.touch(*block);
        }
        while self.last_use.len() > self.blocks_max {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.last_use.remove(&oldest);
        }
    }

    fn touch(&mut self, block: u64) {
        self.clock += 1;
        if let Some(age) = self.last_use.insert(block, self.clock) {
            self.by_age.remove(&age);
        }
        self.by_age.insert(self.clock, block);
    }
}
