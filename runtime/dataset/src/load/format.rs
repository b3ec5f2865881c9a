//! The fields of the dataset format.

/// The tables of `dataset.toml` with their fields; the first is the file itself. Every other field is ignored.
///
/// `docs/dataset.md` defines their meaning.
pub const FIELDS: &[(&str, &[&str])] = &[
    (
        ROOT,
        &[
            "format",
            "name",
            "title",
            "generator",
            "vertex_type",
            "relation",
            "label",
            "split",
            "link_split",
            "metapath",
        ],
    ),
    (VERTEX_TYPE, &["name", "count", "features", "field", "ids", "time", "transform", "kind_file", "kind_names"]),
    (VERTEX_IDS, &["kind", "file", "offsets", "bytes"]),
    (TRANSFORM, &["kind", "columns", "missing", "shift", "scale", "categories", "separator", "bounds", "width"]),
    (VERTEX_FEATURES, &["kind", "dim", "file", "indptr", "indices", "data", "nnz"]),
    (VERTEX_FIELD, &["name", "kind", "dim", "file", "indptr", "indices", "data", "nnz"]),
    (RELATION, &["name", "src", "dst", "file", "columns", "edges", "weight", "time", "features", "transform"]),
    (EDGE_FEATURES, &["file", "dim"]),
    (
        LABEL,
        &["vertex_type", "relation", "name", "kind", "classes", "file", "mask_file", "dim", "class_names", "labelled"],
    ),
    (SPLIT, &["name", "vertex_type", "relation", "train", "val", "test", "train_size", "val_size", "test_size"]),
    (LINK_SPLIT, &["name", "val", "val_time", "val_edges", "test", "test_time", "test_edges"]),
    (METAPATH, &["name", "steps", "pairs", "self_pairs", "instances", "max_degree", "rows", "cols"]),
];

pub(super) const ROOT: &str = "dataset.toml";
pub(super) const VERTEX_TYPE: &str = "[[vertex_type]]";
pub(super) const VERTEX_FEATURES: &str = "[vertex_type.features]";
pub(super) const VERTEX_FIELD: &str = "[[vertex_type.field]]";
pub(super) const VERTEX_IDS: &str = "[vertex_type.ids]";
pub(super) const TRANSFORM: &str = "[[vertex_type.transform]]";
pub(super) const RELATION: &str = "[[relation]]";
pub(super) const EDGE_FEATURES: &str = "[relation.features]";
pub(super) const LABEL: &str = "[[label]]";
pub(super) const SPLIT: &str = "[[split]]";
pub(super) const LINK_SPLIT: &str = "[[link_split]]";
pub(super) const METAPATH: &str = "[[metapath]]";

/// Whether `field` belongs to `table`.
pub(super) fn is_known(table: &str, field: &str) -> bool {
    FIELDS.iter().any(|(name, fields)| *name == table && fields.contains(&field))
}
