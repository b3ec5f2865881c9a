//! Mutated tables, their descriptions, triples, files of benchmarks and folders of other libraries, as they are imported.
//! Each imported dataset must be valid: it is written, and read again by the reader, which checks everything.

use std::path::{Path, PathBuf};

use hgnnc_dataset::{Dataset, npy};
use hgnnc_import::{ImportError, Kind, read};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::Subject;
use crate::text::mutate;

const CONFIG: &str = r#"name = "shop"
missing_values = ["", "NA"]
[[vertex_type]]
name = "user"
files = "users.csv"
id = "id"
time = "joined"
label = { column = "group" }
split = { by = "joined", train = 0.5, val = 0.25 }
features = [{ columns = ["age", "height"], scale = "standard", missing = "mean" }, { column = "tags", one_hot = true, separator = ";" }]
[[vertex_type]]
name = "item"
files = ["items*.tsv"]
id = ["shop", "number"]
duplicates = "first"
label = { column = "kinds", kind = "multi" }
split = { column = "part" }
features = [{ column = "vector", vector = true, separator = "," }, { column = "price", buckets = [1, 10] }]
[[vertex_type]]
name = "tag"
[[vertex_type]]
name = "row"
files = "rows.csv"
columns = ["a", "b"]
label = { columns = ["a", "b"], kind = "real" }
split = { train = "train.txt", test = "test.txt" }
[[relation]]
name = "buys"
src = "user"
dst = "item"
files = "buys.csv"
src_key = "user"
dst_key = ["shop", "number"]
weight = "count"
time = "at"
features = ["count", "at"]
unknown = "skip"
duplicates = "drop"
[[relation]]
name = "friend"
src = "user"
dst = "user"
key = "friend"
[[relation]]
name = "about"
src = "row"
dst = "tag"
key = "a"
"#;

const TABLES: [(&str, &str); 7] = [
    (
        "users.csv",
        "id,joined,group,age,height,tags,friend\nu1,2001-02-03,a,30,1.7,x;y,u2\nu2,2002-02-03 04:05,b,NA,1.8,y,\nu3,2003-01-05,,50,2,\"z\",u1\nu4,2004-12-31,a,20,,,u4\n",
    ),
    (
        "items1.tsv",
        "shop\tnumber\tvector\tprice\tkinds\tpart\nx\t1\t[0.5,1]\t3\tp;q\ttrain\ny\t1\t1,2\t\tp\tval\nx\t1\t1,2\t3\tq\ttest\n",
    ),
    ("items2.tsv", "shop\tnumber\tvector\tprice\tkinds\tpart\nz\t7\t3,4\t100\tq\ttest\n"),
    ("rows.csv", "1,2\n3.5,-4\n5,6\n"),
    ("buys.csv", "user,shop,number,count,at\nu1,x,1,2,7\nu2,y,1,1,8\nu1,x,1,2,7\nu9,x,1,1,9\n"),
    ("train.txt", "0\n2\n"),
    ("test.txt", "1\n"),
];

const TRIPLES: [(&str, &str); 3] = [
    ("train.tsv", "b\tlikes\ta\na\tknows\tc\nc\tlikes\tb\n"),
    ("valid.tsv", "a\tlikes\tb\n"),
    ("test.tsv", "c\tknows\ta\n"),
];

const HGB: [(&str, &str); 7] = [
    ("node.dat", "0\ta\t0\t1,0.5\n1\tb c\t0\t0,2\n2\tc\t0\t3,4\n3\tA\t1\n4\tB\t1\n"),
    ("link.dat", "0\t1\t0\t1.0\n3\t0\t1\t0.5\n4\t2\t1\t1\n0\t3\t2\t1.0\n"),
    ("link.dat.test", "1\t2\t0\t1.0\n"),
    ("label.dat", "0\ta\t0\t2\n1\tb c\t0\t0,1\n3\tA\t1\t0\n"),
    ("label.dat.test", "2\tc\t0\t1\n"),
    ("label.dat.val", "1\n"),
    (
        "info.dat",
        "TYPE\tMEANING\n0\t\tpaper\n1\t\tauthor\n\nLINK\tSTART\tEND\tMEANING\n0\t\t0\t\t0\tpaper-cite-paper\n1\t\t1\t\t0\tauthor-paper\n3\t\t0\t\t1\tpaper-to-author\n\nTYPE\tCLASS\tMEANING\n0\t\t0\t\tx\n",
    ),
];

