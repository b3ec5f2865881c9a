//! Matches names of the model with names of the dataset.

/// Are the two names equal up to case, `-`, `_` and blanks? `written_by` matches `written-by`.
pub fn same_name(model: &str, dataset: &str) -> bool {
    let fold = |name: &str| name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect::<String>().to_lowercase();
    model == dataset || fold(model) == fold(dataset)
}

/// The position of the dataset name that a model name refers to: an exact match, or else the first similar one.
pub fn find_name<'n>(model: &str, names: impl Iterator<Item = &'n str> + Clone) -> Option<usize> {
    names.clone().position(|name| name == model).or_else(|| names.clone().position(|name| same_name(model, name)))
}
