//! The files of OGB become a dataset, as tables and as archives; faults are told with file, line, value and way out.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use hgnnc_dataset::npy::{Element, to_bytes};
use hgnnc_dataset::{Dataset, Features, LabelValues};
use hgnnc_import::Kind;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rawzip::{CompressionMethod, ZipArchiveWriter};

use common::import;

/// The layout of ogbn-mag, uncompressed.
const TABLES: &[(&str, &str)] = &[
    ("raw/num-node-dict.csv", "author,paper\n2,3\n"),
    ("raw/triplet-type-list.csv", "author,writes,paper\npaper,cites,paper\n"),
    ("raw/nodetype-has-label.csv", "author,paper\nFalse,True\n"),
    ("raw/node-feat/paper/node-feat.csv", "0.5,1\n-2,3e-1\n0,4\n"),
    ("raw/node-feat/paper/node_year.csv", "2010\n2011\n2012\n"),
    ("raw/node-feat/author/node_species.csv", "1\n2\n"),
    ("raw/node-label/paper/node-label.csv", "2\nnan\n0\n"),
    ("raw/relations/author___writes___paper/edge.csv", "0,0\n0,0\n1,2\n"),
    ("raw/relations/author___writes___paper/num-edge-list.csv", "3\n"),
    ("raw/relations/author___writes___paper/edge_reltype.csv", "0\n0\n0\n"),
    ("raw/relations/author___writes___paper/edge-feat.csv", "1,2\n3,4\n5,6\n"),
    ("raw/relations/author___writes___paper/edge_weight.csv", "0.5\n1\n2\n"),
    ("raw/relations/paper___cites___paper/edge.csv", "1,0\n"),
    ("raw/relations/paper___cites___paper/num-edge-list.csv", "1\n"),
    ("split/time/nodetype-has-split.csv", "author,paper\nFalse,True\n"),
    ("split/time/paper/train.csv", "2\n"),
    ("split/time/paper/valid.csv", "1\n"),
    ("split/time/paper/test.csv", "0\n"),
    ("mapping/author_entidx2name.csv", "ent idx,ent name\n1,\"b, c\"\n0,a\n"),
    ("mapping/labelidx2venuename.csv", "label idx,venue name\n0,ICML\n1,KDD\n2,PLDI\n3,VLDB\n"),
];

fn write(root: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Imports a folder as a valid dataset.
fn read(root: &Path) -> (Dataset, Vec<String>) {
    let (made, notes) = import(Kind::Ogb, root).unwrap_or_else(|error| panic!("{error}"));
    let target = root.join("made");
    made.write(&target).unwrap();
    let dataset = Dataset::load(&target).unwrap_or_else(|error| panic!("{error}"));
    fs::remove_dir_all(target).unwrap();
    (dataset, notes)
}

/// Asserts the vertices and edges that tables and archives both hold.
fn assert_graph(dataset: &Dataset) {
    let counts: Vec<_> = dataset.vertex_types.iter().map(|v| (&v.name[..], v.count)).collect();
    assert_eq!(counts, [("author", 2), ("paper", 3)]);
    let Some(Features::Dense(x)) = &dataset.vertex_types[1].features else { panic!("dense") };
    assert_eq!((x.dim, &x.rows[..]), (2, &[0.5, 1.0, -2.0, 0.3, 0.0, 4.0][..]));
    assert_eq!(dataset.vertex_types[1].time.as_deref(), Some(&[2010, 2011, 2012][..]));
    let edges: Vec<_> = dataset.relations.iter().map(|r| (&r.name[..], &r.src_ids[..], &r.dst_ids[..])).collect();
    assert_eq!(edges, [("writes", &[0, 0, 1][..], &[0, 0, 2][..]), ("cites", &[1], &[0])]);
    let writes = &dataset.relations[0];
    assert_eq!(writes.weight.as_deref(), Some(&[0.5, 1.0, 2.0][..]));
    let x = writes.features.as_ref().unwrap();
    assert_eq!((x.dim, &x.rows[..]), (2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]));
    let LabelValues::Single { of, .. } = &dataset.labels[0].values else { panic!("classes") };
    assert_eq!(of[..], [2, -1, 0]);
}

