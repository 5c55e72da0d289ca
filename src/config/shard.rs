//! A program's share of a grid: which targets and models are its own, of `n` programs that read one configuration.
//!
//! By rendezvous hashing (Thaler and Ravishankar, 1998): every pair of target and model goes to the shard for which its
//! hash is the highest. Shards share the pairs about equally, and when one is added only those pairs move that go to the new
//! one.

use std::{fmt, str::FromStr, sync::Arc};

use sha2::{Digest as _, Sha256};

use super::{Config, Sweep};

/// Most shards.
const SHARDS_MAX: u32 = 1000;

/// One of `of` shards, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    of: u32,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mend = || format!("write i/n with i from 0 to n-1 and n up to {SHARDS_MAX}, as in 0/3");
        let (index, of) = text.split_once('/').ok_or_else(mend)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| mend());
        let (index, of) = (number(index)?, number(of)?);
        if index >= of || of > SHARDS_MAX {
            return Err(mend());
        }
        Ok(Self { index, of })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl Shard {
    /// Counted from 0.
    #[must_use]
    pub fn index(self) -> u32 {
        self.index
    }

    /// Of how many.
    #[must_use]
    pub fn of(self) -> u32 {
        self.of
    }

    /// Whether a model at a target is this shard's.
    #[must_use]
    pub fn owns(self, target: &str, model: &str) -> bool {
        (0..self.of).max_by_key(|shard| weight(target, model, *shard)) == Some(self.index)
    }
}

/// The pair's hash for one shard. Part of the contract between programs: it must never change.
fn weight(target: &str, model: &str, shard: u32) -> [u8; 32] {
    let digest = Sha256::new()
        .chain_update((target.len() as u64).to_be_bytes())
        .chain_update(target)
        .chain_update(model)
        .chain_update(shard.to_be_bytes());
    digest.finalize().into()
}

impl Config {
    /// The same with this shard's targets and models only; a sweep without any is left out. Targets stay configured.
    #[must_use]
    pub fn of_shard(mut self, shard: Option<Shard>) -> Self {
        let Some(shard) = shard else { return self };
        self.sweeps = self.sweeps.iter().filter_map(|sweep| sweep.of_shard(shard).map(Arc::new)).collect();
        self
    }
}

impl Sweep {
    fn of_shard(&self, shard: Shard) -> Option<Self> {
        let mut sweep = self.clone();
        for (target, models) in &mut sweep.targets {
            models.retain(|model| shard.owns(&target.name, model));
        }
        sweep.targets.retain(|(_, models)| !models.is_empty());
        (!sweep.targets.is_empty()).then_some(sweep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(shards: u32) -> Vec<u32> {
        let pairs = (0..50).flat_map(|target| (0..20).map(move |model| (target, model)));
        let owner = |(target, model)| {
            let (target, model) = (format!("target-{target}"), format!("model-{model}"));
            let owners: Vec<u32> = (0..shards)
                .filter(|index| Shard { index: *index, of: shards }.owns(&target, &model))
                .collect();
            assert_eq!(owners.len(), 1, "every pair has one owner: {target} {model}");
            owners[0]
        };
        pairs.map(owner).collect()
    }

    #[test]
    fn shards_are_even_and_a_further_one_moves_only_what_goes_to_it() {
        for shards in [2, 3, 5, 8] {
            let before = owners(shards);
            for shard in 0..shards {
                let share = before.iter().filter(|owner| **owner == shard).count();
                let even = before.len() / shards as usize;
                // Four standard deviations of a fair lottery.
                let slack = 4 * even.isqrt();
                assert!(share.abs_diff(even) <= slack, "shard {shard} of {shards} has {share} of {even}");
            }
            let after = owners(shards + 1);
            let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
            let mut count = 0;
            for (_, after) in moved {
                assert_eq!(*after, shards, "what moves goes to the new shard");
                count += 1;
            }
            assert_eq!(count, after.iter().filter(|owner| **owner == shards).count());
        }
    }

    #[test]
    fn a_pair_never_changes_its_shard_between_versions() {
        let owner = |target, model| (0..3).find(|index| Shard { index: *index, of: 3 }.owns(target, model));
        let found: Vec<_> =
            [("gateway", "qwen3-8b"), ("gateway", "qwen3-14b"), ("vllm", "qwen3-8b"), ("a", "bc")]
                .map(|(target, model)| owner(target, model))
                .to_vec();
        assert_eq!(found, STANDING);
        assert_ne!(weight("ab", "c", 0), weight("a", "bc", 0));
    }

    const STANDING: [Option<u32>; 4] = [Some(1), Some(1), Some(0), Some(2)];

    #[test]
    fn what_is_no_shard_is_refused_with_the_mend() {
        for text in ["", "1", "3/3", "0/0", "-1/2", "0/1001", "a/b", "1/2/3"] {
            assert!(text.parse::<Shard>().unwrap_err().contains("as in 0/3"), "{text}");
        }
        assert_eq!("2/3".parse(), Ok(Shard { index: 2, of: 3 }));
    }
}
