//! From tables to predictions: `data import`, `train`, `infer` with the ids of the tables.

use hgnnc_dataset::Dataset;

use crate::common::Place;

const CONFIG: &str = r#"
name = "library"
[[vertex_type]]
name = "paper"
files = "papers.csv"
id = "doi"
label = { column = "topic" }
split = { train = 0.5, val = 0.25, seed = 1 }
features = [{ columns = ["pages", "year"], scale = "standard" }]
[[vertex_type]]
name = "author"
[[relation]]
name = "writes"
src = "author"
dst = "paper"
files = "writes.csv"
src_key = "author"
dst_key = "paper"
"#;

/// Papers on compilers are long, those on graphs are short.
fn write_tables(place: &Place) {
    let folder = place.path("tables");
    std::fs::create_dir(&folder).unwrap();
    let mut papers = String::from("doi,pages,year,topic\n");
    let mut writes = String::from("author,paper\n");
    for paper in 0..40 {
        let topic = ["graphs", "compilers"][paper % 2];
        papers += &format!("10.1/p{paper},{},{},{topic}\n", 5 + 40 * (paper % 2) + paper % 3, 2000 + paper % 7);
        writes += &format!("Author {},10.1/p{paper}\n", paper % 9);
    }
    std::fs::write(folder.join("papers.csv"), papers).unwrap();
    std::fs::write(folder.join("writes.csv"), writes).unwrap();
    std::fs::write(folder.join("import.toml"), CONFIG).unwrap();
}

