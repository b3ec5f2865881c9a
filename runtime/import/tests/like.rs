//! New rows of a graph that was imported before: `hgnnc data import --like`.

mod common;
mod layouts;

use std::sync::Arc;

use common::Notes;
use hgnnc_dataset::{Dataset, Features, LabelValues, TransformKind};
use hgnnc_import::{ImportError, Kind, read_observed};
use layouts::{Files, edges, ids, imported, rows, write};

const CONFIG: &str = r#"
[[vertex_type]]
name = "paper"
files = "papers.csv"
id = "id"
label = { column = "area" }
features = [{ column = "pages", scale = "standard", missing = "mean" }, { column = "venue", one_hot = true }]

[[vertex_type]]
name = "author"

[[relation]]
name = "cites"
src = "paper"
dst = "paper"
files = "cites.csv"
src_key = "from"
dst_key = "to"
features = [{ column = "count", scale = "min_max" }]

[[relation]]
name = "writes"
src = "author"
dst = "paper"
files = "writes.csv"
src_key = "author"
dst_key = "paper"
"#;

const GRAPH: &Files<'static> = &[
    ("import.toml", CONFIG),
    ("papers.csv", "id,pages,venue,area\np1,8,PLDI,compilers\np2,12,KDD,graphs\np3,16,KDD,graphs\n"),
    ("cites.csv", "from,to,count\np2,p1,0\np3,p1,4\n"),
    ("writes.csv", "author,paper\nada,p1\nbob,p2\n"),
];

const NEW: &Files<'static> = &[
    ("import.toml", CONFIG),
    ("papers.csv", "id,pages,venue,area\np9,20,KDD,graphs\np8,,VLDB,\n"),
    ("cites.csv", "from,to,count\np9,p3,2\np9,p8,6\np8,p1,1\np8,p3,1\n"),
    ("writes.csv", "author,paper\nbob,p9\ncyd,p2\n"),
];

/// Imports files as new rows of the graph, and returns the dataset as it is written and read again, and the notes.
fn like(graph: &Dataset, files: &Files<'_>) -> Result<(Dataset, Vec<String>), ImportError> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    let notes = Arc::new(Notes::default());
    let made = read_observed(Kind::Tables, folder.path(), None, Some(graph), Arc::clone(&notes) as _)?;
    made.write(&folder.path().join("made")).unwrap();
    Ok((Dataset::load(folder.path().join("made")).unwrap(), notes.texts()))
}

fn graph(files: &Files<'_>) -> Dataset {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    imported(Kind::Tables, folder.path(), None)
}

/// The new rows with a change of one of the files.
fn refused(file: &str, from: &str, to: &str) -> String {
    let changed: Vec<(&str, String)> = NEW
        .iter()
        .map(|&(name, text)| {
            assert!(name != file || text.contains(from), "{from}");
            (name, if name == file { text.replace(from, to) } else { text.into() })
        })
        .collect();
    let changed: Vec<(&str, &str)> = changed.iter().map(|(name, text)| (*name, &text[..])).collect();
    like(&graph(GRAPH), &changed).expect_err(to).to_string()
}

#[test]
fn features_are_scaled_and_coded_as_those_of_the_graph() {
    let (new, notes) = like(&graph(GRAPH), NEW).unwrap();
    let deviation = (32.0f64 / 3.0).sqrt();
    // The mean of the graph is 12 pages; its venues are KDD and PLDI.
    let of_p9 = ((20.0 - 12.0) / deviation) as f32;
    assert_eq!(rows(&new, 0)[..2], [vec![of_p9, 1.0, 0.0], vec![0.0, 0.0, 0.0]]);
    let counts = new.relations[0].features.as_ref().unwrap();
    assert_eq!(counts.rows[..], [0.5, 1.5, 0.25, 0.25]);
    assert_eq!(
        notes,
        ["vertex type `paper`: column `venue`: categories that the graph does not have are left out: `VLDB`"]
    );
    assert_eq!(new.vertex_types[0].transforms, graph(GRAPH).vertex_types[0].transforms);
}

