//! Datasets that the loader accepts, and its messages on all others.

#[path = "common/tiny.rs"]
mod tiny;

use std::path::Path;

use hgnnc_dataset::npy::{self, Element};
use hgnnc_dataset::{DataErrors, Dataset, Features, LabelValues, schema_text};
use hgnnc_graph::DatasetInfo;
use proptest::prelude::*;

/// Loads the tiny dataset after applying `change` to its folder.
fn load_after(change: impl FnOnce(&Path)) -> Result<Dataset, DataErrors> {
    let dir = tempfile::tempdir().unwrap();
    tiny::write(dir.path());
    change(dir.path());
    Dataset::load(dir.path())
}

/// Checks that the tiny dataset with `change` has exactly these errors.
#[track_caller]
fn says(change: impl FnOnce(&Path), expected: &[&str]) {
    let errors = load_after(change).expect_err("the dataset is broken").errors;
    let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

/// Replaces text in `dataset.toml`.
fn toml(from: &'static str, to: &'static str) -> impl Fn(&Path) {
    move |dir| {
        let text = std::fs::read_to_string(dir.join("dataset.toml")).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(dir.join("dataset.toml"), text.replacen(from, to, 1)).unwrap();
    }
}

/// Overwrites a file with another array.
fn file<T: Element>(name: &'static str, shape: &'static [usize], values: &'static [T]) -> impl Fn(&Path) {
    move |dir| npy::write(&dir.join(name), shape, values).unwrap()
}

/// Overwrites a file with booleans.
fn mask(name: &'static str, shape: &'static [usize], values: &'static [u8]) -> impl Fn(&Path) {
    move |dir| {
        file(name, shape, values)(dir);
        let mut bytes = std::fs::read(dir.join(name)).unwrap();
        let at = bytes.windows(3).position(|word| word == b"|u1").expect("the type of elements");
        bytes[at + 1] = b'b';
        std::fs::write(dir.join(name), bytes).unwrap();
    }
}

#[test]
fn everything_is_read() {
    let d = load_after(|_| ()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((&d.name[..], d.num_vertices(), d.num_edges()), ("tiny", 7, 6));
    let Some(Features::Sparse(x)) = &d.vertex_types[0].features else { panic!("sparse") };
    assert_eq!(x.row(0), (&[0, 2][..], &[1.0, 2.0][..]));
    assert_eq!(x.row(1), (&[][..], &[][..]));
    assert_eq!(d.vertex_types[0].kinds.as_ref().unwrap().of, [0, 1, 0, 1]);
    let Some(Features::Dense(x)) = &d.vertex_types[1].features else { panic!("dense") };
    assert_eq!((x.row(2), x.rows.is_mapped()), (&[5.0, 6.0][..], true));
    let writes = &d.relations[d.relation("writes").unwrap()];
    assert_eq!((&writes.src_ids[..], &writes.dst_ids[..]), (&[0, 1, 1, 2][..], &[0, 0, 3, 2][..]));
    assert_eq!(&writes.weight.as_ref().unwrap()[..], [0.5, 1.0, 1.5, 2.0]);
    assert_eq!(writes.features.as_ref().unwrap().dim, 2);
    let cites = &d.relations[1];
    assert_eq!((&cites.src_ids[..], &cites.dst_ids[..]), (&[0, 1][..], &[1, 3][..]));
    assert_eq!(d.label(0, "y").unwrap().values, LabelValues::Single { classes: 3, of: vec![0, 2, -1, 1] });
    let rows = vec![1.0, 0.0, 0.0, 0.0, 1.0, 1.0];
    let labelled = vec![true, false, true];
    assert_eq!(
        d.label(1, "topics").unwrap().values,
        LabelValues::Multi { classes: 2, rows, labelled: labelled.clone() }
    );
    let rows = vec![30.0, 0.0, 50.0];
    assert_eq!(d.label(1, "age").unwrap().values, LabelValues::Real { dim: 1, rows, labelled });
    let split = d.split(0, None).unwrap();
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[1][..], &[0][..], &[3][..]));
    assert_eq!(d.split(0, Some("other")).map(|s| &s.name), None);
    assert_eq!((d.link_splits[0].val.len(), d.link_splits[0].test.is_empty()), (2, true));
    assert_eq!(d.metapath("APA").unwrap().steps.len(), 2);

    let info = DatasetInfo::new(&d).unwrap();
    let json = info.json();
    assert_eq!(json["metapaths"][0]["pairs"], 5);
    assert_eq!(json["metapaths"][0]["self_pairs"], 3);
    assert_eq!(json["metapaths"][0]["instances"], 6);
    assert_eq!(json["relations"][0]["in_degree"]["isolated"], 1);
    let class =
        |from, to, vertices, edges| serde_json::json!({ "from": from, "to": to, "vertices": vertices, "edges": edges });
    let of_writes = serde_json::json!([class(0, 0, 1, 0), class(1, 1, 2, 2), class(2, 3, 1, 2)]);
    assert_eq!(json["relations"][0]["in_degree"]["classes"], of_writes);
    let of_apa = serde_json::json!([class(1, 1, 1, 1), class(2, 3, 2, 4)]);
    assert_eq!([&json["metapaths"][0]["out_classes"], &json["metapaths"][0]["in_classes"]], [&of_apa; 2]);
    assert_eq!(json["labels"][0]["per_class"], serde_json::json!([1, 1, 1]));
    assert!(info.text().contains("APA       >writes <writes      5           3          6           2"), "{info}");
    let text = info.text();
    let degrees = text.rsplit("\n\n").next().unwrap();
    let expected = "\
vertices with degree       0  1       2-3
writes                out     2 50%   1 50%
writes                in   1  2 50%   1 50%
cites                 out  2  2 100%
cites                 in   2  2 100%
APA                   out     1 20%   2 80%
APA                   in      1 20%   2 80%
";
    assert_eq!(degrees, expected);
    let schema = schema_text(&d);
    assert!(schema.contains("vertex Author from \"author\" { x: f32[2], topics: multilabel[2], age: target[1] }"));
    assert!(schema.contains("relation writes: Author -> Paper from \"writes\" { weight: f32, x: f32[2] }"));
}

