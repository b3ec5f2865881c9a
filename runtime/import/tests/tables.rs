//! Table imports beyond those of `docs/import.md`: JSON, keys of several columns in files of splits, further tables,
//! masks, transforms of edge features, links that are held out.

mod common;
mod layouts;

use common::import;
use hgnnc_dataset::{LabelValues, TransformKind};
use hgnnc_import::Kind;
use layouts::{Change, Files, edges, ids, imported, rows, said, said_of, write};

const CONFIG: &str = r#"
[[vertex_type]]
name = "item"
files = "items.csv"
id = ["shop", "number"]
order = "ids"
label = { column = "good" }
split = { train = "train.csv", val = "val.json", test = "test.txt" }
features = [{ column = "price", scale = "min_max", min = 0, max = 10 }]
more = [{ files = "kinds.tsv", features = [{ column = "kind", one_hot = true, categories = ["new", "old"] }] }]

[[vertex_type]]
name = "user"
files = "users.jsonl"
id = "id"
label = { columns = ["age"], kind = "real" }
split = { train = { mask = "train" }, test = { mask = "test" } }
features = [{ column = "place", vector = true }]

[[relation]]
name = "buys"
src = "user"
dst = "item"
files = "buys.csv"
src_key = "user"
dst_key = ["shop", "number"]
weight = "count"
time = "at"
features = ["count", { column = "how", one_hot = true }, { column = "at", scale = "standard", missing = "mean" }]
split = { name = "later", by = "at", train = 0.5, val = 0.25 }

[[relation]]
name = "knows"
src = "user"
dst = "user"
key = "friend"
split = { name = "later", column = "part" }
"#;

const FILES: &Files<'static> = &[
    ("import.toml", CONFIG),
    ("items.csv", "shop,number,price,good\n\"b, c\",1,5,yes\na,10,0,no\na,2,10,yes\na,3,2.5,\n"),
    ("kinds.tsv", "kind\nold\nnew\nused\nold\n"),
    ("train.csv", "number,shop\n1,\"b, c\"\n"),
    ("val.json", "[\"a\", 10]\n"),
    ("test.txt", "a|2\n"),
    (
        "users.jsonl",
        "{\"id\": 1, \"age\": 30, \"place\": [0.5, 1], \"train\": 1, \"test\": 0, \"friend\": 2, \"part\": \"test\"}\n{\"id\": 2, \"age\": 40, \"place\": [2, 3], \"train\": false, \"test\": true, \"friend\": 1, \"part\": \"train\"}\n{\"id\": 3, \"place\": [4, 5], \"train\": 0, \"test\": 0}\n",
    ),
    (
        "buys.csv",
        "user,shop,number,count,how,at\n1,a,10,1,web,1\n2,a,2,2,shop,4\n1,a,10,3,web,9\n3,\"b, c\",1,4,,3\n3,a,3,5,web,2\n",
    ),
];

#[test]
fn json_further_tables_and_keys_of_several_columns_are_read() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), FILES);
    let dataset = imported(Kind::Tables, folder.path(), None);
    assert_eq!(ids(&dataset, 0), ["a|10", "a|2", "a|3", "b, c|1"]);
    assert_eq!(rows(&dataset, 0), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.0, 1.0], [0.5, 0.0, 1.0]]);
    assert_eq!(dataset.labels[0].values, LabelValues::Single { classes: 2, of: vec![0, 1, -1, 1] });
    let split = &dataset.splits[0];
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[3][..], &[0][..], &[1][..]));
    assert_eq!(rows(&dataset, 1), [[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]]);
    let LabelValues::Real { labelled, .. } = &dataset.labels[1].values else { panic!("numbers") };
    assert_eq!(labelled[..], [true, true, false]);
    let split = &dataset.splits[1];
    assert_eq!((&split.train[..], &split.test[..]), (&[0][..], &[1][..]));
}

