//! Matches names of the model with names of the dataset.

use rustc_hash::FxHashMap;

/// The names of the vertex types or of the relations of a dataset, with their positions.
pub struct DatasetNames<'d> {
    exact: FxHashMap<&'d str, usize>,
    similar: FxHashMap<String, usize>,
}

impl<'d> FromIterator<&'d str> for DatasetNames<'d> {
    fn from_iter<I: IntoIterator<Item = &'d str>>(names: I) -> Self {
        let mut known = Self { exact: FxHashMap::default(), similar: FxHashMap::default() };
        for (position, name) in names.into_iter().enumerate() {
            known.exact.entry(name).or_insert(position);
            known.similar.entry(folded(name)).or_insert(position);
        }
        known
    }
}

impl DatasetNames<'_> {
    /// The position of the name that a model name refers to: an exact match, or else the first that is equal up to case,
    /// `-`, `_` and blanks (`written_by` matches `written-by`).
    pub fn find(&self, name: &str) -> Option<usize> {
        self.exact.get(name).or_else(|| self.similar.get(&folded(name))).copied()
    }
}

fn folded(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect::<String>().to_lowercase()
}