#[test]
fn tables_become_predictions_with_their_ids_in_three_commands() {
    let place = Place::new();
    write_tables(&place);
    let made = place.run(&["data", "import", "tables", "tables", "made", "--model", "papers.hgnn"]).works();
    assert!(made.out.contains("`hgnnc train papers.hgnn --data made` trains it"), "{}", made.out);
    place.run(&["train", "papers.hgnn", "--data", "made", "--weights-out", "w.safetensors"]).works();
    let infer = ["infer", "papers.hgnn", "--data", "made", "--weights", "w.safetensors", "--out"];
    place.run(&[&infer[..], &["topics.csv"]].concat()).works();
    let text = std::fs::read_to_string(place.path("topics.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("id,class"));
    let right = |(paper, line): (usize, &str)| line == format!("10.1/p{paper},{}", ["graphs", "compilers"][paper % 2]);
    assert_eq!(lines.clone().count(), 40);
    let right = lines.enumerate().filter(|&(paper, line)| right((paper, line))).count();
    assert!(right >= 36, "{right} of 40:\n{text}");

    place.run(&[&infer[..], &["shares.csv", "--probabilities"]].concat()).works();
    let text = std::fs::read_to_string(place.path("shares.csv")).unwrap();
    assert!(text.starts_with("id,class,compilers,graphs\n10.1/p0,"), "{text}");
    for line in text.lines().skip(1) {
        let shares: Vec<f64> = line.split(',').skip(2).map(|share| share.parse().unwrap()).collect();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{line}");
    }
}

#[test]
fn a_dry_run_says_what_would_be_made_and_writes_nothing() {
    let place = Place::new();
    write_tables(&place);
    let run = place.run(&["data", "import", "tables", "tables", "--dry-run"]).works();
    assert!(run.out.contains("library") && run.out.contains("nothing is written: this is a dry run"), "{}", run.out);
    place.run(&["data", "import", "tables", "tables", "made", "--dry-run"]).works();
    assert!(!place.path("made").exists());
}

#[test]
fn nothing_is_written_over_or_beside_a_fault() {
    let place = Place::new();
    write_tables(&place);
    let import = ["data", "import", "tables", "tables"];
    place.run(&[&import[..], &["data"]].concat()).fails(1, &["exists and is not an empty folder; it is left alone"]);
    place.model("model M");
    let said = place.run(&[&import[..], &["made", "--model", "m.hgnn"]].concat());
    said.fails(1, &["`m.hgnn` exists; it is left alone"]);
    let writes = place.path("tables/writes.csv");
    std::fs::write(&writes, "author,paper\nA,10.1/p1\nA,10.1/p99\n").unwrap();
    let said = place.run(&[&import[..], &["made"]].concat());
    said.fails(1, &["writes.csv:3: this line names a vertex of type `paper` that is not there: `10.1/p99`"]);
    assert!(!place.path("made").exists());
    place.run(&["data", "import", "triples", "nowhere", "made"]).fails(1, &["nowhere"]);
    for kind in ["triples", "hgb", "ogb"] {
        let said = place.run(&["data", "import", kind, "t", "made", "--config", "c"]);
        said.fails(1, &["`--config` describes tables or has settings", kind]);
    }
    place.run(&["data", "import", "sheets", "t", "made"]).fails(2, &["sheets", "tables", "triples"]);
}

#[test]
fn triples_become_links_to_predict() {
    let place = Place::new();
    std::fs::create_dir(place.path("kg")).unwrap();
    std::fs::write(place.path("kg/train.txt"), "a\tr\tb\nb\tr\tc\n").unwrap();
    std::fs::write(place.path("kg/test.txt"), "a\tr\tc\n").unwrap();
    place.run(&["data", "import", "triples", "kg", "made"]).works();
    let dataset = Dataset::load(place.path("made")).unwrap();
    assert_eq!((dataset.num_vertices(), dataset.num_edges(), dataset.link_splits[0].test.len()), (3, 2, 1));
}

#[test]
fn a_folder_of_another_library_becomes_a_dataset() {
    let place = Place::new();
    let folder = place.path("dgl");
    std::fs::create_dir(&folder).unwrap();
    let meta = "dataset_name: d\nnode_data:\n- file_name: v.csv\nedge_data:\n- file_name: e.csv\n";
    for (name, text) in [
        ("meta.yaml", meta),
        ("v.csv", "node_id,label,train_mask,val_mask,x\n3,1,1,0,0.5\n1,0,1,0,1.5\n2,1,0,1,2.5\n"),
        ("e.csv", "src_id,dst_id\n1,2\n3,1\n"),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let made = place.run(&["data", "import", "dgl", "dgl", "made", "--model", "m.hgnn"]).works();
    assert!(made.out.contains("`hgnnc train m.hgnn --data made` trains it"), "{}", made.out);
    let ids = Dataset::load(place.path("made")).unwrap().vertex_types[0].ids.clone().unwrap();
    assert_eq!((ids.text(0), ids.text(2)), ("1".into(), "3".into()));
    place.run(&["train", "m.hgnn", "--data", "made"]).works();
    std::fs::write(place.path("s.toml"), "unknown = \"skip\"\n").unwrap();
    std::fs::write(folder.join("e.csv"), "src_id,dst_id\n1,2\n3,9\n").unwrap();
    let import = ["data", "import", "dgl", "dgl", "--dry-run"];
    place.run(&import).fails(1, &["e.csv:3: this line names a vertex of type `_V` that is not there: `9`"]);
    place.run(&[&import[..], &["--config", "s.toml"]].concat()).works();
}

#[test]
fn new_rows_of_tables_get_predictions() {
    let place = Place::new();
    write_tables(&place);
    place.run(&["data", "import", "tables", "tables", "made", "--model", "papers.hgnn"]).works();
    place.run(&["train", "papers.hgnn", "--data", "made", "-o", "papers.hgnnx"]).works();
    // Pages of graphs and of compilers; without the scale of the graph both would be the same.
    for (topic, pages) in [("graphs", 6), ("compilers", 46)] {
        let papers = format!("doi,pages,year,topic\n10.1/new,{pages},2003,\n");
        std::fs::write(place.path("tables/papers.csv"), papers).unwrap();
        std::fs::write(place.path("tables/writes.csv"), "author,paper\nAuthor 3,10.1/new\nAuthor 3,10.1/p1\n").unwrap();
        let import = ["data", "import", "tables", "tables", topic, "--like", "made"];
        let made = place.run(&import).works();
        assert!(made.out.contains(&format!("`hgnnc infer --new {topic}` gives predictions for it")), "{}", made.out);
        let infer = ["infer", "papers.hgnnx", "--data", "made", "--new", topic, "--out", "topics.csv"];
        place.run(&infer).works();
        let text = std::fs::read_to_string(place.path("topics.csv")).unwrap();
        assert_eq!(text, format!("id,class\n10.1/new,{topic}\n10.1/p1,compilers\n"));
        std::fs::remove_file(place.path("topics.csv")).unwrap();
    }
    let refused = place.run(&["data", "import", "ogb", "tables", "again", "--like", "made"]);
    refused.fails(1, &["`--like` is of features that are made of columns, and `ogb` has none"]);
}

#[test]
fn results_in_parquet_are_those_in_csv() {
    let place = Place::new();
    write_tables(&place);
    place.run(&["data", "import", "tables", "tables", "made", "--model", "papers.hgnn"]).works();
    place.run(&["train", "papers.hgnn", "--data", "made", "--weights-out", "w.safetensors"]).works();
    for ending in ["csv", "parquet"] {
        let out = format!("shares.{ending}");
        let infer =
            ["infer", "papers.hgnn", "--data", "made", "--weights", "w.safetensors", "--probabilities", "--out"];
        place.run(&[&infer[..], &[&out]].concat()).works();
        let config = format!(
            "[[vertex_type]]\nname = \"paper\"\nfiles = \"{out}\"\nid = \"id\"\nlabel = {{ column = \"class\" }}\n\
             features = [{{ columns = [\"compilers\", \"graphs\"], scale = \"none\" }}]\n"
        );
        std::fs::write(place.path(&format!("{ending}.toml")), config).unwrap();
        let (config, made) = (format!("{ending}.toml"), format!("from {ending}"));
        place.run(&["data", "import", "tables", ".", &made, "--config", &config]).works();
    }
    assert_same_dataset(&place, "from csv", "from parquet");
    let dataset = Dataset::load(place.path("from parquet")).unwrap();
    assert_eq!(dataset.vertex_types[0].ids.as_ref().unwrap().text(39), "10.1/p39");
    assert_eq!(dataset.labels[0].class_names, ["compilers", "graphs"]);
}

/// The folder of a dataset holds the files of another one, with the same contents, and `dataset.toml` but for the name
/// of the dataset and the transforms that the reader of tables keeps.
#[track_caller]
fn assert_same_dataset(place: &Place, a: &str, b: &str) {
    let files = |name: &str| {
        let entries = std::fs::read_dir(place.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut all: Vec<(String, Vec<u8>)> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "npy" || end == "txt"))
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
            .collect();
        all.sort();
        all
    };
    let (found, expected) = (files(b), files(a));
    let names = |of: &[(String, Vec<u8>)]| of.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected));
    assert!(expected.len() > 3, "{:?}", names(&expected));
    for ((name, found), (_, expected)) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "{name}");
    }
    let described = |name: &str| {
        let text = std::fs::read_to_string(place.path(name).join("dataset.toml")).unwrap();
        let mut section = "";
        let lines = text.lines().filter(|line| {
            section = if line.starts_with('[') { line } else { section };
            !line.is_empty() && !section.is_empty() && section != "[[vertex_type.transform]]"
        });
        lines.map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(described(b), described(a));
}

