//! Every metapath of every real dataset against the counts in its `dataset.toml`.

#[path = "../../dataset/tests/common/mod.rs"]
mod common;

use hgnnc_dataset::Dataset;
use hgnnc_graph::{DegreeClasses, MetapathOptions, RelationOptions, SemanticGraphs, degree_class};

#[test]
fn metapath_counts() {
    let mut checked = 0;
    for folder in common::real_datasets() {
        let dataset = Dataset::load(&folder).unwrap_or_else(|e| panic!("{e}"));
        let graphs = SemanticGraphs::new(&dataset);
        for path in &dataset.metapaths {
            let what = format!("{} {}", dataset.name, path.name);
            let start = std::time::Instant::now();
            let stats = graphs.stats(&path.steps).unwrap();
            let found = (stats.pairs, stats.self_pairs, stats.instances as u64, stats.max_degree);
            let stats_ms = start.elapsed().as_millis();
            let claimed = (path.pairs, path.self_pairs, path.instances, path.max_degree);
            let claimed = (claimed.0.unwrap(), claimed.1.unwrap(), claimed.2.unwrap(), claimed.3.unwrap());
            assert_eq!(found, claimed, "{what}: pairs, self pairs, instances, max degree");

            let estimate = graphs.estimate(&path.steps).unwrap();
            assert!(estimate.max_pairs >= stats.pairs, "{what}: the bound is not a bound");
            assert_eq!(estimate.instances, stats.instances);

            // The graph itself, with counts, agrees with the statistics.
            let start = std::time::Instant::now();
            let options = MetapathOptions { counted: true, ..MetapathOptions::default() };
            let graph = graphs.metapath(&path.name, &path.steps, options).unwrap();
            let counted_ms = start.elapsed().as_millis();
            assert_eq!(graph.num_edges() as u64, stats.pairs, "{what}");
            assert_eq!(graph.max_out_degree() as u64, stats.max_degree, "{what}");
            for (classes, indptr) in [(&stats.out_classes, &graph.csr.indptr), (&stats.in_classes, &graph.csc.indptr)] {
                let listed = DegreeClasses::of(indptr);
                for class in classes {
                    let at = degree_class(class.from);
                    let found = (listed.rows(at).len() as u64, listed.edges[at]);
                    assert_eq!(found, (class.vertices, class.edges), "{what}: class {at}");
                }
                assert_eq!(
                    classes.iter().map(|class| class.vertices).sum::<u64>(),
                    listed.order.len() as u64,
                    "{what}"
                );
            }
            let total: f64 = graph.counts.as_ref().unwrap().iter().map(|&c| f64::from(c)).sum();
            let instances = stats.instances as f64;
            assert!((total - instances).abs() <= instances * 1e-6, "{what}: {total} and {instances}");
            let start = std::time::Instant::now();
            let reachable = graphs.metapath(&path.name, &path.steps, MetapathOptions::default()).unwrap();
            let reachable_ms = start.elapsed().as_millis();
            assert_eq!((&graph.csc, &graph.csr), (&reachable.csc, &reachable.csr), "{what}");
            println!(
                "{what}: {} pairs; stats {stats_ms} ms, counted {counted_ms} ms, reachable {reachable_ms} ms",
                stats.pairs
            );
            checked += 1;
        }
    }
    println!("{checked} metapaths checked");
}

#[test]
fn relations_of_real_datasets_become_graphs() {
    for folder in common::real_datasets() {
        let dataset = Dataset::load(&folder).unwrap_or_else(|e| panic!("{e}"));
        let graphs = SemanticGraphs::new(&dataset);
        for (r, relation) in dataset.relations.iter().enumerate() {
            for reverse in [false, true] {
                let graph = graphs.relation(r, RelationOptions { reverse, ..Default::default() }).unwrap();
                graph.verify().unwrap_or_else(|e| panic!("{} {}: {e}", dataset.name, relation.name));
                assert_eq!(graph.num_edges(), relation.num_edges());
                assert_eq!(graph.weight.is_some(), relation.weight.is_some());
            }
        }
    }
}

#[test]
fn schemas_of_real_datasets_have_distinct_identifiers() {
    for folder in common::real_datasets() {
        let dataset = Dataset::load(&folder).unwrap_or_else(|e| panic!("{e}"));
        let text = hgnnc_dataset::schema_text(&dataset);
        println!("{}", text.lines().take(16).collect::<Vec<_>>().join("\n"));
        let mut names = std::collections::BTreeSet::new();
        for line in text.lines().skip(1).filter(|l| *l != "}") {
            let name = line.split_whitespace().nth(1).unwrap().trim_end_matches(':');
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
            assert!(names.insert(name), "{}: two items are called {name}", dataset.name);
        }
        let items = dataset.vertex_types.len() + dataset.relations.len() + dataset.metapaths.len();
        assert_eq!(names.len(), items);
    }
}