#[test]
fn tables_of_several_types() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), TABLES);
    let (dataset, notes) = read(folder.path());
    assert_graph(&dataset);
    let ids = dataset.vertex_types[0].ids.as_ref().unwrap();
    assert_eq!([ids.text(0), ids.text(1)], ["a", "b, c"]);
    assert!(dataset.vertex_types[1].ids.is_none());
    // The names tell of a class that no vertex has.
    assert_eq!(dataset.labels[0].class_names, ["ICML", "KDD", "PLDI", "VLDB"]);
    let split = &dataset.splits[0];
    assert_eq!((&split.name[..], &split.train[..], &split.test[..]), ("time", &[2][..], &[0][..]));
    // Vertex 1 has no label.
    assert!(split.val.is_empty());
    let all = notes.join("\n");
    for part in [
        "1 vertices of",
        "`node_species` of `author` is left out",
        "`edge_reltype` is the same for all edges of `writes`",
    ] {
        assert!(all.contains(part), "{all}");
    }
    assert_eq!(notes.len(), 3, "{all}");
}

#[test]
fn compressed_tables_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in TABLES {
        let path = folder.path().join(format!("{name}.gz"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut out = GzEncoder::new(fs::File::create(path).unwrap(), Compression::default());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap();
    }
    let (dataset, _) = read(folder.path());
    assert_graph(&dataset);
}

/// An array as the file of an archive.
fn array<T: Element>(shape: &[usize], values: &[T]) -> Vec<u8> {
    to_bytes(shape, values).unwrap()
}

/// Writes an archive as `numpy.savez_compressed` does, or `numpy.savez`.
fn archive(path: &Path, arrays: &[(&str, Vec<u8>)], compress: bool) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = ZipArchiveWriter::new(fs::File::create(path).unwrap());
    for (name, bytes) in arrays {
        let name = format!("{name}.npy");
        let method = if compress { CompressionMethod::DEFLATE } else { CompressionMethod::STORE };
        let (mut entry, config) = writer.new_file(&name).compression_method(method).start().unwrap();
        let descriptor = if compress {
            let mut out = config.wrap(DeflateEncoder::new(&mut entry, Compression::default()));
            out.write_all(bytes).unwrap();
            let (encoder, descriptor) = out.finish().unwrap();
            encoder.finish().unwrap();
            descriptor
        } else {
            let mut out = config.wrap(&mut entry);
            out.write_all(bytes).unwrap();
            out.finish().unwrap().1
        };
        entry.finish(descriptor).unwrap();
    }
    writer.finish().unwrap();
}

/// The graph as archives, in a folder `raw`.
fn archives(raw: &Path, compress: bool) {
    let put = |name: &str, arrays: &[(&str, Vec<u8>)]| archive(&raw.join(name), arrays, compress);
    let (writes, cites) = ("author___writes___paper", "paper___cites___paper");
    put("num_nodes_dict.npz", &[("author", array(&[1], &[2i64])), ("paper", array(&[1], &[3i64]))]);
    put("num_edges_dict.npz", &[(writes, array(&[1], &[3i64])), (cites, array(&[1], &[1i64]))]);
    put(
        "edge_index_dict.npz",
        &[(writes, array(&[2, 3], &[0i64, 0, 1, 0, 0, 2])), (cites, array(&[2, 1], &[1i64, 0]))],
    );
    put("node_feat_dict.npz", &[("paper", array(&[3, 2], &[0.5f32, 1.0, -2.0, 0.3, 0.0, 4.0]))]);
    put("node_year.npz", &[("paper", array(&[3, 1], &[2010i64, 2011, 2012]))]);
    put("edge_feat_dict.npz", &[(writes, array(&[3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]))]);
    put("edge_weight.npz", &[(writes, array(&[3, 1], &[0.5f64, 1.0, 2.0]))]);
    put("node-label.npz", &[("paper", array(&[3, 1], &[2.0f32, f32::NAN, 0.0]))]);
}

