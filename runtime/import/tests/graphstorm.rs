//! A configuration of GraphStorm's graph construction becomes a dataset.

mod layouts;

use hgnnc_dataset::{LabelValues, TransformKind};
use hgnnc_import::Kind;
use layouts::{edges, ids, imported, rows, write};

const CONFIG: &str = r#"{
  "version": "gconstruct-v0.1",
  "nodes": [
    { "node_type": "user", "node_id_col": "id", "format": {"name": "csv"}, "files": "users_*.csv",
      "features": [
        {"feature_col": "age", "feature_name": "age", "transform": {"name": "max_min_norm"}},
        {"feature_col": ["age"], "transform": {"name": "standard"}},
        {"feature_col": "city", "transform": {"name": "to_categorical"}},
        {"feature_col": "age", "transform": {"name": "bucket_numerical", "range": [20, 40], "bucket_cnt": 2}},
        {"feature_col": "place", "out_dtype": "float32", "transform": {"name": "no-op", "separator": ";"}}
      ],
      "labels": [{"label_col": "group", "task_type": "classification",
                  "custom_split_filenames": {"train": "train.json", "valid": "val.json"}}] },
    { "node_type": "item", "format": {"name": "json"}, "files": ["items.json"], "node_id_col": "id" },
    { "node_type": "item", "format": {"name": "csv", "separator": ";"}, "files": "prices.csv",
      "features": [{"feature_col": "price"}],
      "labels": [{"label_col": "stars", "task_type": "regression", "split_pct": [0.4, 0.3, 0.3]}] }
  ],
  "edges": [
    { "relation": ["user", "buys", "item"], "source_id_col": "u", "dest_id_col": "i", "format": {"name": "csv"},
      "files": "buys.csv", "features": [{"feature_col": "how", "transform": {"name": "to_categorical", "mapping": {"web": 0, "shop": 1}}}],
      "labels": [{"task_type": "link_prediction", "split_pct": [0.5, 0.25, 0.25]}] },
    { "relation": ["item", "in", "shop"], "source_id_col": "i", "dest_id_col": "s", "format": {"name": "csv"}, "files": "in.csv" }
  ]
}"#;

const FILES: [(&str, &str); 9] = [
    ("config.json", CONFIG),
    ("users_2.csv", "id,age,city,place,group\nc,40,Rome,5;6,1\n"),
    ("users_1.csv", "id,age,city,place,group\nb,20,Oslo,1;2,0\na,30,Rome,3;4,\n"),
    ("items.json", "{\"id\": 7, \"x\": [1]}\n{\"id\": 8}\n\n{\"id\": \"9\"}"),
    ("prices.csv", "price;stars\n1.5;3\n2.5;4\n3.5;5\n"),
    ("buys.csv", "u,i,how\nb,7,web\na,8,shop\nb,9,web\nc,7,shop\nb,7,web\n"),
    ("in.csv", "i,s\n7,x\n9,x\n"),
    ("train.json", "\"b\"\n"),
    ("val.json", "\"c\"\n"),
];

#[test]
fn tables_become_what_the_configuration_says() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &FILES);
    let dataset = imported(Kind::Graphstorm, folder.path(), None);
    // Files in the order of their names, rows in theirs; `shop` has no entry.
    assert_eq!(ids(&dataset, 0), ["b", "a", "c"]);
    assert_eq!(ids(&dataset, 1), ["7", "8", "9"]);
    assert_eq!(ids(&dataset, 2), ["x"]);
    assert_eq!(
        rows(&dataset, 0),
        [
            // Age from 0 to 1, divided by the sum, city, bucket, place.
            [0.0, 20.0 / 90.0, 1.0, 0.0, 1.0, 0.0, 1.0, 2.0],
            [0.5, 30.0 / 90.0, 0.0, 1.0, 0.0, 1.0, 3.0, 4.0],
            [1.0, 40.0 / 90.0, 0.0, 1.0, 0.0, 1.0, 5.0, 6.0],
        ]
    );
    assert_eq!(dataset.vertex_types[0].transforms.len(), 5);
    assert_eq!(dataset.labels[0].values, LabelValues::Single { classes: 2, of: vec![0, -1, 1] });
    let split = &dataset.splits[0];
    assert_eq!((&split.train[..], &split.val[..], split.test.len()), (&[0][..], &[2][..], 0));
    // Price and stars come from an entry without ids.
    assert_eq!(rows(&dataset, 1), [[1.5], [2.5], [3.5]]);
    let LabelValues::Real { rows, .. } = &dataset.labels[1].values else { panic!("numbers") };
    assert_eq!(rows[..], [3.0, 4.0, 5.0]);
    assert_eq!(dataset.splits[1].train.len() + dataset.splits[1].val.len() + dataset.splits[1].test.len(), 3);

    // Four pairs of ends, of which one is there twice: two stay, and their edges with them.
    let (kept, split) = (edges(&dataset, "buys"), &dataset.link_splits[0]);
    assert_eq!((split.val.len(), split.test.len()), (1, 1));
    let held: Vec<(u32, u32)> = [&split.val, &split.test].map(|links| (links.src[0], links.dst[0])).to_vec();
    assert!(kept.iter().all(|edge| !held.contains(edge)));
    let mut all = [kept.clone(), held].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, [(0, 0), (0, 2), (1, 1), (2, 0)]);
    let how = dataset.relations[0].features.as_ref().unwrap();
    assert_eq!((how.dim, how.rows.len()), (2, 2 * kept.len()));
    for (edge, (_, to)) in kept.iter().enumerate() {
        let web = kept[edge].0 == 0 && [0, 2].contains(to);
        assert_eq!(how.row(edge), if web { [1.0, 0.0] } else { [0.0, 1.0] });
    }
    let TransformKind::OneHot { categories, .. } = &dataset.relations[0].transforms[0].kind else { panic!("one hot") };
    assert_eq!(categories[..], ["web", "shop"]);
    assert_eq!(edges(&dataset, "in"), [(0, 0), (2, 0)]);
}

