//! Updates of parameters and states that were not computed in their place.

use hgnnc_ir::Space;
use hgnnc_ir::dataflow::OutputKind;
use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{Contents, Output, Program, Source};

use crate::Slot;
use crate::code::Code;
use crate::isa::{Body, Class, Reg, Regions, Special, StateSpace, Val};
use crate::table::Table;
use crate::{Blocks, KernelInfo, THREADS, Unsupported};

/// Does an update need a copy?
pub(crate) fn is_needed(program: &Program, output: &Output) -> bool {
    let Some(target) = target(output) else { return false };
    match output.source {
        Source::Buffer(buffer) => program.buffer(program.home(buffer)).contents != target,
        Source::Const(_) | Source::Count(_) | Source::Local(_) => true,
    }
}

/// The parameter or optimizer state that an output updates; `None`: the output is a result.
fn target(output: &Output) -> Option<Contents> {
    match output.kind {
        OutputKind::Result(_) => None,
        OutputKind::UpdateParam(param) => Some(Contents::Param(param)),
        OutputKind::UpdateState(param, slot) => Some(Contents::State(param, slot)),
    }
}

/// Writes the kernel `number` that copies an update, of the distinct ends of a graph to the rows of their vertices.
pub(crate) fn emit(
    program: &Program,
    output: &Output,
    number: usize,
    table: &mut Table,
) -> Result<(Body, KernelInfo), Unsupported> {
    let unsupported = |what: &str| Unsupported { kernel: number, what: what.to_owned() };
    let to = target(output).ok_or_else(|| unsupported("a copy of a result"))?;
    if let Source::Buffer(buffer) = output.source
        && matches!(program.buffer(program.home(buffer)).contents, Contents::Param(_) | Contents::State(..))
    {
        return Err(unsupported("a parameter that becomes another one"));
    }
    let mut code = Code::new(0);
    let mut entry = |code: &mut Code, class: Class, slot: Slot| {
        let offset = table.offset(slot);
        code.slot(class, offset)
    };
    let width = Width::of(&output.ty.dims);
    let target = entry(&mut code, Class::U64, Slot::Stored(to));
    let rows = entry(&mut code, Class::U32, Slot::Count(output.ty.space));
    let columns = entry(&mut code, Class::U32, Slot::Elements(width.clone()));
    let all = code.mul(rows, columns);
    let thread = code.mov(Special::TidX);
    let element = code.mad(Reg::BLOCK, THREADS, thread);
    let beyond = code.ge(element, all);
    code.return_if(beyond);
    let value: Val = match output.source {
        Source::Const(number) => Val::Imm(number as f32),
        Source::Count(space) => entry(&mut code, Class::F32, Slot::CountF32(space)).into(),
        Source::Buffer(buffer) => {
            let base = entry(&mut code, Class::U64, Slot::Buffer(buffer));
            let at = code.mad_wide(element, 4, base);
            code.load(StateSpace::Global, at).into()
        }
        Source::Local(_) => return Err(unsupported("a local as an output")),
    };
    let mut to = element;
    if let Space::Endpoints(graph, direction) = output.ty.space {
        let vertices = entry(&mut code, Class::U64, Slot::EndVertices(graph, direction));
        let (row, column) = (code.div(element, columns), code.rem(element, columns));
        let at = code.mad_wide(row, 4, vertices);
        let vertex = code.load_index(at);
        to = code.mad(vertex, columns, column);
    }
    let at = code.mad_wide(to, 4, target);
    code.store(None, StateSpace::Global, at, value);
    let blocks = Blocks::Copy { space: output.ty.space, width };
    Ok((code.finish(&Regions::default()), KernelInfo { number, blocks, shared: 0, row_memory: 0, totals: vec![] }))
}