#[test]
fn archives_of_several_types() {
    for compress in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        archives(&folder.path().join("raw"), compress);
        write(folder.path(), &TABLES[14..17]);
        let (mut dataset, _) = read(folder.path());
        // Archives have their arrays in the order of names.
        assert_eq!(dataset.relations[0].name, "writes");
        dataset.relations.sort_by(|a, b| b.name.cmp(&a.name));
        assert_graph(&dataset);
        assert_eq!(dataset.splits[0].train, [2]);
    }
}

#[test]
fn a_graph_of_one_type_as_tables_and_as_an_archive() {
    let tables = [
        ("raw/edge.csv", "0,1\n2,0\n"),
        ("raw/num-node-list.csv", "3\n"),
        ("raw/num-edge-list.csv", "2\n"),
        ("raw/node-feat.csv", "1.5\n2\n3\n"),
        ("raw/node_year.csv", "7\n8\n9\n"),
        ("raw/node-label.csv", "0,1\n1,1\nnan,nan\n"),
        ("split/time/train.csv", "0\n"),
        ("split/time/test.csv", "1\n"),
        ("mapping/nodeidx2paperid.csv", "node idx,paper id\n0,11\n1,12\n2,13\n"),
    ];
    let as_tables = tempfile::tempdir().unwrap();
    write(as_tables.path(), &tables);
    let as_archive = tempfile::tempdir().unwrap();
    write(as_archive.path(), &tables[6..]);
    archive(
        &as_archive.path().join("raw/data.npz"),
        &[
            ("edge_index", array(&[2, 2], &[0i64, 2, 1, 0])),
            ("num_nodes_list", array(&[1], &[3i64])),
            ("num_edges_list", array(&[1], &[2i64])),
            ("node_feat", array(&[3, 1], &[1.5f32, 2.0, 3.0])),
            ("node_year", array(&[3, 1], &[7i64, 8, 9])),
        ],
        true,
    );
    let label = array(&[3, 2], &[0.0f32, 1.0, 1.0, 1.0, f32::NAN, f32::NAN]);
    archive(&as_archive.path().join("raw/node-label.npz"), &[("node_label", label)], true);
    for folder in [as_tables, as_archive] {
        let (dataset, _) = read(folder.path());
        let node = &dataset.vertex_types[0];
        assert_eq!((&node.name[..], node.count, node.time.as_deref()), ("node", 3, Some(&[7, 8, 9][..])));
        assert_eq!(node.ids.as_ref().unwrap().text(2), "13");
        let edge = &dataset.relations[0];
        assert_eq!((&edge.name[..], &edge.src_ids[..], &edge.dst_ids[..]), ("edge", &[0, 2][..], &[1, 0][..]));
        let (rows, labelled) = (vec![0.0, 1.0, 1.0, 1.0, 0.0, 0.0], vec![true, true, false]);
        assert_eq!(dataset.labels[0].values, LabelValues::Multi { classes: 2, rows, labelled });
        assert_eq!((&dataset.splits[0].train[..], &dataset.splits[0].test[..]), (&[0][..], &[1][..]));
    }
}

#[test]
fn types_of_edges_that_differ_become_features_and_numbers_are_targets() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), TABLES);
    write(
        folder.path(),
        &[
            ("raw/relations/author___writes___paper/edge_reltype.csv", "0\n1\n0\n"),
            ("raw/node-label/paper/node-label.csv", "2.5\nnan\n-1\n"),
        ],
    );
    let (dataset, notes) = read(folder.path());
    let x = dataset.relations[0].features.as_ref().unwrap();
    assert_eq!((x.dim, &x.rows[..]), (3, &[1.0, 2.0, 0.0, 3.0, 4.0, 1.0, 5.0, 6.0, 0.0][..]));
    let (rows, labelled) = (vec![2.5, 0.0, -1.0], vec![true, false, true]);
    assert_eq!(dataset.labels[0].values, LabelValues::Real { dim: 1, rows, labelled });
    assert!(notes.iter().any(|note| note.contains("4 names of classes in `mapping`")), "{notes:#?}");
}

