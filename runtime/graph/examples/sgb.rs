//! Times the semantic graph build of metapaths: `cargo run --release -p hgnnc-graph --example sgb -- DIR [ROUNDS]`.
//!
//! For each metapath of the dataset: milliseconds for the uncounted and the counted graph, both directions, with the
//! relations' adjacency ready, and for the uncounted graph read from the cache (median and minimum of the rounds). Then
//! all metapaths with one builder that starts from the relations. The number of
//! threads is `RAYON_NUM_THREADS`. The dataset is not modified.

use std::time::Instant;

use hgnnc_dataset::Dataset;
use hgnnc_graph::{GraphCache, LargePages, MetapathOptions, SemanticGraphs};

/// The allocator of the `hgnnc` binary.
#[global_allocator]
static MEMORY: LargePages = LargePages;

/// Median and minimum, in milliseconds.
fn time(rounds: usize, mut run: impl FnMut()) -> String {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    format!("{:.2} ({:.2})", times[rounds / 2], times[0])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: sgb DIR [ROUNDS]")?;
    let rounds: usize = args.next().map_or(Ok(9), |rounds| rounds.parse())?;
    let dataset = Dataset::load(&folder).map_err(|errors| format!("{errors:?}"))?;
    let place = tempfile::tempdir()?;
    let cache = GraphCache::of(place.path(), GraphCache::DEFAULT_LIMIT).keeping_all();
    let graphs = SemanticGraphs::new(&dataset);
    let [reachable, counted] = [false, true].map(|counted| MetapathOptions { counted, ..Default::default() });
    println!(
        "{:<8} {:>12} {:>16} {:>18} {:>18} {:>18}",
        "path", "pairs", "instances", "reachable, ms", "counted, ms", "cached, ms"
    );
    for path in &dataset.metapaths {
        let stats = graphs.stats(&path.steps)?;
        let build = |graphs: &SemanticGraphs<'_>, options| {
            let (graph, origin) = graphs.metapath_from(&path.name, &path.steps, options).expect("it was built before");
            assert_eq!(graph.num_edges() as u64, stats.pairs);
            origin
        };
        let reached = time(rounds, || assert!(!build(&graphs, reachable).cached));
        let counts = time(rounds, || assert!(!build(&graphs, counted).cached));
        let read = if path.steps.len() > 1 {
            let cached = SemanticGraphs::new(&dataset).with_cache(Some(cache.clone()));
            build(&cached, reachable);
            time(rounds, || assert!(build(&cached, reachable).cached))
        } else {
            String::new()
        };
        println!("{:<8} {:>12} {:>16} {reached:>18} {counts:>18} {read:>18}", path.name, stats.pairs, stats.instances);
    }
    for options in [reachable, counted] {
        let all = time(rounds, || {
            let graphs = SemanticGraphs::new(&dataset);
            for path in &dataset.metapaths {
                graphs.metapath(&path.name, &path.steps, options).expect("it was built before");
            }
        });
        let kind = if options.counted { "counted" } else { "reachable" };
        println!("all {kind}: {all} ms");
    }
    Ok(())
}