#[test]
fn links_are_held_out_by_time_and_none_of_their_edges_stays() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), FILES);
    let dataset = imported(Kind::Tables, folder.path(), None);
    // Times of the pairs: 1 (and 9 of the same pair), 2, 3 and 4. The latter two are held out.
    assert_eq!(edges(&dataset, "buys"), [(0, 0), (0, 0), (2, 2)]);
    let buys = &dataset.relations[0];
    assert_eq!(
        (buys.weight.as_deref().unwrap(), buys.time.as_deref().unwrap()),
        (&[1.0, 3.0, 5.0][..], &[1, 9, 2][..])
    );
    let features = buys.features.as_ref().unwrap();
    assert_eq!(features.dim, 4);
    assert_eq!(
        (&features.row(0)[..3], &features.row(1)[..3], &features.row(2)[..3]),
        (&[1.0, 0.0, 1.0][..], &[3.0, 0.0, 1.0][..], &[5.0, 0.0, 1.0][..])
    );
    let TransformKind::OneHot { categories, .. } = &buys.transforms[1].kind else { panic!("one hot") };
    assert_eq!((&categories[..], buys.transforms.len()), (&["shop".to_owned(), "web".to_owned()][..], 3));
    // Both relations have a part in the split of one name.
    assert_eq!(edges(&dataset, "knows"), [(1, 0)]);
    let [split] = &dataset.link_splits[..] else { panic!("one split") };
    let links = |links: &hgnnc_dataset::Links| -> Vec<(u32, u32, u32)> {
        links.src.iter().zip(&links.relation).zip(&links.dst).map(|((&s, &r), &d)| (s, r, d)).collect()
    };
    assert_eq!(
        (&split.name[..], links(&split.val), links(&split.test)),
        ("later", vec![(2, 0, 3)], vec![(1, 0, 1), (0, 1, 1)])
    );
}

#[test]
fn drawn_links_depend_on_the_seed_only() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), FILES);
    let held = |seed: u64| {
        let split = format!("split = {{ test = 0.5, seed = {seed} }}");
        let config = CONFIG.replace("split = { name = \"later\", by = \"at\", train = 0.5, val = 0.25 }", &split);
        write(folder.path(), &[("import.toml", &config)]);
        let dataset = imported(Kind::Tables, folder.path(), None);
        let test = &dataset.link_splits[0].test;
        assert_eq!(test.len(), 2);
        assert_eq!(edges(&dataset, "buys").len(), if test.dst.contains(&0) { 2 } else { 3 });
        (test.src.clone(), test.dst.clone())
    };
    assert_eq!(held(1), held(1));
    assert!((0..20).any(|seed| held(seed) != held(1)));
}

