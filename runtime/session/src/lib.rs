//! The seam between training and machines.
//!
//! A [`Backend`] is a machine with the programs of an executable. It opens [`Session`]s: programs with shared tables,
//! bound to data, with their parameters. The trainer, the link scorer and mini-batches run on sessions alone, so a new
//! machine is one crate that implements these traits. A [`RowStore`] is a matrix, wherever it lies, of which a mini-batch
//! takes some rows.

mod rows;

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use hgnnc_data::buffer::{Alias, HostBuffer};
use hgnnc_data::classes::ClassCounts;
use hgnnc_data::metrics::Tally;
use hgnnc_data::ranks::Division;
use hgnnc_data::{Arena, BoundData, Distributed, Result, StateId};
use hgnnc_dist::Comm;
use hgnnc_executable::Role;
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::training::Task;
use hgnnc_ir::types::VertexType;
use hgnnc_trace::Times;

pub use rows::{HostRows, RowStore, TableRows};

/// The position of a run in training. Dropout masks are functions of seed and step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct StepKey {
    pub seed: u64,
    /// Counted from 1.
    pub step: u64,
    /// Counted from 0.
    pub epoch: u64,
}

/// A result of a program: its rows, in the order of the session's data.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Rows<'a> {
    /// Elements of a row.
    pub width: usize,
    /// Vertex type of the rows, if they are vertices.
    pub vertex: Option<VertexType>,
    pub numbers: &'a [f32],
}

/// Memory that a session needs, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryNeeded {
    /// Planned memory for values of each program alone.
    pub arenas: Vec<Arena>,
    /// Planned memory for values of all of them.
    pub all: Arena,
    /// Parameters, with the copies that the session keeps.
    pub params: u64,
    /// Optimizer states.
    pub states: u64,
    /// Graphs and inputs.
    pub data: u64,
}

impl MemoryNeeded {
    /// Total bytes.
    pub fn bytes(&self) -> u64 {
        self.all.bytes() + self.params + self.states + self.data
    }
}

/// How a session measures its phases and stages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// Every run adds its times.
    Steps,
    /// A run adds its times after [`Session::time_launches`] only, which makes it slower.
    Launches,
}

/// A process among those that train together.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Rank {
    pub comm: Arc<dyn Comm>,
    /// How vertices, and the rows of tables with them, are divided among the processes.
    pub division: Division,
    /// How processes share the relations to the seeds of mini-batches. Without them, each process has its own seeds.
    pub relations: Option<SharedRelations>,
    /// Parts of the dataset of which each process has those of its own vertices.
    pub distribute: Distributed,
}

/// Relations to the seeds of mini-batches that several processes share.
#[derive(Clone, Debug)]
pub struct SharedRelations {
    /// By semantic graph: the process that aggregates its edges to the seeds, counted from the first of its replica.
    pub rank_of: Arc<[usize]>,
    /// Number of replicas, which divides that of the processes: each has as many consecutive ones with the same seeds, which
    /// are other ones than those of the other replicas.
    pub replicas: usize,
}

impl Rank {
    /// The number of sets of seeds that a batch has: one for each replica, or for each process.
    pub fn shares(&self) -> usize {
        self.relations.as_ref().map_or(self.comm.size(), |shared| shared.replicas.max(1))
    }

    /// The processes with the same seeds as this one.
    pub fn replica(&self) -> Range<usize> {
        let size = self.comm.size() / self.shares();
        let first = self.comm.rank() / size * size;
        first..first + size
    }

    /// The vertices that this process owns, of a type with `count` vertices.
    pub fn vertices(&self, vertex: VertexType, count: usize) -> Range<usize> {
        self.division.vertices(vertex, count).of_rank(self.comm.rank())
    }
}

/// The exchanges of a process with those that train with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Exchanged {
    pub exchanges: u64,
    /// Bytes of rows that were sent to other processes.
    pub sent_bytes: u64,
    /// Nanoseconds in which nothing was left to do but to wait for rows.
    pub waited_ns: u64,
}

