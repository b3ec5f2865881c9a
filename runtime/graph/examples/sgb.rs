//! Times the semantic graph build of metapaths: `cargo run --release -p hgnnc-graph --example sgb -- DIR [ROUNDS]`.
//!
//! For each metapath that the dataset names: milliseconds of the reachable and of the counted graph, both incidences, with
//! relations at hand (median and least of the rounds). Threads as `RAYON_NUM_THREADS` says.

use std::time::Instant;

use hgnnc_graph::{Dataset, MetapathOptions, SemanticGraphs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: sgb DIR [ROUNDS]")?;
    let rounds: usize = args.next().map_or(Ok(9), |rounds| rounds.parse())?;
    let dataset = Dataset::load(&folder).map_err(|errors| format!("{errors:?}"))?;
    let graphs = SemanticGraphs::new(&dataset);
    println!("{:<8} {:>12} {:>16} {:>18} {:>18}", "path", "pairs", "instances", "reachable, ms", "counted, ms");
    for path in &dataset.metapaths {
        let stats = graphs.stats(&path.steps)?;
        let mut columns = vec![];
        for counted in [false, true] {
            let mut times = vec![];
            for _ in 0..rounds {
                let start = Instant::now();
                let graph =
                    graphs.metapath(&path.name, &path.steps, MetapathOptions { counted, ..Default::default() })?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
                assert_eq!(graph.num_edges() as u64, stats.pairs);
            }
            times.sort_by(f64::total_cmp);
            columns.push(format!("{:.2} ({:.2})", times[rounds / 2], times[0]));
        }
        println!("{:<8} {:>12} {:>16} {:>18} {:>18}", path.name, stats.pairs, stats.instances, columns[0], columns[1]);
    }
    Ok(())
}