#[test]
fn labels_of_edges_are_targets() {
    for (task, values) in [
        ("classification", LabelValues::Single { classes: 2, of: vec![1, 0, 1, 0, 1] }),
        ("regression", LabelValues::Real { dim: 1, rows: vec![5.0, 3.0, 5.0, 3.0, 5.0], labelled: vec![true; 5] }),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &FILES);
        let task = format!("{{\"label_col\": \"stars\", \"task_type\": \"{task}\"");
        let config = CONFIG.replace("{\"task_type\": \"link_prediction\"", &task);
        let buys = "u,i,how,stars\nb,7,web,5\na,8,shop,3\nb,9,web,5\nc,7,shop,3\nb,7,web,5\n";
        write(folder.path(), &[("config.json", &config), ("buys.csv", buys)]);
        let dataset = imported(Kind::Graphstorm, folder.path(), None);
        let buys = &dataset.relations[0];
        assert_eq!((buys.num_edges(), &buys.labels[0].values), (5, &values));
        let split = &buys.splits[0];
        assert_eq!([&split.train, &split.val, &split.test].map(Vec::len), [3, 1, 1]);
        assert!(dataset.link_splits.is_empty());
    }
}

#[test]
fn links_to_hold_out_may_be_named() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &FILES);
    let named = CONFIG.replace(
        "\"split_pct\": [0.5, 0.25, 0.25]",
        "\"custom_split_filenames\": {\"valid\": \"links.json\", \"test\": \"links.csv\"}",
    );
    write(folder.path(), &[("config.json", &named), ("links.json", "[\"b\", 7]\n"), ("links.csv", "u,i\nc,8\n")]);
    let dataset = imported(Kind::Graphstorm, &folder.path().join("config.json"), None);
    assert_eq!(edges(&dataset, "buys"), [(1, 1), (0, 2), (2, 0)]);
    let split = &dataset.link_splits[0];
    assert_eq!((&split.val.src[..], &split.val.dst[..]), (&[0][..], &[0][..]));
    // A link to test need not be an edge.
    assert_eq!((&split.test.src[..], &split.test.dst[..]), (&[2][..], &[1][..]));
}

