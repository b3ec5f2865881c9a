//! The table of a kernel's addresses and sizes: 64-bit numbers in constant memory, filled in when data is bound.
//!
//! So the text of a model is the same for every dataset, launches have no arguments, and an epoch can
//! be captured once and replayed.

use std::collections::HashMap;
use std::fmt;

use hgnnc_executable::gpu::{Slot, Topology};
use hgnnc_ir::width::Width;
use hgnnc_ir::{Direction, Graph, Space};
use hgnnc_kernel_ir::kernel::print::{print_rows, print_width};
use hgnnc_kernel_ir::kernel::{Contents, Program};

use crate::code::Code;
use crate::isa::{Class, Reg};

/// The table of a module.
#[derive(Clone, Debug, Default)]
pub struct Table {
    slots: Vec<Slot>,
    known: HashMap<Slot, usize>,
}

impl Table {
    /// The position of an entry, in bytes.
    pub fn offset(&mut self, slot: Slot) -> usize {
        let next = self.slots.len();
        let index = *self.known.entry(slot.clone()).or_insert(next);
        if index == next {
            self.slots.push(slot);
        }
        8 * index
    }

    /// Loads an entry into a new register.
    pub fn load(&mut self, code: &mut Code, class: Class, slot: Slot) -> Reg {
        let offset = self.offset(slot);
        code.slot(class, offset)
    }

    /// A number of elements: of the text where it is fixed, otherwise an entry.
    pub fn elements(&mut self, code: &mut Code, width: &Width) -> Reg {
        match width.as_fixed() {
            Some(fixed) => code.mov(fixed),
            None => self.load(code, Class::U32, Slot::Elements(width.clone())),
        }
    }

    /// Puts entries behind all others, one after another: the position of the first, in bytes.
    pub fn row(&mut self, slots: impl IntoIterator<Item = Slot>) -> usize {
        let start = self.slots.len();
        self.slots.extend(slots);
        8 * start
    }

    /// The entry at a position in bytes.
    pub fn at(&self, offset: usize) -> Slot {
        self.slots[offset / 8].clone()
    }

    /// All entries, in the order of their offsets.
    pub fn into_slots(self) -> Vec<Slot> {
        self.slots
    }
}

/// An entry, for people.
pub struct Show<'a>(pub &'a Slot, pub &'a Program);

impl fmt::Display for Show<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Show(slot, program) = self;
        let tables = &program.tables;
        let graph = |graph: &Graph| tables.graphs[graph.index()].name.clone();
        let name = |of: &Topology| match of {
            Topology::Graph(of) => graph(of),
            Topology::Pattern(pattern) => pattern.to_string(),
        };
        let side = |direction: &Direction| match direction {
            Direction::In => "in_edges",
            Direction::Out => "out_edges",
        };
        let end = |direction: &Direction| match direction {
            Direction::In => "destinations",
            Direction::Out => "sources",
        };
        let space = |of: &Space| match of {
            Space::Unit => "single rows".to_owned(),
            Space::Vertices(vertex) => tables.vertex_types[vertex.index()].name.clone(),
            Space::Edges(of) => format!("edges of {}", graph(of)),
            Space::Index(extent) => format!("{extent} rows"),
            Space::Endpoints(of, direction) => format!("{} of {}", end(direction), graph(of)),
        };
        match slot {
            Slot::Buffer(buffer) => write!(f, "{}", program.buffer(*buffer).name),
            Slot::Stored(Contents::Param(param)) => write!(f, "{}", tables.params[param.index()].name),
            Slot::Stored(Contents::State(param, slot)) => {
                write!(f, "{}.state{slot}", tables.params[param.index()].name)
            }
            Slot::Stored(contents) => write!(f, "{contents:?}"),
            Slot::FirstEdges { of, direction, ends } => {
                write!(f, "first {} of {}{}", side(direction), name(of), if *ends { ", of its ends" } else { "" })
            }
            Slot::RowOrder { of, direction, .. } => write!(f, "rows by degree, {} of {}", side(direction), name(of)),
            Slot::BandFirst(rows, band) => {
                write!(f, "first row from class {} on: {}", band.from, print_rows(program, rows))
            }
            Slot::BandRows(rows, band) => {
                write!(f, "number of rows from class {} on: {}", band.from, print_rows(program, rows))
            }
            Slot::BandBlocks(kernel, band) => write!(f, "blocks of k{kernel}, band {band}"),
            Slot::NumPieces(rows, cut) => {
                write!(f, "number of pieces of {} edges: {}", cut.edges, print_rows(program, rows))
            }
            Slot::PieceRows(rows, cut) => {
                write!(f, "rows of pieces of {} edges: {}", cut.edges, print_rows(program, rows))
            }
            Slot::FirstPieces(rows, cut) => {
                write!(f, "first pieces of {} edges: {}", cut.edges, print_rows(program, rows))
            }
            Slot::PieceParts(kernel, pass) => write!(f, "results of pieces of k{kernel}, pass {}", pass + 1),
            Slot::Others(of, direction) => write!(f, "other ends of {} of {}", side(direction), name(of)),
            Slot::Positions(of) => write!(f, "positions of out_edges of {}", name(of)),
            Slot::EndVertices(of, direction) => write!(f, "{} of {}", end(direction), graph(of)),
            Slot::EndOf(of, direction) => write!(f, "position among the {} of {}", end(direction), graph(of)),
            Slot::EndOfEdges(of, direction) => {
                write!(f, "position among the {} of {}, of each edge", end(direction), graph(of))
            }
            Slot::Rows(rows) => write!(f, "number of: {}", print_rows(program, rows)),
            Slot::Count(of) => write!(f, "number of {}", space(of)),
            Slot::CountF32(of) => write!(f, "number of {}, f32", space(of)),
            Slot::Elements(width) => match width.as_fixed() {
                Some(width) => write!(f, "the number {width}"),
                None => write!(f, "number of elements: {}", print_width(program, width)),
            },
            Slot::MaskKeys => write!(f, "keys of random masks"),
            Slot::Blocks(kernel) => write!(f, "blocks of k{kernel}"),
            Slot::AllBlocks(kernels) => {
                let names: Vec<String> = kernels.iter().map(|kernel| format!("k{kernel}")).collect();
                write!(f, "blocks of {} together", names.join(", "))
            }
            Slot::Parts(kernel) => write!(f, "parts of the totals of k{kernel}"),
            Slot::FirstPart(kernel, after) => write!(f, "first part of completed rows of k{kernel}, {after}"),
            Slot::PartRows(kernel) => write!(f, "rows of a part of k{kernel}"),
            Slot::RowMemory(kernel) => write!(f, "memory for rows of k{kernel}"),
            Slot::Partials(kernel, total) => write!(f, "partial results of k{kernel}, total {total}"),
        }
    }
}