/// Adds fields to the authors.
fn with_fields(dir: &Path) {
    let more = "file = \"dense.npy\"\n\n[[vertex_type.field]]\nname = \"year\"\nkind = \"dense\"\ndim = 1\nfile = \"year.npy\"\n\n\
        [[vertex_type.field]]\nname = \"words\"\nkind = \"csr\"\ndim = 4\nindptr = \"words.indptr.npy\"\n\
        indices = \"words.indices.npy\"\ndata = \"words.data.npy\"\n";
    toml("file = \"dense.npy\"\n", more)(dir);
    file("year.npy", &[3, 1], &[1999f32, 2003.0, 2011.0])(dir);
    file("words.indptr.npy", &[4], &[0i64, 1, 1, 3])(dir);
    file("words.indices.npy", &[3], &[3i32, 0, 2])(dir);
    file("words.data.npy", &[3], &[1f32, 2.0, 3.0])(dir);
}

#[test]
fn further_fields_of_features_are_read() {
    let d = load_after(with_fields).unwrap_or_else(|e| panic!("{e}"));
    let author = &d.vertex_types[1];
    assert_eq!(author.features.as_ref().map(Features::dim), Some(2));
    let Some(Features::Dense(year)) = author.features_of(Some("year")) else { panic!("dense") };
    assert_eq!((year.row(1), year.rows.is_mapped()), (&[2003.0][..], true));
    let Some(Features::Sparse(words)) = author.features_of(Some("words")) else { panic!("sparse") };
    assert_eq!(words.row(2), (&[0, 2][..], &[2.0, 3.0][..]));
    assert!(author.features_of(Some("features")).is_none());

    let info = DatasetInfo::new(&d).unwrap();
    let expected = serde_json::json!([
        { "name": "year", "kind": "dense", "dim": 1, "stored": 3 },
        { "name": "words", "kind": "sparse", "dim": 4, "stored": 3 },
    ]);
    assert_eq!(info.json()["vertex_types"][1]["fields"], expected);
    assert_eq!(info.json()["vertex_types"][0].get("fields"), None, "as before without fields");
    let lines: Vec<String> =
        info.text().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in ["author 3 2 dense 6", "year 1 dense 3", "words 4 sparse 3"] {
        assert!(lines.iter().any(|found| found == line), "{line}: {info}");
    }
    let schema = schema_text(&d);
    assert!(schema.contains("{ x: f32[2], year: f32[1], words: f32[4] sparse, topics: multilabel[2]"), "{schema}");
}

