//! The metapath graph cache: a stored graph equals the built one, and an unusable file is rebuilt.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use hgnnc_dataset::{Dataset, RelationData, Step, VertexTypeData};
use hgnnc_graph::{
    CacheKey, EntryContents, GraphCache, MetapathOptions, Origin, SemanticGraph, SemanticGraphs, SgbError,
};

const LIMIT: u64 = 1 << 20;

/// Papers and authors, with papers without an author, a duplicate edge, and a second relation between the same types.
fn dataset(folder: &Path) -> Dataset {
    let vertex = |name: &str, count| VertexTypeData { name: name.into(), count, ..Default::default() };
    let relation = |name: &str, src_ids: &[u32], dst_ids: &[u32]| RelationData {
        name: name.into(),
        src: 0,
        dst: 1,
        src_ids: src_ids.into(),
        dst_ids: dst_ids.into(),
        ..Default::default()
    };
    Dataset {
        folder: folder.into(),
        name: "tiny".into(),
        vertex_types: vec![vertex("paper", 6), vertex("author", 4)],
        relations: vec![
            relation("written_by", &[0, 1, 1, 1, 3, 4, 4], &[0, 0, 2, 2, 3, 1, 2]),
            relation("edited_by", &[5, 2], &[0, 3]),
        ],
        ..Default::default()
    }
}

fn pap() -> [Step; 2] {
    [Step::forward(0), Step::reverse(0)]
}

/// Papers that share an author with a paper edited by one of theirs: not a symmetric path.
fn crooked() -> [Step; 4] {
    [Step::forward(0), Step::reverse(0), Step::forward(0), Step::reverse(1)]
}

fn keeping_all(dataset: &Dataset) -> GraphCache {
    GraphCache::beside(dataset, LIMIT).expect("a folder").keeping_all()
}

fn build(dataset: &Dataset, steps: &[Step], options: MetapathOptions, cache: &GraphCache) -> (SemanticGraph, Origin) {
    SemanticGraphs::new(dataset).with_cache(Some(cache.clone())).metapath_from("P", steps, options).expect("a graph")
}

fn alone(dataset: &Dataset, steps: &[Step], options: MetapathOptions) -> SemanticGraph {
    SemanticGraphs::new(dataset).metapath("P", steps, options).expect("a graph")
}

/// Without and with counts and self loops.
fn all_options() -> impl Iterator<Item = MetapathOptions> {
    let both = [false, true];
    both.into_iter()
        .flat_map(move |counted| both.map(|self_loops| MetapathOptions { counted, self_loops, ..Default::default() }))
}

fn only_file(cache: &GraphCache) -> std::path::PathBuf {
    let entries = cache.entries();
    assert_eq!(entries.len(), 1);
    entries[0].path.clone()
}

#[test]
fn what_is_read_is_what_was_built() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    let cache = keeping_all(&data);
    for options in all_options() {
        for steps in [&pap()[..], &crooked()] {
            let expected = alone(&data, steps, options);
            let (built, origin) = build(&data, steps, options, &cache);
            assert_eq!((origin.cached, origin.stored), (false, true));
            let (read, origin) = build(&data, steps, options, &cache);
            assert_eq!((origin.cached, origin.stored), (true, false));
            assert_eq!((&built, &read), (&expected, &expected));
            read.verify().unwrap();
        }
    }
    let entries = cache.entries();
    assert_eq!(entries.len(), 8, "one for each path and options");
    let steps: Vec<String> = entries.iter().filter_map(|e| e.graph()).map(|g| g.steps.clone()).collect();
    assert_eq!(&steps[..2], [">written_by <written_by", ">written_by <written_by >written_by <edited_by"]);
}

#[test]
fn a_graph_without_edges_or_vertices_is_a_graph() {
    let place = tempfile::tempdir().unwrap();
    let mut data = dataset(place.path());
    data.relations[0].src_ids.clear();
    data.relations[0].dst_ids.clear();
    let cache = keeping_all(&data);
    for count in [6, 0] {
        data.vertex_types[0].count = count;
        let expected = alone(&data, &pap(), MetapathOptions::default());
        for cached in [false, true] {
            let (graph, origin) = build(&data, &pap(), MetapathOptions::default(), &cache);
            assert_eq!((origin.cached, &graph), (cached, &expected));
        }
    }
}