/// Writes files into a folder of their own.
fn write_files(place: &Place, folder: &str, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = place.path(folder).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

const HGB: [(&str, &str); 6] = [
    ("node.dat", "0\tp a\t0\t1,0.5\n1\tp/b\t0\t0,2\n2\tpc\t0\t3,4\n3\tAda\t1\n4\tBen\t1\n"),
    ("link.dat", "0\t1\t0\t1.0\n0\t1\t0\t1.0\n3\t0\t1\t0.5\n4\t2\t1\t1\n"),
    ("label.dat", "0\tp a\t0\t1\n1\tp/b\t0\t0\n"),
    ("label.dat.val", "1\n"),
    ("label.dat.test", "2\tpc\t0\t1\n"),
    (
        "info.dat",
        r#"{"node.dat": {"node type": {"0": "paper", "1": "author"}},
        "link.dat": {"link type": {"0": {"start": 0, "end": 0, "meaning": "paper-cite-paper"},
                                   "1": {"start": 1, "end": 0, "meaning": "author-writes-paper"}}},
        "label.dat": {"node type": {"0": {"0": "graphs", "1": "compilers"}}}}"#,
    ),
];

#[test]
fn what_is_exported_is_imported_as_an_equal_dataset() {
    let place = Place::new();
    write_files(&place, "hgb", &HGB);
    let made = place.run(&["data", "import", "hgb", "hgb", "made", "--model", "m.hgnn"]).works();
    assert!(made.out.contains("`hgnnc train m.hgnn --data made` trains it"), "{}", made.out);
    let dataset = Dataset::load(place.path("made")).unwrap();
    assert_eq!((dataset.num_vertices(), dataset.num_edges()), (5, 4));
    assert_eq!(dataset.labels[0].class_names, ["graphs", "compilers"]);
    for kind in ["hgb", "tables"] {
        let (out, back) = (format!("{kind} files"), format!("{kind} again"));
        let said = place.run(&["data", "export", kind, "made", &out]).works();
        assert!(said.out.contains(&format!("wrote {out}; `hgnnc data import {kind}` reads it")), "{}", said.out);
        assert_eq!(said.err, "", "nothing is left out");
        place.run(&["data", "import", kind, &out, &back]).works();
        assert_same_dataset(&place, "made", &back);
    }
    let said = place.run(&["data", "export", "pyg", "made", "pyg"]).works();
    assert!(said.out.contains("HeteroData"), "{}", said.out);
    assert!(place.path("pyg/load.py").is_file());
    assert_same_dataset(&place, "made", "pyg");
}