#[test]
fn faults_are_told_with_file_line_value_and_way_out() {
    let cases: &[(Change<'_>, &[&str])] = &[
        (("import.toml", "order = \"ids\"", "order = \"size\""), &["import.toml", "unknown variant `size`"]),
        (
            ("import.toml", "min = 0, max = 10", "min = 10, max = 0"),
            &["`min` and `max` are numbers, and the first one is the smaller one"],
        ),
        (
            ("import.toml", "scale = \"min_max\", min", "min"),
            &["`min` and `max` are the ends of `scale = \"min_max\"`"],
        ),
        (("import.toml", "\"new\", \"old\"", "\"new\", \"new\""), &["the category `new` is there twice"]),
        (("import.toml", "one_hot = true, categories", "categories"), &["`categories` are those of `one_hot`"]),
        (
            ("import.toml", "{ column = \"how\", one_hot = true }", "{ colum = \"how\" }"),
            &["import.toml", "unknown field `colum`"],
        ),
        (
            ("import.toml", "by = \"at\"", "column = \"at\""),
            &["split of relation `buys`: a split is a `column`, or shares"],
        ),
        (
            ("import.toml", "column = \"part\"", "val = \"links.csv\""),
            &["relation `knows` is a foreign key, whose split is a column, masks or shares"],
        ),
        (
            ("import.toml", "files = \"kinds.tsv\"", "label = { column = \"kind\" }, files = \"kinds.tsv\""),
            &["labels of vertex type `item` have names that differ, and two are called `y`"],
        ),
        (("items.csv", "a,10,0,no", "a,10,-1,no"), &["items.csv:3: `-1` in column `price` is below the minimum 0"]),
        (
            ("items.csv", "a,10,0,no", "a,10,11,no"),
            &["items.csv:3: `11` in column `price` is above the maximum 10", "make the maximum larger"],
        ),
        (
            ("kinds.tsv", "used\n", ""),
            &["kinds.tsv: there are 3 rows up to the end of this table, but 4 of vertex type `item`"],
        ),
        (
            ("train.csv", "1,\"b, c\"", "1,b"),
            &["train.csv:2: this line names a vertex of type `item` that is not there: `b|1`"],
        ),
        (("train.csv", "1,\"b, c\"", "3,a"), &["train.csv:2: `a|3` has no label"]),
        (
            ("val.json", "[\"a\", 10]", "[\"a\", 10, 1]"),
            &["val.json:1: `[\"a\", 10, 1]` is not a list of the columns of an id"],
        ),
        (("val.json", "[\"a\", 10]", "[\"a\", 2]"), &["test.txt:1: `a|2` is in the split already"]),
        (("test.txt", "a|2", "a"), &["test.txt:1: this line names a vertex of type `item` that is not there: `a`"]),
        (("users.jsonl", "\"age\": 40", "\"age\": {}"), &["users.jsonl:2: `{}` in column `age` is not a number"]),
        (("users.jsonl", "[2, 3]", "[2, \"x\"]"), &["users.jsonl:2:", "in column `place` is not a number"]),
        (
            ("users.jsonl", "[2, 3]", "[2]"),
            &["users.jsonl:2: the vector of column `place` has 1 numbers, the first one has 2"],
        ),
        (("users.jsonl", "{\"id\": 2", "[{\"id\": 2"), &["users.jsonl:2: is not a record: write an object"]),
        (
            ("users.jsonl", "\"train\": 1", "\"train\": \"maybe\""),
            &["users.jsonl:1: `maybe` in column `train` is no mask: 0 or 1"],
        ),
        (
            ("users.jsonl", "\"train\": 1, \"test\": 0", "\"train\": 1, \"test\": 1"),
            &["users.jsonl:1: the masks `train`, `test` are set in one row"],
        ),
        (
            ("users.jsonl", "\"part\": \"test\"", "\"part\": \"later\""),
            &["users.jsonl:1: `later` is not a part of a split"],
        ),
        (("buys.csv", "2,a,2,2,shop,4", "2,a,2,2,shop,"), &["buys.csv:3: column `at` has no time"]),
        (
            ("users.jsonl", "\"age\": 40", "\"x\": \"-18446744073709551616\", \"age\": -18446744073709551616"),
            &["users.jsonl:2: the integer `-18446744073709551616` has more than 64 bits: write it in quotes"],
        ),
        (
            ("val.json", "[\"a\", 10]", "[\"a\", 20000000000000000000]"),
            &["val.json:1: the integer `20000000000000000000` has more than 64 bits"],
        ),
        (("buys.csv", "how,at", "way,at"), &["buys.csv:1: there is no column `how`"]),
    ];
    for (change, parts) in cases {
        let said = said_of(Kind::Tables, FILES, *change);
        assert!(parts.iter().all(|part| said.contains(part)), "{change:?}\nsaid: {said}\nexpected: {parts:?}");
    }
}

#[test]
fn a_column_that_no_record_has_is_told_once() {
    let mut files = FILES.to_vec();
    files[6].1 = "{\"key\": 1}\n{\"key\": 2}\n";
    let said = said_of(Kind::Tables, &files, ("users.jsonl", "1", "1"));
    assert!(
        said.contains("users.jsonl: no record has `id`, `place`, `age`, `train`, `test` (the first one has `key`)"),
        "{said}"
    );
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_a_build_that_has_it() {
    let said = said_of(Kind::Tables, FILES, ("import.toml", "users.jsonl", "users.parquet"));
    assert!(said.contains("there is no file"), "{said}");
    let mut files = FILES.to_vec();
    files.push(("users.parquet", "PAR1"));
    let said = said_of(Kind::Tables, &files, ("import.toml", "users.jsonl", "users.parquet"));
    assert!(
        said.contains(
            "users.parquet: this build reads no Parquet files; build with `cargo build --release --features parquet`"
        ),
        "{said}"
    );
}

/// A table of vertices in `v.csv`, and what is said of it.
const V: &str = "[[vertex_type]]\nname = \"v\"\nfiles = \"v.csv\"\n";

/// The faults of an import of a table of vertices with these settings.
fn said_of_table(settings: &str, table: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("import.toml", &format!("{V}{settings}")), ("v.csv", table)]);
    said(Kind::Tables, folder.path(), None, &format!("{settings} {table}"))
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_table() {
    let folder = tempfile::tempdir().unwrap();
    for settings in ["id = \"id\"", "id = \"id\"\ncolumns = [\"id\", \"x\"]"] {
        let header = if settings.contains("columns") { "" } else { "id,x\n" };
        let table = format!("\u{feff}{header}a,1\nb,2\n");
        write(folder.path(), &[("import.toml", &format!("{V}{settings}")), ("v.csv", &table)]);
        assert_eq!(ids(&imported(Kind::Tables, folder.path(), None), 0), ["a", "b"], "{settings}");
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, "\u{feff}id\n\"a\"\n".as_bytes()).unwrap();
    std::fs::write(folder.path().join("v.csv"), packed.finish().unwrap()).unwrap();
    write(folder.path(), &[("import.toml", &format!("{V}id = \"id\""))]);
    assert_eq!(ids(&imported(Kind::Tables, folder.path(), None), 0), ["a"]);
    // A file of the mark alone is empty.
    assert!(said_of_table("id = \"id\"", "\u{feff}").contains("v.csv: is empty, but its first line names the columns"));
}

#[test]
fn a_quote_that_is_not_closed_is_told_with_its_line() {
    let cases = [
        ("id,name\n1,a\n2,\"b\n3,c\n4,d", 3),
        ("id,name\n1,a\n2,\"b\n3,c\n4,d\n", 3),
        ("id,name\r\n1,\"a\r\nb\"\r\n2,\"b\r\n3,c\r\n", 4),
        ("id,name\n\"1\n\",\"b\"\"\n3,c", 3),
        ("\"id,name\n1,a\n", 1),
    ];
    for (table, line) in cases {
        let said = said_of_table("id = \"id\"", table);
        let expected = format!("v.csv:{line}: the quote that begins in line {line} is not closed");
        assert!(said.starts_with(&expected), "{table:?}\nsaid: {said}\nexpected: {expected}");
    }
    let folder = tempfile::tempdir().unwrap();
    let table = "id,name\n1,\"a\nb\"\n2,\"\"\n3,\"c\"\"\n\"";
    write(folder.path(), &[("import.toml", &format!("{V}id = \"id\"")), ("v.csv", table)]);
    assert_eq!(ids(&imported(Kind::Tables, folder.path(), None), 0), ["1", "2", "3"]);
}

#[test]
fn lines_are_counted_with_all_ends_and_blank_ones() {
    let features = "id = \"id\"\nfeatures = [{ columns = \"x\" }]";
    for (table, line) in [
        ("id,x\r\n1,5\r\n2,7\r\n3,bad", 4),
        ("id,x\n1,5\n\n\n3,bad\n", 5),
        ("\r\nid,x\r\n\r\n3,bad\r\n", 4),
        ("id,x\n\"1\n2\",5\n3,bad\n", 4),
    ] {
        let said = said_of_table(features, table);
        assert!(said.starts_with(&format!("v.csv:{line}: `bad`")), "{table:?}\nsaid: {said}\nexpected: {line}");
    }
    // Longer than what is read at a time.
    let long: String = (0..100_000).map(|row| format!("{row},5\r\n")).collect();
    let said = said_of_table(features, &format!("id,x\r\n{long}a,bad\r\n"));
    assert!(said.starts_with("v.csv:100002: `bad`"), "{said}");
}

#[test]
fn a_blank_line_in_a_table_of_one_column_is_told() {
    let features = "features = [{ columns = \"x\", missing = 0 }]";
    let said = said_of_table(features, "x\r\n1\r\n\r\n2\r\n");
    assert!(said.starts_with("v.csv:3: the line is blank: write a missing value"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    // Blank lines at the end are no rows.
    write(folder.path(), &[("import.toml", &format!("{V}{features}")), ("v.csv", "x\n1\n\"\"\n2\n\n")]);
    assert_eq!(rows(&imported(Kind::Tables, folder.path(), None), 0), [[1.0], [0.0], [2.0]]);
}

#[test]
fn features_that_are_not_finite_are_told() {
    let told =
        |features: &str, table: &str| said_of_table(&format!("features = [{{ columns = \"x\", {features} }}]"), table);
    for missing in ["inf", "nan", "1e300"] {
        let said = told(&format!("missing = {missing}"), "x\n1\n");
        assert!(said.contains("features of vertex type `v`: `missing = ") && said.contains("32-bit floats"), "{said}");
    }
    let said = told("scale = \"sum\"", "x\n1\n-1\n1e-45\n");
    assert!(said.contains("in column `x`, scaled by") && said.contains("choose another `scale`"), "{said}");
}

const NUMBERED: &str = "[[vertex_type]]
name = \"v\"
files = \"v.csv\"
id = \"id\"
duplicates = \"first\"

[[vertex_type]]
name = \"w\"

[[relation]]
name = \"to\"
src = \"v\"
dst = \"w\"
key = \"w\"
";

#[test]
fn rows_that_are_dropped_make_no_edges() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("import.toml", NUMBERED), ("v.csv", "id,w\na,1\na,2\nb,\nb,3\nc,1\n")]);
    let dataset = imported(Kind::Tables, folder.path(), None);
    assert_eq!((ids(&dataset, 1), edges(&dataset, "to")), (vec!["1".into()], vec![(0, 0), (2, 0)]));
}

