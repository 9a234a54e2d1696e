//! A value that is mostly the same for all: it takes memory where it differs. A hundred thousand turns
//! may wait.
//!
//! Owns where it lies. Must not know what it is.

use std::ops::{Deref, DerefMut};

/// What has a usual value.
pub(crate) trait Usual: Clone + PartialEq + 'static {
    /// That one.
    fn usual() -> &'static Self;
}

/// A value that is the usual one until it is first changed.
#[derive(Clone, Debug)]
pub(crate) struct Rare<T>(Option<Box<T>>);

impl<T: Usual> Rare<T> {
    /// The value, if it may be another than the usual one: to change it where only that matters.
    pub(crate) fn other(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Usual> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Self((value != *T::usual()).then(|| Box::new(value)))
    }
}

impl<T: Usual> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::usual())
    }
}

impl<T: Usual> DerefMut for Rare<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::usual().clone()))
    }
}

impl<T: Usual> PartialEq for Rare<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Usual + Eq> Eq for Rare<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    impl Usual for Vec<u8> {
        fn usual() -> &'static Self {
            static NOTHING: Vec<u8> = Vec::new();
            &NOTHING
        }
    }

    #[test]
    fn rare_value_takes_memory_from_its_first_change() {
        let mut rare = Rare::<Vec<u8>>::default();
        assert!(rare.is_empty() && rare.other().is_none() && rare.0.is_none());
        assert_eq!(rare, Rare::from(Vec::new()));
        rare.push(1);
        assert_eq!(rare.other(), Some(&mut vec![1]));
        assert_eq!(rare, Rare::from(vec![1]));
        rare.clear();
        assert_eq!(rare, Rare::default());
    }
}
