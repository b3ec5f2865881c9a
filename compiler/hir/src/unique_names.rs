//! Names that no two things share: of semantic graphs, parameters and the uses of layers.

use rustc_hash::{FxHashMap, FxHashSet};

/// Names that are taken, and never become free.
#[derive(Default)]
pub struct UniqueNames {
    taken: FxHashSet<String>,
    /// For each base with `base_2`, …: up to which number they are taken.
    counts: FxHashMap<String, usize>,
}

impl UniqueNames {
    /// `name`, or `name_2`, …: the first that is not taken. It is from now on.
    pub fn take(&mut self, name: &str) -> String {
        if self.taken.insert(name.to_owned()) {
            return name.to_owned();
        }
        let count = self.counts.entry(name.to_owned()).or_insert(1);
        loop {
            *count += 1;
            let unique = format!("{name}_{count}");
            if self.taken.insert(unique.clone()) {
                return unique;
            }
        }
    }
}
