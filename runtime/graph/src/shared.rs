//! Copy-on-write arrays.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A reference-counted vector that is copied when written while shared: the in-edges and out-edges of a symmetric graph
/// are the same arrays.
///
/// `DerefMut` checks the reference count on each call: hoist [`make_mut`](Self::make_mut) out of loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared<T>(Arc<Vec<T>>);

impl<T: Clone> Shared<T> {
    /// The vector for writing, copied first if it is shared.
    pub fn make_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }

    /// The vector, copied only if it is shared.
    pub fn into_vec(self) -> Vec<T> {
        Arc::unwrap_or_clone(self.0)
    }
}

impl<T> Shared<T> {
    /// Whether both share one allocation.
    pub fn is_same(&self, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Deref for Shared<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        self.make_mut()
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(values: Vec<T>) -> Shared<T> {
        Shared(Arc::new(values))
    }
}

impl<T> FromIterator<T> for Shared<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Shared<T> {
        Vec::from_iter(values).into()
    }
}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for Shared<T> {
    fn eq(&self, other: &[T; N]) -> bool {
        ***self == *other
    }
}

impl<T: PartialEq> PartialEq<Vec<T>> for Shared<T> {
    fn eq(&self, other: &Vec<T>) -> bool {
        **self == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_not_seen_by_others() {
        let mut one = Shared::from(vec![1, 2]);
        let other = one.clone();
        assert!(one.is_same(&other));
        one.push(3);
        assert_eq!((one, other), (vec![1, 2, 3].into(), vec![1, 2].into()));
    }
}
