//! Traversals: rows, each computed by a team of lanes, with loops over the edges that they own.
//!
//! A *team* of `T` lanes holds the values of a row as a [`Layout`] says. With edges, `E` teams share a row, each taking
//! every `E`-th of its edges, and the next `U` of these at a time, so that many loads are on their way together; their
//! sums are combined in a fixed order. Teams fill warps, and small rows share a warp, whose lanes all go through as
//! many iterations as its longest row needs: every exchange between lanes has all 32 of them.
//!
//! Reductions over edges that depend on each other take several passes over the edges; what edges compute is computed
//! again in each pass that reads it, so nothing of their size is stored.
//!
//! Rows of very many edges, where a dataset has any, are cut into pieces: see [`pieces`]. Rows of more elements than
//! registers hold are computed in loops over them: see [`wide`].

mod def_use;
mod edges;
mod operands;
mod pieces;
mod products;
mod rows;
mod state;
mod tiles;
mod totals;
mod wide;

use std::collections::{HashMap, HashSet};

use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{
    Buffer, Dest, Extent, Instr, KernelOp, Level, Operand, Program, Rows, Source, Traversal,
};

use hgnnc_kernel_ir::kernel::print::local_extents;
use hgnnc_kernel_ir::loops::Nest;

use crate::code::Code;
use crate::isa::{self, Address, Body, Class, Cmp, Guard, Item, Label, Opcode, Reg, Regions, Special, Type};
use crate::layout::{Bound, Chain, Layout};
use crate::table::Table;
use crate::{Band, Cut, Slot};
use crate::{Blocks, Edges, Hints, KernelInfo, Long, Precision, Share, Total, Unsupported};

use self::def_use::DefUse;
use self::pieces::{Phase, Piece};
use self::state::{Edge, EdgeState, Held, Key, Regs, RowState, SharedMemory, TileState, Value};
use self::totals::Accumulator;

type Result<T> = std::result::Result<T, Unsupported>;

/// Threads of a block, as a power of two.
pub(crate) const BLOCK_BITS: u32 = 8;
/// Lanes of a warp, as a power of two.
pub(crate) const WARP_BITS: u32 = 5;
/// Blocks of a kernel that has rows for more: each takes several, at the same distance.
const MOST_BLOCKS: usize = 2048;
/// The same of a kernel with totals, of which each block has a part: as many as fill the largest devices.
const MOST_PARTS: usize = 1056;
/// Buffers whose addresses may be kept in registers.
const MOST_ADDRESSES: usize = 12;
/// Registers that values of the whole kernel may take.
const MOST_HOISTED: usize = 40;

/// How threads share rows and edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    /// Lanes that hold a row, as a power of two.
    lanes: u32,
    /// Teams that share the edges of a row, as a power of two.
    teams: u32,
    /// Edges of a team on their way at a time.
    unroll: usize,
    /// Threads of a block, as a power of two.
    block: u32,
}

impl Shape {
    /// Threads that share a row, as a power of two.
    fn row(self) -> u32 {
        self.lanes + self.teams
    }

    /// Is the memory of teams read and written element by element? It is where so many share a warp that what they have
    /// at the same place would be in few banks if it were aligned for vectors.
    fn scalar_memory(self) -> bool {
        self.lanes <= 1
    }

    /// The bytes from the memory of a team to that of the next one, which has so many: such that teams of a warp use
    /// different banks for the same place.
    fn team_pitch(self, bytes: usize) -> usize {
        let unit = if self.scalar_memory() { 4 } else { 16 };
        if bytes == 0 { 0 } else { (bytes.div_ceil(unit) | 1) * unit }
    }

    /// Do threads of several warps share a row?
    fn blockwide(self) -> bool {
        self.row() > WARP_BITS
    }
}

