//! Training by several processes.
//!
//! A [`RankBackend`] is the back end of one rank. It gives another back end the rows of this rank, for programs that
//! exchange the others ([`hgnnc_ir::ranks`]), and shows the trainer sessions as of one process: their data are those of
//! the whole graph, results and parameters have the rows of all ranks. So every rank runs the same trainer, which comes
//! to the same decisions, because it sees the same numbers.
//!
//! Calls that gather rows, exchange them or agree are collective: all ranks make them in the same order. Decisions of a
//! clock or a signal are made by [`Session::agree`](hgnnc_session::Session::agree).

#![forbid(unsafe_code)]

mod params;
mod session;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use hgnnc_data::ranks::{Division, divide};
use hgnnc_data::{BoundData, Distributed, InputData, Result};
use hgnnc_dataset::FloatArray;
use hgnnc_dist::Comm;
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::Space;
use hgnnc_ir::dataflow::{Dataflow, GraphDecl, InputDecl, OutputKind};
use hgnnc_ir::types::DType;
use hgnnc_session::{Backend, MemoryNeeded, PlannedSession, Rank, Session, SharedRelations};

use session::RankSession;

/// The programs of ranks, and how rows are divided among them.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The tables of the model, for one process.
    pub one: Dataflow,
    /// The tables of the programs of ranks.
    pub tables: Dataflow,
    /// The division of rows among the ranks.
    pub division: Division,
    /// How ranks share the relations to the seeds of mini-batches, if they do.
    pub relations: Option<SharedRelations>,
    /// Parts of the dataset of which each rank has those of its own vertices.
    pub distribute: Distributed,
}

/// The back end of one rank.
#[derive(Debug)]
pub struct RankBackend {
    inner: Box<dyn Backend>,
    comm: Arc<dyn Comm>,
    placed: Arc<Placed>,
    /// Rows of the results of each role's program.
    spaces: HashMap<Role, HashMap<String, Space>>,
    /// Whether the training program is for mini-batches.
    on_batches: bool,
    /// Inputs that ranks of this process share.
    inputs: Option<SharedInputs>,
}

/// Inputs of the whole graph in memory that threads share.
#[derive(Clone, Debug, Default)]
pub struct SharedInputs(Vec<Option<SharedBuffer>>);

impl SharedInputs {
    /// Moves the numbers of inputs to such memory.
    pub fn of(data: &mut BoundData) -> Self {
        Self::of_some(data, |_| true)
    }

    /// Moves the numbers of the inputs with these positions to such memory.
    fn of_some(data: &mut BoundData, which: impl Fn(usize) -> bool) -> Self {
        let share = |(index, input): (usize, &mut InputData)| {
            let InputData::Numbers(numbers) = input else { return None };
            if !which(index) {
                return None;
            }
            let buffer = HostBuffer::of(numbers).freeze();
            numbers.release_pages();
            *numbers = FloatArray::shared(Arc::new(buffer.clone()));
            Some(buffer)
        };
        Self(data.inputs.iter_mut().enumerate().map(share).collect())
    }
}

impl RankBackend {
    /// The back end of this rank on a machine. `inner` has the programs of the executable, which were placed.
    pub fn new(executable: &Executable, inner: Box<dyn Backend>, comm: Arc<dyn Comm>, placed: Placed) -> Self {
        let kernels = &executable.kernels;
        let programs = [(Role::Infer, Some(&kernels.infer)), (Role::Train, kernels.train.as_ref())];
        let spaces = programs.into_iter().filter_map(|(role, program)| {
            let results = program?.outputs.iter().filter_map(|output| match &output.kind {
                OutputKind::Result(name) => Some((name.clone(), output.ty.space)),
                OutputKind::UpdateParam(_) | OutputKind::UpdateState(..) => None,
            });
            Some((role, results.collect()))
        });
        let on_batches = executable.batch.is_some();
        Self { inner, comm, placed: Arc::new(placed), spaces: spaces.collect(), on_batches, inputs: None }
    }

    /// With the inputs of the data that will be bound, if other ranks of this process have them as well.
    pub fn with_inputs(self, inputs: SharedInputs) -> Self {
        Self { inputs: Some(inputs), ..self }
    }
}

impl Backend for RankBackend {
    fn name(&self) -> String {
        match self.comm.size() {
            1 => self.inner.name(),
            ranks => format!("{}, {ranks} processes", self.inner.name()),
        }
    }

    fn pool(&self) -> &Arc<rayon::ThreadPool> {
        self.inner.pool()
    }