#[test]
fn faults_are_told_with_file_line_value_and_way_out() {
    let cases: &[layouts::Case<'_>] = &[
        (
            ("config.json", "gconstruct-v0.1", "gconstruct-v9"),
            &["config.json: the version `gconstruct-v9` is not known"],
        ),
        (("config.json", "\"nodes\": [", "\"nodes\": [,"), &["config.json:3"]),
        (
            ("config.json", "\"node_id_col\": \"id\", \"format\"", "\"id_col\": \"id\", \"format\""),
            &["config.json:4", "id_col"],
        ),
        (
            ("config.json", "{\"name\": \"json\"}", "{\"name\": \"HDF5\"}"),
            &["HDF5 files are not read: save the table as Parquet, CSV"],
        ),
        (("config.json", "{\"name\": \"json\"}", "{\"name\": \"xml\"}"), &["the format `xml` is not known"]),
        (
            ("config.json", "max_min_norm", "rank_gauss"),
            &["feature `age` of `user`: `rank_gauss` needs the ranks", "take `max_min_norm`"],
        ),
        (("config.json", "max_min_norm", "bert_hf"), &["`bert_hf` encodes texts by a language model"]),
        (("config.json", "max_min_norm", "magic"), &["the transform `magic` is not known"]),
        (
            ("config.json", "\"max_min_norm\"", "\"max_min_norm\", \"max_val\": \"high\""),
            &["`max_val` of its transform is no number"],
        ),
        (
            ("config.json", "\"max_min_norm\"", "\"max_min_norm\", \"max_bound\": 35"),
            &["users_2.csv:2: `40` in column `age` is above the maximum 35", "not cut off"],
        ),
        (
            ("config.json", "\"max_min_norm\"", "\"max_min_norm\", \"depth\": 3"),
            &["`depth` of its transform is not known"],
        ),
        (
            ("config.json", "\"bucket_cnt\": 2", "\"bucket_cnt\": 2, \"slide_window_size\": 5"),
            &["`slide_window_size` puts a value into several buckets"],
        ),
        (
            ("config.json", "\"bucket_cnt\": 2", "\"bucket_cnt\": 1"),
            &["`bucket_cnt` of its transform is a number from 2"],
        ),
        (
            ("config.json", "{\"web\": 0, \"shop\": 1}", "{\"web\": 0, \"shop\": 2}"),
            &["`mapping` of its transform gives the categories the numbers from 0 on"],
        ),
        (("config.json", "\"separator\": \";\"}}", "\"truncate_dim\": 1}}"), &["`truncate_dim` cuts vectors"]),
        (
            ("config.json", "\"regression\"", "\"link_prediction\""),
            &["vertex type `item`: the task `link_prediction` is not known: `classification` or `regression`"],
        ),
        (
            ("config.json", "\"link_prediction\"", "\"ranking\""),
            &["relation `buys`: the task `ranking` is not known: `classification`, `regression` or `link_prediction`"],
        ),
        (
            ("config.json", "\"link_prediction\"", "\"classification\""),
            &["relation `buys`: its label has no `label_col`"],
        ),
        (("config.json", "\"source_id_col\": \"u\", ", ""), &["relation `buys` has no `source_id_col`"]),
        (("config.json", "\"label_col\": \"stars\", ", ""), &["vertex type `item`: its label has no `label_col`"]),
        (
            ("config.json", "[0.5, 0.25, 0.25]", "[0.5, 0.5, 0.5]"),
            &["split of relation `buys`: the shares of a split are from 0 to 1"],
        ),
        (
            ("config.json", "[\"item\", \"in\", \"shop\"]", "[\"user\", \"buys\", \"item\"]"),
            &["several entries for the edges `user,buys,item`"],
        ),
        (
            ("config.json", "\"prices.csv\",", "\"prices.csv\", \"node_id_col\": \"price\","),
            &["vertex type `item` has several entries with `node_id_col`"],
        ),
        (("config.json", "users_*.csv", "people_*.csv"), &["there is no file", "people_*.csv"]),
        (("items.json", "{\"id\": 8}", "{\"id\": 8"), &["items.json:2: `{\"id\": 8` is not a JSON object in one line"]),
        (("items.json", "{\"id\": 8}", "[8]"), &["items.json:2: is not a record"]),
        (("items.json", "{\"id\": 8}", "{\"key\": 8}"), &["items.json:2: column `id` has no value, but is an id"]),
        (("items.json", "\"9\"", "8"), &["items.json:4: the id `8` is there already: ids of a type differ"]),
        (
            ("prices.csv", "3.5;5\n", ""),
            &["prices.csv: there are 2 rows up to the end of this table, but 3 of vertex type `item`"],
        ),
        (("prices.csv", "2.5;4", "much;4"), &["prices.csv:3: `much` in column `price` is not a number"]),
        (
            ("train.json", "\"b\"", "\"z\""),
            &["train.json:1: this line names a vertex of type `user` that is not there: `z`"],
        ),
        (
            ("train.json", "\"b\"", "{\"id\": \"b\"}"),
            &["train.json:1: `{\"id\": \"b\"}` is not an id: a text or an integer"],
        ),
        (("val.json", "\"c\"", "\"b\""), &["val.json:1: `b` is in the split already"]),
        (("val.json", "\"c\"", "\"a\""), &["val.json:1: `a` has no label"]),
        (
            ("buys.csv", "a,8", "a,88"),
            &["buys.csv:3: this line names a vertex of type `item` that is not there: `88`", "--skip-nonexist-edges"],
        ),
    ];
    for (change, parts) in cases {
        let said = layouts::said_of(Kind::Graphstorm, &FILES, *change);
        assert!(parts.iter().all(|part| said.contains(part)), "{change:?}\nsaid: {said}\nexpected: {parts:?}");
    }
}

#[test]
fn a_folder_needs_one_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let none = layouts::said(Kind::Graphstorm, folder.path(), None, "nothing is there");
    assert!(none.contains("there is no JSON file with `nodes` and `edges`"), "{none}");
    write(folder.path(), &[("a.json", CONFIG), ("b.json", CONFIG)]);
    let several = layouts::said(Kind::Graphstorm, folder.path(), None, "two are there");
    assert!(several.contains("there are several configurations: name one of `a.json`, `b.json`"), "{several}");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn parquet_needs_a_build_that_has_it() {
    let said =
        layouts::said_of(Kind::Graphstorm, &FILES, ("config.json", "{\"name\": \"json\"}", "{\"name\": \"parquet\"}"));
    assert!(
        said.contains(
            "items.json: this build reads no Parquet files; build with `cargo build --release --features parquet`"
        ),
        "{said}"
    );
}
