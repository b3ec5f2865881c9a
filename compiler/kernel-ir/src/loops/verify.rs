//! The rules of loops.

use std::fmt;

use hgnnc_ir::ops::BinaryOp;
use hgnnc_ir::violation::{Violation, lines};
use hgnnc_ir::width::Width;
use rustc_hash::{FxHashMap, FxHashSet};

use super::function::{Row, Source};
use super::{Access, Call, CallResult, Function, IndexArray, Loop, Nest, Program, Step, access, producers};
use crate::kernel::{self, Body, Buffer, Dest, Instr, KernelOp, Level, Operand, Traversal, verify as kernels};

/// Loops that obey their rules: what back ends take.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct VerifiedLoops(Program);

impl VerifiedLoops {
    /// Takes a program, which debug builds verify.
    ///
    /// # Panics
    /// In debug builds, if a rule is broken: an internal error with the rules and the text.
    pub fn new(program: Program) -> Self {
        if cfg!(debug_assertions)
            && let Err(broken) = verify(&program)
        {
            panic!("internal error: loops break their rules:\n{}\n{}", lines(&broken), super::print(&program));
        }
        Self(program)
    }
}

impl std::ops::Deref for VerifiedLoops {
    type Target = Program;
    fn deref(&self) -> &Program {
        &self.0
    }
}

/// The location of a violation in a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum Place {
    Kernels(kernels::Place),
    /// Number of the kernel, and of the loop in its text.
    Loop(usize, usize),
    Function(usize),
    /// Number of the function, and of the value.
    Value(usize, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Kernels(place) => write!(f, "{place}"),
            Place::Loop(kernel, number) => write!(f, "kernel k{kernel}, loop {number}"),
            Place::Function(number) => write!(f, "f{number}"),
            Place::Value(number, value) => write!(f, "f{number}, v{value}"),
        }
    }
}