/// State of writing one traversal.
struct Emit<'a> {
    program: &'a Program,
    homes: &'a [Buffer],
    precision: Precision,
    hints: Hints<'a>,
    table: &'a mut Table,
    traversal: &'a Traversal,
    code: Code,
    /// Position among the kernels of the module.
    kernel: usize,
    /// The same, or that of a kernel of a following entry, which completes rows of it that are cut.
    number: usize,
    /// The rows that it is for, if not for all: number and classes.
    band: Option<(usize, Band)>,
    /// How rows are cut, if any are.
    cut: Option<Cut>,
    /// The role of this body for rows that are cut.
    phase: Phase,
    /// The piece, or all pieces of the row.
    piece: Option<Piece>,
    shape: Shape,
    widths: Vec<usize>,
    layouts: Vec<Layout>,
    /// Buffers whose memory this launch writes.
    written: &'a HashSet<Buffer>,
    /// Producers and readers of the traversal's values.
    def_use: &'a DefUse,
    /// The extent of each local: per row, per edge, or once.
    locals: &'a [Extent],
    /// Numbers of the whole kernel.
    thread: Reg,
    lane: Reg,
    lane_elements: HashMap<(usize, usize), Option<Reg>>,
    bounds: HashMap<Bound, Reg>,
    bases: HashMap<(Buffer, usize, usize), Reg>,
    entries: HashMap<Slot, Reg>,
    /// Are addresses made at the beginning?
    hoists: bool,
    hoisted: usize,
    first_copies: HashMap<(u32, bool), Option<Reg>>,
    row: RowState,
    edge: EdgeState,
    accumulators: Vec<Accumulator>,
    memory: SharedMemory,
    tile: TileState,
}

/// The first degree class of rows that a whole block shares: 512 edges, as many as its teams take in a few steps.
const LONG: usize = 10;

/// The code of a traversal.
pub(crate) struct Emitted {
    pub body: Body,
    pub info: KernelInfo,
    /// The kernels of following entries: their titles, code and sizes. See [`Long`].
    pub following: Vec<(String, Body, KernelInfo)>,
}

/// The context that all traversals of a launch have in common.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    /// The program that is translated.
    pub program: &'a Program,
    /// The buffer whose memory each buffer has.
    pub homes: &'a [Buffer],
    /// Buffers whose memory the launch writes.
    pub written: &'a HashSet<Buffer>,
    /// How exact dense products are.
    pub precision: Precision,
    /// Elements of a row that a lane holds, at most.
    pub elements: usize,
    /// Known sizes, and names of places in the source.
    pub hints: Hints<'a>,
}