const OGB: [(&str, &str); 14] = [
    ("raw/num-node-dict.csv", "author,paper\n2,3\n"),
    ("raw/triplet-type-list.csv", "author,writes,paper\npaper,cites,paper\n"),
    ("raw/node-feat/paper/node-feat.csv", "0.5,1\n-2,3e-1\n0,4\n"),
    ("raw/node-feat/paper/node_year.csv", "2010\n2011\n2012\n"),
    ("raw/node-label/paper/node-label.csv", "2\nnan\n0\n"),
    ("raw/relations/author___writes___paper/edge.csv", "0,0\n0,0\n1,2\n"),
    ("raw/relations/author___writes___paper/num-edge-list.csv", "3\n"),
    ("raw/relations/author___writes___paper/edge_reltype.csv", "0\n1\n0\n"),
    ("raw/relations/author___writes___paper/edge-feat.csv", "1,2\n3,4\n5,6\n"),
    ("raw/relations/paper___cites___paper/edge.csv", "1,0\n"),
    ("split/time/paper/train.csv", "2\n"),
    ("split/time/paper/valid.csv", "0\n"),
    ("mapping/author_entidx2name.csv", "ent idx,ent name\n1,\"b, c\"\n0,a\n"),
    ("mapping/labelidx2name.csv", "label idx,name\n0,ICML\n1,KDD\n2,PLDI\n3,VLDB\n"),
];

/// Tables of what `import.toml` may say beside that.
const MORE: [(&str, &str); 8] = [
    (
        "import.toml",
        r#"[[vertex_type]]
name = "item"
files = "items.csv"
id = ["shop", "number"]
order = "ids"
label = { column = "good" }
split = { train = "train.csv", val = "val.json" }
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
features = ["count", { column = "how", one_hot = true }, { column = "at", scale = "sum", missing = "mean" }]
split = { name = "later", by = "at", train = 0.5, val = 0.25 }
[[relation]]
name = "likes"
src = "user"
dst = "item"
files = "buys.csv"
src_key = "user"
dst_key = ["shop", "number"]
split = { name = "later", test = "held.json" }
"#,
    ),
    ("items.csv", "shop,number,price,good\n\"b, c\",1,5,yes\na,10,0,no\na,2,10,yes\na,3,2.5,\n"),
    ("kinds.tsv", "kind\nold\nnew\nused\nold\n"),
    ("train.csv", "number,shop\n1,\"b, c\"\n"),
    ("val.json", "[\"a\", 10]\n"),
    ("held.json", "[1, [\"a\", 10]]\n[3, \"a\", 2]\n"),
    (
        "users.jsonl",
        "{\"id\": 1, \"age\": 30, \"place\": [0.5, 1], \"train\": 1, \"test\": 0}\n{\"id\": 2, \"age\": 40, \"place\": [2, 3], \"test\": true}\n{\"id\": 3, \"place\": [4, 5]}\n",
    ),
    ("buys.csv", "user,shop,number,count,how,at\n1,a,10,1,web,1\n2,a,2,2,shop,4\n1,a,10,3,web,9\n3,\"b, c\",1,4,,3\n"),
];

const NTRIPLES: [(&str, &str); 4] = [
    (
        "a.nt",
        "# people\n<http://e/bob> <http://e/knows> <http://e/ada> .\n<http://e/ada> <http://e/name> \"Ada \\\"L\\\"\"@en .\n_:x <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://e/ada> .\n<http://e/bob> <http://e/age> \"5\"^^<http://www.w3.org/2001/XMLSchema#int> .\n",
    ),
    ("trainingSet.tsv", "id\tlabel_affiliation\tperson\n1\tibm\thttp://e/bob\n"),
    ("testSet.tsv", "id\tlabel_affiliation\tperson\n2\tacm\t<http://e/ada>\n"),
    ("completeDataset.tsv", "person\tlabel_affiliation\nhttp://e/bob\tibm\n"),
];

const DGL: [(&str, &str); 4] = [
    (
        "meta.yaml",
        "dataset_name: shop\nversion: 1.0.0\nnode_data:\n- file_name: users.csv\n  ntype: user\n- file_name: items.csv\n  ntype: item\n  node_id_field: key\nedge_data:\n- file_name: buys.csv\n  etype: [user, buys, item]\n- {file_name: buys.csv, etype: [user, 'likes', item], src_id_field: \"src_id\"}\n",
    ),
    (
        "users.csv",
        "node_id,label,train_mask,val_mask,test_mask,feat,age\n10,1,1,0,0,\"0.5, 1\",30\n2,0,0,1,0,\"1,2\",40\n7,-1,0,0,0,\"[3 4]\",50\n",
    ),
    ("items.csv", "key,label\nb,\"0,1\"\na10,\"1,1\"\na2,\"0,0\"\n"),
    ("buys.csv", "src_id,dst_id,weight,x,train_mask,test_mask\n10,b,0.5,1,1,0\n2,a10,1.5,2,1,0\n7,b,2.5,3,0,1\n"),
];

