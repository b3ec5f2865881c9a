//! Text about a model.

use std::fmt::Write as _;

use hgnnc_driver::Analyzed;
use hgnnc_ir::dataflow::GraphDecl;
use hgnnc_ir::infer::show;
use hgnnc_ir::{Dataflow, Dim, Param};

/// Vertex types, semantic graphs, parameters and outputs.
pub fn text(model: &Analyzed) -> String {
    let flow = &model.flow;
    let mut text = format!("model {}\n", model.name);
    let mut line = |line: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
    };
    line("\nvertex types".to_string());
    for vertex in &flow.vertex_types {
        line(format!("  {} from \"{}\"", vertex.name, vertex.dataset_name));
    }
    line("\nsemantic graphs (messages from left to right)".to_string());
    for graph in &flow.graphs {
        line(format!("  {}", graph_text(flow, graph)));
    }
    line("\nparameters".to_string());
    for (index, param) in flow.params.iter().enumerate() {
        line(format!("  {}: {}", param.name, show(flow, &flow.param_type(Param::new(index)))));
    }
    let fixed: usize =
        flow.params.iter().map(|p| p.dims.iter().map(|d| d.fixed()).product::<Option<usize>>().unwrap_or(0)).sum();
    let symbolic = flow.params.iter().filter(|p| p.dims.iter().any(|d| matches!(d, Dim::Count(_)))).count();
    let rest = if symbolic > 0 { format!(", and {symbolic} parameters with a row per vertex") } else { String::new() };
    line(format!("  in all {fixed} numbers{rest}"));
    line("\noutputs".to_string());
    for name in &model.outputs {
        if let Some(value) = flow.result(name) {
            line(format!("  {name}: {}", show(flow, flow.ty(value))));
        }
    }
    text
}

fn graph_text(flow: &Dataflow, graph: &GraphDecl) -> String {
    let vertex = |v: hgnnc_ir::VertexType| &flow.vertex_types[v.index()].name;
    let mut text = format!("{}: {}", graph.name, vertex(graph.src));
    for step in &graph.steps {
        let relation = &flow.relations[step.relation as usize];
        let _ = if step.reverse {
            write!(text, " <-{}- {}", relation.name, vertex(relation.src))
        } else {
            write!(text, " -{}-> {}", relation.name, vertex(relation.dst))
        };
    }
    if graph.counted {
        text.push_str(", path instances counted");
    }
    if graph.self_loops {
        text.push_str(", with self loops");
    }
    text
}