#[test]
fn faults_are_told_with_file_line_value_and_way_out() {
    let feat = "raw/node-feat/paper/node-feat.csv";
    let edge = "raw/relations/author___writes___paper/edge.csv";
    let cases: &[(&str, &str, &[&str])] = &[
        ("raw/num-node-dict.csv", "author,paper\n2,3\n4,5\n", &["num-node-dict.csv: there are 2 graphs", "ogbg"]),
        ("raw/num-node-dict.csv", "author,paper\n", &["num-node-dict.csv: there is no row with numbers"]),
        ("raw/num-node-dict.csv", "author,paper\n2,many\n", &["`many` is not a number of vertices"]),
        ("raw/num-node-dict.csv", "author,paper\n2\n", &["num-node-dict.csv:2: there are 1 numbers for 2 types"]),
        ("raw/num-node-dict.csv", "paper,paper\n2,3\n", &["num-node-dict.csv:1: types have names that differ"]),
        (
            "raw/triplet-type-list.csv",
            "author,writes\n",
            &["triplet-type-list.csv:1: a line is head, relation and tail"],
        ),
        (
            "raw/triplet-type-list.csv",
            "author,reads,paper\n",
            &["author___reads___paper: there is no `edge.csv.gz` in it"],
        ),
        (
            "raw/triplet-type-list.csv",
            "editor,writes,paper\n",
            &["there is no vertex type `editor` (there is `author`, `paper`)"],
        ),
        (feat, "1,2\n3,4\n", &["node-feat.csv: there are 2 rows, but 3 vertices of `paper`: a row for each"]),
        (feat, "1,2\n3\n4,5\n", &["node-feat.csv:2: there are 1 fields, but 2 in the first line"]),
        (feat, "1,2\n3,x\n4,5\n", &["node-feat.csv:2: `x` is not a finite number"]),
        (feat, "1,2\n3,inf\n4,5\n", &["node-feat.csv:2: `inf` is not a finite number"]),
        ("raw/node-feat/paper/node_year.csv", "2010\nlate\n2012\n", &["node_year.csv:2: `late` is not an integer"]),
        (
            "raw/node-feat/paper/node_year.csv",
            "1,2\n1,2\n1,2\n",
            &["node_year.csv: there are 2 columns, but 1 is expected"],
        ),
        ("raw/node-label/paper/node-label.csv", "good\n1\n0\n", &["node-label.csv:1: `good` is not a number"]),
        ("raw/node-label/paper/node-label.csv", "nan\nnan\nnan\n", &["node-label.csv: no vertex has a label"]),
        (
            "raw/node-label/paper/node-label.csv",
            "0\nnan\n1e308\n",
            &["node-label.csv:3: the label 1000000", "is too large for a number of 32 bits", "scale the labels"],
        ),
        (
            "raw/node-label/paper/node-label.csv",
            "0,1\n1,nan\n0,0\n",
            &["node-label.csv:2: some labels of the vertex are nan", "set them"],
        ),
        (edge, "0,0\n0,3\n1,2\n", &["edge.csv:2: destination 3 is no vertex of `paper`, of which there are 3"]),
        (edge, "2,0\n5,3\n1,2\n", &["edge.csv:1: source 2 is no vertex of `author`, of which there are 2, and 1 more"]),
        (edge, "-1,0\n0,0\n1,2\n", &["edge.csv:1: source -1 is no vertex"]),
        (edge, "0,0\n1,2\n", &["edge.csv: there are 2 edges, but `num-edge-list.csv.gz` beside it says 3"]),
        (edge, "0,0,1\n0,0,1\n1,2,1\n", &["edge.csv: there are 3 columns, but 2 are expected"]),
        ("split/time/paper/train.csv", "2\n2\n", &["train.csv:2: vertex 2 is in the split already"]),
        (
            "split/time/paper/test.csv",
            "2\n",
            &["test.csv:1: vertex 2 is in the split already: a vertex is in one part, once"],
        ),
        ("split/time/paper/test.csv", "8\n", &["test.csv:1: vertex 8 is no vertex of `paper`"]),
    ];
    for (file, text, parts) in cases {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), TABLES);
        write(folder.path(), &[(file, text)]);
        let error = import(Kind::Ogb, folder.path()).map(drop).expect_err(&format!("{file}: {text}"));
        let said = error.to_string();
        assert!(parts.iter().all(|part| said.contains(part)), "{file}: {text}\nsaid: {said}\nexpected: {parts:?}");
    }
}