/// Writes the nest of a traversal: the kernel with this number, and those that complete it, with the next other numbers. `edges` is
/// how many its rows have, where it is known.
pub(crate) fn emit(
    cx: Shared<'_>,
    (traversal, nest): (&Traversal, &Nest),
    (kernel, next): (usize, &mut usize),
    table: &mut Table,
    edges: Option<Edges>,
) -> Result<Emitted> {
    let program = cx.program;
    let unsupported = |what: String| Unsupported { kernel, what };
    let fixed = |width: &Width| {
        width.as_fixed().ok_or_else(|| unsupported("a row whose length depends on the dataset".to_owned()))
    };
    let locals = Program::local_widths(traversal);
    let widths: Vec<usize> = locals.iter().map(fixed).collect::<Result<_>>()?;
    let def_use = DefUse::new(traversal, nest, cx.homes);
    let tiles = tiles::plan(cx, traversal, &def_use);
    let mut all = widths.clone();
    for instr in &traversal.instrs {
        if instr.extent() != Extent::Total {
            all.push(fixed(&instr.width)?);
        }
        let operands: Vec<Operand> = match tiles {
            Some(_) => tiles::read_by_teams(program, &def_use, instr).collect(),
            None => instr.op.operands().into_vec(),
        };
        for operand in operands {
            // Elements that are looked up one by one need no place in a layout.
            if let Some(width) = program.operand_width(&traversal.rows, &locals, operand)
                && !matches!(operand.index, hgnnc_kernel_ir::kernel::Index::Uniform)
            {
                all.push(fixed(&width)?);
            }
        }
    }
    if all.contains(&0) {
        return Err(unsupported("a value without elements".to_owned()));
    }
    let reads_long = |instr: &Instr| {
        let long = |operand: Operand| {
            program.operand_width(&traversal.rows, &locals, operand).is_some_and(|width| width.as_fixed().is_none())
        };
        instr.op.operands().into_iter().any(long)
    };
    let long = traversal.instrs.iter().any(reads_long);
    let chain = Chain::main(all);
    let most_lanes = if traversal.rows == Rows::Once { BLOCK_BITS } else { WARP_BITS };
    let (def_use, widths, chain, locals) = (&def_use, &widths, &chain, &local_extents(traversal));
    let setup = Setup { traversal, kernel, widths, chain, def_use, locals, hoists: false, cx, cut: None };
    if 1 << chain.bits().saturating_sub(most_lanes) > cx.elements {
        if chain.widest() > wide::MOST_ELEMENTS {
            let (widest, most) = (chain.widest(), wide::MOST_ELEMENTS);
            return Err(unsupported(format!("rows of {widest} elements, of at most {most}")));
        }
        let (body, info) = wide::emit(&setup, table)?;
        return Ok(Emitted { body, info, following: vec![] });
    }
    let mut shape = shape(traversal, chain, long, edges.map(|edges| edges.mean));
    if tiles.is_some() {
        shape.lanes = shape.lanes.max(tiles::LEAST_LANES);
    }
    let used: HashSet<Buffer> = traversal
        .instrs
        .iter()
        .flat_map(|instr| {
            instr.op.operands().into_iter().map(|operand| operand.source).chain(match instr.dest {
                Dest::Buffer(buffer) => Some(Source::Buffer(buffer)),
                Dest::Local(_) => None,
            })
        })
        .filter_map(|source| match source {
            Source::Buffer(buffer) => Some(buffer),
            Source::Local(_) | Source::Const(_) | Source::Count(_) => None,
        })
        .collect();
    let hoists = used.len() <= MOST_ADDRESSES && traversal.rows != Rows::Once;
    let cut = edges.and_then(|edges| pieces::cut(traversal, edges));
    let setup = Setup { hoists, cut, ..setup };
    if let Some(tiles) = tiles {
        let (body, info) = Emit::new(&setup, table, None, shape, (kernel, Phase::Rows)).kernel_in_tiles(tiles)?;
        return Ok(Emitted { body, info, following: vec![] });
    }
    let blockwide = Shape { teams: BLOCK_BITS - shape.lanes.min(BLOCK_BITS), ..shape };
    let Some(edges) = edges.filter(|edges| traversal.rows.has_edges() && edges.most >= pieces::least(cut)) else {
        let (body, info) = Emit::new(&setup, table, None, shape, (kernel, Phase::Rows)).kernel()?;
        return Ok(Emitted { body, info, following: vec![] });
    };
    // Rows of many edges have a block each, where there are some, and longer ones a block for each piece.
    let end = cut.map(|cut| cut.from);
    let first_long = end.map_or(LONG, |end| end.min(LONG));
    let mut bands = vec![(Band { from: 0, to: Some(first_long) }, shape, Phase::Rows)];
    if end.is_none_or(|end| end > LONG) && edges.most >= 1 << (LONG - 1) {
        bands.push((Band { from: LONG, to: end }, blockwide, Phase::Rows));
    }
    bands.extend(cut.map(|cut| (cut.band(), blockwide, Phase::Pass(0))));
    let (mut bodies, mut parts) = (vec![], vec![]);
    for (number, (band, shape, phase)) in bands.into_iter().enumerate() {
        let emit = Emit::new(&setup, table, Some((number, band)), shape, (kernel, phase));
        parts = emit.piece_elements();
        bodies.push(emit.kernel()?);
    }
    let mut following = vec![];
    if let Some(cut) = cut {
        for pass in 1..=parts.len() {
            let phase = if pass < parts.len() { Phase::Pass(pass) } else { Phase::Joined };
            let emit = Emit::new(&setup, table, Some((0, cut.band())), blockwide, (*next, phase));
            let (body, info) = emit.kernel()?;
            following.push((phase.to_string(), body, info));
            *next += 1;
        }
    }
    let long = cut.map(|cut| Long { cut, parts });
    let (body, info) = in_bands(bodies, kernel, traversal, (table, long));
    Ok(Emitted { body, info, following })
}

