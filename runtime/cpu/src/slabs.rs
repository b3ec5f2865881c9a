//! The memory of an engine: slabs, each with a name.
//!
//! Tasks of a run read and write ranges of all slabs without locks ([`PlannedSlabs`]). Safe code gets them by
//! [`EngineSlabs::planned`] for a plan that `plan::check` accepts; a row block gets its own scratch by [`scratch`].

// Ranges of slabs are shared by tasks; see `hgnnc_data::buffer`.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Index, IndexMut, Range};

use hgnnc_data::buffer::{BufferRange, HostBuffer, PlannedSlabs, SharedBuffer};

/// The name of a slab. Programs, parameters, states and inputs are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slab {
    /// Values of a run, shared by programs.
    Run,
    /// Partial results of tasks, shared by programs.
    Partials,
    /// Step and epoch counters.
    Counters,
    /// Values of a program that depend on no parameter, state, dropout mask or counter.
    Fixed(usize),
    /// Constants of a program.
    Constants(usize),
    Param(usize),
    State(usize),
    Input(usize),
}

impl fmt::Display for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slab::Run => write!(f, "run"),
            Slab::Partials => write!(f, "partials"),
            Slab::Counters => write!(f, "counters"),
            Slab::Fixed(program) => write!(f, "fixed {program}"),
            Slab::Constants(program) => write!(f, "constants {program}"),
            Slab::Param(param) => write!(f, "parameter {param}"),
            Slab::State(state) => write!(f, "state {state}"),
            Slab::Input(input) => write!(f, "input {input}"),
        }
    }
}

/// The order of the slabs of an engine. A [`BufferRange`] has the position of its slab in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they count")]
pub struct SlabLayout {
    pub programs: usize,
    /// Parameters of the programs, with stacks of them.
    pub params: usize,
    pub states: usize,
}

/// Slabs before those of programs.
const SHARED: usize = 3;
/// Slabs of a program.
const OF_PROGRAM: usize = 2;

impl SlabLayout {
    /// Position of a slab.
    pub fn index(self, slab: Slab) -> u32 {
        let params = SHARED + OF_PROGRAM * self.programs;
        let index = match slab {
            Slab::Run => 0,
            Slab::Partials => 1,
            Slab::Counters => 2,
            Slab::Fixed(program) => SHARED + OF_PROGRAM * program,
            Slab::Constants(program) => SHARED + OF_PROGRAM * program + 1,
            Slab::Param(param) => params + param,
            Slab::State(state) => params + self.params + state,
            Slab::Input(input) => params + self.params + self.states + input,
        };
        index as u32
    }

    /// Name of the slab at a position.
    pub fn slab(self, index: u32) -> Slab {
        let index = index as usize;
        let first = |slab: Slab| self.index(slab) as usize;
        match index {
            0 => Slab::Run,
            1 => Slab::Partials,
            2 => Slab::Counters,
            _ if index >= first(Slab::Input(0)) => Slab::Input(index - first(Slab::Input(0))),
            _ if index >= first(Slab::State(0)) => Slab::State(index - first(Slab::State(0))),
            _ if index >= first(Slab::Param(0)) => Slab::Param(index - first(Slab::Param(0))),
            _ => match (index - SHARED) % OF_PROGRAM {
                0 => Slab::Fixed((index - SHARED) / OF_PROGRAM),
                _ => Slab::Constants((index - SHARED) / OF_PROGRAM),
            },
        }
    }

    /// Elements of a slab.
    pub fn range(self, slab: Slab, offset: usize, len: usize) -> BufferRange {
        BufferRange { slab: self.index(slab), offset, len }
    }
}

/// The slabs of an engine.
#[derive(Debug)]
pub(crate) struct EngineSlabs {
    layout: SlabLayout,
    buffers: Vec<HostBuffer>,
}

impl EngineSlabs {
    /// Slabs in the order of their layout. Inputs, the last ones, are added by [`Self::push_input`].
    pub fn new(layout: SlabLayout, buffers: Vec<HostBuffer>) -> Self {
        assert_eq!(buffers.len(), layout.index(Slab::Input(0)) as usize, "one buffer for each slab but inputs");
        Self { layout, buffers }
    }

    pub fn push_input(&mut self, buffer: HostBuffer) {
        self.buffers.push(buffer);
    }

    pub fn layout(&self) -> SlabLayout {
        self.layout
    }

    /// Elements of a slab for reading.
    pub fn read(&self, slab: Slab, range: Range<usize>) -> &[f32] {
        // SAFETY: writes need these slabs mutably, and an `Alias` is accessed only while nothing is borrowed.
        unsafe { self[slab].read(range.start, range.len()) }
    }

    /// Elements of a range of a slab for reading.
    pub fn of(&self, BufferRange { slab, offset, len }: BufferRange) -> &[f32] {
        self.read(self.layout.slab(slab), offset..offset + len)
    }

    /// The slabs, for the steps and the copies of a plan that `plan::check` accepts.
    pub fn planned(&mut self) -> PlannedSlabs<'_> {
        // SAFETY: planning has checked the plan for conflicts, its tasks access what the plan says, and nothing else
        // accesses the slabs, which are borrowed mutably.
        unsafe { PlannedSlabs::new(&self.buffers) }
    }

    /// Elements of an input that other threads may keep, unless [`Slab::Input`] buffers are replaced later.
    pub fn frozen_input(&self, input: usize) -> SharedBuffer {
        // SAFETY: runs never write inputs.
        unsafe { self[Slab::Input(input)].frozen() }
    }
}

impl Index<Slab> for EngineSlabs {
    type Output = HostBuffer;

    fn index(&self, slab: Slab) -> &HostBuffer {
        &self.buffers[self.layout.index(slab) as usize]
    }
}

impl IndexMut<Slab> for EngineSlabs {
    fn index_mut(&mut self, slab: Slab) -> &mut HostBuffer {
        &mut self.buffers[self.layout.index(slab) as usize]
    }
}

/// The local values of a row block, as the only slab: a schedule places them.
pub(crate) fn scratch(locals: &mut HostBuffer) -> PlannedSlabs<'_> {
    // SAFETY: the buffer is borrowed mutably, and belongs to this thread; the schedule gives locals that are live at the
    // same time, and the result of an operation and its operands, disjoint ranges.
    unsafe { PlannedSlabs::new(std::slice::from_ref(locals)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slab_has_a_place_of_its_own_and_a_name() {
        let layout = SlabLayout { programs: 2, params: 3, states: 2 };
        let names: Vec<String> = (0..14).map(|index| layout.slab(index).to_string()).collect();
        let expected = [
            "run",
            "partials",
            "counters",
            "fixed 0",
            "constants 0",
            "fixed 1",
            "constants 1",
            "parameter 0",
            "parameter 1",
            "parameter 2",
            "state 0",
            "state 1",
            "input 0",
            "input 1",
        ];
        assert_eq!(names, expected);
        assert!((0..14).all(|index| layout.index(layout.slab(index)) == index));
    }
}