impl std::ops::Add for Exchanged {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            exchanges: self.exchanges + other.exchanges,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            waited_ns: self.waited_ns + other.waited_ns,
        }
    }
}

/// A machine with the programs of an executable.
pub trait Backend: Debug + Send {
    /// Name for reports.
    fn name(&self) -> String;

    /// Threads of this process: those that copy rows and rank links, and on a CPU run the programs.
    fn pool(&self) -> &Arc<rayon::ThreadPool>;

    /// Whether vertices may be renumbered ([`hgnnc_data::Orders`]).
    fn takes_orders(&self) -> bool;

    /// Whether programs may read rows of the whole graph in host memory, so that mini-batches need no copies of them.
    fn reads_host_memory(&self) -> bool {
        true
    }

    /// This process among those that train together, if there are several. Mini-batch sessions then exchange rows with the
    /// others, and data of the whole graph is divided by the back end.
    fn rank(&self) -> Option<Rank> {
        None
    }

    /// Matrices of zeros in the memory of the machine, with so many rows of so many elements, of which its sessions copy rows
    /// without the host. Without matrices host memory has to do: the machine has no other, or not enough for all of them.
    ///
    /// # Errors
    /// When a device fails.
    fn zero_rows(&mut self, _sizes: &[(usize, usize)]) -> Result<Vec<Arc<dyn RowStore>>> {
        Ok(vec![])
    }

    /// Bytes that sessions may allocate now, and their name in messages; `None` if unknown.
    fn free_memory(&self) -> Option<(&'static str, u64)>;

    /// Plans programs with shared tables for data; allocates no values. A back end that can do with less memory, and then
    /// is slower, does so for a session that takes more than `room` bytes.
    ///
    /// # Errors
    /// Data that does not fit the programs, or an operation that the machine cannot execute.
    fn plan(&mut self, roles: &[Role], data: BoundData, room: Option<u64>) -> Result<Box<dyn PlannedSession>>;

    /// Plans programs, and opens their session.
    ///
    /// # Errors
    /// Those of [`Backend::plan`] and [`PlannedSession::open`].
    fn session(&mut self, roles: &[Role], data: BoundData) -> Result<Box<dyn Session>> {
        self.plan(roles, data, None)?.open()
    }
}

/// A session before its memory is allocated.
pub trait PlannedSession {
    /// The memory that it takes.
    fn memory(&self) -> MemoryNeeded;

    /// Data that the programs are planned for.
    fn data(&self) -> &BoundData;

    /// The data, without a session.
    fn into_data(self: Box<Self>) -> BoundData;

    /// Binds the programs to the data, allocates their memory, and computes what does not depend on the run. Parameters
    /// and states are zero.
    ///
    /// # Errors
    /// An allocation that is refused, or a device failure.
    fn open(self: Box<Self>) -> Result<Box<dyn Session>>;
}

/// Programs with shared tables, bound to data, with their parameters and optimizer states. Programs are numbered in the
/// order in which the session was opened.
pub trait Session: Debug + Send + Any {
    /// Data bound to the programs: graphs, labels and splits. Input elements have moved to the session.
    fn data(&self) -> &BoundData;

    /// Binds the programs to other data with the same tables, once per mini-batch. What does not depend on the run is
    /// computed then, or with the next run. Parameters and states keep their values, except those with a row per vertex, which are then unspecified.
    /// Returns the previous data for reuse of its memory. `inputs` holds the elements of each
    /// [`InputData::Held`](hgnnc_data::InputData::Held) input, and memory that may be overwritten afterwards.
    ///
    /// # Errors
    /// Data that does not fit the programs, too little memory, or a device failure.
    fn load(&mut self, data: BoundData, inputs: &mut [HostBuffer]) -> Result<BoundData>;

    /// Runs the first part of a program (`kernel::Program::second_part`): up to the first step that may
    /// overwrite a parameter or a state, or up to the backward pass of a layer. The results of this part are then
    /// available, and no parameter has changed.
    ///
    /// # Errors
    /// When a device fails.
    fn run(&mut self, program: usize, key: StepKey, times: &mut Times) -> Result<()>;

