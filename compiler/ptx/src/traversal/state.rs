//! The state of writing a traversal: registers that are known for the row and for the edge at hand, and shared memory.

use std::collections::HashMap;

use hgnnc_ir::{Direction, Graph};
use hgnnc_kernel_ir::kernel::{Buffer, Local};

use super::Shape;
use super::rows::Seen;
use super::tiles::Tiles;
use crate::code::Code;
use crate::isa::{Class, Reg, Regions, Val};

/// A value: a number per register, `None` where no lane has an element.
pub(super) type Regs = Vec<Option<Val>>;

/// A value in the lanes of a team.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Held {
    pub layout: usize,
    pub position: usize,
    pub regs: Regs,
}

/// A computed value: one, or several one after another, each with the position of its first element.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    One(Held),
    Parts(Vec<(usize, Held)>),
}

/// The key of a looked up operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Key {
    Local(Local),
    Row(Buffer),
    End(Buffer),
    Other(Buffer),
    Edge(Buffer),
    Cell(Buffer),
}

/// The edge that is being computed.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// Is there one? Otherwise it is some other edge, and what it computes is not used.
    pub valid: Reg,
    /// In the order of the direction.
    pub number: Reg,
    /// The vertex at its other end.
    pub other: Reg,
    /// Its CSC position; `None`: not looked up yet.
    pub position: Option<Reg>,
}

/// Operands that have been looked up, of a row or of an edge.
#[derive(Default)]
pub(super) struct Known {
    /// The elements of an operand in a layout, at a position.
    pub fetched: HashMap<(Key, usize, usize), Regs>,
    /// Addresses in the memory of the team.
    pub staged: HashMap<Key, Reg>,
    /// Positions of the operands' rows in their sources.
    rows: HashMap<Key, Reg>,
    /// The keys of `rows`, in the order in which they were looked up.
    looked_up: Vec<Key>,
}

impl Known {
    /// The number of the row that an operand is.
    pub fn row(&self, key: &Key) -> Option<Reg> {
        self.rows.get(key).copied()
    }

    /// Adds the number of the row that an operand is.
    pub fn add_row(&mut self, key: Key, row: Reg) {
        self.looked_up.push(key.clone());
        self.rows.insert(key, row);
    }

    /// The number of rows that have been looked up.
    pub fn num_rows(&self) -> usize {
        self.looked_up.len()
    }

    /// Forgets all rows but the first ones that were looked up: the registers of others have no value here.
    pub fn forget_rows(&mut self, first: usize) {
        for key in self.looked_up.split_off(first) {
            self.rows.remove(&key);
        }
    }

    fn clear(&mut self) {
        self.fetched.clear();
        self.staged.clear();
        self.rows.clear();
        self.looked_up.clear();
    }
}

/// The row that is being computed.
pub(super) struct RowState {
    /// Its position among the rows of the traversal.
    pub number: Reg,
    /// Is there one? `None`: always.
    pub valid: Option<Reg>,
    /// The vertex that the row belongs to.
    pub vertex: Reg,
    /// Results for the row, by instruction.
    pub values: Vec<Option<Value>>,
    /// Operands that are the same for all its edges.
    pub known: Known,
    /// The position of its vertex among the ends of a graph.
    pub ends: HashMap<(Graph, Direction), Reg>,
    /// Results that are stored when it is complete, since their memory is read until then.
    pub deferred: Vec<(Buffer, Held)>,
}

impl RowState {
    pub fn new(code: &mut Code, num_instrs: usize) -> Self {
        Self {
            number: code.fresh(Class::U32),
            valid: None,
            vertex: code.fresh(Class::U32),
            values: vec![None; num_instrs],
            known: Known::default(),
            ends: HashMap::new(),
            deferred: vec![],
        }
    }

    /// Another loop over rows begins: no register has a value of its row yet.
    pub fn forget(&mut self) {
        self.values.fill(None);
        self.known.clear();
        self.ends.clear();
    }
}

/// The edge that is being computed, if one is.
#[derive(Default)]
pub(super) struct EdgeState {
    /// The edge; `None`: code is for the row.
    pub current: Option<Edge>,
    /// Results for the edge, by instruction.
    pub values: HashMap<usize, Value>,
    /// Operands of this edge alone.
    pub known: Known,
}

impl EdgeState {
    /// Code from now on is for an edge.
    pub fn begin(&mut self, edge: Edge) {
        self.current = Some(edge);
        self.values.clear();
        self.known.clear();
    }

    /// Code from now on is for the row again.
    pub fn end(&mut self) {
        self.current = None;
        self.values.clear();
    }
}

/// Shared memory of a block: that of its teams, then of the exchange between its threads, of weights, and of tiles.
#[derive(Default)]
pub(super) struct SharedMemory {
    /// Bytes of a team.
    pub team_bytes: usize,
    /// Do threads show each other numbers?
    pub exchange: bool,
    /// Addresses of numbers that threads show each other.
    pub shown: HashMap<Seen, Reg>,
    /// Addresses of weights, by buffer, transposition, group and extents, which decide how they lie there.
    pub weights: HashMap<(Buffer, bool, usize, usize, usize), Reg>,
    /// Bytes of all weights.
    pub weight_bytes: usize,
}

impl SharedMemory {
    /// The offset of each region, and the bytes of all together.
    pub fn regions(&self, shape: Shape, tile_bytes: usize) -> (Regions, usize) {
        let threads = 1usize << shape.block;
        let team_pitch = shape.team_pitch(self.team_bytes);
        let exchange = (team_pitch * (threads >> shape.lanes)).next_multiple_of(16);
        let weights = exchange + if self.exchange { 4 * threads } else { 0 };
        let tiles = (weights + self.weight_bytes).next_multiple_of(16);
        let bytes = if tile_bytes > 0 { tiles + tile_bytes } else { weights + self.weight_bytes };
        (Regions { team_pitch, exchange, weights, tiles }, bytes)
    }
}

/// Rows that are computed in tiles.
#[derive(Default)]
pub(super) struct TileState {
    /// How they are, if they are.
    pub plan: Option<Tiles>,
    /// The row in the tile, and the shared memory of tiles.
    pub row: Option<(Reg, Reg)>,
    /// Addresses of the row in kept values, by their offset.
    pub kept: HashMap<usize, Reg>,
}
