//! The tables of `docs/import.md` become the dataset that the page tells, and the page names every field.

use std::path::Path;

use hgnnc_dataset::{Dataset, Features, LabelValues, TransformKind};
use hgnnc_import::{Kind, read};

const PAGE: &str = include_str!("../../../docs/import.md");
/// Sections of the page, and the sources whose public fields they name.
const CONFIGS: [(&str, &str); 3] = [
    ("Tables", include_str!("../src/tables/config.rs")),
    ("N-Triples", include_str!("../src/ntriples.rs")),
    ("Settings of DGL, GraphBolt and GraphStorm", include_str!("../src/settings.rs")),
];

/// Writes the files of the page: fenced blocks with a language and a name. A block without a name is a part of one.
fn write_page(folder: &Path) {
    for block in PAGE.split("```").skip(1).step_by(2) {
        let (head, text) = block.split_once('\n').unwrap();
        let Some((_, name)) = head.split_once(' ') else { continue };
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[test]
fn the_tables_of_the_page_become_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    write_page(folder.path());
    let made = read(Kind::Tables, folder.path(), None).unwrap_or_else(|error| panic!("{error}"));
    // The written folder must load as a valid dataset.
    let target = folder.path().join("made");
    made.write(&target).unwrap();
    let dataset = Dataset::load(&target).unwrap_or_else(|error| panic!("{error}"));

    let counts: Vec<_> = dataset.vertex_types.iter().map(|v| (&v.name[..], v.count)).collect();
    assert_eq!(counts, [("paper", 5), ("author", 3), ("venue", 3)]);
    let ids = |ty: usize| -> Vec<String> {
        let ids = dataset.vertex_types[ty].ids.as_ref().unwrap();
        (0..ids.len()).map(|v| ids.text(v).into_owned()).collect()
    };
    assert_eq!(ids(0), ["10.1/a", "10.1/b", "10.1/c", "10.1/d", "10.1/e"]);
    assert_eq!(
        (ids(1), ids(2)),
        (["Ada", "Ben", "Cleo"].map(String::from).to_vec(), ["KDD", "ICML", "PLDI"].map(String::from).to_vec())
    );

    let [writes, appears] = &dataset.relations[..] else { panic!("two relations") };
    assert_eq!((&writes.src_ids[..], &writes.dst_ids[..]), (&[0, 1, 0, 2, 1][..], &[0, 0, 1, 3, 4][..]));
    assert_eq!(writes.weight.as_deref().unwrap(), [1.0, 2.0, 1.0, 1.0, 1.0]);
    assert_eq!((&appears.src_ids[..], &appears.dst_ids[..]), (&[0, 1, 2, 3, 4][..], &[0, 1, 0, 2, 0][..]));

    let label = &dataset.labels[0];
    assert_eq!(label.class_names, ["compilers", "graphs", "learning"]);
    assert_eq!(label.values, LabelValues::Single { classes: 3, of: vec![1, 2, -1, 0, 1] });
    let split = &dataset.splits[0];
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[0, 1][..], &[3][..], &[4][..]));

    let paper = &dataset.vertex_types[0];
    assert_eq!(paper.time.as_deref().unwrap(), [1999, 2003, 2004, 2010, 2011]);
    let Some(Features::Dense(x)) = &paper.features else { panic!("dense") };
    // Pages: mean 12.25 of four, which is what the missing one is.
    let years = [1999f64, 2003.0, 2004.0, 2010.0, 2011.0];
    let mean = years.iter().sum::<f64>() / 5.0;
    let deviation = (years.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / 5.0).sqrt();
    assert_eq!(x.dim, 5);
    for (row, year) in years.iter().enumerate() {
        assert!((f64::from(x.row(row)[0]) - (year - mean) / deviation).abs() < 1e-6);
    }
    assert_eq!(x.row(1)[1..], [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(x.row(3)[2..], [0.0, 0.0, 1.0]);
    let TransformKind::OneHot { categories, .. } = &paper.transforms[1].kind else { panic!("one hot") };
    assert_eq!(categories[..], ["ICML", "KDD", "PLDI"]);
}

#[test]
fn every_field_is_on_the_page() {
    for (title, source) in CONFIGS {
        let (_, section) = PAGE.split_once(&format!("\n## {title}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let mut told: Vec<&str> =
            section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        told.sort_unstable();
        let mut known: Vec<&str> = source
            .lines()
            .filter(|line| !line.contains("fn "))
            .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": ").map(|(name, _)| name))
            .collect();
        known.sort_unstable();
        assert_eq!(told, known, "{title}");
    }
}