    /// Runs the second part of a program, for the same key, and makes its new parameters and states current.
    ///
    /// # Errors
    /// When a device fails.
    fn update(&mut self, program: usize, key: StepKey, times: &mut Times) -> Result<()>;

    /// Copies what the next run of a program reads of tables with rows in stores.
    ///
    /// # Errors
    /// When a device fails.
    fn gather_tables(&mut self, _program: usize, tables: &[TableRows<'_>]) -> Result<()> {
        tables.iter().try_for_each(|table| self.params().gather_rows(table.array, table.rows, table.store))
    }

    /// [`Session::update`]; the new rows of the tables are then in their stores, and unspecified in the session. The rows
    /// of each table are distinct, and nothing else accesses them meanwhile.
    ///
    /// # Errors
    /// When a device fails.
    fn update_tables(
        &mut self,
        program: usize,
        key: StepKey,
        tables: &[TableRows<'_>],
        times: &mut Times,
    ) -> Result<()> {
        self.update(program, key, times)?;
        for table in tables {
            self.params().scatter_rows(table.array, table.rows, table.store)?;
        }
        Ok(())
    }

    /// Names of the results of a program.
    fn results(&self, program: usize) -> Vec<&str>;

    /// Waits for the last run of a program, and makes a result available for [`Session::result`], if there is such a
    /// result.
    ///
    /// # Errors
    /// When a device fails.
    fn fetch(&mut self, program: usize, name: &str) -> Result<()>;

    /// [`Session::fetch`] of what only the process that writes files needs: where several train together, the others have no
    /// rows of vertices or edges of it. All call it, in the same order as other calls.
    ///
    /// # Errors
    /// When a device fails, or another process has ended.
    fn fetch_to_write(&mut self, program: usize, name: &str) -> Result<()> {
        self.fetch(program, name)
    }

    /// A fetched result of the last run of a program.
    fn result(&self, program: usize, name: &str) -> Option<Rows<'_>>;

    /// Fetches a result of the last run of a program; `None` if it has no such result.
    ///
    /// # Errors
    /// When a device fails.
    fn read(&mut self, program: usize, name: &str) -> Result<Option<Rows<'_>>> {
        self.fetch(program, name)?;
        Ok(self.result(program, name))
    }

    /// Overwrites an input that the caller gives ([`hgnnc_ir::dataflow::Binding::Given`]). Values that do not depend on
    /// the run depend on no such input.
    ///
    /// # Errors
    /// Another number of elements than the session was opened with, or a device failure.
    fn write_input(&mut self, index: usize, numbers: &[f32]) -> Result<()>;

    /// Elements of an input; `None` if it has none, or they cannot be read.
    fn input(&self, index: usize) -> Option<Vec<f32>>;

    /// Input elements that may be shared with other threads while the session is not loaded with other data.
    fn shared_input(&self, index: usize) -> Option<hgnnc_data::buffer::SharedBuffer>;

    /// The rows of an input that this process owns, as [`Session::shared_input`], where several have divided it.
    fn own_rows_of_input(&self, _index: usize) -> Option<hgnnc_data::buffer::SharedBuffer> {
        None
    }

    /// The rows of an input in the memory of the machine, for [`Session::take_rows_of`] of its other sessions. `None`
    /// where they are read in host memory.
    fn rows_of_input(&mut self, _index: usize) -> Option<Arc<dyn RowStore>> {
        None
    }

    /// Has the rows of an input copied from a store of the machine from now on: data that is loaded has the numbers of
    /// its rows, as [`InputData::Rows`](hgnnc_data::InputData::Rows).
    fn take_rows_of(&mut self, _index: usize, _store: Arc<dyn RowStore>) {}

    /// Parameters and optimizer states.
    fn params(&mut self) -> &mut dyn ParamStore;

    /// Planned memory of one program as if it ran alone, or of all.
    fn arena(&self, program: Option<usize>) -> Arena;

    /// Bytes allocated in the memory of a device.
    fn device_bytes(&self) -> u64 {
        0
    }

    /// How the session measures phases and stages.
    fn clock(&self) -> Clock {
        Clock::Steps
    }

    /// Turns separate timing of each launch on or off.
    fn time_launches(&mut self, _timed: bool) {}

    /// Milliseconds by the machine's own clock since the last call, if it has one. Waits for all runs.
    ///
    /// # Errors
    /// When a device fails.
    fn elapsed_ms(&mut self) -> Result<Option<f64>> {
        Ok(None)
    }

    /// Whether any of the processes that train together says so. What a clock or a signal decides is decided by all of
    /// them alike: all call it, in the same order.
    ///
    /// # Errors
    /// When another process has ended.
    fn agree(&mut self, any: bool) -> Result<bool> {
        Ok(any)
    }

    /// Makes parameters readable on the process that writes files without those that train with it, and on no other one,
    /// until they change. All call it, in the same order as other calls.
    ///
    /// # Errors
    /// When another process has ended.
    fn collect_params(&mut self) -> Result<()> {
        Ok(())
    }

    /// Tells that the rows of shared parameters ([`ParamStore::share`]) have new values.
    fn shared_changed(&mut self) {}

    /// The rows that this process has of a table with one for each vertex of a type, `rows` in all.
    fn own_rows(&self, _vertex: VertexType, rows: usize) -> Range<usize> {
        0..rows
    }

    /// The part of this process of work that can be divided at will.
    fn own_part(&self, count: usize) -> Range<usize> {
        0..count
    }

    /// The elements of all processes, in their order. All call it, in the same order as other calls.
    ///
    /// # Errors
    /// When another process has ended.
    fn all_rows(&mut self, own: Vec<f32>) -> Result<Vec<f32>> {
        Ok(own)
    }

    /// [`Session::all_rows`] on the process that writes files; nothing on the others.
    ///
    /// # Errors
    /// When another process has ended.
    fn rows_to_write(&mut self, own: Vec<f32>) -> Result<Vec<f32>> {
        Ok(own)
    }

    /// A text of each process that trains with this one. All call it, in the same order as other calls.
    ///
    /// # Errors
    /// When another process has ended.
    fn all_texts(&mut self, own: &str) -> Result<Vec<String>> {
        Ok(vec![own.to_owned()])
    }

    /// The number of this process among those that train together, and how many they are.
    fn process(&self) -> (usize, usize) {
        (0, 1)
    }

    /// The session that runs the programs of this process, where this one shows them as those of all that train together.
    /// Its measurements and memory are those of this process.
    fn inner(&mut self) -> Option<&mut dyn Session> {
        None
    }

    /// The exchanges of the programs with other processes so far.
    fn exchanged(&self) -> Exchanged {
        Exchanged::default()
    }

    /// The numbers of each process that trains with this one, in their order. As with [`Session::agree`], all call it in the
    /// same order as other calls.
    ///
    /// # Errors
    /// When another process has ended.
    fn of_all(&mut self, own: &[u64]) -> Result<Vec<Vec<u64>>> {
        Ok(vec![own.to_vec()])
    }

    /// Whether this process writes the files of the run: one of those that train together does.
    fn writes_files(&self) -> bool {
        self.process().0 == 0
    }

    /// Asks to count how a result of a program compares with the labels, where that saves reading the result.
    ///
    /// # Errors
    /// When a device fails.
    fn count_result(&mut self, _program: usize, _name: &str, _task: Task) -> Result<()> {
        Ok(())
    }

    /// Counts over a part of the split ([`BoundData::parts`]) in the last run. False if nothing is counted: the caller
    /// reads the result.
    ///
    /// # Errors
    /// When a device fails.
    fn count(&mut self, _part: usize, _tally: &mut Tally) -> Result<bool> {
        Ok(false)
    }

    /// As [`Session::count`], for each class and for each pair of classes. `None`: the caller reads the result.
    ///
    /// # Errors
    /// When a device fails.
    fn count_classes(&mut self, _part: usize) -> Result<Option<ClassCounts>> {
        Ok(None)
    }
}

/// Parameters and optimizer states of a session. Rows of vertices are in the order of the dataset.
pub trait ParamStore {
    /// Number of parameters of the model.
    fn num_params(&self) -> usize;

