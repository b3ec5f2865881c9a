//! Programs with the machine code of their functions.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use hgnnc_executable::Executable;
use hgnnc_executable::cpu::{CpuProgram, CpuPrograms};
use hgnnc_executable::sampler::SamplerCompiler;
use hgnnc_kernel_ir::kernel;
use hgnnc_kernel_ir::loops::{self, Step};
use hgnnc_machine::{CodeMode, SimdLevel};
use hgnnc_schedule::{Options, schedule};

use crate::{Compiler, NativeError};

/// Schedules a program and generates the machine code of its functions.
///
/// Where no code can be generated, the loops call micro-kernels only.
pub fn compile(kernels: &kernel::Program, options: &Options) -> CpuProgram {
    let mut options = options.clone();
    // Products and sums round once where the micro-kernels do so.
    let compiler = Compiler::host(options.simd != SimdLevel::Base).ok();
    if compiler.is_none() {
        options.code = CodeMode::Interpreted;
    }
    let mut refused = HashSet::new();
    loop {
        let loops = schedule(kernels.clone(), &options, &refused);
        let (Some(compiler), false) = (&compiler, loops.functions.is_empty()) else {
            return CpuProgram { loops: Arc::new(loops), code: Arc::default() };
        };
        let functions: Vec<&loops::Function> = loops.functions.iter().collect();
        match compiler.machine_code(&functions) {
            Ok(code) => return CpuProgram { loops: Arc::new(loops), code: Arc::new(code) },
            // Their instructions are executed by micro-kernels in the next iteration.
            Err(failed) => refused.extend(failed.into_iter().map(|function| functions[function].to_string())),
        }
    }
}

/// Generates the programs of an executable for this processor. `of_train` are the sizes that the training program was compiled for,
/// if these are not those of the whole graph.
pub fn compile_executable(executable: &mut Executable, options: &Options, of_train: &Options) {
    let kernels = &executable.kernels;
    // The runtime chooses how many rows these programs have at a time.
    let unsized_options = Options { sizes: None, ..options.clone() };
    executable.cpu = Some(CpuPrograms {
        train: kernels.train.as_ref().map(|train| compile(train, of_train)),
        infer: compile(&kernels.infer, options),
        score: kernels.score.as_ref().map(|score| compile(score, &unsized_options)),
        rank: kernels.rank.each_ref().map(|rank| rank.as_ref().map(|rank| compile(rank, &unsized_options))),
        head: kernels.head.as_ref().map(|head| compile(head, &unsized_options)),
    });
    executable.sampler = executable.batch.as_ref().and_then(|_| sampler(options.code));
}

/// A compiler of samplers for this processor, unless they run without machine code.
pub fn sampler(code: CodeMode) -> Option<Arc<dyn SamplerCompiler>> {
    match code {
        CodeMode::Interpreted => None,
        CodeMode::Auto | CodeMode::Native => Some(Arc::new(Compiler::host(false).ok()?)),
    }
}

/// Text and Cranelift IR of the functions of scheduled programs, each with the numbers of the kernels that call it.
///
/// # Errors
/// A machine for which no code can be generated.
pub fn listing(programs: &[(&str, &loops::Program)], simd: SimdLevel) -> Result<String, NativeError> {
    let compiler = Compiler::host(simd != SimdLevel::Base)?;
    let mut text = String::new();
    for (name, program) in programs {
        for (number, function) in program.functions.iter().enumerate() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "; f{number} of {name}");
            for (kernel, traversal, nest) in program.numbered_nests() {
                let rows = kernel::print::print_rows(&program.kernels, &traversal.rows);
                // Loops over blocks and passes over split rows may call it for the same instructions.
                let calls: BTreeSet<&[usize]> = nest
                    .loops()
                    .flat_map(|looped| &looped.steps)
                    .filter_map(|step| match step {
                        Step::Call(call) if call.function == number => Some(&call.instrs[..]),
                        Step::Call(_) | Step::Instr(_) => None,
                    })
                    .collect();
                for instrs in calls {
                    let _ = writeln!(text, ";   called by k{kernel}, {rows}: instructions {}", numbers(instrs));
                }
            }
            for line in function.to_string().lines() {
                let _ = writeln!(text, "; {line}");
            }
            let _ = writeln!(text, "{}", compiler.function(function)?.display());
        }
    }
    Ok(text)
}

/// Ascending indices as `0 to 3, 5`.
fn numbers(instrs: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = vec![];
    for &instr in instrs {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == instr => *last = instr,
            _ => ranges.push((instr, instr)),
        }
    }
    let show = |&(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first} to {last}"),
    };
    ranges.iter().map(show).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn neighbouring_operations_are_a_range() {
        assert_eq!(super::numbers(&[0, 1, 2, 5, 7, 8]), "0 to 2, 5, 7 to 8");
        assert_eq!(super::numbers(&[]), "");
    }
}