#[test]
fn damaged_fields_of_features_are_named() {
    let after = |change: &dyn Fn(&Path), expected: &[&str]| {
        says(
            |dir| {
                with_fields(dir);
                change(dir);
            },
            expected,
        );
    };
    let own = "a name of its own (`features` is that of `[vertex_type.features]`)";
    after(
        &toml("name = \"year\"\n", ""),
        &["dataset.toml: field number 1 of vertex type `author` has no `name` (expected a string)"],
    );
    after(
        &toml("name = \"year\"", "name = \"features\""),
        &[&format!(
            "dataset.toml: `name` of field `features` of vertex type `author` should be {own}, but is `features`"
        )],
    );
    after(
        &toml("name = \"year\"", "name = \"\""),
        &["dataset.toml: `name` of field `` of vertex type `author` should be a non-empty string, but is ``"],
    );
    after(
        &toml("name = \"year\"", "name = \"words\""),
        &["dataset.toml: two fields of vertex type `author` are called `words`"],
    );
    after(
        &toml("kind = \"csr\"\ndim = 4", "kind = \"sparse\"\ndim = 4"),
        &["dataset.toml: `kind` of field `words` of vertex type `author` should be `dense` or `csr`, but is `sparse`"],
    );
    after(
        &file("words.indices.npy", &[3], &[4i32, 0, 2]),
        &[
            "`words.indices.npy`: field `words` of vertex type `author`, column of row 0 (position 0) is 4, but `dim` has 4, so \
           ids go from 0 to 3",
        ],
    );
    after(
        &file("year.npy", &[2, 1], &[1f32, 2.0]),
        &[
            "`year.npy` (`file` of field `year` of vertex type `author`) should have shape [3, 1] (one row per vertex), but has [2, 1]",
        ],
    );
    after(
        &|dir| std::fs::remove_file(dir.join("words.data.npy")).unwrap(),
        &["`words.data.npy` does not exist (named by `data` of field `words` of vertex type `author`)"],
    );
    after(
        &file("year.npy", &[3, 1], &[1f32, f32::INFINITY, 2.0]),
        &["`year.npy`: field `year` of vertex type `author`, row 1, column 0 is inf"],
    );
}

#[test]
fn other_widths_and_kinds_are_accepted() {
    let changes: [&dyn Fn(&Path); 8] = [
        &file("writes.npy", &[2, 4], &[0i64, 1, 1, 2, 0, 0, 3, 2]),
        &file("writes.npy", &[2, 4], &[0u32, 1, 1, 2, 0, 0, 3, 2]),
        &file("multi.npy", &[3, 2], &[1u8, 0, 0, 0, 1, 1]),
        &file("multi.npy", &[3, 2], &[1i32, 0, -1, -1, 1, 1]),
        &file("real.npy", &[3, 1], &[1f32, 2.0, 3.0]),
        &file("indptr.npy", &[5], &[0i32, 2, 2, 3, 5]),
        &toml("file = \"y.npy\"", "file = \"./y.npy\"\nkind = \"single\""),
        &toml("steps = [\">writes\", \"<writes\"]", "steps = [\">writes\", \">cites\", \"<writes\"]"),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        load_after(change).unwrap_or_else(|e| panic!("change {i}: {e}"));
    }
}

#[test]
fn the_folder_and_its_toml() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Dataset::load(dir.path().join("nowhere")).unwrap_err();
    assert!(missing.to_string().starts_with("there is no folder `"), "{missing}");
    let empty = Dataset::load(dir.path()).unwrap_err().to_string();
    assert!(empty.ends_with("` is not a dataset: it has no `dataset.toml`"), "{empty}");
    std::fs::write(dir.path().join("file"), "").unwrap();
    let file = Dataset::load(dir.path().join("file")).unwrap_err().to_string();
    assert!(file.ends_with("` is a file: name the folder of a dataset"), "{file}");
    let broken = load_after(toml("count = 4", "count = = 4")).unwrap_err().to_string();
    assert!(broken.contains("dataset.toml is not valid TOML: ") && broken.contains("line 7"), "{broken}");
    says(toml("name = \"tiny\"", ""), &["dataset.toml: the dataset has no `name` (expected a string)"]);
    says(
        |dir| std::fs::write(dir.join("dataset.toml"), "name = \"none\"").unwrap(),
        &["dataset.toml: the dataset has no `vertex_type` (expected at least one [[vertex_type]])"],
    );
    says(
        |dir| std::fs::write(dir.join("dataset.toml"), "name = \"x\"\nvertex_type = 3").unwrap(),
        &["dataset.toml: `vertex_type` of the dataset should be an array of tables, but is 3"],
    );
}

