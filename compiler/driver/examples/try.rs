//! Analyzes and lowers files, and says how large the programs are.

fn main() {
    for p in std::env::args().skip(1) {
        let t = std::fs::read_to_string(&p).unwrap();
        let s = std::time::Instant::now();
        let a = hgnnc_driver::analyze(&p, &t);
        print!("{}", hgnnc_diag::render::plain(&a.sources, a.diagnostics.iter()));
        if let Some(m) = &a.model {
            let Ok(l) = hgnnc_driver::lower(m, &Default::default()) else { return };
            println!(
                "{p}: {} values, {} params, joint {} in {:?}",
                m.flow.values.len(),
                m.flow.params.len(),
                l.joint.map_or(0, |j| j.values.len()),
                s.elapsed()
            );
            if std::env::var("DUMP").is_ok() {
                println!("{}", hgnnc_ir::print::print(&l.dataflow));
            }
        }
    }
}