/// The context that all bodies of a kernel have in common.
#[derive(Clone, Copy)]
struct Setup<'a> {
    traversal: &'a Traversal,
    kernel: usize,
    widths: &'a [usize],
    chain: &'a Chain,
    def_use: &'a DefUse,
    locals: &'a [Extent],
    hoists: bool,
    cx: Shared<'a>,
    cut: Option<Cut>,
}

/// A kernel of one body, or of one for each band of rows: their blocks one after another.
fn in_bands(
    bodies: Vec<(Body, KernelInfo)>,
    kernel: usize,
    traversal: &Traversal,
    (table, long): (&mut Table, Option<Long>),
) -> (Body, KernelInfo) {
    let (first, end) = (Reg::Named(Class::U32, &"first"), Reg::Named(Class::U32, &"end"));
    let here = Reg::Named(Class::Pred, &"here");
    let mut code = Code::new(0);
    code.push(Item::Named(Class::U32, vec![first, end]));
    code.push(Item::Named(Class::Pred, vec![here]));
    code.assign(end, 0);
    let (mut shares, mut most, mut shared, mut totals) = (vec![], 0, 0, None);
    let count = bodies.len();
    for (number, (body, info)) in bodies.into_iter().enumerate() {
        if let Blocks::Bands { shares: own, most: blocks, .. } = &info.blocks {
            shares.extend(own.iter().copied());
            most = *blocks;
        }
        let (last, next) = (number + 1 == count, Label::Band { code: 0, number: number + 1 });
        if !last {
            code.load_slot(first, Address::Table(table.offset(Slot::BandBlocks(kernel, number))));
            code.increase(end, first);
            code.set(here, Opcode::Setp(Cmp::Lt, Type::U32), (Reg::BLOCK, end));
            code.jump_if(Guard { reg: here, negated: true }, next);
        }
        code.append(body);
        if !last {
            code.effect(Opcode::Ret, ());
            code.place(next);
        }
        shared = shared.max(info.shared);
        totals.get_or_insert(info.totals);
    }
    let blocks = Blocks::Bands { rows: traversal.rows.clone(), shares, most, long };
    let info = KernelInfo { number: kernel, blocks, shared, row_memory: 0, totals: totals.unwrap_or_default() };
    (code.finish(&Regions::default()), info)
}

impl<'a> Emit<'a> {
    fn new(
        setup: &Setup<'a>,
        table: &'a mut Table,
        band: Option<(usize, Band)>,
        shape: Shape,
        (number, phase): (usize, Phase),
    ) -> Self {
        let Setup { traversal, kernel, widths, chain, def_use, locals, hoists, cx, cut } = *setup;
        let Shared { program, homes, written, precision, hints, .. } = cx;
        let mut code = Code::new(band.map_or(0, |(number, _)| number));
        let (thread, lane) = (code.fresh(Class::U32), code.fresh(Class::U32));
        let row = RowState::new(&mut code, traversal.instrs.len());
        Self {
            program,
            homes,
            precision,
            hints,
            table,
            traversal,
            code,
            kernel,
            number,
            band,
            cut,
            phase,
            piece: None,
            shape,
            widths: widths.to_vec(),
            layouts: vec![Layout::new(chain.clone(), shape.lanes)],
            written,
            def_use,
            locals,
            thread,
            lane,
            lane_elements: HashMap::new(),
            bounds: HashMap::new(),
            bases: HashMap::new(),
            entries: HashMap::new(),
            hoists,
            hoisted: 0,
            first_copies: HashMap::new(),
            row,
            edge: EdgeState::default(),
            accumulators: vec![],
            memory: SharedMemory::default(),
            tile: TileState::default(),
        }
    }
}

