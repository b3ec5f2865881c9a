//! The synthetic ogbn-mag at small scales: sizes, degrees, years, and learnability.

use std::path::Path;

use hgnnc_dataset::{Dataset, Features, LabelValues};
use hgnnc_graph::{RelationOptions, SemanticGraph, SemanticGraphs};
use hgnnc_synth::{Outcome, Shape, Size, SynthError, generate_size};

fn made(scale: f64, dir: &Path) -> Dataset {
    let size = Size::scaled(Shape::Mag, scale).unwrap();
    assert_eq!(generate_size(size, 0, dir).unwrap(), Outcome::Written);
    Dataset::load(dir).unwrap_or_else(|e| panic!("{e}"))
}

fn graph(dataset: &Dataset, name: &str, reverse: bool) -> SemanticGraph {
    let relation = dataset.relations.iter().position(|r| r.name == name).unwrap();
    SemanticGraphs::new(dataset).relation(relation, RelationOptions { reverse, ..Default::default() }).unwrap()
}

#[test]
fn counts_are_those_of_ogbn_mag_times_the_scale() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = made(0.01, dir.path());
    let types: Vec<_> = dataset.vertex_types.iter().map(|t| (&t.name[..], t.count)).collect();
    assert_eq!(types, [("paper", 7364), ("author", 11346), ("field_of_study", 600), ("institution", 87)]);
    let relations: Vec<_> = dataset.relations.iter().map(|r| (&r.name[..], r.src, r.dst, r.num_edges())).collect();
    let expected = [
        ("writes", 1, 0, 71_457),
        ("cites", 0, 0, 54_163),
        ("has_topic", 0, 2, 75_051),
        ("affiliated_with", 1, 3, 10_440),
    ];
    assert_eq!(relations, expected);
    assert!(
        matches!(&dataset.vertex_types[0].features, Some(Features::Dense(x)) if x.dim == 128 && x.rows.is_mapped())
    );
    assert!(dataset.vertex_types[1..].iter().all(|t| t.features.is_none()));
    assert!(matches!(dataset.labels[0].values, LabelValues::Single { classes: 349, .. }));
    // Sorted by source and destination, without duplicates or self citations.
    for r in &dataset.relations {
        let edges: Vec<_> = r.src_ids.iter().zip(&r.dst_ids).collect();
        assert!(edges.is_sorted_by(|a, b| a < b), "{}", r.name);
        assert!(r.src != r.dst || edges.iter().all(|(s, d)| s != d), "{}", r.name);
    }
    // The graph of a reversed relation is the transpose.
    for r in &dataset.relations {
        let (forward, reverse) = (graph(&dataset, &r.name, false), graph(&dataset, &r.name, true));
        assert_eq!(
            (forward.csc.indptr, forward.csc.indices),
            (reverse.csr.indptr.clone(), reverse.csr.indices.clone())
        );
        assert_eq!((forward.csr.indptr, forward.csr.indices), (reverse.csc.indptr, reverse.csc.indices));
    }
}

#[test]
fn very_small_ones_are_graphs_as_well() {
    let dir = tempfile::tempdir().unwrap();
    for scale in [1e-9, 1e-5, 1e-4, 1e-3] {
        let dataset = made(scale, &dir.path().join(scale.to_string()));
        assert!(dataset.vertex_types.iter().all(|t| t.count > 0), "{scale}");
    }
}

#[test]
fn degrees_have_long_tails() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = made(0.02, dir.path());
    // Share of the edges on the hundredth of the vertices with the highest degrees, and the largest degree over the
    // mean.
    let tail = |degrees: Vec<usize>| {
        let mut degrees = degrees;
        degrees.sort_unstable_by(|a, b| b.cmp(a));
        let edges: usize = degrees.iter().sum();
        let top: usize = degrees[..degrees.len().div_ceil(100)].iter().sum();
        (top as f64 / edges as f64, degrees[0] as f64 * degrees.len() as f64 / edges as f64)
    };
    // A Poisson distribution of the same mean would give at most 0.03 and 4.
    for (name, end, share, most) in [
        ("writes", "out", 0.045..0.08, 15.0..60.0),
        ("cites", "out", 0.04..0.10, 8.0..60.0),
        ("cites", "in", 0.08..0.25, 20.0..400.0),
        ("has_topic", "in", 0.1..0.3, 20.0..500.0),
        ("affiliated_with", "in", 0.06..0.3, 6.0..100.0),
    ] {
        let g = graph(&dataset, name, false);
        let degrees: Vec<usize> = match end {
            "in" => (0..g.num_dst).map(|v| g.in_degree(v)).collect(),
            _ => (0..g.num_src).map(|v| g.out_degree(v)).collect(),
        };
        let (top, max) = tail(degrees);
        println!("{name} {end}: top 1 % have {:.1} % of the edges, the largest {max:.1} times the mean", 100.0 * top);
        assert!(share.contains(&top) && most.contains(&max), "{name} {end}: {top} {max}");
    }
    // Some authors have no institution, every one has a paper.
    let g = graph(&dataset, "affiliated_with", false);
    assert!((0..g.num_src).any(|v| g.out_degree(v) == 0));
    let g = graph(&dataset, "writes", false);
    assert!((0..g.num_src).all(|v| g.out_degree(v) > 0));
}

