//! The level `bounds` as text.

use hgnnc::profile::{label, stores};
use hgnnc_driver::SizeInfo;
use hgnnc_driver::cost::{Bounded, kernels, operations};
use hgnnc_ir::infer::show;
use hgnnc_ir::print::print_op;
use hgnnc_ir::{Dataflow, Stage};
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_machine::Machine;

use hgnnc_report::table::{Table, amount, bytes, digits, time};
use hgnnc_report::text::machine_text;

/// A table for operations and one for kernels, and their totals.
pub fn text(flow: &Dataflow, program: &Program, sizes: &SizeInfo, machine: &Machine) -> String {
    let operations = operations(flow, sizes, machine);
    let kernels = kernels(program, sizes, machine);
    let mut text = format!("bounds of {} on {}", flow.name, machine_text(machine));

    text.push_str("\noperations, each alone: it reads its operands and writes its result\n");
    let mut table = table("operation", "result");
    for operation in &operations {
        let data = flow.value(operation.value);
        let name = format!("{} {}", operation.value, shorten(&print_op(flow, data)));
        table.row(row(name, show(flow, &data.ty), &operation.bound, machine));
    }
    text.push_str(&table.text());

    text.push_str("\nkernels\n");
    let mut table = self::table("kernel", "stores");
    for (kernel, decl) in kernels.iter().zip(program.kernels()) {
        let once = if kernel.bound.once { " (once)" } else { "" };
        let name = format!("k{} {}{once}", kernel.number, label(program, decl));
        table.row(row(name, stores(program, decl), &kernel.bound, machine));
    }
    text.push_str(&table.text());

    text.push_str("\nan epoch by stage: operations alone, and as kernels\n");
    let mut table = Table::new(
        1,
        &["stage", "operations", "FLOPs", "footprint", "predicted", "kernels", "FLOPs", "footprint", "predicted"],
    );
    let epoch = |bounds: Vec<&Bounded>| Total::of(&bounds);
    for stage in Stage::ALL.into_iter().map(Some).chain([None]) {
        let of = |bound: &&Bounded| stage.is_none_or(|stage| bound.stage == stage) && !bound.once;
        let alone = epoch(operations.iter().map(|o| &o.bound).filter(of).collect());
        let fused = epoch(kernels.iter().map(|k| &k.bound).filter(of).collect());
        let mut cells = vec![stage.map_or("epoch", Stage::name).to_string()];
        cells.extend(alone.cells().into_iter().chain(fused.cells()));
        table.row(cells);
    }
    text.push_str(&table.text());
    text
}

fn table(what: &str, result: &str) -> Table {
    Table::new(
        5,
        &[
            what,
            result,
            "stage",
            "phase",
            "kind",
            "FLOPs",
            "footprint",
            "gathered",
            "fits",
            "FLOP/B",
            "bound",
            "predicted",
        ],
    )
}

fn row(name: String, result: String, bound: &Bounded, machine: &Machine) -> Vec<String> {
    let Bounded { stage, phase, kind, work, prediction, .. } = bound;
    vec![
        name,
        result,
        stage.name().into(),
        phase.name().into(),
        kind.name().into(),
        amount(work.flops()),
        bytes(work.footprint()),
        bytes(work.gathered()),
        machine.levels[prediction.level].name.clone(),
        digits(work.intensity()),
        machine.bound_name(prediction.bound).into(),
        time(prediction.seconds()),
    ]
}

fn shorten(text: &str) -> String {
    const MOST: usize = 48;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// Sums over operations or kernels.
#[derive(Clone, Copy, Default)]
struct Total {
    count: usize,
    flops: f64,
    footprint: f64,
    seconds: f64,
}

impl Total {
    fn of(bounds: &[&Bounded]) -> Self {
        bounds.iter().fold(Total::default(), |sum, bound| Total {
            count: sum.count + 1,
            flops: sum.flops + bound.work.flops(),
            footprint: sum.footprint + bound.work.footprint(),
            seconds: sum.seconds + bound.prediction.seconds(),
        })
    }

    fn cells(&self) -> [String; 4] {
        [self.count.to_string(), amount(self.flops), bytes(self.footprint), time(self.seconds)]
    }
}