    fn takes_orders(&self) -> bool {
        false
    }

    fn rank(&self) -> Option<Rank> {
        let Placed { division, relations, distribute, .. } = &*self.placed;
        let (division, relations) = (division.clone(), relations.clone());
        Some(Rank { comm: Arc::clone(&self.comm), division, relations, distribute: *distribute })
    }

    fn free_memory(&self) -> Option<(&'static str, u64)> {
        self.inner.free_memory()
    }

    fn plan(&mut self, roles: &[Role], mut data: BoundData, room: Option<u64>) -> Result<Box<dyn PlannedSession>> {
        if matches!(roles, [Role::Score | Role::Rank(_)]) || self.on_batches && roles == [Role::Train] {
            // Each rank has a batch of its own, and scores pairs of links by itself.
            return self.inner.plan(roles, data, room);
        }
        let Placed { one, tables, division, distribute, .. } = &*self.placed;
        let is_divided = |index: usize| {
            let can_be = |decl: &InputDecl| can_be_divided(decl, *distribute, &one.graphs);
            self.on_batches && one.inputs.get(index).is_some_and(can_be)
        };
        // Mini-batches read the inputs of the whole graph, but for those that are divided.
        let inputs = match (self.on_batches, &self.inputs) {
            (true, Some(inputs)) => inputs.clone(),
            (true, None) => SharedInputs::of_some(&mut data, |index| !is_divided(index)),
            (false, _) => SharedInputs::default(),
        };
        let mut own =
            divide(&mut data, &one.inputs, tables, division, (self.comm.rank(), self.on_batches && distribute.edges))?;
        // The first inputs of a rank are those of one process.
        let own_inputs = SharedInputs::of_some(&mut own, is_divided);
        let divided = (0..data.inputs.len()).filter(|&index| is_divided(index));
        divided.for_each(|index| data.inputs[index] = InputData::Missing);
        if self.on_batches && distribute.features {
            for (whole, own) in data.patterns.iter_mut().zip(&own.patterns) {
                whole.csc = own.csc.clone();
                whole.release_out_edges();
            }
        }
        // The session of a rank reads its own edges.
        for graph in &mut data.graphs {
            if graph.part.is_none() {
                graph.release_out_edges();
            }
        }
        let inner = self.inner.plan(roles, own, room)?;
        let spaces = roles.iter().map(|role| self.spaces.get(role).cloned().unwrap_or_default()).collect();
        let (comm, placed, roles) = (Arc::clone(&self.comm), Arc::clone(&self.placed), roles.to_vec());
        Ok(Box::new(PlannedRank { inner, whole: data, inputs, own_inputs, comm, placed, roles, spaces }))
    }
}

/// A session of a rank before its memory is allocated.
struct PlannedRank {
    inner: Box<dyn PlannedSession>,
    whole: BoundData,
    comm: Arc<dyn Comm>,
    placed: Arc<Placed>,
    roles: Vec<Role>,
    spaces: Vec<HashMap<String, Space>>,
    /// Those of mini-batches.
    inputs: SharedInputs,
    /// The rows of this rank of those that are divided.
    own_inputs: SharedInputs,
}

/// Whether ranks can divide an input of mini-batches: it has rows of numbers, for vertices or for in-edges of vertices.
fn can_be_divided(decl: &InputDecl, distribute: Distributed, graphs: &[GraphDecl]) -> bool {
    decl.ty.dtype == DType::F32
        && match decl.ty.space {
            Space::Vertices(_) => distribute.features,
            Space::Edges(graph) => distribute.edges && graphs[graph.index()].can_be_divided(),
            _ => false,
        }
}

impl PlannedSession for PlannedRank {
    fn memory(&self) -> MemoryNeeded {
        self.inner.memory()
    }

    fn data(&self) -> &BoundData {
        &self.whole
    }

    fn into_data(self: Box<Self>) -> BoundData {
        self.whole
    }

    fn open(self: Box<Self>) -> Result<Box<dyn Session>> {
        let Self { inner, whole, inputs, own_inputs, comm, placed, roles, spaces } = *self;
        let mut inner = inner.open()?;
        let states = inner.params().states().to_vec();
        Ok(Box::new(RankSession {
            inner,
            whole,
            inputs,
            own_inputs,
            comm,
            placed,
            states,
            roles,
            spaces,
            collected: None,
            gathered: HashMap::new(),
            fresh: HashSet::new(),
            counted: None,
        }))
    }
}