#[test]
fn years_split_the_papers_and_citations_go_back_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = made(0.01, dir.path());
    let LabelValues::Real { rows: year, .. } = &dataset.labels[1].values else { panic!("years are numbers") };
    let split = &dataset.splits[0];
    assert_eq!(split.name, "time");
    assert_eq!((split.train.len(), split.val.len(), split.test.len()), (7364 - 649 - 419, 649, 419));
    for (part, years) in [(&split.train, 2010..=2017), (&split.val, 2018..=2018), (&split.test, 2019..=2019)] {
        assert!(part.iter().all(|&v| years.contains(&(year[v as usize] as i32))));
    }
    let cites = dataset.relations.iter().find(|r| r.name == "cites").unwrap();
    let ends = cites.src_ids.iter().zip(&cites.dst_ids);
    let forward = ends.filter(|(s, d)| year[**s as usize] < year[**d as usize]).count();
    assert_eq!(forward, 0, "of {} citations", cites.num_edges());
}

#[test]
fn the_files_do_not_depend_on_the_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str, threads: usize, seed: u64| {
        let target = dir.path().join(name);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| generate_size(Size::scaled(Shape::Mag, 0.01).unwrap(), seed, &target)).unwrap();
        let mut files: Vec<_> = std::fs::read_dir(&target).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        files.iter().map(|f| (f.file_name().unwrap().to_owned(), std::fs::read(f).unwrap())).collect::<Vec<_>>()
    };
    let one = read("one", 1, 3);
    assert!(one == read("two", 2, 3), "other files with two threads");
    assert!(one != read("other", 2, 4), "the same files with another seed");
}

