//! A folder of DGL's `CSVDataset` becomes a dataset.

mod layouts;

use hgnnc_dataset::LabelValues;
use hgnnc_import::Kind;
use layouts::{edges, ids, imported, rows, write};

const META: &str = "dataset_name: shop
version: 1.0.0
node_data:
- file_name: users.csv
  ntype: user
- file_name: items.csv
  ntype: item
  node_id_field: key
edge_data:
- file_name: buys.csv
  etype: [user, buys, item]
- file_name: likes.csv
  etype: [user, likes, item]
  src_id_field: who
  dst_id_field: what
- file_name: follows.csv
  etype: [user, likes, user]
";
const USERS: &str = "node_id,label,train_mask,val_mask,test_mask,feat,age
10,1,1,0,0,\"0.5, 1\",30
2,0,0,1,0,\"1,2\",40
7,-1,0,0,0,\"3,4\",50
3,1,False,false,True,\"5,6\",60
";
const ITEMS: &str = "key,label\nb,\"0,1\"\na10,\"1,1\"\na2,\"0,0\"\n";
const BUYS: &str = "src_id,dst_id,weight,x\n10,b,0.5,1\n2,a10,1.5,2\n10,b,2.5,3\n";
const LIKES: &str = "who,what,train_mask,test_mask\n7,a2,1,0\n3,b,0,1\n";
const FOLLOWS: &str = "src_id,dst_id\n2,7\n";

const FILES: [(&str, &str); 6] = [
    ("meta.yaml", META),
    ("users.csv", USERS),
    ("items.csv", ITEMS),
    ("buys.csv", BUYS),
    ("likes.csv", LIKES),
    ("follows.csv", FOLLOWS),
];

#[test]
fn vertices_are_in_the_order_of_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &FILES);
    let dataset = imported(Kind::Dgl, folder.path(), None);
    assert_eq!(dataset.name, "shop");
    // As `numpy.unique` has it: integers by value, texts by their characters.
    assert_eq!(ids(&dataset, 0), ["2", "3", "7", "10"]);
    assert_eq!(ids(&dataset, 1), ["a10", "a2", "b"]);
    assert_eq!(rows(&dataset, 0), [[1.0, 2.0, 40.0], [5.0, 6.0, 60.0], [3.0, 4.0, 50.0], [0.5, 1.0, 30.0]]);
    assert_eq!(dataset.labels[0].values, LabelValues::Single { classes: 2, of: vec![0, 1, -1, 1] });
    let split = &dataset.splits[0];
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[3][..], &[0][..], &[1][..]));
    let LabelValues::Multi { classes: 2, rows, .. } = &dataset.labels[1].values else { panic!("two classes") };
    assert_eq!(rows[..], [1.0, 1.0, 0.0, 0.0, 0.0, 1.0]);

    assert_eq!(edges(&dataset, "buys"), [(3, 2), (0, 0), (3, 2)]);
    let buys = &dataset.relations[0];
    assert_eq!(buys.weight.as_deref().unwrap(), [0.5, 1.5, 2.5]);
    assert_eq!(buys.features.as_ref().unwrap().rows[..], [1.0, 2.0, 3.0]);
    // Two types of edges are called `likes`; the edge of the test mask is held out.
    assert_eq!(edges(&dataset, "user-likes-item"), [(2, 1)]);
    assert_eq!(edges(&dataset, "user-likes-user"), [(0, 2)]);
    let test = &dataset.link_splits[0].test;
    assert_eq!((&test.src[..], &test.relation[..], &test.dst[..]), (&[1][..], &[1][..], &[2][..]));
}

#[test]
fn a_graph_without_types_has_the_names_of_dgl() {
    let folder = tempfile::tempdir().unwrap();
    let meta = "dataset_name: one\nseparator: ';'\nnode_data:\n- file_name: v.csv\nedge_data:\n- file_name: e.csv\n";
    let files =
        [("meta.yaml", meta), ("v.csv", "node_id;label;x\n1;0.5;3\n0;1.5;4\n"), ("e.csv", "src_id;dst_id\n0;1\n")];
    write(folder.path(), &files);
    let dataset = imported(Kind::Dgl, folder.path(), None);
    assert_eq!((&dataset.vertex_types[0].name[..], &dataset.relations[0].name[..]), ("_V", "_E"));
    let LabelValues::Real { dim: 1, rows, .. } = &dataset.labels[0].values else { panic!("numbers") };
    assert_eq!(rows[..], [1.5, 0.5]);
}

