//! From tables to predictions: `data import`, `train`, `infer` with the ids of the tables.

use hgnnc_graph::Dataset;

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
    place.run(&["data", "import", "triples", "t", "made", "--config", "c"]).fails(1, &["`--config` describes tables"]);
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
    place.run(&["train", "m.hgnn", "--data", "made", "--weights-out", "w.safetensors"]).works();
    // Tests have no feature that the usual build does not have, and it is refused before the work.
    let infer = ["infer", "m.hgnn", "--data", "made", "--weights", "w.safetensors", "--out", "y.parquet"];
    place.run(&infer).fails(3, &["this build writes no Parquet files", "cargo build --release --features parquet"]);
    std::fs::write(place.path("s.toml"), "unknown = \"skip\"\n").unwrap();
    std::fs::write(folder.join("e.csv"), "src_id,dst_id\n1,2\n3,9\n").unwrap();
    let import = ["data", "import", "dgl", "dgl", "--dry-run"];
    place.run(&import).fails(1, &["e.csv:3: this line names a vertex of type `_V` that is not there: `9`"]);
    place.run(&[&import[..], &["--config", "s.toml"]].concat()).works();
}