#[test]
fn faults_of_archives_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    archives(&raw, true);
    let said = || import(Kind::Ogb, folder.path()).map(drop).unwrap_err().to_string();
    archive(&raw.join("node_feat_dict.npz"), &[("paper", array(&[3, 1], &[1.0f32, f32::NAN, 0.0]))], true);
    assert!(said().contains("node_feat_dict.npz: row 1 of `paper`: NaN is not a finite number"), "{}", said());
    archive(&raw.join("node_feat_dict.npz"), &[("venue", array(&[3, 1], &[1.0f32, 2.0, 0.0]))], true);
    assert!(said().contains("node_feat_dict.npz: there is no vertex type `venue`"), "{}", said());
    fs::remove_file(raw.join("node_feat_dict.npz")).unwrap();
    let edges = raw.join("edge_index_dict.npz");
    archive(&edges, &[("author___writes___paper", array(&[2, 1], &[0.0f32, 1.0]))], true);
    assert!(said().contains("but [2, edges] and integers are expected"), "{}", said());
    archive(&edges, &[("author-writes-paper", array(&[2, 1], &[0i64, 1]))], true);
    assert!(said().contains("`author-writes-paper` is not head___relation___tail"), "{}", said());
    let bytes = fs::read(&edges).unwrap();
    fs::write(&edges, &bytes[..bytes.len() / 2]).unwrap();
    assert!(said().contains("edge_index_dict.npz: is not a readable .npz archive"), "{}", said());
}

#[test]
fn folders_of_something_else_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let said = || import(Kind::Ogb, folder.path()).map(drop).unwrap_err().to_string();
    assert!(said().contains("there is no folder `raw` in it"), "{}", said());
    fs::create_dir(folder.path().join("raw")).unwrap();
    assert!(said().contains("there is no `triplet-type-list.csv.gz`"), "{}", said());
}

#[test]
fn pickles_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), TABLES);
    write(folder.path(), &[("split/time/split_dict.pt", "?")]);
    let (_, notes) = read(folder.path());
    assert!(notes.iter().any(|note| note.contains("split_dict.pt` is a pickle of PyTorch")), "{notes:#?}");
}

#[test]
fn archives_with_wrong_bytes_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for file in ["edge_index_dict.npz", "num_nodes_dict.npz", "node-label.npz"] {
        for compress in [true, false] {
            archives(&raw, compress);
            let bytes = fs::read(raw.join(file)).unwrap();
            for _ in 0..60 {
                let mut changed = bytes.clone();
                for _ in 0..rng.random_range(1..4) {
                    let at = rng.random_range(0..changed.len());
                    changed[at] = rng.random();
                }
                if rng.random_range(0..4) == 0 {
                    changed.truncate(rng.random_range(0..changed.len()));
                }
                fs::write(raw.join(file), &changed).unwrap();
                if let Err(error) = import(Kind::Ogb, folder.path()) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}