/// With a label, masks divide the labelled edges; without one, they hold links out.
#[test]
fn labels_of_edges_are_targets() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &FILES);
    let buys = "src_id,dst_id,label,train_mask,test_mask\n10,b,0,1,0\n2,a10,2,0,1\n10,b,-1,0,0\n";
    write(folder.path(), &[("buys.csv", buys)]);
    let dataset = imported(Kind::Dgl, folder.path(), None);
    let buys = &dataset.relations[0];
    assert_eq!(buys.num_edges(), 3);
    assert_eq!(buys.labels[0].values, LabelValues::Single { classes: 2, of: vec![0, 1, -1] });
    assert_eq!(buys.labels[0].class_names, ["0", "2"]);
    let split = &buys.splits[0];
    assert_eq!((&split.train[..], &split.val[..], &split.test[..]), (&[0][..], &[][..], &[1][..]));
    assert_eq!(dataset.link_splits[0].test.len(), 1);
}

#[test]
fn settings_leave_columns_and_edges_out() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &FILES);
    let settings = "name = \"few\"\nignore = [\"user.age\", \"item.label\"]\nunknown = \"skip\"\n";
    write(folder.path(), &[("settings.toml", settings), ("follows.csv", "src_id,dst_id\n2,7\n2,99\n")]);
    let dataset = imported(Kind::Dgl, folder.path(), Some(&folder.path().join("settings.toml")));
    assert_eq!((&dataset.name[..], dataset.labels.len()), ("few", 1));
    assert_eq!(rows(&dataset, 0)[0], [1.0, 2.0]);
    assert_eq!(edges(&dataset, "user-likes-user"), [(0, 2)]);
}

#[test]
fn faults_are_told_with_file_line_value_and_way_out() {
    let cases: &[layouts::Case<'_>] = &[
        (("meta.yaml", "dataset_name: shop\n", ""), &["meta.yaml:", "dataset_name"]),
        (("meta.yaml", "version: 1.0.0", "version: 2.0.0"), &["meta.yaml: the version `2.0.0` is not known"]),
        (("meta.yaml", "ntype: item", "ntype: [item"), &["meta.yaml:"]),
        (("meta.yaml", "- file_name: users.csv", "- file_nam: users.csv"), &["meta.yaml:4", "file_nam"]),
        (
            ("meta.yaml", "etype: [user, buys, item]", "etype: [user, buys, thing]"),
            &["there is no vertex type `thing`"],
        ),
        (("meta.yaml", "edge_data:", "graph_data:\n  file_name: g.csv\nedge_data:"), &["describes many graphs"]),
        (("meta.yaml", "users.csv", "people.csv"), &["people.csv: cannot be read"]),
        (("users.csv", "10,1,1", "2,1,1"), &["users.csv:3: the id `2` is there already: ids of a type differ"]),
        (
            ("users.csv", "2,0,0,1,0", "2,0,1,1,0"),
            &["users.csv:3: the masks `train_mask`, `val_mask`, `test_mask` are set in one row"],
        ),
        (("users.csv", "2,0,0,1,0", "2,0,0,yes,0"), &["users.csv:3: `yes` in column `val_mask` is no mask: 0 or 1"]),
        (
            ("users.csv", "\"1,2\"", "\"1,2,3\""),
            &["users.csv:3: the vector of column `feat` has 3 numbers, the first one has 2"],
        ),
        (("users.csv", "40", "old"), &["users.csv:3: `old` in column `age` is not a number"]),
        (("users.csv", "node_id", "id"), &["users.csv:1: there is no column `node_id`"]),
        (
            ("users.csv", "node_id,label", "node_id,graph_id"),
            &["users.csv:1: the column `graph_id` tells many graphs apart", "ignore"],
        ),
        (("users.csv", "node_id,label", "node_id,lab"), &["users.csv:1: there are masks, but no column `label`"]),
        (("items.csv", "\"1,1\"", "\"1,1,1\""), &["the label `1,1,1` has 3 numbers, but another one 2"]),
        (
            ("buys.csv", "2,a10", "2,c"),
            &["buys.csv:3: this line names a vertex of type `item` that is not there: `c`", "unknown = \"skip\""],
        ),
        (("buys.csv", "1.5", "heavy"), &["buys.csv:3: `heavy` in column `weight` is not a number"]),
    ];
    for (change, parts) in cases {
        let said = layouts::said_of(Kind::Dgl, &FILES, *change);
        assert!(parts.iter().all(|part| said.contains(part)), "{change:?}\nsaid: {said}\nexpected: {parts:?}");
    }
}