#[test]
fn fields() {
    says(
        toml("count = 3", "count = \"three\""),
        &["dataset.toml: `count` of vertex type `author` should be a non-negative integer, but is `three`"],
    );
    says(
        toml("count = 3", "count = -3"),
        &["dataset.toml: `count` of vertex type `author` should be a non-negative integer, but is -3"],
    );
    says(
        toml("count = 3", "count = 5000000000"),
        &["dataset.toml: `count` of vertex type `author` should be at most 2^30, but is 5000000000"],
    );
    says(
        toml("classes = 3", "classes = 4294967295"),
        &["dataset.toml: `classes` of label `y` of vertex type `paper` should be from 1 to 2^24, but is 4294967295"],
    );
    says(
        toml("kind = \"csr\"", "kind = \"coo\""),
        &["dataset.toml: `kind` of features of vertex type `paper` should be `dense` or `csr`, but is `coo`"],
    );
    says(
        toml("src = \"author\"", "src = \"autor\""),
        &[
            "dataset.toml: `src` of relation `writes` is `autor`, but there is no vertex type of that name (there is `paper`, `author`)",
        ],
    );
    says(toml("src = \"author\"", ""), &["dataset.toml: relation `writes` has no `src` (expected a string)"]);
    says(
        toml("name = \"author\"", "name = \"paper\""),
        &[
            "dataset.toml: two vertex types are called `paper`",
            "dataset.toml: `src` of relation `writes` is `author`, but there is no vertex type of that name (there is `paper`, `paper`)",
            "dataset.toml: `vertex_type` of label `topics` of vertex type `author` is `author`, but there is no vertex type of that name (there is `paper`, `paper`)",
            "dataset.toml: `vertex_type` of label `age` of vertex type `author` is `author`, but there is no vertex type of that name (there is `paper`, `paper`)",
        ],
    );
    says(toml("name = \"cites\"", "name = \"writes\""), &["dataset.toml: two relations are called `writes`"]);
    says(toml("name = \"age\"", "name = \"topics\""), &["dataset.toml: two labels are called `author.topics`"]);
    says(
        toml("kind = \"multi\"", "kind = \"many\""),
        &[
            "dataset.toml: `kind` of label `topics` of vertex type `author` should be `single`, `multi` or `real`, but is `many`",
        ],
    );
    says(
        toml("columns = [1, 3]", "columns = [1, 5]"),
        &[
            "dataset.toml: `columns` of relation `cites` should be [begin, end] with 0 <= begin <= end <= 4 (edges in the file), but is [1, 5]",
        ],
    );
    says(
        toml("file = \"y.npy\"", "file = \"../y.npy\""),
        &[
            "dataset.toml: `file` of label `y` of vertex type `paper` should be a file inside the dataset folder, but is `../y.npy`",
        ],
    );
    says(
        toml("labelled = 3", "class_names = [\"a\"]"),
        &["dataset.toml: `class_names` of label `y` of vertex type `paper` should be 3 names, but is 1 names"],
    );
}