    /// Number of elements of a parameter, or of a stack of them.
    fn len(&self, index: usize) -> usize;

    /// Copies a parameter to a buffer of its length.
    ///
    /// # Errors
    /// When a device fails.
    fn read(&mut self, index: usize, into: &mut [f32]) -> Result<()>;

    /// Overwrites a parameter.
    ///
    /// # Errors
    /// When a device fails.
    fn write(&mut self, index: usize, numbers: &[f32]) -> Result<()>;

    /// Elements that this process has of a parameter: where several train together, those of its rows of a table.
    fn own_len(&self, index: usize) -> usize {
        self.len(index)
    }

    /// Copies the elements that this process has of a parameter.
    ///
    /// # Errors
    /// When a device fails.
    fn read_own(&mut self, index: usize, into: &mut [f32]) -> Result<()> {
        self.read(index, into)
    }

    /// Overwrites the elements that this process has of a parameter.
    ///
    /// # Errors
    /// When a device fails.
    fn write_own(&mut self, index: usize, numbers: &[f32]) -> Result<()> {
        self.write(index, numbers)
    }

    /// Parameter and slot of each optimizer state.
    fn states(&self) -> &[StateId];

    /// Copies the elements that this process has of an optimizer state.
    ///
    /// # Errors
    /// When a device fails.
    fn read_state(&mut self, index: usize) -> Result<Vec<f32>>;

