//! The text files of the Heterogeneous Graph Benchmark (Lv et al., KDD 2021).
//!
//! Fields are separated by tabs. Ids count through all types, each type is one range of them:
//!
//! | file | line |
//! | --- | --- |
//! | `node.dat` | id, name, type, and optionally features separated by commas |
//! | `link.dat`, `link.dat.test` | head, tail, relation, weight |
//! | `label.dat`, `label.dat.test` | id, name, type, classes separated by commas |
//! | `info.dat` | names of types, relations and classes: JSON, or tables |
//!
//! The benchmark draws the validation set. `label.dat.val` and `link.dat.val` are an addition that its own loaders do not
//! read: ids of the vertices of `label.dat` to validate on, and links to validate on.

mod info;
mod read;
mod write;

pub(crate) use read::read;
pub(crate) use write::write;

const NODES: &str = "node.dat";
const LINKS: &str = "link.dat";
const TEST_LINKS: &str = "link.dat.test";
const VAL_LINKS: &str = "link.dat.val";
const LABELS: &str = "label.dat";
const TEST_LABELS: &str = "label.dat.test";
const VAL_IDS: &str = "label.dat.val";
const INFO: &str = "info.dat";

/// Numbers of the splits whose validation sets are drawn.
const DRAWN_SPLITS: u64 = 5;
/// Share of the vertices of `label.dat` that is drawn for validation, as the benchmark does.
const VALIDATION_SHARE: f64 = 0.2;
