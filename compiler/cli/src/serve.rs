//! `hgnnc check --serve`: what requests to a trained model must bring.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use hgnnc_diag::SourceMap;
use hgnnc_driver::request::{Edges, Request};
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::types::{Origin, Space, Stage, VertexType};
use hgnnc_ir::{Dataflow, Graph};

use crate::model::graph_text;

/// For each output: the part of the graph that it depends on, the vertex types that cannot have new vertices, and what
/// is computed from the whole graph.
pub fn text(flow: &Dataflow, sources: &SourceMap) -> String {
    let mut text = String::new();
    for request in Request::of(flow) {
        if !text.is_empty() {
            text.push('\n');
        }
        of_output(&mut text, flow, sources, &request);
    }
    text
}

fn of_output(text: &mut String, flow: &Dataflow, sources: &SourceMap, request: &Request) {
    let vertex = |vertex: VertexType| flow.vertex_types[vertex.index()].name.as_str();
    let graph = |graph: Graph| flow.graphs[graph.index()].name.as_str();
    let rows = match request.rows {
        Space::Vertices(of) => format!("a row for each {}", vertex(of)),
        Space::Edges(of) if flow.graphs[of.index()].links => format!("a score for each pair of {}", graph(of)),
        Space::Edges(of) | Space::Endpoints(of, _) => format!("a row for each edge of {}", graph(of)),
        Space::Unit | Space::Index(_) => "one row".to_owned(),
    };
    let place = |origin: Option<Origin>| {
        let place = origin.and_then(|origin| sources.place(origin.file, origin.start));
        place.map_or(String::new(), |place| format!(" ({place})"))
    };
    // Writing to a String cannot fail.
    let mut line = |line: String| _ = writeln!(text, "{line}");
    line(format!("output {}: {rows}", request.output));
    line(match request.hops {
        0 => "  a request brings the vertices alone: no neighbours are read".to_owned(),
        1 => "  a request brings what is within 1 hop:".to_owned(),
        hops => format!("  a request brings what is within {hops} hops:"),
    });
    for (of, edges) in &request.edges {
        let decl = &flow.graphs[of.index()];
        // Loops are not brought along.
        if decl.steps.is_empty() {
            continue;
        }
        line(format!("    {}: {}", graph_text(flow, decl), needed(edges)));
    }
    let features: BTreeMap<&str, &Binding> = request
        .inputs
        .iter()
        .map(|input| &flow.inputs[input.index()])
        .filter(|input| {
            matches!(
                input.binding,
                Binding::Features(..)
                    | Binding::Time(_)
                    | Binding::EdgeTime(_)
                    | Binding::EdgeWeight(_)
                    | Binding::EdgeFeatures(_)
            )
        })
        .map(|input| (input.name.as_str(), &input.binding))
        .collect();
    if !features.is_empty() {
        line(format!("    with {}", features.keys().copied().collect::<Vec<_>>().join(", ")));
    }
    let tables: BTreeSet<VertexType> = request.tables.iter().map(|table| table.vertex).collect();
    for of in &tables {
        let own = request.tables.iter().filter(|table| table.vertex == *of);
        let names: BTreeSet<&str> = own.map(|table| flow.params[table.param.index()].name.as_str()).collect();
        line(format!(
            "  no new {}: the model learns a row for each (embedding or one-hot; {}), and a vertex that was not there in \
             training has none. Give it features, or train again with it",
            vertex(*of),
            listed(&names)
        ));
    }
    if tables.is_empty() {
        line("  new vertices of all types: no row is learned for a vertex".to_owned());
    }
    for whole in &request.whole {
        let of = match whole.of {
            Space::Vertices(of) => format!("all {}", vertex(of)),
            Space::Edges(of) | Space::Endpoints(of, _) => format!("all edges of {}", graph(of)),
            Space::Unit | Space::Index(_) => continue,
        };
        let what = if whole.stage == Stage::SF {
            "weights of semantic graphs (or another sum)"
        } else {
            "a sum (such as a norm)"
        };
        line(format!(
            "  depends on the whole graph: {what} over {of}{}. It is computed over those that a request brings, so that a part \
             of the graph gives other numbers: bring all, as `infer --new` does",
            place(whole.origin)
        ));
    }
    if request.is_local() {
        line("  the neighbourhood is enough: a request gets what the whole graph gives".to_owned());
    }
}

/// The edges of a graph that a request needs.
fn needed(edges: &Edges) -> String {
    let at = |distances: &BTreeSet<usize>| {
        let list: Vec<String> = distances.iter().map(usize::to_string).collect();
        match &list[..] {
            [only] if only == "0" => "the vertices asked about".to_owned(),
            [only] => format!("vertices {only} away"),
            [most @ .., last] => format!("vertices {} and {last} away", most.join(", ")),
            [] => String::new(),
        }
    };
    let kinds = [("in-edges", &edges.incoming), ("out-edges", &edges.outgoing)];
    let parts = kinds.into_iter().filter(|(_, distances)| !distances.is_empty());
    parts.map(|(kind, distances)| format!("all {kind} of {}", at(distances))).collect::<Vec<_>>().join("; ")
}

fn listed(names: &BTreeSet<&str>) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len() {
        n if n > SHOWN => format!("{} and {} more", shown.join(", "), n - SHOWN),
        _ => shown.join(", "),
    }
}