    /// Overwrites the elements that this process has of an optimizer state.
    ///
    /// # Errors
    /// When a device fails.
    fn write_state(&mut self, index: usize, numbers: &[f32]) -> Result<()>;

    /// Initializes all parameters; values depend only on the seed and their names.
    ///
    /// # Errors
    /// When a device fails.
    fn init(&mut self, tables: &Dataflow, seed: u64) -> Result<()>;

    /// Whether all elements of all parameters are finite; `None` if they would have to be copied to know.
    fn are_finite(&mut self) -> Option<bool>;

    /// The memory of a parameter, or of the rows of a table that this process has, shared with the caller, if it is host
    /// memory in the order of the dataset. It may be accessed only while the session is idle and not borrowed.
    fn share(&mut self, index: usize) -> Option<Alias>;

    /// The rows of a table in the memory of the machine, of which its other sessions copy some without the host. `None`
    /// where they are host memory, which [`ParamStore::share`] shares.
    fn rows_of_table(&mut self, _index: usize, _width: usize) -> Option<Arc<dyn RowStore>> {
        None
    }

    /// Copies rows of a store to the first rows of a parameter, or of the optimizer state with this number after all
    /// parameters.
    ///
    /// # Errors
    /// When a device fails.
    fn gather_rows(&mut self, array: usize, rows: &[u32], from: &dyn RowStore) -> Result<()>;

    /// Copies the first rows of a parameter or optimizer state back to a store. The rows are distinct, and nothing else
    /// accesses them meanwhile.
    ///
    /// # Errors
    /// When a device fails.
    fn scatter_rows(&mut self, array: usize, rows: &[u32], to: &dyn RowStore) -> Result<()>;

    /// Keeps the current parameters as the best ones, where the machine has memory for a copy of its own. False: the
    /// caller keeps them.
    ///
    /// # Errors
    /// When a device fails.
    fn keep_best(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Makes the kept parameters current again.
    ///
    /// # Errors
    /// When a device fails.
    fn restore_best(&mut self) -> Result<()> {
        Ok(())
    }

    /// Copies a kept parameter.
    ///
    /// # Errors
    /// When a device fails.
    fn read_best(&mut self, _index: usize, _into: &mut [f32]) -> Result<()> {
        Ok(())
    }

    /// Overwrites a kept parameter.
    ///
    /// # Errors
    /// When a device fails.
    fn write_best(&mut self, _index: usize, _numbers: &[f32]) -> Result<()> {
        Ok(())
    }
}