#[test]
fn files() {
    says(
        |dir| std::fs::remove_file(dir.join("writes.npy")).unwrap(),
        &["`writes.npy` does not exist (named by `file` of relation `writes`)"],
    );
    // Relations of a knowledge graph share one file, whose absence is one mistake.
    let shared = |dir: &Path| {
        toml("file = \"shared.npy\"", "file = \"writes.npy\"")(dir);
        std::fs::remove_file(dir.join("writes.npy")).unwrap();
    };
    says(shared, &["`writes.npy` does not exist (named by `file` of relation `writes`)"]);
    let cut = |dir: &Path| {
        let bytes = std::fs::read(dir.join("writes.npy")).unwrap();
        std::fs::write(dir.join("writes.npy"), &bytes[..bytes.len() - 5]).unwrap();
    };
    says(
        cut,
        &[
            "`writes.npy` (`file` of relation `writes`) should have 32 bytes of data (shape [2, 4], int32), but has 27: the file is truncated",
        ],
    );
    says(
        |dir| std::fs::write(dir.join("writes.npy"), "hello").unwrap(),
        &["`writes.npy` (`file` of relation `writes`) is not a .npy file (its first bytes are not \\x93NUMPY)"],
    );
    says(
        file("writes.npy", &[2, 4], &[0f32; 8]),
        &["`writes.npy` (`file` of relation `writes`) should be int32 (or int64), but is float32"],
    );
    says(
        file("dense.npy", &[3, 2], &[0i32; 6]),
        &[
            "`dense.npy` (`file` of features of vertex type `author`) should be float32 (or float16, float64), but is int32",
        ],
    );
    says(
        file("writes.npy", &[4, 2], &[0i32; 8]),
        &[
            "`writes.npy` (`file` of relation `writes`) should have shape [2, edges] (row 0 sources, row 1 destinations), but has [4, 2]",
        ],
    );
    says(
        file("dense.npy", &[2, 3], &[0f32; 6]),
        &[
            "`dense.npy` (`file` of features of vertex type `author`) should have shape [3, 2] (one row per vertex), but has [2, 3]",
        ],
    );
    says(
        file("weight.npy", &[3], &[0f32; 3]),
        &["`weight.npy` (`weight` of relation `writes`) should have shape [4] (one weight per edge), but has [3]"],
    );
    says(
        file("edge.npy", &[3, 2], &[0f32; 6]),
        &[
            "`edge.npy` (`file` of features of relation `writes`) should have shape [4, 2] (one row per edge), but has [3, 2]",
        ],
    );
}

#[test]
fn counts() {
    says(
        toml("edges = 4", "edges = 5"),
        &["dataset.toml: `edges` of relation `writes` says 5, but `writes.npy` has 4"],
    );
    says(
        toml("nnz = 5", "nnz = 6"),
        &["dataset.toml: `nnz` of features of vertex type `paper` says 6, but `indices.npy` has 5"],
    );
    says(
        toml("labelled = 3", "labelled = 4"),
        &["dataset.toml: `labelled` of label `y` of vertex type `paper` says 4, but `y.npy` has 3"],
    );
    says(
        toml("train_size = 1", "train_size = 2"),
        &["dataset.toml: `train_size` of split `std` says 2, but `train.npy` has 1"],
    );
    says(
        toml("val_edges = 2", "val_edges = 3"),
        &["dataset.toml: `val_edges` of link split `links` says 3, but `links.npy` has 2"],
    );
    says(
        toml("val_edges = 2", "val_edges = 2\nval_time = \"kind.npy\""),
        &["`kind.npy` (`val_time` of link split `links`) should have shape [2] (one time per link), but has [4]"],
    );
    says(
        toml("rows = 3", "rows = 4"),
        &["dataset.toml: `rows` of metapath `APA` should be 3 (the vertices of `author`), but is 4"],
    );
}

#[test]
fn ids() {
    // A mask in place of ids is refused, even if all its values are valid ids.
    says(
        mask("writes.npy", &[2, 4], &[0, 1, 1, 0, 0, 1, 1, 1]),
        &["`writes.npy` (`file` of relation `writes`) should be int32 (or int64): ids, not a mask, but is bool"],
    );
    says(
        file("writes.npy", &[2, 4], &[0i32, 1, 3, 2, 0, -1, 4, 2]),
        &[
            "`writes.npy`: relation `writes`, source of edge 2 is 3, but vertex type `author` has 3, so ids go from 0 to 2",
            "`writes.npy`: relation `writes`, destination of edge 1 is -1, but vertex type `paper` has 4, so ids go from 0 to 3 (and 1 more)",
        ],
    );
    says(
        file("kind.npy", &[4], &[0i32, 1, 2, 1]),
        &["`kind.npy`: vertex type `paper`, kind of vertex 2 is 2, but `kind_names` has 2, so ids go from 0 to 1"],
    );
    says(
        file("links.npy", &[3, 2], &[2i32, 3, 0, 2, 1, 0]),
        &[
            "`links.npy`: link split `links`, relation of link 1 is 2, but the list of relations has 2, so ids go from 0 to 1",
        ],
    );
    says(
        file("links.npy", &[3, 2], &[3i32, 3, 0, 1, 1, 0]),
        &[
            "`links.npy`: link split `links`, source of link 0 is 3, but vertex type `author` has 3, so ids go from 0 to 2",
        ],
    );
}

