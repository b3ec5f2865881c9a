//! Names of the model against names of the dataset.

/// Do a name of the model and a name of the dataset mean the same? Case, `-`, `_` and blanks do not matter, so
/// that `written_by` finds `written-by` without being told.
pub fn same_name(model: &str, dataset: &str) -> bool {
    let fold = |name: &str| name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect::<String>().to_lowercase();
    model == dataset || fold(model) == fold(dataset)
}

/// Position of the entry that a name of the model means: the exact one, or else the first similar one.
pub fn find_name<'n>(model: &str, names: impl Iterator<Item = &'n str> + Clone) -> Option<usize> {
    names.clone().position(|name| name == model).or_else(|| names.clone().position(|name| same_name(model, name)))
}
