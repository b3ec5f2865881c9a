//! Extents, widths and spaces in the user's terms, for reports and for the printed model.

use hgnnc_ir::Space;

use crate::{Dim, Tables, Width};

/// An extent in the user's terms.
pub fn show_dim(tables: &Tables, dim: Dim) -> String {
    match dim {
        Dim::Fixed(extent) => extent.to_string(),
        Dim::Count(vertex) => format!("number of `{}` vertices", tables.vertex_types[vertex.index()].name),
        Dim::Symbolic(symbol) => tables.symbols.text(symbol),
    }
}

/// Widths in the user's terms: `[8, 64]`.
pub fn show_widths(tables: &Tables, widths: &[Width]) -> String {
    let dims: Vec<String> = widths.iter().map(|w| show_dim(tables, w.dim)).collect();
    format!("[{}]", dims.join(", "))
}

/// A space in the user's terms.
pub fn show_space(tables: &Tables, space: Space) -> String {
    match space {
        Space::Unit => "a single row".to_string(),
        Space::Vertices(v) => format!("one row per `{}` vertex", tables.vertex_types[v.index()].name),
        Space::Edges(g) => format!("one row per edge of `{}`", tables.graphs[g.index()].name),
        Space::Index(extent) => format!("{extent} rows"),
        Space::Endpoints(g, direction) => {
            let name = &tables.graphs[g.index()].name;
            format!("one row per vertex at the {} end of `{name}`", direction.end_name())
        }
    }
}
