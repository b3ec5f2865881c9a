//! Vertices that a trained model has not seen, against its program.

use hgnnc_analysis::request::Request;
use hgnnc_declare::schema::FieldKind;
use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes};
use hgnnc_ir::types::{Origin, VertexType};

use crate::model::Analyzed;

/// Reports each vertex type with vertices that were not there in training, of which an output reads a parameter with a
/// row for each vertex. `added` has the number of new vertices of a type.
pub fn check_unseen(model: &Analyzed, added: impl Fn(VertexType) -> usize, diagnostics: &mut Diagnostics) {
    let requests = Request::of(&model.flow);
    for row in 0..model.flow.vertex_types.len() {
        let vertex = VertexType::new(row);
        let count = added(vertex);
        let read = requests.iter().find_map(|request| {
            let table = request.tables.iter().find(|table| table.vertex == vertex)?;
            Some((&request.output, table))
        });
        let (Some((output, table)), true) = (read, count > 0) else { continue };
        let Some(info) = model.schema.vertices.get(row) else { continue };
        let vertices = if count == 1 { "vertex" } else { "vertices" };
        let message = format!("`{output}` has no row for {count} new {vertices} of `{}`", info.name);
        let learned = |kind: FieldKind| matches!(kind, FieldKind::OneHot | FieldKind::Embedding(_));
        let field = info.fields.iter().find(|field| learned(field.kind));
        let report = match (field, table.origin) {
            (Some(field), _) => {
                let what = "a row is learned for each vertex that was there in training";
                Diagnostic::at(codes::UNSEEN_VERTEX, field.ty_span, message, what)
            }
            (None, Some(Origin { file, start, end })) => {
                let span = Span { file: FileId(file), start, end };
                Diagnostic::at(
                    codes::UNSEEN_VERTEX,
                    span,
                    message,
                    "has a row for each vertex that was there in training",
                )
            }
            (None, None) => Diagnostic::new(codes::UNSEEN_VERTEX, message),
        };
        diagnostics.push(report.help(format!(
            "train the model again on a graph with them; or give `{}` features, as in `x: f32[16]`, which new vertices \
             bring along",
            info.name
        )));
    }
}