/// How threads share the rows of a traversal whose widths make this chain. `long`: a row reads values of any length.
fn shape(traversal: &Traversal, chain: &Chain, long: bool, mean_edges: Option<f64>) -> Shape {
    if traversal.rows == Rows::Once {
        let lanes = if long { BLOCK_BITS } else { Layout::lanes_for(chain, BLOCK_BITS) };
        let lanes = if lanes > WARP_BITS { BLOCK_BITS } else { WARP_BITS };
        // Other warps of the block have nothing to do.
        return Shape { lanes, teams: 0, unroll: 1, block: lanes };
    }
    let lanes = Layout::lanes_for(chain, WARP_BITS).max(totals::least_lanes(traversal));
    if !traversal.rows.has_edges() {
        return Shape { lanes, teams: 0, unroll: 1, block: BLOCK_BITS };
    }
    // Each team should have several edges.
    let room = WARP_BITS - lanes;
    let teams = match mean_edges {
        None => room,
        Some(mean) => (mean / 2.0).max(1.0).log2().floor().min(f64::from(room)) as u32,
    };
    let per_lane = chain.widest().div_ceil(1 << lanes);
    let ahead = mean_edges.map_or(4.0, |mean| mean / f64::from(1u32 << teams));
    let products = |op: &KernelOp| matches!(op, KernelOp::MatMul(..) | KernelOp::MatMulT(..) | KernelOp::OuterAll(..));
    let unroll = match ahead {
        // Products of edges take all registers.
        _ if traversal.instrs.iter().any(|i| i.level == Level::Edge && products(&i.op)) => 1,
        x if x >= 6.0 && per_lane <= 8 => 4,
        x if x >= 2.0 && per_lane <= 16 => 2,
        _ => 1,
    };
    Shape { lanes, teams, unroll, block: BLOCK_BITS }
}