const HEADERLESS: &str = "[[vertex_type]]
name = \"v\"

[[relation]]
name = \"to\"
src = \"v\"
dst = \"v\"
files = [\"e1.csv\", \"e*.csv\"]
columns = [\"s\", \"d\"]
src_key = \"s\"
dst_key = \"d\"
split = { test = \"test.csv\" }
";

#[test]
fn held_out_links_are_a_table_with_a_header_and_add_no_vertices() {
    let files =
        [("import.toml", HEADERLESS), ("e1.csv", "a,b\nb,c\n"), ("e2.csv", "c,a\n"), ("test.csv", "d,s\nb,a\n")];
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &files);
    let dataset = imported(Kind::Tables, folder.path(), None);
    // `e1.csv` is read once.
    assert_eq!((ids(&dataset, 0).len(), edges(&dataset, "to")), (3, vec![(1, 2), (2, 0)]));
    assert_eq!((&dataset.link_splits[0].test.src[..], &dataset.link_splits[0].test.dst[..]), (&[0][..], &[1][..]));
    for unknown in ["", "unknown = \"add\"\n"] {
        let config = HEADERLESS.replace("split =", &format!("{unknown}split ="));
        let mut files = files.to_vec();
        files[0].1 = &config;
        let said = said_of(Kind::Tables, &files, ("test.csv", "b,a", "z,a"));
        let expected = "test.csv:2: this line names a vertex of type `v` that is not there: `z`; links to hold out";
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn patterns_of_files_may_be_absolute() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = format!("[[vertex_type]]\nname = \"v\"\nfiles = \"{}/v*.csv\"\nid = \"id\"", other.path().display());
    write(folder.path(), &[("import.toml", &config)]);
    write(other.path(), &[("v1.csv", "id\na\n"), ("v2.csv", "id\nb\n")]);
    assert_eq!(ids(&imported(Kind::Tables, folder.path(), None), 0), ["a", "b"]);
}

#[test]
fn a_split_in_the_order_of_numbers_and_texts_is_told() {
    let settings = "label = { column = \"c\" }\nsplit = { by = \"at\", train = 0.5 }";
    let said = said_of_table(settings, "c,at\na,9\nb,10\na,later\n");
    assert!(said.starts_with("v.csv:4: `later` in column `at` is not a number, but values before it are"), "{said}");
    let said = said_of_table(settings, "c,at\na,x\nb,NA\na,7\n");
    assert!(said.starts_with("v.csv:4: `7` in column `at` is a number, but values before it are not"), "{said}");
}

#[test]
fn vertices_of_a_split_without_a_label_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("{V}label = {{ column = \"c\" }}\nsplit = {{ column = \"part\" }}");
    write(folder.path(), &[("import.toml", &config), ("v.csv", "c,part\na,train\n,test\n,\n,val\nb,test\n")]);
    let (dataset, notes) = import(Kind::Tables, folder.path()).unwrap();
    assert_eq!((&dataset.splits[0].test[..], dataset.splits[0].val.len()), (&[4][..], 0));
    assert_eq!(notes, ["2 vertices of `v` that split `given` names have no label: they are left out of it"]);
}

#[test]
fn a_class_that_is_listed_is_no_missing_value() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "{V}label = {{ column = \"c\", class_names = [\"b\", \"NA\"] }}\nfeatures = [{{ columns = \"x\", missing = 7 }}]"
    );
    write(folder.path(), &[("import.toml", &config), ("v.csv", "x,c\nNA,NA\n1,null\n2,b\n3,\n")]);
    let dataset = imported(Kind::Tables, folder.path(), None);
    assert_eq!(dataset.labels[0].values, LabelValues::Single { classes: 2, of: vec![1, -1, 0, -1] });
    assert_eq!(rows(&dataset, 0), [[7.0], [1.0], [2.0], [3.0]]);
}