const GRAPHSTORM: [(&str, &str); 6] = [
    (
        "config.json",
        r#"{"version": "gconstruct-v0.1", "nodes": [
{"node_type": "user", "node_id_col": "id", "format": {"name": "csv"}, "files": "users*.csv",
 "features": [{"feature_col": "age", "transform": {"name": "max_min_norm", "max_val": [100], "min_bound": 0}},
  {"feature_col": ["age"], "transform": {"name": "standard"}},
  {"feature_col": "city", "transform": {"name": "to_categorical", "separator": ";", "mapping": {"Rome": 1, "Oslo": 0}}},
  {"feature_col": "age", "transform": {"name": "bucket_numerical", "range": [20, 40], "bucket_cnt": 3}},
  {"feature_col": "place", "transform": {"name": "no-op", "separator": ";"}}],
 "labels": [{"label_col": "group", "task_type": "classification", "custom_split_filenames": {"train": "train.json"}}]},
{"node_type": "item", "format": {"name": "json"}, "files": ["items.json"], "node_id_col": "id"},
{"node_type": "item", "format": {"name": "csv"}, "files": "prices.csv", "features": [{"feature_col": "price"}],
 "labels": [{"label_col": "price", "task_type": "regression", "split_pct": [0.4, 0.3, 0.3]}]}],
"edges": [{"relation": ["user", "buys", "item"], "source_id_col": "u", "dest_id_col": "i", "format": {"name": "csv"},
 "files": "buys.csv", "features": [{"feature_col": "how", "transform": {"name": "to_categorical"}}],
 "labels": [{"task_type": "link_prediction", "split_pct": [0.5, 0.25, 0.25]}]}]}"#,
    ),
    ("users1.csv", "id,age,city,place,group\nb,20,Oslo,1;2,0\na,30,Rome;Oslo,3;4,\nc,40,,5;6,1\n"),
    ("items.json", "{\"id\": 7}\n{\"id\": 8}\n\n{\"id\": \"9\"}"),
    ("prices.csv", "price\n1.5\n2.5\n3.5\n"),
    ("buys.csv", "u,i,how\nb,7,web\na,8,shop\nb,9,web\nc,7,shop\nb,7,web\n"),
    ("train.json", "\"b\"\n"),
];

const GRAPHBOLT: [(&str, &str); 2] = [
    (
        "metadata.yaml",
        r#"dataset_name: shop
graph:
  nodes:
    - {type: user, num: 3}
    - {type: item, num: 4}
  edges:
    - {type: "user:buys:item", format: csv, path: buys.csv}
    - {type: "user:follows:user", format: numpy, path: follows.npy}
feature_data:
  - {domain: node, type: user, name: age, format: numpy, path: seeds.npy}
  - {domain: edge, type: "user:follows:user", name: weight, format: numpy, path: weight.npy}
tasks:
  - name: groups
    num_classes: 2
    train_set:
      - {type: user, data: [{name: seeds, format: numpy, path: seeds.npy}, {name: labels, format: numpy, path: labels.npy}]}
  - name: links
    test_set:
      - {type: "user:buys:item", data: [{name: seeds, format: numpy, path: links.npy}]}
"#,
    ),
    ("buys.csv", "0,1\n2,3\n0,1\n1,0\n"),
];

