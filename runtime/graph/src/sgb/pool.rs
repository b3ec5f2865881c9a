//! What threads keep from one block of rows to the next.

use std::sync::Mutex;

/// Accumulators that threads take and give back: there are never more than threads at work.
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

    /// All of them, once no thread is at work.
    pub fn all(self) -> Vec<T> {
        self.free.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