#[test]
fn other_content_has_another_key() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    let cache = keeping_all(&data);
    build(&data, &pap(), MetapathOptions::default(), &cache);
    type Change = fn(&mut Dataset);
    let changes: [(&str, Change); 5] = [
        ("a source", |data| data.relations[0].src_ids[0] = 5),
        ("a destination", |data| data.relations[0].dst_ids[0] = 3),
        ("an edge less", |data| {
            data.relations[0].src_ids.pop();
            data.relations[0].dst_ids.pop();
        }),
        ("a vertex more", |data| data.vertex_types[0].count += 1),
        ("a vertex between more", |data| data.vertex_types[1].count += 1),
    ];
    for (what, change) in changes {
        let mut changed = data.clone();
        change(&mut changed);
        let (graph, origin) = build(&changed, &pap(), MetapathOptions::default(), &cache);
        assert!(!origin.cached, "{what}");
        assert_eq!(graph, alone(&changed, &pap(), MetapathOptions::default()), "{what}");
    }
    // Changes that the key must not depend on.
    let mut same = data.clone();
    same.relations[0].name = "by".into();
    same.relations[1].src_ids[0] = 0;
    same.relations.swap(0, 1);
    let steps = [Step::forward(1), Step::reverse(1)];
    assert!(build(&same, &steps, MetapathOptions::default(), &cache).1.cached);
}

#[test]
fn every_damage_is_noticed_and_repaired() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    let cache = keeping_all(&data);
    let options = MetapathOptions { counted: true, ..Default::default() };
    let (expected, _) = build(&data, &crooked(), options, &cache);
    let path = only_file(&cache);
    let whole = fs::read(&path).unwrap();
    let flipped = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    let truncated = (0..whole.len()).map(|length| whole[..length].to_vec());
    let longer = [[&whole[..], &[0]].concat(), [&whole[..], &whole[..]].concat()];
    for (case, bytes) in flipped.chain(truncated).chain(longer).enumerate() {
        fs::write(&path, bytes).unwrap();
        let (graph, origin) = build(&data, &crooked(), options, &cache);
        assert_eq!((origin.cached, origin.stored, &graph), (false, true, &expected), "case {case}");
        // Except for the build time, the file is as it was.
        let mut repaired = fs::read(&path).unwrap();
        repaired[56..64].copy_from_slice(&whole[56..64]);
        repaired[80..96].copy_from_slice(&whole[80..96]);
        assert_eq!(repaired, whole, "case {case}");
    }
}

#[test]
fn a_file_of_another_graph_is_not_taken() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    let cache = keeping_all(&data);
    build(&data, &pap(), MetapathOptions::default(), &cache);
    let of_pap = only_file(&cache);
    let elsewhere = place.path().join("elsewhere");
    fs::rename(&of_pap, &elsewhere).unwrap();
    build(&data, &crooked(), MetapathOptions::default(), &cache);
    let of_crooked = only_file(&cache);
    fs::rename(&elsewhere, &of_crooked).unwrap();
    let (graph, origin) = build(&data, &crooked(), MetapathOptions::default(), &cache);
    assert_eq!((origin.cached, graph), (false, alone(&data, &crooked(), MetapathOptions::default())));
}

#[test]
fn threads_and_processes_may_come_at_once() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    let expected: Vec<SemanticGraph> = all_options().map(|options| alone(&data, &pap(), options)).collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (data, expected) = (&data, &expected);
            scope.spawn(move || {
                // Each thread has its own builder and cache, as processes have; some clear and damage files.
                let cache = keeping_all(data);
                for round in 0..60 {
                    for (options, expected) in all_options().zip(expected) {
                        assert_eq!(&build(data, &pap(), options, &cache).0, expected);
                    }
                    if round % 8 == thread {
                        let _ = cache.clear();
                    }
                    if let Some(entry) = cache.entries().first().filter(|_| round % 4 == 1) {
                        let _ = fs::write(&entry.path, b"torn");
                    }
                }
            });
        }
    });
    let left = fs::read_dir(keeping_all(&data).folder()).into_iter().flatten();
    let temporary = left.filter_map(Result::ok).filter(|e| e.file_name().to_string_lossy().starts_with(".tmp"));
    assert_eq!(temporary.count(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    // A file in place of the folder: not even root can write into it.
    fs::write(place.path().join(".hgnnc-cache"), "mine").unwrap();
    let gone = dataset(&place.path().join("gone"));
    for data in [&data, &gone] {
        let cache = keeping_all(data);
        let (graph, origin) = build(data, &pap(), MetapathOptions::default(), &cache);
        assert_eq!((origin.cached, origin.stored), (false, false));
        assert_eq!(graph, alone(data, &pap(), MetapathOptions::default()));
        assert!(cache.entries().is_empty());
    }
    assert!(!place.path().join("gone").exists());
    assert!(GraphCache::beside(&dataset(Path::new("")), LIMIT).is_none(), "data in memory have no folder");
}

#[test]
fn the_least_recently_used_go() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    let cache = keeping_all(&data);
    let options: Vec<MetapathOptions> = all_options().collect();
    for (age, options) in options.iter().enumerate() {
        build(&data, &pap(), *options, &cache);
        let newest = cache.entries().pop().expect("the one that was written");
        let at = SystemTime::now() - Duration::from_secs(1000 - 100 * age as u64);
        fs::File::options().write(true).open(newest.path).unwrap().set_modified(at).unwrap();
    }
    // Reading the oldest entry makes it the newest.
    assert!(build(&data, &pap(), options[0], &cache).1.cached);
    let bytes: u64 = cache.entries().iter().map(|entry| entry.bytes).sum();
    let tight = GraphCache::of(place.path(), bytes).keeping_all();
    assert!(build(&data, &crooked(), options[0], &tight).1.stored);
    let is_there = |steps: &[Step], options| build(&data, steps, options, &GraphCache::of(place.path(), 0)).1.cached;
    assert!(is_there(&pap(), options[0]) && is_there(&crooked(), options[0]));
    assert!(!is_there(&pap(), options[1]), "the one that was used least recently");
    assert!(cache.entries().iter().map(|entry| entry.bytes).sum::<u64>() <= bytes);
    // A graph larger than the limit is not written.
    let none = GraphCache::of(place.path(), 10).keeping_all();
    assert!(!build(&data, &pap(), options[1], &none).1.stored);
    // Foreign files stay.
    fs::write(cache.folder().join("notes.txt"), "mine").unwrap();
    assert!(cache.clear().unwrap().0 > 0);
    assert!(cache.entries().is_empty() && cache.folder().join("notes.txt").exists());
}

