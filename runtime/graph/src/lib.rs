//! Datasets, heterogeneous graphs and the semantic graph build.
