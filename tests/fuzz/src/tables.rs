//! Mutated tables, their descriptions, and triples, as they are imported. What is imported is a valid dataset: it is
//! written, and read again by the reader, which checks everything.

use std::path::{Path, PathBuf};

use hgnnc_graph::Dataset;
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
        "id,joined,group,age,height,tags,friend\nu1,2001-02-03,a,30,1.7,x;y,u2\nu2,2002-02-03 04:05,b,NA,1.8,y,\nu3,5,,50,2,\"z\",u1\nu4,6,a,20,,,u4\n",
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

/// The subject: two folders of files.
pub struct Tables {
    folder: PathBuf,
    /// Kind, name and contents.
    files: Vec<(Kind, &'static str, &'static str)>,
    kind: Kind,
}

impl Tables {
    /// Writes the undamaged files into a folder.
    pub fn new(folder: &Path) -> Tables {
        let tables = [("import.toml", CONFIG)].into_iter().chain(TABLES).map(|(name, text)| (Kind::Tables, name, text));
        let files = tables.chain(TRIPLES.map(|(name, text)| (Kind::Triples, name, text))).collect();
        let this = Tables { folder: folder.to_path_buf(), files, kind: Kind::Tables };
        for kind in [Kind::Tables, Kind::Triples] {
            std::fs::create_dir_all(this.source(kind)).expect("a folder can be made");
        }
        this.restore();
        for kind in [Kind::Tables, Kind::Triples] {
            read(kind, &this.source(kind), None).unwrap_or_else(|error| panic!("the sample is imported: {error}"));
        }
        this
    }

    fn source(&self, kind: Kind) -> PathBuf {
        self.folder.join(if kind == Kind::Tables { "tables" } else { "triples" })
    }

    fn restore(&self) {
        for (kind, name, text) in &self.files {
            std::fs::write(self.source(*kind).join(name), text).expect("a file can be written");
        }
    }
}

impl Subject for Tables {
    fn outcomes(&self) -> &'static [&'static str] {
        &["refused", "imported"]
    }

    fn prepare(&mut self, rng: &mut ChaCha8Rng) -> String {
        self.restore();
        let (kind, name, text) = *self.files.choose(rng).expect("there are files");
        self.kind = kind;
        let mut bytes = text.as_bytes().to_vec();
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
                let other = self.files.choose(rng).expect("there are files").2.as_bytes();
                let from = rng.random_range(0..other.len());
                let piece = other[from..rng.random_range(from..=other.len())].to_vec();
                let at = rng.random_range(0..=bytes.len());
                bytes.splice(at..at, piece);
            }
            _ => {
                let others: Vec<String> = self.files.iter().map(|(_, _, text)| text.to_string()).collect();
                bytes = mutate(text, &others, rng.random_range(1..4), rng).into_bytes();
            }
        }
        std::fs::write(self.source(kind).join(name), &bytes).expect("a file can be written");
        format!("{name}:\n{}", String::from_utf8_lossy(&bytes))
    }

    fn run(&mut self, _rng: &mut ChaCha8Rng) -> Result<usize, String> {
        let dataset = match read(self.kind, &self.source(self.kind), None) {
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
