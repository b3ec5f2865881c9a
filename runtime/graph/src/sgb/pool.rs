//! A pool of per-thread state reused across blocks of rows.

use std::sync::Mutex;

/// Accumulators that threads take and return: never more than threads running.
pub(super) struct Pool<T, F> {
    free: Mutex<Vec<T>>,
    make: F,
}

impl<T, F: Fn() -> T> Pool<T, F> {
    pub fn new(make: F) -> Pool<T, F> {
        Pool { free: Mutex::new(Vec::new()), make }
    }

    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let lock = || self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let taken = lock().pop();
        let mut one = taken.unwrap_or_else(&self.make);
        let result = work(&mut one);
        lock().push(one);
        result
    }

    /// All accumulators, after all threads have returned theirs.
    pub fn all(self) -> Vec<T> {
        self.free.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