/// Checks the loops of a program:
///
/// - the kernels satisfy their own verifier, and each traversal has a nest;
/// - functions satisfy [`Function::verify`];
/// - a loop has instructions of its level; without tiles it has one step or calls only, and deferred instructions, which
///   copy locals to buffers, run without tiles;
/// - over blocks, each instruction runs once, after what it reads, and in the same group; a reduction over edges is
///   complete after its loop; a result that has the memory of a value comes after the reads of that value;
/// - over split rows, reductions and instructions of rows run once, after what they read; a reduction is complete after
///   its pass, and other edge values live within a pass;
/// - a call computes its instructions, from their operands, at the rows that these read; values that others read leave
///   it; and it overwrites only arrays that may change.
///
/// # Errors
/// All violations.
pub fn verify(program: &Program) -> Result<(), Vec<Violation<Place>>> {
    if let Err(broken) = kernel::verify(&program.kernels) {
        let of = |Violation { place, message }| Violation { place: Place::Kernels(place), message };
        return Err(broken.into_iter().map(of).collect());
    }
    let mut violations = vec![];
    for (number, function) in program.functions.iter().enumerate() {
        violations.extend(function.violations().into_iter().map(|(value, rule)| Violation {
            place: value.map_or(Place::Function(number), |value| Place::Value(number, value)),
            message: rule.into(),
        }));
    }
    // Calls of broken functions cannot be checked.
    let functions = if violations.is_empty() { &program.functions[..] } else { &[] };
    let homes = program.kernels.homes();
    let unpaired = |number: usize| Violation {
        place: Place::Kernels(kernels::Place::Kernel(number)),
        message: "traversals have nests, and other kernels have none".into(),
    };
    if program.nests.len() > program.kernels.kernels().count() {
        violations.push(unpaired(program.nests.len() - 1));
    }
    for (number, kernel) in program.kernels.kernels().enumerate() {
        match (&kernel.body, program.nests.get(number)) {
            (Body::Traversal(traversal), Some(Some(nest))) => {
                let made_by = producers(&traversal.instrs);
                let mut readers = vec![vec![]; made_by.len()];
                for (reader, made_by) in made_by.iter().enumerate() {
                    made_by.iter().flatten().for_each(|made: &usize| readers[*made].push(reader));
                }
                let mut checker = Checker {
                    program: &program.kernels,
                    homes: &homes,
                    functions,
                    traversal,
                    nest,
                    made_by,
                    readers,
                    widths: kernel::Program::local_widths(traversal),
                    kernel: number,
                    violations: vec![],
                };
                checker.nest();
                violations.append(&mut checker.violations);
            }
            (Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_), Some(None)) => {}
            _ => violations.push(unpaired(number)),
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

/// Checks the nest of one traversal.
struct Checker<'a> {
    program: &'a kernel::Program,
    /// Owners of the memory of buffers.
    homes: &'a [Buffer],
    functions: &'a [Function],
    traversal: &'a Traversal,
    nest: &'a Nest,
    /// Producers of the operands of each instruction.
    made_by: Vec<Vec<Option<usize>>>,
    /// Instructions that read the result of each instruction.
    readers: Vec<Vec<usize>>,
    /// Widths of the locals.
    widths: Vec<Width>,
    kernel: usize,
    violations: Vec<Violation<Place>>,
}

impl Checker<'_> {
    fn instrs(&self) -> &[Instr] {
        &self.traversal.instrs
    }

    fn report(&mut self, number: usize, message: impl Into<String>) {
        self.violations.push(Violation { place: Place::Loop(self.kernel, number), message: message.into() });
    }

    fn report_instr(&mut self, instr: usize, message: impl Into<String>) {
        let place = Place::Kernels(kernels::Place::Instr(self.kernel, instr));
        self.violations.push(Violation { place, message: message.into() });
    }

    fn nest(&mut self) {
        let nest = self.nest;
        for index in nest.first_deferred..self.instrs().len() {
            let instr = &self.instrs()[index];
            let copies = matches!(instr.op, KernelOp::Copy(Operand { source: kernel::Source::Local(_), .. }))
                && instr.level == Level::Row
                && matches!(instr.dest, Dest::Buffer(_));
            if !copies {
                self.report_instr(index, "a deferred instruction copies a local of a row to a buffer");
            }
        }
        let mut number = 0;
        for looped in nest.groups.iter().flatten() {
            self.looped(number, looped, None);
            number += 1;
        }
        for pass in &nest.passes {
            for (loops, level) in [(&pass.rows, Level::Row), (&pass.edges, Level::Edge)] {
                let members: FxHashSet<usize> = loops.iter().flat_map(Loop::instrs).collect();
                for looped in loops {
                    if looped.level != level {
                        self.report(number, "a pass has loops over rows, and then loops over edges");
                    }
                    self.looped(number, looped, Some(&members));
                    number += 1;
                }
            }
        }
        // The order of instructions that do not exist cannot be checked.
        if self.violations.is_empty() {
            self.blocks();
            self.passes();
        }
    }

    /// The order of instructions over blocks.
    fn blocks(&mut self) {
        let (nest, overwrites) = (self.nest, self.overwrites());
        let mut seen = FxHashSet::default();
        let mut number = 0;
        for group in &nest.groups {
            let mut here = FxHashSet::default();
            for looped in group {
                for instr in looped.instrs() {
                    if !seen.insert(instr) {
                        self.report(number, format!("i{instr} runs twice"));
                    }
                    for read in self.reads(instr) {
                        if !here.contains(&read) {
                            self.report(number, format!("i{instr} reads i{read} before it is computed"));
                        } else if self.instrs()[read].op.reduces_edges() && looped.instrs().any(|i| i == read) {
                            self.report(
                                number,
                                format!("i{instr} reads the reduction i{read} in the loop that computes it"),
                            );
                        }
                    }
                    for &(writer, reader) in &overwrites {
                        if reader == instr && seen.contains(&writer)
                            || writer == instr && seen.contains(&reader) && !here.contains(&reader)
                        {
                            self.report(number, format!("i{writer} overwrites what i{reader} reads"));
                        }
                    }
                    here.insert(instr);
                }
                number += 1;
            }
        }
        // Without groups, all rows go through the passes.
        let by_blocks = !nest.groups.is_empty() || nest.passes.is_empty();
        self.missing(by_blocks, &seen, "never runs");
    }

    /// The order of instructions over split rows.
    fn passes(&mut self) {
        let nest = self.nest;
        // Where all rows run on their own, the back end keeps old values in registers.
        let overwrites = if nest.groups.is_empty() { vec![] } else { self.overwrites() };
        let (mut complete, mut seen) = (FxHashSet::default(), FxHashSet::default());
        let mut number = nest.groups.iter().map(Vec::len).sum();
        for pass in &nest.passes {
            let mut here: FxHashSet<usize> = FxHashSet::default();
            let mut reduced = vec![];
            for looped in pass.rows.iter().chain(&pass.edges) {
                for instr in looped.instrs() {
                    for read in self.reads(instr) {
                        if !complete.contains(&read) && !here.contains(&read) {
                            self.report(number, format!("i{instr} reads i{read}, which this pass has not computed"));
                        }
                    }
                    for &(writer, reader) in &overwrites {
                        if reader == instr && seen.contains(&writer) {
                            self.report(number, format!("i{writer} overwrites what i{reader} reads"));
                        }
                    }
                    let op = &self.instrs()[instr].op;
                    let again = looped.level == Level::Edge && !op.reduces_edges() && !op.is_total();
                    if !seen.insert(instr) && !again {
                        self.report(number, format!("i{instr} runs twice for split rows"));
                    }
                    match (self.instrs()[instr].op.reduces_edges(), looped.level) {
                        (true, _) => reduced.push(instr),
                        (false, Level::Row) => drop(complete.insert(instr)),
                        (false, Level::Edge) => drop(here.insert(instr)),
                    }
                }
                number += 1;
            }
            complete.extend(reduced);
        }
        self.missing(!nest.passes.is_empty(), &seen, "never runs for split rows");
    }

    fn missing(&mut self, all: bool, seen: &FxHashSet<usize>, message: &str) {
        for instr in (0..self.instrs().len()).filter(|instr| all && !seen.contains(instr)) {
            self.report_instr(instr, message);
        }
    }

    /// The instructions whose results an instruction reads.
    fn reads(&self, instr: usize) -> Vec<usize> {
        self.made_by[instr].iter().flatten().copied().collect()
    }

    /// Instructions whose results have the memory of values that others read, with these readers. All reads come first;
    /// they are in the same group, because groups run in any order.
    fn overwrites(&self) -> Vec<(usize, usize)> {
        let mut writers: FxHashMap<Buffer, Vec<usize>> = FxHashMap::default();
        for (writer, instr) in self.instrs().iter().enumerate() {
            if let Dest::Buffer(new) = instr.dest {
                writers.entry(self.homes[new.index()]).or_default().push(writer);
            }
        }
        let mut pairs = vec![];
        for (reader, instr) in self.instrs().iter().enumerate() {
            for (operand, made_by) in instr.op.operands().into_iter().zip(&self.made_by[reader]) {
                let (kernel::Source::Buffer(old), None) = (operand.source, made_by) else { continue };
                let writers = writers.get(&self.homes[old.index()]).into_iter().flatten();
                pairs.extend(writers.filter(|&&writer| writer != reader).map(|&writer| (writer, reader)));
            }
        }
        pairs
    }

    /// `pass`: the instructions of the pass that the loop belongs to. Other passes rematerialize its edge values.
    fn looped(&mut self, number: usize, looped: &Loop, pass: Option<&FxHashSet<usize>>) {
        for instr in looped.instrs() {
            match self.instrs().get(instr) {
                None => return self.report(number, format!("there is no i{instr}")),
                Some(found) if found.level != looped.level => {
                    self.report(number, format!("i{instr} runs at another level"));
                }
                Some(_) if looped.tile.is_some() && instr >= self.nest.first_deferred => {
                    self.report(number, format!("i{instr} is deferred, and runs tile by tile"));
                }
                Some(_) => {}
            }
        }
        if looped.steps.is_empty() {
            self.report(number, "a loop has a step");
        }
        let is_code = looped.steps.iter().all(|step| matches!(step, Step::Call(_)));
        match looped.tile {
            Some(0) => self.report(number, "a tile has a row or an edge"),
            None if looped.steps.len() > 1 && !is_code => {
                self.report(number, "the steps of a loop without tiles are calls");
            }
            Some(_) | None => {}
        }
        for step in &looped.steps {
            if let Step::Call(call) = step
                && let Err(rule) = self.call(looped.level, call, pass)
            {
                self.report(number, format!("f{}: {rule}", call.function));
            }
        }
    }

    /// The first rule that a call breaks.
    fn call(&self, level: Level, call: &Call, pass: Option<&FxHashSet<usize>>) -> Result<(), String> {
        let Call { function, instrs, arrays, indices, results, replaced } = call;
        let Some(function) = self.functions.get(*function) else { return Err("there is no such function".into()) };
        let takes = (function.instrs.len(), function.arrays.len(), function.num_indices, function.num_results);
        if takes != (instrs.len(), arrays.len(), indices.len(), results.len()) {
            return Err("it takes other arguments".into());
        }
        for (at, (&operand, array)) in arrays.iter().zip(&function.arrays).enumerate() {
            let width = self.program.operand_width(&self.traversal.rows, &self.widths, operand);
            if width.and_then(|width| width.as_fixed()) != Some(array.width) {
                return Err(format!("a{at} has another width"));
            }
        }
        for (at, (&instr, of)) in instrs.iter().zip(&function.instrs).enumerate() {
            let made = &self.instrs()[instr];
            let op = squared(&made.op);
            let form = of.op.map(|_| (), |&width| Some(width));
            if op.map(|_| (), Width::as_fixed) != form || made.width.as_fixed() != Some(of.width) {
                return Err(format!("v{at} does not compute i{instr}"));
            }
            let read = made.op.operands();
            for (operand, source) in op.operands().into_iter().zip(of.op.operands()) {
                let position = read.iter().position(|read| *read == operand).expect("squares have the same operand");
                let made_by = self.made_by[instr][position];
                if !self.is_read(level, call, function, (operand, made_by), source) {
                    return Err(format!("v{at} does not read the operands of i{instr}"));
                }
            }
            let result = match (&made.op, instr) {
                (KernelOp::Segment(..), _) => CallResult::Owners(instr),
                (op, _) if op.is_total() => CallResult::Total(instr),
                _ => CallResult::Tile(instr),
            };
            match of.result {
                Some(number) if results[number] != result => return Err(format!("r{number} is not that of i{instr}")),
                None if self.leaves(call, instr, pass) => return Err(format!("i{instr} is read, and is no result")),
                Some(_) | None => {}
            }
        }
        let changes = |&(array, result): &(usize, usize)| {
            function.arrays.get(array).is_some_and(|array| array.changes) && result < results.len()
        };
        if !replaced.iter().all(changes) {
            return Err("it overwrites an array that must not change".into());
        }
        self.overwritten(call)
    }

    /// Does a function read an operand, which another instruction may make, where the instruction reads it?
    fn is_read(
        &self,
        level: Level,
        call: &Call,
        function: &Function,
        (operand, made_by): (Operand, Option<usize>),
        source: Source,
    ) -> bool {
        let access = access(self.program, &self.traversal.rows, level, operand, made_by.is_some());
        match source {
            Source::Value(value) => access == Access::Each && made_by == Some(call.instrs[value]),
            Source::Label(index) => match (operand.source, call.indices[index as usize]) {
                (kernel::Source::Buffer(buffer), IndexArray::Labels(input)) => {
                    self.program.buffer(buffer).contents == kernel::Contents::Input(input)
                }
                _ => false,
            },
            Source::Array(array) => {
                let rows = match function.arrays[array].row {
                    Row::Each => Access::Each,
                    Row::Same => Access::Same,
                    Row::Owner => Access::Owner,
                    Row::Picked(index) => match call.indices[index as usize] {
                        IndexArray::Picked(access) => access,
                        IndexArray::Labels(_) => return false,
                    },
                };
                call.arrays[array] == operand && rows == access
            }
        }
    }

    /// Is the value of an instruction stored, or read by instructions outside of the call?
    fn leaves(&self, call: &Call, instr: usize, pass: Option<&FxHashSet<usize>>) -> bool {
        let made = &self.instrs()[instr];
        let is_edge_value = made.level == Level::Edge && !made.op.reduces_edges();
        let here = |reader: &usize| !is_edge_value || pass.is_none_or(|pass| pass.contains(reader));
        let mut readers = self.readers[instr].iter();
        matches!(made.dest, Dest::Buffer(_)) || readers.any(|reader| !call.instrs.contains(reader) && here(reader))
    }

    /// Arrays whose memory a result takes are named.
    fn overwritten(&self, call: &Call) -> Result<(), String> {
        for (result, of) in call.results.iter().enumerate() {
            let CallResult::Tile(instr) = *of else { continue };
            let Dest::Buffer(new) = self.instrs()[instr].dest else { continue };
            for (array, operand) in call.arrays.iter().enumerate() {
                let kernel::Source::Buffer(old) = operand.source else { continue };
                let is_old = old != new && self.homes[old.index()] == self.homes[new.index()];
                if is_old && !call.replaced.contains(&(array, result)) {
                    return Err(format!("r{result} has the memory of a{array}"));
                }
            }
        }
        Ok(())
    }
}

/// The operation that a function executes for an instruction: squares are products.
pub fn squared(op: &KernelOp) -> KernelOp {
    match *op {
        KernelOp::Binary(BinaryOp::Pow, a, b) if b.source == kernel::Source::Const(2.0) => {
            KernelOp::Binary(BinaryOp::Mul, a, a)
        }
        _ => op.clone(),
    }
}