#[test]
fn large_floats_of_json_are_no_integers() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("{V}features = [{{ columns = \"x\" }}]").replace("v.csv", "v.json");
    let table = "{\"x\": 1e20, \"s\": \"100000000000000000000\"}\n{\"x\": 18446744073709551615}\n";
    write(folder.path(), &[("import.toml", &config), ("v.json", table)]);
    assert_eq!(rows(&imported(Kind::Tables, folder.path(), None), 0), [[1e20], [18_446_744_073_709_551_615.0]]);
}

#[test]
fn faults_of_a_table_are_told_by_line() {
    let config = format!(
        "{}weight = \"count\"\n",
        HEADERLESS.replace("[\"s\", \"d\"]", "[\"s\", \"d\", \"count\"]").replace("split", "# split")
    );
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("import.toml", &config), ("e1.csv", "a,b,1\na,b,x\na,b\na,b,y\na,b,2\n")]);
    let faults = said(Kind::Tables, folder.path(), None, "three lines are wrong");
    let lines: Vec<&str> = faults.lines().filter_map(|line| line.split("e1.csv:").nth(1)?.split(':').next()).collect();
    assert_eq!(lines, ["2", "3", "4"], "{faults}");
}

/// With a label, the split of a relation divides its labelled edges, and all edges stay.
#[test]
fn edges_have_labels_and_splits() {
    let config = r#"
        [[vertex_type]]
        name = "user"
        files = "users.csv"
        id = "id"

        [[relation]]
        name = "pays"
        src = "user"
        dst = "user"
        files = "pays.csv"
        src_key = "from"
        dst_key = "to"
        label = [{ name = "kind", column = "kind" }, { name = "sum", column = "sum", kind = "real" }]
        split = { by = "day", train = 0.5, val = 0.25 }
    "#;
    let files = [
        ("import.toml", config),
        ("users.csv", "id\nu\nv\n"),
        ("pays.csv", "from,to,kind,sum,day\nu,v,honest,1,4\nv,u,fraud,2.5,1\nu,v,honest,,3\nu,u,,,2\nv,v,,7,5\n"),
    ];
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &files);
    let dataset = imported(Kind::Tables, folder.path(), None);
    assert_eq!(edges(&dataset, "pays"), [(0, 1), (1, 0), (0, 1), (0, 0), (1, 1)]);
    let pays = &dataset.relations[0];
    let kinds = LabelValues::Single { classes: 2, of: vec![1, 0, 1, -1, -1] };
    assert_eq!((&pays.labels[0].values, pays.labels[0].class_names.join(" ")), (&kinds, "fraud honest".into()));
    let labelled = vec![true, true, false, false, true];
    assert_eq!(pays.labels[1].values, LabelValues::Real { dim: 1, rows: vec![1.0, 2.5, 0.0, 0.0, 7.0], labelled });
    // The fourth edge has no label. By day, the others are 1, 2, 0, 4.
    let split = &pays.splits[0];
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[1, 2][..], &[0][..], &[4][..]));
    assert!(dataset.link_splits.is_empty() && dataset.labels.is_empty());
    let second = (
        "import.toml",
        "split = { by = \"day\", train = 0.5, val = 0.25 }",
        "split = [{ column = \"kind\" }, { column = \"kind\" }]",
    );
    let said = said_of(Kind::Tables, &files, second);
    assert!(said.contains("splits of relation `pays` have names that differ, and two are called `given`"), "{said}");
    let without_train = said_of(Kind::Tables, &files, ("import.toml", "train = 0.5, ", ""));
    assert!(without_train.contains("split of relation `pays`: the shares of a split"), "{without_train}");
    let by_file =
        said_of(Kind::Tables, &files, ("import.toml", "by = \"day\", train = 0.5, val = 0.25", "train = \"ids.txt\""));
    assert!(by_file.contains("edges have no ids that a file could name"), "{by_file}");
}
