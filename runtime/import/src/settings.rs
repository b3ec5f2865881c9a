//! Schema of the `--config` file for layouts that describe themselves.

use std::path::Path;

use hgnnc_dataset::files;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::{Faults, ImportError};
use crate::tables::config::{Unknown, missing_values};

/// Settings of the layouts of DGL, GraphBolt and GraphStorm. `docs/import.md` describes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    pub name: Option<String>,
    pub title: Option<String>,
    /// Texts that stand for a missing value.
    pub missing_values: Vec<String>,
    /// Policy for ids in edges that the vertex table does not have.
    pub unknown: Unknown,
    /// Columns and arrays that are left out, `TYPE.COLUMN`.
    pub ignore: Vec<String>,
    /// Policy for edges that are held out as well.
    pub held_out: HeldOut,
}

/// Policy for edges of the graph that a task holds out.
#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HeldOut {
    #[default]
    Error,
    /// They are no edges.
    Remove,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            name: None,
            title: None,
            missing_values: missing_values(),
            unknown: Unknown::Error,
            ignore: Vec::new(),
            held_out: HeldOut::Error,
        }
    }
}

impl Settings {
    /// Whether a column of a vertex type or relation is left out.
    pub fn ignores(&self, of: &str, column: &str) -> bool {
        self.ignore.iter().any(|name| name.strip_prefix(of).and_then(|rest| rest.strip_prefix('.')) == Some(column))
    }
}

/// Reads settings, the usual ones without a file.
pub(crate) fn read<T: DeserializeOwned + Default>(config: Option<&Path>) -> Result<T, ImportError> {
    let Some(path) = config else { return Ok(T::default()) };
    let text = files::read_to_string(path).map_err(|error| Faults::one(path, format!("cannot be read: {error}")))?;
    toml::from_str(&text).map_err(|error| Faults::one(path, error.to_string().trim_end()))
}

/// Names of relations for types of edges: the middle one, and all three where that is there twice.
pub(crate) fn relation_names(types: &[[String; 3]]) -> Vec<String> {
    let twice = |name: &str| types.iter().filter(|[_, middle, _]| middle == name).count() > 1;
    types
        .iter()
        .map(|[s, middle, d]| if twice(middle) { format!("{s}-{middle}-{d}") } else { middle.clone() })
        .collect()
}
