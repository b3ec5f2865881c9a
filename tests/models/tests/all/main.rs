//! Whole models: against the papers, against differences, engine against interpreter, and the field's cases.

mod attention;
mod batches;
mod caches;
mod device_batches;
mod devices;
mod differential;
mod edges;
mod field_cases;
mod folds;
mod gradients;
mod graphs;
mod labels;
mod language;
mod layers;
mod losses;
mod orders;
mod paths;
mod rank_links;
mod rank_plans;
mod ranks;
mod recent_layers;
mod reuse;
mod shuffles;
mod training_cases;
mod values;
