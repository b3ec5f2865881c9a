//! The level `plan` as text: memory placement and live ranges of values.

use hgnnc_data::Arena;
use hgnnc_driver::{SizeInfo, planned};
use hgnnc_executable::Executable;
use hgnnc_graph::show_bytes;
use hgnnc_ir::infer::show;
use hgnnc_kernel_ir::kernel::place::{Area, END, Slot};
use hgnnc_kernel_ir::kernel::{Buffer, Program};
use hgnnc_report::table::Table;
use hgnnc_train::Arenas;

/// Size of an f32 element in bytes.
const ELEMENT: u64 = 4;

/// Values of the training program, if there is one, and of the evaluation program: one table each, with the peak of
/// live bytes and its position. `train_sizes` are those of a mini-batch if training uses mini-batches.
pub fn text(executable: &Executable, train_sizes: &SizeInfo, sizes: &SizeInfo) -> String {
    let kernels = &executable.kernels;
    let train = kernels.train.iter().map(|program| program_text(program, train_sizes));
    train.chain([program_text(&kernels.infer, sizes)]).collect::<Vec<_>>().join("\n")
}

fn program_text(program: &Program, sizes: &SizeInfo) -> String {
    let memory = planned(program, sizes);
    let mut text = format!("memory of {}\n", program.tables.name);
    // Number of the first kernel of each launch, as in the kernels' text.
    let mut first_kernels = vec![];
    let mut num_kernels = 0;
    for launch in program.prelude.iter().chain(&program.launches) {
        first_kernels.push((num_kernels, launch.kernels.len()));
        num_kernels += launch.kernels.len();
    }
    let steps = Steps(&first_kernels);
    area(&mut text, program, &memory.fixed, &steps, "computed once");
    area(&mut text, program, &memory.run, &steps, "computed by each run");
    let updated = |&at: &usize| program.updated(Buffer::new(at)).is_some();
    let replaced = (0..program.buffers.len()).filter(updated).count();
    if replaced > 0 {
        text.push_str(&format!("\n{replaced} new values of parameters and states take the place of the old ones\n"));
    }
    text
}

/// A table of the values in one memory area.
fn area(text: &mut String, program: &Program, area: &Area, steps: &Steps<'_>, when: &str) {
    if area.slots.is_empty() {
        return;
    }
    let (step, alive) = area.peak();
    text.push_str(&format!(
        "\n{when}: {} values in {}, at most {} at one time (k{})\n",
        area.slots.len(),
        size(area.len),
        size(alive),
        steps.first(step)
    ));
    let mut slots: Vec<&Slot> = area.slots.iter().collect();
    slots.sort_by_key(|slot| (slot.life.start, slot.offset, slot.buffer));
    let mut table =
        Table::new(2, &["value", "type", "bytes", "offset", "first", "last", "at the most", "in the place of"]);
    for slot in slots {
        let decl = program.buffer(slot.buffer);
        let there = slot.life.start <= step && step <= slot.life.end;
        table.row(vec![
            decl.name.clone(),
            show(&program.tables, &decl.ty),
            bytes(slot.life.len).to_string(),
            bytes(slot.offset).to_string(),
            format!("k{}", steps.first(slot.life.start)),
            if slot.life.end == END { "stays".into() } else { format!("k{}", steps.last(slot.life.end)) },
            if there { "*".into() } else { String::new() },
            match (program.overwritten(slot.buffer), decl.extends) {
                (Some(old), _) => program.buffer(old).name.clone(),
                (None, Some(own)) => format!("around {}", program.buffer(own).name),
                (None, None) => String::new(),
            },
        ]);
    }
    text.push_str(&table.text());
}

/// For each launch, the number of its first kernel and the number of its kernels.
struct Steps<'a>(&'a [(usize, usize)]);

impl Steps<'_> {
    fn first(&self, step: usize) -> usize {
        self.0.get(step).map_or(0, |&(first, _)| first)
    }

    fn last(&self, step: usize) -> usize {
        self.0.get(step).map_or(0, |&(first, count)| first + count.saturating_sub(1))
    }
}

fn size(elements: usize) -> String {
    show_bytes(bytes(elements))
}

/// Saturates, since sizes from `--stats` may exceed any memory.
fn bytes(elements: usize) -> u64 {
    ELEMENT.saturating_mul(elements as u64)
}

/// Total memory of values in one line.
pub fn arenas_text(arenas: &Arenas, trained: bool) -> String {
    let train = if trained { format!("training {}, ", show_bytes(arenas.all.bytes())) } else { String::new() };
    format!("arena: {train}inference {}", show_bytes(arenas.infer.bytes()))
}

/// A row for each part of the arenas.
pub fn parts_text(arenas: &Arenas, trained: bool) -> String {
    let heads = ["arena", "bytes", "values of a run", "values that stay", "partial results", "scratch of threads"];
    let mut table = Table::new(1, &heads);
    let mut row = |name: &str, arena: &Arena| {
        let Arena { run, fixed, partials, scratch } = arena;
        let mut cells = vec![name.to_string()];
        cells.extend([&arena.bytes(), run, fixed, partials, scratch].map(u64::to_string));
        table.row(cells);
    };
    if trained {
        row("training", &arenas.all);
    }
    row("inference", &arenas.infer);
    table.text()
}