/// Arrays beside [`GRAPHBOLT`].
fn arrays() -> [(&'static str, Vec<u8>); 5] {
    let made = |bytes: std::io::Result<Vec<u8>>| bytes.expect("as many elements as the shape says");
    [
        ("follows.npy", made(npy::to_bytes(&[2, 2], &[0i64, 1, 1, 2]))),
        ("seeds.npy", made(npy::to_bytes(&[3], &[2i32, 0, 1]))),
        ("labels.npy", made(npy::to_bytes(&[3], &[1f32, 0.0, 1.0]))),
        ("weight.npy", made(npy::to_bytes(&[2], &[0.5f32, 1.5]))),
        ("links.npy", made(npy::to_bytes(&[2, 2], &[2i64, 0, 1, 1]))),
    ]
}

/// A file of a folder that is imported.
struct Sample {
    folder: &'static str,
    kind: Kind,
    name: &'static str,
    bytes: Vec<u8>,
}

/// The subject: folders of files, one or all of them.
pub struct Tables {
    folder: PathBuf,
    samples: Vec<Sample>,
    /// The sample that is mutated.
    chosen: usize,
}

impl Tables {
    /// Names of the subject with one folder each.
    pub const FOLDERS: [&str; 9] =
        ["tables", "more-tables", "triples", "hgb", "ogb", "ntriples", "dgl", "graphbolt", "graphstorm"];

    /// Writes the undamaged files into a folder: all of them, or those of one kind.
    pub fn new(folder: &Path, only: Option<&str>) -> Tables {
        let mut samples = Vec::new();
        let mut add = |folder: &'static str, kind: Kind, files: &[(&'static str, &str)]| {
            let made =
                |(name, text): &(&'static str, &str)| Sample { folder, kind, name, bytes: text.as_bytes().to_vec() };
            samples.extend(files.iter().map(made));
        };
        add("tables", Kind::Tables, &[("import.toml", CONFIG)]);
        add("tables", Kind::Tables, &TABLES);
        add("more-tables", Kind::Tables, &MORE);
        add("triples", Kind::Triples, &TRIPLES);
        add("hgb", Kind::Hgb, &HGB);
        add("ogb", Kind::Ogb, &OGB);
        add("ntriples", Kind::Ntriples, &NTRIPLES);
        add("dgl", Kind::Dgl, &DGL);
        add("graphbolt", Kind::Graphbolt, &GRAPHBOLT);
        add("graphstorm", Kind::Graphstorm, &GRAPHSTORM);
        let of_arrays = |(name, bytes)| Sample { folder: "graphbolt", kind: Kind::Graphbolt, name, bytes };
        samples.extend(arrays().map(of_arrays));
        samples.retain(|sample| only.is_none_or(|only| sample.folder == only));
        let this = Tables { folder: folder.to_path_buf(), samples, chosen: 0 };
        for sample in &this.samples {
            let path = this.source(sample).join(sample.name);
            std::fs::create_dir_all(path.parent().expect("a folder of samples")).expect("a folder can be made");
        }
        this.samples.iter().for_each(|sample| this.restore(sample));
        for sample in &this.samples {
            read(sample.kind, &this.source(sample), None)
                .unwrap_or_else(|error| panic!("the sample of {} is imported: {error}", sample.folder));
        }
        this
    }

    fn source(&self, sample: &Sample) -> PathBuf {
        self.folder.join(sample.folder)
    }

    fn restore(&self, sample: &Sample) {
        std::fs::write(self.source(sample).join(sample.name), &sample.bytes).expect("a file can be written");
    }
}

impl Subject for Tables {
    fn outcomes(&self) -> &'static [&'static str] {
        &["refused", "imported"]
    }

    fn prepare(&mut self, rng: &mut ChaCha8Rng) -> String {
        // Only the last case changed a file.
        self.restore(&self.samples[self.chosen]);
        self.chosen = rng.random_range(0..self.samples.len());
        let sample = &self.samples[self.chosen];
        let mut bytes = sample.bytes.clone();
        match rng.random_range(0..4) {
            0 => {
                for _ in 0..rng.random_range(1..4) {
                    let at = rng.random_range(0..bytes.len());
                    bytes[at] = rng.random();
                }
            }
            1 => bytes.truncate(rng.random_range(0..bytes.len())),
            2 => {
                // A piece again, or a piece of another file.
                let other = &self.samples.choose(rng).expect("there are files").bytes;
                let from = rng.random_range(0..other.len());
                let piece = other[from..rng.random_range(from..=other.len())].to_vec();
                let at = rng.random_range(0..=bytes.len());
                bytes.splice(at..at, piece);
            }
            _ => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let others: Vec<String> = self.samples.iter().map(|sample| text(&sample.bytes)).collect();
                bytes = mutate(&text(&bytes), &others, rng.random_range(1..4), rng).into_bytes();
            }
        }
        std::fs::write(self.source(sample).join(sample.name), &bytes).expect("a file can be written");
        format!("{}/{}:\n{}", sample.folder, sample.name, String::from_utf8_lossy(&bytes))
    }

    fn run(&mut self, _rng: &mut ChaCha8Rng) -> Result<usize, String> {
        let sample = &self.samples[self.chosen];
        let dataset = match read(sample.kind, &self.source(sample), None) {
            Ok(dataset) => dataset,
            Err(ImportError::Faults(faults)) if faults.count > 0 && !faults.to_string().is_empty() => return Ok(0),
            Err(error) => return Err(format!("an error that says nothing: {error}")),
        };
        let target = self.folder.join("made");
        let _ = std::fs::remove_dir_all(&target);
        dataset.write(&target).map_err(|error| format!("not written: {error}"))?;
        Dataset::load(&target).map_err(|error| format!("not a valid dataset: {error}"))?;
        Ok(1)
    }
}