#[test]
fn the_files_of_ogb_become_a_dataset_and_are_written_again() {
    let place = Place::new();
    let files = [
        ("raw/num-node-dict.csv", "author,paper\n2,3\n"),
        ("raw/triplet-type-list.csv", "author,writes,paper\npaper,cites,paper\n"),
        ("raw/nodetype-has-label.csv", "author,paper\nFalse,True\n"),
        ("raw/node-feat/paper/node-feat.csv", "0.5,1\n-2,3e-1\n0,4\n"),
        ("raw/node-feat/paper/node_year.csv", "2010\n2011\n2012\n"),
        ("raw/node-label/paper/node-label.csv", "2\n1\n0\n"),
        ("raw/relations/author___writes___paper/edge.csv", "0,0\n0,0\n1,2\n"),
        ("raw/relations/author___writes___paper/edge_weight.csv", "0.5\n1\n2\n"),
        ("raw/relations/paper___cites___paper/edge.csv", "1,0\n"),
        ("split/time/nodetype-has-split.csv", "author,paper\nFalse,True\n"),
        ("split/time/paper/train.csv", "2\n"),
        ("split/time/paper/valid.csv", "1\n"),
        ("split/time/paper/test.csv", "0\n"),
        ("mapping/author_entidx2name.csv", "ent idx,ent name\n1,\"b, c\"\n0,a\n"),
        ("mapping/labelidx2venuename.csv", "label idx,venue name\n0,ICML\n1,KDD\n2,PLDI\n"),
    ];
    write_files(&place, "ogb", &files);
    place.run(&["data", "import", "ogb", "ogb", "made"]).works();
    let dataset = Dataset::load(place.path("made")).unwrap();
    assert_eq!((dataset.num_vertices(), dataset.num_edges()), (5, 4));
    assert_eq!((&dataset.splits[0].name[..], &dataset.splits[0].val[..]), ("time", &[1][..]));
    let said = place.run(&["data", "export", "ogb", "made", "out"]).works();
    assert!(said.out.contains("`hgnnc data import ogb` reads it"), "{}", said.out);
    place.run(&["data", "import", "ogb", "out", "again"]).works();
    assert_same_dataset(&place, "made", "again");
    // HGB has no times.
    let said = place.run(&["data", "export", "hgb", "made", "hgb"]).works();
    assert!(said.err.contains("note: HGB has no place for times of vertices, which `paper`"), "{}", said.err);
}

#[test]
fn an_export_that_the_layout_cannot_hold_is_refused() {
    let place = Place::new();
    write_files(&place, "kg", &[("train.txt", "a\tof/by\tb\nb\tof/by\tc\n")]);
    place.run(&["data", "import", "triples", "kg", "made"]).works();
    place.run(&["data", "export", "ogb", "made", "out"]).fails(1, &["of/by", "/"]);
    assert!(!place.path("out").exists());
    place.run(&["data", "export", "pyg", "made", "out"]).works();
    place.run(&["data", "export", "hgb", "made", "out"]).fails(1, &["exists and is not an empty folder"]);
    place.run(&["data", "export", "hgb", "nowhere", "none"]).fails(1, &["nowhere"]);
    let unknown = place.run(&["data", "export", "dgl", "made", "none"]);
    unknown.fails(2, &["'dgl'", "tables, hgb, ogb, pyg"]);
    let unknown = place.run(&["data", "import", "OGB", "made", "none"]);
    unknown.fails(2, &["'OGB'", "tables, triples, hgb, ogb, ntriples, dgl, graphbolt, graphstorm"]);
    assert!(!place.path("none").exists());
}

#[test]
fn faults_of_benchmarks_name_the_line() {
    let place = Place::new();
    write_files(&place, "hgb", &HGB);
    write_files(&place, "hgb", &[("link.dat", "0\t1\t0\t1.0\n0\t9\t0\t1.0\n")]);
    place.run(&["data", "import", "hgb", "hgb", "made"]).fails(1, &["link.dat:2", "9"]);
    place.run(&["data", "import", "ogb", "hgb", "made"]).fails(1, &["raw"]);
    assert!(!place.path("made").exists());
}

#[test]
fn help_has_a_line_for_each_kind() {
    let place = Place::new();
    for (command, kinds) in [
        ("import", &["tables", "triples", "hgb", "ogb", "ntriples", "dgl", "graphbolt", "graphstorm"][..]),
        ("export", &["tables", "hgb", "ogb", "pyg"]),
    ] {
        let help = place.run(&["data", command, "--help"]).works().out;
        for kind in kinds {
            let line = help.lines().find_map(|line| line.trim_start().strip_prefix(&format!("- {kind}:")));
            assert!(line.is_some_and(|about| about.trim().len() > 10), "no line for {kind}:\n{help}");
        }
    }
}