#[test]
fn scales_are_names() {
    assert_eq!("mag".parse::<Size>().unwrap(), Size::full(Shape::Mag));
    let small: Size = "mag 0.01".parse().unwrap();
    assert_eq!((small, &small.to_string()[..]), (Size::scaled(Shape::Mag, 0.01).unwrap(), "mag 0.01"));
    let large: Size = "mag 4.74".parse().unwrap();
    assert_eq!(large, Size::scaled(Shape::Mag, 4.74).unwrap());
    for (text, said) in [
        ("acm 0.5", "`acm` has one size only"),
        ("mag 0", "`0` is not a scale"),
        ("mag 101", "`101` is not a scale"),
        ("mag big", "`big` is not a scale"),
        ("mag NaN", "is not a scale"),
        ("meg 0.1", "there is no shape `meg`"),
    ] {
        let error = text.parse::<Size>().unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    assert!(matches!(Size::scaled(Shape::Acm, 0.5), Err(SynthError::OneSize(Shape::Acm))));
    // Another scale replaces the existing dataset.
    let dir = tempfile::tempdir().unwrap();
    let at = |scale| generate_size(Size::scaled(Shape::Mag, scale).unwrap(), 0, dir.path()).unwrap();
    assert_eq!([at(0.001), at(0.001), at(0.002)], [Outcome::Written, Outcome::Kept, Outcome::Written]);
}

/// Test accuracy of the nearest class mean (over training vertices): the best linear classifier for isotropic noise, as
/// here.
fn nearest_mean(rows: &[f32], dim: usize, label: &[i32], train: &[u32], test: &[u32]) -> f64 {
    let mut means = vec![0f64; 349 * dim];
    let mut counts = [0f64; 349];
    for &v in train {
        let y = label[v as usize] as usize;
        counts[y] += 1.0;
        for (m, x) in means[y * dim..][..dim].iter_mut().zip(&rows[v as usize * dim..][..dim]) {
            *m += f64::from(*x);
        }
    }
    let means: Vec<f32> = means.iter().enumerate().map(|(i, m)| (m / counts[i / dim].max(1.0)) as f32).collect();
    let right = test.iter().filter(|&&v| {
        let x = &rows[v as usize * dim..][..dim];
        let distance = |y: usize| means[y * dim..][..dim].iter().zip(x).map(|(m, x)| (m - x) * (m - x)).sum::<f32>();
        let seen = (0..349).filter(|&y| counts[y] > 0.0);
        let best = seen.map(|y| (distance(y), y)).min_by(|a, b| a.0.total_cmp(&b.0));
        best.is_some_and(|(_, y)| y as i32 == label[v as usize])
    });
    100.0 * right.count() as f64 / test.len() as f64
}

/// Mean of the rows of each destination's sources.
fn mean_over(g: &SemanticGraph, rows: &[f32], dim: usize) -> Vec<f32> {
    let mut out = vec![0f32; g.num_dst * dim];
    for (v, out) in out.chunks_exact_mut(dim).enumerate() {
        for &u in g.in_neighbors(v) {
            out.iter_mut().zip(&rows[u as usize * dim..][..dim]).for_each(|(o, x)| *o += x);
        }
        let n = g.in_degree(v).max(1) as f32;
        out.iter_mut().for_each(|o| *o /= n);
    }
    out
}

#[test]
fn neighbours_tell_more_than_features_and_not_everything() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = made(0.03, dir.path());
    let Some(Features::Dense(x)) = &dataset.vertex_types[0].features else { panic!("dense features") };
    let LabelValues::Single { of: label, .. } = &dataset.labels[0].values else { panic!("classes") };
    let (split, dim) = (&dataset.splits[0], x.dim);
    let alone = nearest_mean(&x.rows, dim, label, &split.train, &split.test);
    // Own features, the mean over each relation into papers, and the mean over cited papers; two hops for types without
    // features.
    let over = |name: &str, reverse: bool, rows: &[f32]| mean_over(&graph(&dataset, name, reverse), rows, dim);
    let authors = over("writes", true, &x.rows);
    let fields = over("has_topic", false, &x.rows);
    let blocks = [
        x.rows.to_vec(),
        over("cites", false, &x.rows),
        over("cites", true, &x.rows),
        over("writes", false, &authors),
        over("has_topic", true, &fields),
    ];
    // Blocks are scaled to equal mean norm, otherwise the noise of the own features would dominate.
    let scales: Vec<f32> = blocks
        .iter()
        .map(|b| (b.iter().map(|x| x * x).sum::<f32>() / b.len() as f32).sqrt().max(1e-9).recip())
        .collect();
    let mut rows = Vec::with_capacity(blocks.len() * x.rows.len());
    for v in 0..label.len() {
        for (block, scale) in blocks.iter().zip(&scales) {
            rows.extend(block[v * dim..][..dim].iter().map(|x| x * scale));
        }
    }
    let together = nearest_mean(&rows, blocks.len() * dim, label, &split.train, &split.test);
    println!("{alone:.1} % from features, {together:.1} % with neighbours");
    // Label noise limits accuracy to 70 %; guessing the largest class gives 3 %.
    assert!((5.0..30.0).contains(&alone) && (35.0..68.0).contains(&together), "{alone} {together}");
}

/// `cargo test --release -p hgnnc-synth --test mag -- --ignored --nocapture`
#[test]
#[ignore = "530 MB of files"]
fn the_full_size_has_the_published_counts() {
    let dir = tempfile::tempdir().unwrap();
    let start = std::time::Instant::now();
    generate_size(Size::full(Shape::Mag), 0, &dir.path().join("mag")).unwrap();
    println!("written in {:.1} s", start.elapsed().as_secs_f64());
    let start = std::time::Instant::now();
    let dataset = Dataset::load(dir.path().join("mag")).unwrap();
    println!("loaded in {:.2} s", start.elapsed().as_secs_f64());
    assert_eq!(dataset.vertex_types.iter().map(|t| t.count).sum::<usize>(), 1_939_743);
    assert_eq!(dataset.num_edges(), 21_111_007);
    let split = &dataset.splits[0];
    assert_eq!((split.train.len(), split.val.len(), split.test.len()), (629_571, 64_879, 41_939));
    // Pairs of papers with a common author, 65.9 M in ogbn-mag.
    let pairs = dataset.metapath("PAP").unwrap().pairs.unwrap();
    println!("{pairs} pairs of PAP");
    assert!((62_000_000..70_000_000).contains(&pairs), "{pairs}");
    for name in ["writes", "cites", "has_topic", "affiliated_with"] {
        let g = graph(&dataset, name, false);
        println!("{name}: at most {} out-edges and {} in-edges", g.max_out_degree(), g.max_in_degree());
    }
}