impl Emit<'_> {
    fn unsupported<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Unsupported { kernel: self.kernel, what: what.into() })
    }

    /// The instruction that makes what an operand reads, if this traversal does.
    fn producer(&self, operand: Operand) -> Option<usize> {
        self.def_use.producer(operand)
    }

    fn kernel(mut self) -> Result<(Body, KernelInfo)> {
        let rounds = self.def_use.passes();
        let wanted = self.wanted(rounds);
        self.begin();
        let (next, done) = (self.code.label(), self.code.label());
        if self.shape.block < BLOCK_BITS {
            let other = self.code.ge(self.thread, 1u32 << self.shape.block);
            self.code.return_if(other);
        }
        let all = self.traversal.rows.clone();
        let rows = self.entry32(match (self.band, self.cut, self.phase) {
            (None, ..) => Slot::Rows(all.clone()),
            (_, Some(cut), Phase::Pass(_)) => Slot::NumPieces(all.clone(), cut),
            (Some((_, band)), ..) => Slot::BandRows(all.clone(), band),
        });
        if self.cut.is_some() {
            self.begin_totals()?;
        }
        let row_bits = self.shape.row();
        let once = self.traversal.rows == Rows::Once;
        let per_block = 1usize << (self.shape.block - row_bits);
        // The first row of this thread's warp decides whether the warp goes on.
        let (base, stride) = (self.code.fresh(Class::U32), self.code.fresh(Class::U32));
        let own = self.code.shr(self.thread, row_bits);
        if !once {
            let mut block = Reg::BLOCK;
            let blocks = self.entry32(match self.band {
                None => Slot::Blocks(self.number),
                Some((band, _)) => Slot::BandBlocks(self.number, band),
            });
            // The blocks of earlier bands come first.
            for number in 0..self.band.map_or(0, |(number, _)| number) {
                let before = self.entry32(Slot::BandBlocks(self.number, number));
                block = self.code.sub(block, before);
            }
            self.code.set(base, Opcode::Mul(Type::U32), (block, per_block));
            let in_warp = WARP_BITS.saturating_sub(row_bits);
            // Lanes of a warp agree; where a block shares a row, all its threads do.
            let warp_first = self.code.and(own, isa::Operand::Mask(!((1u32 << in_warp) - 1)));
            let within = self.code.sub(own, warp_first);
            self.code.increase(base, warp_first);
            self.code.set(stride, Opcode::Mul(Type::U32), (blocks, per_block));
            self.code.place(next);
            let end = self.code.ge(base, rows);
            self.code.jump_if(end, done);
            self.code.set(self.row.number, Opcode::Add(Type::U32), (base, within));
            if in_warp > 0 {
                let valid = self.code.lt(self.row.number, rows);
                // A lane without a row takes the warp's first row, which no other block writes.
                self.code.set(self.row.number, Opcode::Selp(Type::U32), (self.row.number, base, valid));
                self.row.valid = Some(valid);
            }
            self.row_of_band(&all);
        } else {
            self.code.assign(self.row.number, 0);
        }
        self.vertex_of_row();
        for (number, round) in rounds.iter().enumerate() {
            for &index in round.rows.iter().filter(|&&index| wanted[index]) {
                self.row_instr(index)?;
            }
            match self.phase {
                _ if round.edges.is_empty() => {}
                Phase::Pass(pass) if number > pass => {}
                Phase::Pass(pass) if number < pass => self.join(number, &round.edges, &wanted)?,
                Phase::Joined => self.join(number, &round.edges, &wanted)?,
                Phase::Rows | Phase::Pass(_) => self.edge_pass(number, &round.edges)?,
            }
        }
        let deferred = std::mem::take(&mut self.row.deferred);
        if self.shape.blockwide() && !deferred.is_empty() {
            // Other warps may not have read yet what these take the place of.
            self.code.block_sync();
        }
        for (buffer, held) in deferred {
            let row = self.row.number;
            self.store(buffer, row, &held, self.row.valid);
        }
        if !once {
            self.code.increase(base, stride);
            self.code.jump(next);
            self.code.place(done);
            if !self.hoists {
                // Registers that the loop defines may be undefined after it, since it may have no iteration.
                self.entries.clear();
                self.bases.clear();
            }
        }
        let totals = self.write_totals(once)?;
        self.finish(per_block, once, totals)
    }

    /// The lanes and the rows of this thread.
    fn begin(&mut self) {
        let (thread, lane, lanes) = (self.thread, self.lane, self.shape.lanes);
        self.code.first(|code| {
            code.assign(thread, Special::TidX);
            code.set(lane, Opcode::And(Type::B32), (thread, (1u32 << lanes) - 1));
        });
    }

    fn finish(self, per_block: usize, once: bool, totals: Vec<Total>) -> Result<(Body, KernelInfo)> {
        let tile_bytes = self.tile_bytes();
        let Self { code, traversal, number, band, cut, phase, shape, memory, .. } = self;
        let (regions, shared) = memory.regions(shape, tile_bytes);
        let most = if totals.is_empty() { MOST_BLOCKS } else { MOST_PARTS };
        let blocks = match (once, band) {
            (true, _) => Blocks::One,
            (false, Some((_, band))) => {
                let share = match (phase, cut) {
                    (Phase::Pass(_), Some(cut)) => Share::Pieces(cut),
                    _ => Share::Rows(band, per_block),
                };
                Blocks::Bands { rows: traversal.rows.clone(), shares: vec![share], most, long: None }
            }
            (false, None) => Blocks::Rows { rows: traversal.rows.clone(), per_block, most },
        };
        Ok((code.finish(&regions), KernelInfo { number, blocks, shared, row_memory: 0, totals }))
    }

    /// Writes what holds for the whole kernel: at its beginning, or where registers are too few for that, for the row.
    fn scoped<T>(&mut self, make: impl FnOnce(&mut Code) -> T) -> T {
        if self.hoists {
            return self.code.first(make);
        }
        if self.edge.current.is_none() {
            return make(&mut self.code);
        }
        let before = self.code.before_loop(true);
        let made = make(&mut self.code);
        self.code.before_loop(before);
        made
    }

    /// An entry of the table, of 64 bits.
    fn entry(&mut self, slot: Slot) -> Reg {
        if let Some(&known) = self.entries.get(&slot) {
            return known;
        }
        let offset = self.table.offset(slot.clone());
        let address = self.scoped(|code| code.slot(Class::U64, offset));
        self.entries.insert(slot, address);
        address
    }

    /// A number of the table, of 32 bits.
    fn entry32(&mut self, slot: Slot) -> Reg {
        let key = slot.clone();
        if let Some(&known) = self.entries.get(&key) {
            return known;
        }
        let offset = self.table.offset(slot);
        let number = self.scoped(|code| code.slot(Class::U32, offset));
        self.entries.insert(key, number);
        number
    }

    /// The row at the position of this row among those of the band.
    fn row_of_band(&mut self, rows: &Rows) {
        let (Some((_, band)), Some((of, direction))) = (self.band, self.topology()) else { return };
        self.pieces_of_row();
        let ends = matches!(rows, Rows::Endpoints(..));
        let order = self.entry(Slot::RowOrder { of, direction, ends });
        let first = self.entry32(Slot::BandFirst(rows.clone(), band));
        let at = self.code.add(self.row.number, first);
        let address = self.code.mad_wide(at, 4, order);
        self.code.set_index(self.row.number, address);
    }

    /// The vertex of a row of ends; otherwise the row.
    fn vertex_of_row(&mut self) {
        match self.traversal.rows {
            Rows::Endpoints(graph, direction) => {
                let base = self.entry(Slot::EndVertices(graph, direction));
                let address = self.code.mad_wide(self.row.number, 4, base);
                self.code.set_index(self.row.vertex, address);
            }
            _ => self.code.assign(self.row.vertex, self.row.number),
        }
    }

    /// A layout for values of these widths, and the position of each.
    fn layout(&mut self, widths: &[usize]) -> Option<(usize, Vec<usize>)> {
        let find = |layout: &Layout| -> Option<Vec<usize>> {
            widths.iter().map(|&width| layout.chain.position(width)).collect()
        };
        let known = self.layouts.iter().enumerate().find_map(|(index, layout)| Some((index, find(layout)?)));
        known.or_else(|| {
            let layout = Layout::new(Chain::main(widths.to_vec()), self.shape.lanes);
            let positions = find(&layout)?;
            self.layouts.push(layout);
            Some((self.layouts.len() - 1, positions))
        })
    }

    /// The lane's part of the elements of a width; `None`: 0.
    fn lane_element(&mut self, layout: usize, position: usize) -> Option<Reg> {
        if let Some(&known) = self.lane_elements.get(&(layout, position)) {
            return known;
        }
        let parts = self.layouts[layout].lane_parts(position);
        let (lane, lanes) = (self.lane, self.shape.lanes);
        let made = self.code.first(|code| {
            parts.into_iter().fold(None, |sum: Option<Reg>, part| {
                let mut digit = lane;
                if part.shift > 0 {
                    digit = code.shr(digit, part.shift);
                }
                if part.shift + part.mask.count_ones() < lanes {
                    digit = code.and(digit, part.mask);
                }
                Some(match sum {
                    None if part.stride == 1 => digit,
                    None => code.mul(digit, part.stride),
                    Some(sum) => code.mad(digit, part.stride, sum),
                })
            })
        });
        self.lane_elements.insert((layout, position), made);
        made
    }

    /// Does the element of a register exist? `None`: always.
    fn exists(&mut self, bounds: &[Bound]) -> Option<Reg> {
        let mut all = None;
        for &bound in bounds {
            let known = self.bounds.get(&bound).copied();
            let holds = known.unwrap_or_else(|| {
                let lane = self.lane;
                let holds = self.code.first(|code| {
                    let digit = code.shr(lane, bound.shift);
                    let digit = code.and(digit, bound.mask);
                    let digit = code.mad(digit, bound.step, bound.at);
                    code.lt(digit, bound.quotient)
                });
                self.bounds.insert(bound, holds);
                holds
            });
            all = self.code.first(|code| code.both(all, Some(holds)));
        }
        all
    }

    /// Is this lane the one of those with the same element that stores it? With `row`, also of the teams of the row.
    fn stores(&mut self, layout: usize, position: usize, row: bool) -> Option<Reg> {
        let teams = if row { ((1u32 << self.shape.teams) - 1) << self.shape.lanes } else { 0 };
        let mask = self.layouts[layout].replicas(position) | teams;
        if let Some(&known) = self.first_copies.get(&(mask, row)) {
            return known;
        }
        let thread = self.thread;
        let made = (mask > 0).then(|| {
            self.code.first(|code| {
                let copy = code.and(thread, mask);
                code.eq(copy, 0)
            })
        });
        self.first_copies.insert((mask, row), made);
        made
    }
}
