//! A compiled model: its programs, and what training needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::ops::Direction;
use hgnnc_ir::outputs::FamilyOutput;
use hgnnc_ir::training::Training;
use hgnnc_ir::types::Graph;
use hgnnc_kernel_ir::kernel;

use crate::cpu::CpuPrograms;
use crate::sampler::SamplerCompiler;

/// A compiled model with its training configuration.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Executable {
    pub model: String,
    /// One training step: forward, backward and update. Results: `loss`.
    pub train: Option<Dataflow>,
    /// Evaluation (no dropout). Results: each vertex output by name and, if the model is trained on vertices,
    /// `row_loss`: the loss of each vertex, `V[]`. Same tables as `train`, unless `train` is a mini-batch program. For
    /// link prediction, also the inputs of [`Executable::score`].
    pub infer: Dataflow,
    /// Link prediction: a result `NAME.GRAPH` for each link output and graph of links, f32 `edges(GRAPH)[]`. Inputs are
    /// [`hgnnc_ir::dataflow::Binding::Given`], named by results of `infer`. Its graphs are the graphs of links. Parameters
    /// keep their positions; unused ones have one element.
    pub score: Option<Dataflow>,
    /// Link prediction whose metrics rank links: the scores of links with some vertices in place of their destinations, and of their
    /// sources, f32 `edges(GRAPH)[COUNT]`, under the names of [`Executable::score`]. Without a program or a result, the scores are not
    /// linear in the row of this end, and pairs are scored one by one. Inputs and parameters as in [`Executable::score`]; the vertices
    /// are those of [`hgnnc_ir::ranks::EdgeShare::Samples`].
    pub rank: [Option<Dataflow>; 2],
    /// The prediction head, if it is a program of its own: the outputs and `row_loss` of any vertices of the trained
    /// type, which `infer` then lacks. Its inputs are their labels and rows of results of `infer`
    /// ([`hgnnc_ir::dataflow::Binding::Given`]). Parameters as in [`Executable::score`].
    pub head: Option<Dataflow>,
    /// The programs in kernel IR, which the runtime executes.
    pub kernels: Kernels,
    /// Loops and machine code for a processor, once they are generated.
    pub cpu: Option<CpuPrograms>,
    /// Compiler of the samplers of mini-batches, which run on a processor; `None`: they run without machine code.
    pub sampler: Option<Arc<dyn SamplerCompiler>>,
    /// `None` for a model without a `train` block.
    pub training: Option<Training>,
    /// The layout of [`Executable::train`] relative to the whole graph if it is a mini-batch program, which has
    /// tables of its own.
    pub batch: Option<BatchLayout>,
    /// The outputs of semantic graphs and of edges: [`Executable::infer`] has a result for each of their members.
    pub families: Vec<FamilyOutput>,
    /// The plan by which data is bound; `None` if all graphs are materialized.
    pub graphs: Option<GraphPlan>,
}

/// The programs of an executable that a machine runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Evaluation on the whole graph ([`Kernels::infer`]).
    Infer,
    /// A training step, on the whole graph or on a mini-batch ([`Kernels::train`]).
    Train,
    /// Scores of pairs of vertices ([`Kernels::score`]).
    Score,
    /// Scores of links with some vertices in place of their destinations (`In`) or sources ([`Kernels::rank`]).
    Rank(Direction),
    /// Outputs of some vertices ([`Kernels::head`]).
    Head,
}

impl Role {
    /// Every program that an executable may have, in the order of a run.
    pub const ALL: [Role; 6] =
        [Role::Infer, Role::Train, Role::Score, Role::Rank(Direction::In), Role::Rank(Direction::Out), Role::Head];
}

impl Executable {
    /// The kernels of a program, if the executable has it.
    pub fn kernels(&self, role: Role) -> Option<&kernel::Program> {
        match role {
            Role::Infer => Some(&self.kernels.infer),
            Role::Train => self.kernels.train.as_ref(),
            Role::Score => self.kernels.score.as_ref(),
            Role::Rank(end) => self.kernels.rank[end as usize].as_ref(),
            Role::Head => self.kernels.head.as_ref(),
        }
    }
}

/// The semantic graphs that are materialized, and the metapaths that are factored instead: decided once for a model, the
/// sizes of a dataset, and a target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GraphPlan {
    /// The graphs whose edges a program reads.
    pub materialized: BTreeSet<Graph>,
    /// The metapath graphs whose sums the evaluation program factors.
    pub infer: BTreeSet<Graph>,
    /// The same for the training program.
    pub train: BTreeSet<Graph>,
}

/// The programs of an executable in kernel IR; see the fields of the same name in [`Executable`].
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Kernels {
    pub train: Option<kernel::Program>,
    pub infer: kernel::Program,
    pub score: Option<kernel::Program>,
    pub rank: [Option<kernel::Program>; 2],
    pub head: Option<kernel::Program>,
}