#[test]
fn small_graphs_are_not_worth_a_file() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    // Milliseconds exceed the time to read kilobytes; building this graph takes microseconds.
    assert!(hgnnc_graph::sgb::cache::pays(Duration::from_millis(5), 10_000));
    assert!(!hgnnc_graph::sgb::cache::pays(Duration::from_micros(20), 10_000));
    assert!(!hgnnc_graph::sgb::cache::pays(Duration::from_millis(5), 1 << 30));
    let cache = GraphCache::beside(&data, LIMIT).unwrap();
    SemanticGraphs::new(&data).with_cache(Some(cache.clone())).relation(0, Default::default()).unwrap();
    assert!(!cache.folder().exists(), "relations are built as fast as read");
}

#[test]
fn the_memory_budget_holds_for_what_is_read() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    let cache = keeping_all(&data);
    build(&data, &pap(), MetapathOptions::default(), &cache);
    let tight = MetapathOptions { memory_budget: 100, ..Default::default() };
    let graphs = SemanticGraphs::new(&data).with_cache(Some(cache));
    let with = graphs.metapath("P", &pap(), tight).unwrap_err();
    let without = SemanticGraphs::new(&data).metapath("P", &pap(), tight).unwrap_err();
    assert!(matches!(with, SgbError::OverBudget { .. }));
    assert_eq!(with, without);
}

/// Rows lie beside graphs, under their own key, and every damage of them is noticed.
#[test]
fn rows_are_kept_beside_graphs() {
    let place = tempfile::tempdir().unwrap();
    let data = dataset(place.path());
    let cache = keeping_all(&data);
    let (key, other) = (CacheKey::of_rows(7), CacheKey::of_rows(8));
    let rows: Vec<f32> = (0..12).map(|number| number as f32 / 3.0).collect();
    assert_eq!(cache.find_rows(key, (4, 3)), None);
    assert!(cache.keep_rows(key, "x along P", (4, 3), &rows, Duration::from_secs(1)));
    assert!(!cache.keep_rows(other, "x along P", (4, 4), &rows, Duration::from_secs(1)), "not as many numbers");
    assert_eq!(cache.find_rows(key, (4, 3)).as_ref(), Some(&rows));
    assert_eq!((cache.find_rows(key, (3, 4)), cache.find_rows(other, (4, 3))), (None, None));
    let path = only_file(&cache);
    let contents = cache.entries()[0].contents.clone();
    let Some(EntryContents::Rows(found)) = contents else { panic!("no rows: {contents:?}") };
    assert_eq!((&found.source[..], found.rows, found.width), ("x along P", 4, 3));

    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, bytes).unwrap();
        assert_eq!(cache.find_rows(key, (4, 3)), None, "byte {at}");
        fs::write(&path, &whole[..at]).unwrap();
        assert_eq!(cache.find_rows(key, (4, 3)), None, "{at} bytes");
    }
    // A file of rows is no file of a graph, and the other way round.
    fs::write(path.with_extension("graph"), &whole).unwrap();
    assert_eq!(cache.entries().iter().filter(|entry| entry.contents.is_some()).count(), 0);
    build(&data, &pap(), MetapathOptions::default(), &cache);
    let graph = cache.entries().into_iter().find(|entry| entry.graph().is_some()).expect("a graph");
    fs::copy(&graph.path, &path).unwrap();
    assert_eq!(cache.find_rows(key, (4, 3)), None);
    assert_eq!(cache.clear().unwrap().0, 3);
}