#[test]
fn edges_go_to_vertices_of_the_graph_which_come_with_their_features() {
    let old = graph(GRAPH);
    let (new, _) = like(&old, NEW).unwrap();
    assert_eq!(ids(&new, 0), ["p9", "p8", "p3", "p1", "p2"]);
    assert_eq!(rows(&new, 0)[2..], [2, 0, 1].map(|of| rows(&old, 0)[of].clone()));
    assert_eq!(edges(&new, "cites"), [(0, 2), (0, 1), (1, 3), (1, 2)]);
    // Authors have no table: one is of the graph, one is new.
    assert_eq!((ids(&new, 1), edges(&new, "writes")), (vec!["bob".into(), "cyd".into()], vec![(0, 0), (1, 4)]));
    // Classes have the numbers of the graph; vertices of the graph are not labelled again.
    assert_eq!(new.labels[0].class_names, ["compilers", "graphs"]);
    assert_eq!(new.labels[0].values, LabelValues::Single { classes: 2, of: vec![1, -1, -1, -1, -1] });
    let whole = old.extended(&new).unwrap();
    assert_eq!((whole.vertices, whole.added), (vec![vec![3, 4, 2, 0, 1], vec![1, 2]], vec![2, 1]));
}

#[test]
fn few_new_rows_are_stored_as_those_of_the_graph() {
    let categories: String = (0..40).map(|n| format!("{n},c{n}\n")).collect();
    let config = "[[vertex_type]]\nname = \"v\"\nfiles = \"v.csv\"\nid = \"id\"\nfeatures = [{ column = \"c\", one_hot = true }]\n";
    let old = graph(&[("import.toml", config), ("v.csv", &format!("id,c\n{categories}"))]);
    assert!(old.vertex_types[0].features.as_ref().is_some_and(Features::is_sparse));
    let (new, notes) = like(&old, &[("import.toml", config), ("v.csv", "id,c\n40,c7\n")]).unwrap();
    let Some(Features::Sparse(rows)) = &new.vertex_types[0].features else { panic!() };
    let TransformKind::OneHot { categories, .. } = &new.vertex_types[0].transforms[0].kind else { panic!() };
    assert_eq!((rows.dim, &rows.indices[..]), (40, &[categories.iter().position(|c| c == "c7").unwrap() as u32][..]));
    assert!(notes.is_empty());
}

#[test]
fn what_does_not_fit_to_the_graph_is_told() {
    for ((file, from, to), expected) in [
        (
            ("import.toml", "name = \"author\"", "name = \"person\""),
            "the graph that `--like` names has no vertex type `person`",
        ),
        (
            ("import.toml", "name = \"writes\"", "name = \"wrote\""),
            "has no relation `wrote`, so it cannot have new rows",
        ),
        (
            ("import.toml", ", { column = \"venue\", one_hot = true }", ""),
            "they are made of `pages`, and those of the graph of `pages`, `venue`: new data has the features of the graph",
        ),
        (
            (
                "import.toml",
                "column = \"venue\", one_hot = true",
                "column = \"venue\", one_hot = true, separator = \";\"",
            ),
            "`venue` is made in another way than in the graph",
        ),
        (
            ("import.toml", "features = [{ column = \"count\", scale = \"min_max\" }]", ""),
            "features of relation `cites`: they are made of no columns",
        ),
        (
            ("papers.csv", "p9,20,KDD,graphs", "p9,20,KDD,biology"),
            "`biology` is no class of the graph, which has `compilers`, `graphs`",
        ),
        (
            ("cites.csv", "p9,p3,2", "p9,p5,2"),
            "cites.csv:2: this line names a vertex of type `paper` that is not there: `p5`",
        ),
    ] {
        let said = refused(file, from, to);
        assert!(said.contains(expected), "{to}: {said}");
    }
    // Features of the graph that were not made of columns, and none here.
    let mut old = graph(GRAPH);
    old.vertex_types[0].transforms.clear();
    let config = CONFIG
        .replace(", { column = \"venue\", one_hot = true }", "")
        .replace("features = [{ column = \"pages\", scale = \"standard\", missing = \"mean\" }]\n", "");
    let files: Vec<(&str, &str)> =
        NEW.iter().map(|&(name, text)| (name, if name == "import.toml" { &config[..] } else { text })).collect();
    let said = like(&old, &files).unwrap_err().to_string();
    assert!(
        said.contains("made of no columns, and those of the graph were not made of columns, as far as it says"),
        "{said}"
    );
    let folder = tempfile::tempdir().unwrap();
    let error = read_observed(Kind::Hgb, folder.path(), None, Some(&graph(GRAPH)), Arc::new(Notes::default()) as _);
    assert!(error.unwrap_err().to_string().contains("`hgb` has none"));
}