#[test]
fn features() {
    says(
        file("dense.npy", &[3, 2], &[1f32, 2.0, 3.0, f32::NAN, 5.0, f32::INFINITY]),
        &["`dense.npy`: features of vertex type `author`, row 1, column 1 is NaN (and 1 more)"],
    );
    says(
        file("data.npy", &[5], &[1f32, 2.0, f32::NEG_INFINITY, 4.0, 5.0]),
        &["`data.npy`: features of vertex type `paper`, row 2, column 1 is -inf"],
    );
    says(
        file("indptr.npy", &[5], &[1i64, 2, 2, 3, 5]),
        &["`indptr.npy`: features of vertex type `paper`: `indptr` should start at 0, but starts at 1"],
    );
    says(
        file("indptr.npy", &[5], &[0i64, 2, 1, 3, 5]),
        &["`indptr.npy`: features of vertex type `paper`: `indptr` goes down from 2 to 1 at row 1"],
    );
    says(
        file("indptr.npy", &[5], &[0i64, 2, 2, 3, 4]),
        &["`indptr.npy`: features of vertex type `paper`: `indptr` should end at the 5 stored values, but ends at 4"],
    );
    says(
        file("indptr.npy", &[4], &[0i64, 2, 2, 5]),
        &[
            "`indptr.npy` (`indptr` of features of vertex type `paper`) should have shape [5] (vertices + 1), but has [4]",
        ],
    );
    says(
        file("indices.npy", &[5], &[0i32, 2, 1, 0, 3]),
        &[
            "`indices.npy`: features of vertex type `paper`, column of row 3 (position 4) is 3, but `dim` has 3, so ids go from 0 to 2",
        ],
    );
    says(
        file("indices.npy", &[5], &[2i32, 0, 1, 0, 1]),
        &[
            "`indices.npy`: features of vertex type `paper`, row 0: column 0 follows column 2; columns must ascend without duplicates",
        ],
    );
    says(
        file("indices.npy", &[5], &[0i32, 2, 1, 1, 1]),
        &[
            "`indices.npy`: features of vertex type `paper`, row 3: column 1 follows column 1; columns must ascend without duplicates",
        ],
    );
    says(
        file("weight.npy", &[4], &[1f32, f32::NAN, 1.0, 1.0]),
        &["`weight.npy`: relation `writes`, row 1, column 0 is NaN"],
    );
}

#[test]
fn labels_and_splits() {
    says(
        file("y.npy", &[4], &[0i32, 3, -1, -2]),
        &[
            "`y.npy`: label `y` of vertex type `paper`, row 1 is class 3, but there are 3 classes (0 to 2, or -1 for none) (and 1 more)",
        ],
    );
    says(
        file("multi.npy", &[3, 2], &[1f32, 0.0, -1.0, 0.0, 1.0, 0.5]),
        &[
            "`multi.npy`: label `topics` of vertex type `author`, row 1, column 0 is -1, but should be 0 or 1 (or -1 in the whole row for no label)",
        ],
    );
    says(
        file("mask.npy", &[3], &[1u8, 1, 1]),
        &["`real.npy`: label `age` of vertex type `author`, row 1, column 0 is NaN"],
    );
    says(
        file("mask.npy", &[3], &[1u8, 0, 2]),
        &["`mask.npy`: label `age` of vertex type `author`, row 2, column 0 is 2, but should be 0 or 1"],
    );
    says(
        file("val.npy", &[1], &[4i32]),
        &[
            "`val.npy`: split `std`, vertex of position 0 of `val` is 4, but vertex type `paper` has 4, so ids go from 0 to 3",
        ],
    );
    says(
        file("val.npy", &[1], &[2i32]),
        &["`val.npy`: split `std`, position 0 of `val` is vertex 2, which has no label"],
    );
    says(
        file("val.npy", &[2], &[3i32, 1]),
        &["split `std`: vertex 1 is in both `train` and `val`", "split `std`: vertex 3 is in both `val` and `test`"],
    );
    says(file("test.npy", &[2], &[3i32, 3]), &["split `std`: vertex 3 is twice in `test`"]);
    // A mask in place of ids: as numbers, it would repeat two vertices.
    says(
        mask("test.npy", &[4], &[0, 0, 0, 1]),
        &["`test.npy` (`test` of split `std`) should be int32 (or int64): ids, not a mask, but is bool"],
    );
    says(
        toml("vertex_type = \"author\"\nname = \"topics\"", "vertex_type = \"paper\"\nname = \"topics\""),
        &[
            "`multi.npy` (`file` of label `topics` of vertex type `paper`) should have shape [4, 2] (one row per vertex, one column per class), but has [3, 2]",
        ],
    );
}

