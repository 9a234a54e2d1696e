//! A map that remembers which of its entries may have changed.
//!
//! Owns that memory, so that an index over the entries is brought up to date for these alone,
//! and no change can be forgotten. Must not know the index.

use std::collections::BTreeMap;
use std::ops::Deref;

/// A map; reading goes to it directly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tracked<K, V> {
    map: BTreeMap<K, V>,
    changed: Vec<K>,
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
            changed: Vec::new(),
        }
    }
}

impl<K, V> Deref for Tracked<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl<K: Ord + Copy, V> Tracked<K, V> {
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if self.map.contains_key(key) {
            self.touch(*key);
        }
        self.map.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.touch(key);
        self.map.insert(key, value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.touch(*key);
        self.map.remove(key)
    }

    /// All of them: for what is rare.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.changed.clear();
        self.changed.extend(self.map.keys());
        self.map.values_mut()
    }

    /// What belongs to an entry has changed elsewhere.
    pub(crate) fn touch(&mut self, key: K) {
        // Mostly one entry is changed over and over.
        if self.changed.last() != Some(&key) {
            self.changed.push(key);
        }
    }

    /// What may have changed since this was asked last, each once.
    pub(crate) fn take_changed(&mut self) -> Vec<K> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracked_map_remembers_each_change_once() {
        let mut map: Tracked<u8, u8> = Tracked::default();
        assert_eq!(map.insert(1, 1), None);
        assert_eq!(map.insert(2, 2), None);
        assert_eq!(map.insert(1, 3), Some(1));
        assert_eq!(map.take_changed(), [1, 2]);
        assert_eq!(map.get(&1), Some(&3));
        assert!(map.take_changed().is_empty(), "reading changes nothing");
        assert!(map.get_mut(&2).is_some() && map.get_mut(&9).is_none());
        assert_eq!(map.take_changed(), [2]);
        assert_eq!(map.values_mut().count(), 2);
        assert_eq!(map.take_changed(), [1, 2]);
        assert_eq!(map.remove(&1), Some(3));
        map.touch(2);
        assert_eq!(map.take_changed(), [1, 2]);
    }
}
