//! Programs over one relation of one vertex type, for measurements.

use hgnnc_ir::dataflow::{GraphDecl, Init, ParamDecl, RelationDecl, Step, VertexTypeDecl};
use hgnnc_ir::{Dataflow, Dim, Graph, Op, Value, VertexType};

/// The only vertex type.
const V: VertexType = VertexType(0);
/// The only graph.
pub const GRAPH: Graph = Graph(0);

/// A program without values.
pub fn one_graph(name: &str) -> Dataflow {
    let mut flow = Dataflow::new(name);
    flow.vertex_types.push(VertexTypeDecl::new("V".into(), "v".into()));
    flow.relations.push(RelationDecl { name: "r".into(), dataset_name: "r".into(), src: V, dst: V });
    let steps = vec![Step { relation: 0, reverse: false }];
    flow.graphs.push(GraphDecl::new("g".into(), V, V, steps));
    flow
}

/// A parameter with a row of these dimensions for each vertex.
pub fn rows(flow: &mut Dataflow, dims: &[usize]) -> Value {
    let dims = [Dim::Count(V)].into_iter().chain(dims.iter().map(|&d| Dim::Fixed(d))).collect();
    let name = format!("p{}", flow.params.len());
    let param = flow.declare_param(ParamDecl::new(name, dims, Init::Uniform(1.0), false));
    let param = flow.add(Op::Param(param), &[]);
    flow.add(Op::Rows, &[param])
}