#[test]
fn metapaths() {
    let steps = "steps = [\">writes\", \"<writes\"]";
    says(
        toml(steps, "steps = [\">writes\", \">writes\"]"),
        &[
            "dataset.toml: step 2 (`>writes`) of metapath `APA` starts at vertex type `author`, but the step before it ends at `paper`",
        ],
    );
    says(
        toml(steps, "steps = [\"writes\"]"),
        &[
            "dataset.toml: `steps` of metapath `APA` should be `>relation` (forward) or `<relation` (reverse), but is `writes`",
        ],
    );
    says(
        toml(steps, "steps = [\">wrote\"]"),
        &[
            "dataset.toml: `steps` of metapath `APA` is `wrote`, but there is no relation of that name (there is `writes`, `cites`)",
        ],
    );
    says(
        toml(steps, "steps = []"),
        &["dataset.toml: metapath `APA` has no `steps` (expected at least one step, such as \">writes\")"],
    );
}

#[test]
fn independent_errors_come_together_and_the_list_is_cut() {
    let errors = load_after(|dir| {
        file("dense.npy", &[3, 2], &[f32::NAN; 6])(dir);
        file("y.npy", &[4], &[7i32; 4])(dir);
        toml("edges = 2", "edges = 3")(dir);
    })
    .unwrap_err();
    assert_eq!(errors.errors.len(), 3);
    assert_eq!(errors.to_string().lines().count(), 4);
    let many = load_after(|dir| {
        let mut text = std::fs::read_to_string(dir.join("dataset.toml")).unwrap();
        for i in 0..30 {
            text += &format!("[[relation]]\nname = \"r{i}\"\nsrc = \"paper\"\ndst = \"paper\"\nfile = \"no{i}.npy\"\n");
        }
        std::fs::write(dir.join("dataset.toml"), text).unwrap();
    })
    .unwrap_err();
    assert_eq!(many.errors.len(), 30);
    let text = many.to_string();
    assert!(text.contains("has 30 errors:") && text.ends_with("… and 10 more"), "{text}");
    assert_eq!(text.lines().count(), 22);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Loading never panics on a corrupted file; a dataset that loads can be described and built.
    #[test]
    fn damaged_files_never_panic(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        grow in proptest::collection::vec(any::<u8>(), 0..3),
        toml in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        tiny::write(dir.path());
        let mut files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        let path = if toml { dir.path().join("dataset.toml") } else { which.get(&files).clone() };
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        bytes.extend(grow);
        std::fs::write(&path, bytes).unwrap();
        match Dataset::load(dir.path()) {
            Ok(dataset) => {
                let info = DatasetInfo::new(&dataset).unwrap();
                prop_assert!(!info.text().is_empty() && info.json().is_object());
                prop_assert!(schema_text(&dataset).starts_with("schema"));
            }
            Err(errors) => prop_assert!(!errors.errors.is_empty() && !errors.to_string().is_empty()),
        }
    }

    /// Swaps values of `dataset.toml` between fields.
    #[test]
    fn shuffled_values_never_panic(from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        tiny::write(dir.path());
        let values = ["0", "-1", "3", "4294967295", "1e300", "true", "[]", "{}", "[1, 2]", "\"\"", "\"y.npy\"", "\"dense\"",
            "\"multi\"", "\"real\"", "\"author\"", "[\"<cites\"]", "9223372036854775807"];
        let mut lines: Vec<String> = tiny::TOML.lines().map(str::to_string).collect();
        let keyed: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].contains(" = ")).collect();
        let at = *from.get(&keyed);
        let key = lines[at].split(" = ").next().unwrap().to_string();
        lines[at] = format!("{key} = {}", to.get(&values));
        std::fs::write(dir.path().join("dataset.toml"), lines.join("\n")).unwrap();
        if let Ok(dataset) = Dataset::load(dir.path()) {
            DatasetInfo::new(&dataset).unwrap();
        }
    }
}
