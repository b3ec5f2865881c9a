//! Tables of declarations, shared by the programs that a model becomes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Declarations of one kind, indexed by their handles. Copies share them until one is changed: passes copy programs, and
/// a table may have a declaration for each of thousands of relations.
#[derive(Clone, PartialEq, Debug)]
pub struct Table<T>(Arc<Vec<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Deref for Table<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Clone> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<Vec<T>> for Table<T> {
    fn from(rows: Vec<T>) -> Self {
        Self(Arc::new(rows))
    }
}

impl<'a, T> IntoIterator for &'a Table<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
