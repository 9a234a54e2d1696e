//! Numbers that a seed decides, so that a red run can be had again.
//!
//! Owns the generator. Must not know what is chosen.

/// SplitMix64: small, and good enough to choose faults with.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator of its own for a part of the run, whatever the others draw.
    pub(crate) fn part(seed: u64, part: u64) -> Self {
        let mut mixed = Self(seed ^ part.wrapping_mul(0xa076_1d64_78bd_642f));
        Self(mixed.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// From `low` to `high`, both included.
    pub(crate) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).expect("an index")]
    }
}
