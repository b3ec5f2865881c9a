//! The level `model` as text.

use std::fmt::Write as _;

use hgnnc_driver::{Analyzed, Disabled, Precomputed, hir, precomputed, precomputed_inputs, sampled_hops, sources};
use hgnnc_ir::dataflow::{GraphDecl, SelfLoops};
use hgnnc_ir::infer::show;
use hgnnc_ir::training::{LinkTarget, NegativeEnds, Reuse, Target};
use hgnnc_ir::{Dataflow, Dim, Param, VertexRows};

/// Vertex types, semantic graphs, parameters, outputs, mini-batches, and the typed statements.
pub fn text(model: &Analyzed) -> String {
    let flow = &model.flow;
    let mut text = format!("model {}\n", model.name);
    let mut line = |line: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
    };
    line("\nvertex types".to_string());
    for vertex in flow.vertex_types.iter().filter(|vertex| vertex.rows == VertexRows::Dataset) {
        line(format!("  {} from \"{}\"", vertex.name, vertex.dataset_name));
    }
    line("\nsemantic graphs (messages from left to right)".to_string());
    for graph in flow.graphs.iter().filter(|graph| graph.derived.is_none()) {
        line(format!("  {}", graph_text(flow, graph)));
    }
    line("\nparameters".to_string());
    // Stacks of parameters have no elements of their own.
    let params: Vec<_> = flow.params.iter().enumerate().filter(|(_, param)| param.entries.is_empty()).collect();
    for &(index, param) in &params {
        line(format!("  {}: {}", param.name, show(flow, &flow.param_type(Param::new(index)))));
    }
    let fixed: usize =
        params.iter().map(|(_, p)| p.dims.iter().map(|d| d.fixed()).product::<Option<usize>>().unwrap_or(0)).sum();
    let symbolic = params.iter().filter(|(_, p)| p.dims.iter().any(|d| matches!(d, Dim::Count(_)))).count();
    let rest = if symbolic > 0 { format!(", and {symbolic} parameters with a row per vertex") } else { String::new() };
    line(format!("  in all {fixed} numbers{rest}"));
    line("\noutputs".to_string());
    for name in &model.outputs {
        if let Some(value) = flow.result(name) {
            line(format!("  {name}: {}", show(flow, flow.ty(value))));
        }
        // An output of links has one result per predicted relation.
        for graph in flow.graphs.iter().filter(|graph| graph.links) {
            if flow.result(&format!("{name}.{}", graph.name)).is_some() {
                line(format!("  {name}: a score for each pair of {}", graph.name));
            }
        }
    }
    let training = model.train.as_ref().map(|spec| &spec.training);
    if let Some((training, batch)) = training.and_then(|training| Some((training, training.batch.as_ref()?))) {
        match training.target() {
            None | Some(Target::Vertices { .. }) => {
                let seeds = training.seeds().map_or("", |vertex| &flow.vertex_types[vertex.index()].name);
                line(format!("\nmini-batches of {} vertices {seeds}", batch.size));
            }
            Some(Target::Links(LinkTarget { negatives, .. })) => {
                line(format!("\nmini-batches of {} links", batch.size));
                let count = negatives.count;
                line(match negatives.by {
                    NegativeEnds::Uniform => {
                        format!("  for each of them {count} pairs, with an end replaced by any vertex of its type")
                    }
                    NegativeEnds::InBatch => format!(
                        "  for each of them {count} pairs, with an end replaced by that of another link of the batch"
                    ),
                    NegativeEnds::Shared => {
                        format!("  all of them compared with the same {count} vertices in place of either end")
                    }
                    NegativeEnds::SharedDestinations => {
                        format!("  all of them compared with the same {count} vertices in place of the destination")
                    }
                });
                if negatives.self_loops {
                    line("  two of which join an end with itself, where both ends are of one type".into());
                }
            }
        }
        if let Some(Reuse { share, batches }) = batch.reuse {
            line(format!("  values of the hottest {} % of the vertices serve {batches} batches", 100.0 * share));
        }
        let rows = precomputed(model, &Disabled::default());
        if let Some(Precomputed { program, rest, .. }) = &rows {
            for (input, vertex, width) in precomputed_inputs(rest) {
                let of = sources(program, &rest.inputs[input.index()].name);
                let vertex = &rest.vertex_types[vertex.index()].name;
                line(format!("  {width} numbers of each {vertex} are computed before training, of {of}"));
            }
        }
        let hops = sampled_hops(model).unwrap_or(batch.fanouts.len());
        line(match (hops, rows.is_some()) {
            (0, false) => "  no in-edges: the loss sees no neighbours".to_string(),
            (0, true) => "  no in-edges".to_string(),
            _ => "  in-edges drawn for each vertex, hop by hop from these".to_string(),
        });
        let drawn =
            flow.graphs.iter().enumerate().filter(|(_, graph)| hops > 0 && !graph.links && graph.derived.is_none());
        for (index, graph) in drawn {
            let hop = |fanouts: &Vec<hgnnc_ir::training::Fanout>| fanouts[index].to_string();
            let of_hops: Vec<String> = batch.fanouts.iter().take(hops).map(hop).collect();
            line(format!("  {}: {}", graph.name, of_hops.join(", ")));
        }
    }
    text.push_str("\ncomputation\n");
    text.push_str(&hir::print(&model.typed));
    text
}

/// A semantic graph with its steps, in one line.
pub(crate) fn graph_text(flow: &Dataflow, graph: &GraphDecl) -> String {
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
    if graph.links {
        text.push_str(", pairs to score");
    }
    if let Some(permutations) = graph.shuffle {
        let _ = write!(text, ", permutations drawn for each step: {permutations}");
    }
    text.push_str(match graph.self_loops {
        SelfLoops::Kept => "",
        SelfLoops::Added => ", with self loops",
        SelfLoops::Removed => ", without self loops",
    });
    if let Some(kept) = graph.kept {
        let _ = write!(text, ", at most {} in-edges for each vertex", kept.at_most);
        if let Some(position) = kept.position {
            let _ = write!(text, ", of these number {position}");
        }
    }
    text
}
