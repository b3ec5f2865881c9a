//! Parses files of PTX and lists their kernels: parameters, shared memory, registers declared, instructions.

use hgnnc_ptx_interp::Module;

fn main() {
    let mut failed = false;
    for path in std::env::args().skip(1) {
        let parsed = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        match parsed.and_then(|text| Module::parse(&text).map_err(|error| error.to_string())) {
            Ok(module) => {
                println!("{path}: {}, {} kernels", module.target(), module.kernels().len());
                for kernel in module.kernels() {
                    let registers: Vec<_> =
                        kernel.registers.iter().map(|(ty, count)| format!("{count} {}", ty.name())).collect();
                    println!(
                        "  {}: {} instructions, {} bytes of parameters, {} of shared memory, registers: {}",
                        kernel.name,
                        kernel.num_instructions(),
                        kernel.params_bytes,
                        kernel.static_shared,
                        registers.join(", ")
                    );
                }
            }
            Err(error) => {
                eprintln!("{path}: {error}");
                failed = true;
            }
        }
    }
    std::process::exit(i32::from(failed));
}
