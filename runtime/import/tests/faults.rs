//! Faults planted in the tables of a small dataset: each is told with its file, its line, the value and a way out.

use std::path::Path;

use hgnnc_import::{Kind, read};

const CONFIG: &str = r#"
[[vertex_type]]
name = "user"
files = "users.csv"
id = "id"
time = "joined"
label = { column = "group" }
split = { column = "part" }
features = [{ columns = ["age"], scale = "standard" }, { column = "city", one_hot = true }]

[[vertex_type]]
name = "item"
files = "items*.tsv"
id = ["shop", "number"]
features = [{ column = "vector", vector = true, separator = "," }, { column = "price", buckets = [1, 10] }]

[[relation]]
name = "buys"
src = "user"
dst = "item"
files = "buys.csv"
src_key = "user"
dst_key = ["shop", "number"]
weight = "count"
features = "rating"
time = "at"

[[link_split]]
name = "later"
relation = "buys"
test = "later.csv"
src_key = "user"
dst_key = ["shop", "number"]

[[relation]]
name = "friend"
src = "user"
dst = "user"
key = "friend"
"#;

const USERS: &str = "id,joined,group,part,age,city,friend
u1,2001-02-03,a,train,30,Rome,u2
u2,2002-02-03 04:05:06,b,val,40,Oslo,
u3,5,a,test,50,NA,u1
";
const ITEMS: &str = "shop\tnumber\tvector\tprice
x\t1\t[0.5, 1]\t3
y\t1\t1,2\t
";
const BUYS: &str = "user,shop,number,count,rating,at
u1,x,1,2,0.5,7
u2,y,1,1,1.5,8
";

const LATER: &str = "user,shop,number
u3,x,1
";

fn write(folder: &Path) {
    let files = [
        ("import.toml", CONFIG),
        ("users.csv", USERS),
        ("items1.tsv", ITEMS),
        ("buys.csv", BUYS),
        ("later.csv", LATER),
    ];
    files.into_iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
}

/// Error message of an import after `from` in a file is replaced by `to`.
fn said(file: &str, from: &str, to: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let path = folder.path().join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let error = read(Kind::Tables, folder.path(), None).expect_err(&format!("{file}: {from} -> {to}"));
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn without_a_fault_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let dataset = read(Kind::Tables, folder.path(), None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(dataset.vertex_types[0].time.as_deref().unwrap(), [981_158_400, 1_012_709_106, 5]);
    let links = &dataset.link_splits[0].test;
    assert_eq!((&links.src[..], &links.relation[..], &links.dst[..]), (&[2][..], &[0][..], &[0][..]));
    let ids = dataset.vertex_types[1].ids.as_ref().unwrap();
    assert_eq!([ids.text(0), ids.text(1)], ["x|1", "y|1"]);
    dataset.write(&folder.path().join("made")).unwrap();
    hgnnc_dataset::Dataset::load(folder.path().join("made")).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn faults_in_tables_are_told_with_file_line_value_and_way_out() {
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("users.csv", "u2,2002", "u1,2002", &["users.csv:3: the id `u1` is there already", "duplicates = \"first\""]),
        ("users.csv", "u2,2002", ",2002", &["users.csv:3: column `id` has no value, but is an id"]),
        (
            "users.csv",
            "u2,2002",
            "NA,2002",
            &["users.csv:3: `NA` in column `id` stands for a missing value", "write `missing_values` without it"],
        ),
        (
            "later.csv",
            LATER,
            "",
            &["later.csv: is empty, but its first line names the columns, `user`, `shop`, `number`"],
        ),
        ("users.csv", "30,Rome", "thirty,Rome", &["users.csv:2: `thirty` in column `age` is not a number"]),
        ("users.csv", "30,Rome", "inf,Rome", &["users.csv:2: `inf` in column `age` is not a number"]),
        (
            "users.csv",
            "30,Rome",
            "1e300,Rome",
            &["users.csv:2: `1e300` in column `age` is too large for a number of 32 bits, at most 3.4e38"],
        ),
        ("users.csv", "30,Rome", ",Rome", &["users.csv:2: column `age` has no value", "missing = \"mean\""]),
        (
            "users.csv",
            ",train,",
            ",Train,",
            &["users.csv:2: `Train` is not a part of a split: `train`, `val` or `test`"],
        ),
        (
            "users.csv",
            "2001-02-03",
            "03.02.2001",
            &["users.csv:2: `03.02.2001` in column `joined` is neither an integer nor a date"],
        ),
        ("users.csv", "2001-02-03", "2001-02-30", &["users.csv:2: `2001-02-30` in column `joined`"]),
        ("users.csv", "2001-02-03", "", &["users.csv:2: column `joined` has no time"]),
        (
            "users.csv",
            "Rome,u2",
            "Rome,u9",
            &["users.csv:2: this line names a vertex of type `user` that is not there: `u9`", "unknown = \"skip\""],
        ),
        ("users.csv", "Rome,u2", "Rome", &["users.csv:2: there are 6 fields, but 7 columns"]),
        ("users.csv", "Rome,u2", "Rome, Italy,u2", &["users.csv:2: there are 8 fields, but 7 columns", "in quotes"]),
        ("users.csv", "age,city", "age,age", &["users.csv:1: two columns are named `age`: columns "]),
        ("users.csv", "age,city", "years,city", &["users.csv:1: there is no column `age` (there is `id`"]),
        (
            "users.csv",
            "u1,2001-02-03,a,train,30,Rome,u2\nu2,2002-02-03 04:05:06,b,val,40,Oslo,\nu3,5,a",
            "u1,5,,train,30,Rome,u1\nu2,5,,val,40,Oslo,\nu3,5,",
            &["no row has a value in column `group`"],
        ),
        ("items1.tsv", "x\t1\t", "x\t\t", &["items1.tsv:2: column `number` has no value, but is an id"]),
        ("items1.tsv", "x\t1\t", "x|y\t1\t", &["items1.tsv:2: `x|y` holds `|`, which joins the columns of an id"]),
        (
            "items1.tsv",
            "y\t1\t1,2",
            "y\t1\t1,2,3",
            &["items1.tsv:3: the vector of column `vector` has 3 numbers, the first one has 2"],
        ),
        ("items1.tsv", "y\t1\t1,2", "y\t1\t1,two", &["items1.tsv:3: `two` in column `vector` is not a number"]),
        ("items1.tsv", "y\t1\t1,2", "y\t1\t", &["items1.tsv:3: column `vector` has no vector"]),
        ("items1.tsv", "\t3\n", "\tcheap\n", &["items1.tsv:2: `cheap` in column `price` is not a number"]),
        ("items1.tsv", "y\t1\t", "x\t1\t", &["items1.tsv:3: the id `x|1` is there already"]),
        (
            "buys.csv",
            "u1,x",
            "u7,x",
            &["buys.csv:2: this line names a vertex of type `user` that is not there: `u7`", "relation `buys`"],
        ),
        ("buys.csv", "u1,x", "u1,z", &["buys.csv:2: this line names a vertex of type `item` that is not there: `z|1`"]),
        ("buys.csv", "u1,x", ",x", &["buys.csv:2: column `user` has no value, but is an id"]),
        ("buys.csv", "1,2,0.5", "1,many,0.5", &["buys.csv:2: `many` in column `count` is not a number"]),
        ("buys.csv", "1,2,0.5", "1,,0.5", &["buys.csv:2: column `count` has no value"]),
        ("buys.csv", "0.5,7", "good,7", &["buys.csv:2: `good` in column `rating` is not a number"]),
        ("buys.csv", "0.5,7", "0.5,noon", &["buys.csv:2: `noon` in column `at` is neither an integer nor a date"]),
        ("buys.csv", "0.5,7", "0.5,", &["buys.csv:2: column `at` has no time"]),
        ("buys.csv", "user,shop", "buyer,shop", &["buys.csv:1: there is no column `user`"]),
        ("later.csv", "u3,x", "u9,x", &["later.csv:2: there is no vertex of type `user` with the id `u9`"]),
        ("later.csv", "u3,x", "u3,", &["later.csv:2: column `shop` has no value, but is an id"]),
        ("later.csv", "user,shop", "buyer,shop", &["later.csv:1: there is no column `user`"]),
    ];
    for (file, from, to, parts) in cases {
        let said = said(file, from, to);
        assert!(
            parts.iter().all(|part| said.contains(part)),
            "{file}: {from} -> {to}\nsaid: {said}\nexpected: {parts:?}"
        );
    }
}

#[test]
fn faults_in_the_configuration_are_told() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("files = \"users.csv\"", "files = \"people.csv\"", &["import.toml: there is no file", "people.csv"]),
        ("files = \"items*.tsv\"", "files = \"thing*.tsv\"", &["there is no file", "thing*.tsv"]),
        ("id = \"id\"", "key = \"id\"", &["import.toml", "unknown field `key`"]),
        ("name = \"item\"", "name = \"user\"", &["vertex types have names that differ, and two are called `user`"]),
        ("name = \"friend\"", "name = \"buys\"", &["relations have names that differ, and two are called `buys`"]),
        (
            "dst = \"item\"",
            "dst = \"things\"",
            &["relation `buys`: there is no vertex type `things` (there is `user`, `item`)"],
        ),
        ("src_key = \"user\"\n", "", &["relation `buys` is either a table of edges"]),
        (
            "column = \"group\"",
            "column = \"joined\", buckets = [5, 6], class_names = [\"a\", \"b\"]",
            &["2 `buckets` of a label make 3 classes"],
        ),
        (
            "scale = \"standard\"",
            "scale = \"standard\", one_hot = true",
            &["one of `scale` (with `missing`), `one_hot`, `buckets` and `vector`"],
        ),
        ("buckets = [1, 10]", "buckets = [10, 1]", &["`buckets` are numbers that ascend"]),
        (
            "split = { column = \"part\" }",
            "split = { column = \"part\", train = 0.5 }",
            &["a split is a `column`, or shares"],
        ),
        ("split = { column = \"part\" }", "split = { train = 0.9, val = 0.9 }", &["at most 1 together"]),
        ("split = { column = \"part\" }", "split = { train = \"train.txt\" }", &["train.txt: cannot be read"]),
        ("label = { column = \"group\" }\n", "", &["vertex type `user` has a split but no `label`"]),
        ("time = \"at\"", "time = \"at\"\nunknown = \"add\"", &["adds vertices without a row"]),
        ("[[vertex_type]]", "[[vertex_type", &["import.toml", "TOML parse error at line 2"]),
        (
            "column = \"group\"",
            "column = \"group\", class_names = [\"a\", \"c\"]",
            &["users.csv:3: `b` is not among the `class_names`"],
        ),
        (
            "column = \"group\"",
            "column = \"group\", class_names = [\"a\", \"a\"]",
            &["label of vertex type `user`: `class_names` are those of classes, one at least, and differ"],
        ),
        (
            "label = { column = \"group\" }",
            "label = [{ column = \"group\" }, { column = \"city\" }]",
            &["labels of vertex type `user` have names that differ, and two are called `y`"],
        ),
        (
            "split = { column = \"part\" }",
            "split = [{ column = \"part\" }, { colum = \"part\" }]",
            &["import.toml", "unknown field `colum`"],
        ),
        ("relation = \"buys\"", "relation = \"sells\"", &["link split `later`: there is no relation `sells`"]),
        ("relation = \"buys\"\n", "", &["link split `later` has a `relation`, or a `column`"]),
        ("relation = \"buys\"\n", "column = \"user\"\n", &["later.csv:2: there is no relation `u3`"]),
        ("test = \"later.csv\"\n", "", &["link split `later` has files of links: `val`, `test` or both"]),
        ("label = { column = \"group\" }", "label = 3", &["import.toml", "a table, or an array of tables"]),
        ("files = \"users.csv\"", "files = 3", &["import.toml", "line 4", "a string, or an array of strings"]),
        (
            "scale = \"standard\"",
            "scale = \"standard\", missing = \"median\"",
            &["import.toml", "string \"median\"", "`\"error\"`, `\"mean\"` or a number"],
        ),
        (
            "split = { column = \"part\" }",
            "split = { train = { msk = \"part\" } }",
            &["import.toml", "unknown field `msk`, expected `mask`"],
        ),
        ("split = { column = \"part\" }", "split = { train = true }", &["a share, the name of a file, or `{ mask = "]),
    ];
    for (from, to, parts) in cases {
        let said = said("import.toml", from, to);
        assert!(parts.iter().all(|part| said.contains(part)), "{from} -> {to}\nsaid: {said}\nexpected: {parts:?}");
    }
}

#[test]
fn a_table_that_cannot_be_read_hides_nothing_behind_its_followers() {
    let said = said("users.csv", "age,city", "years,city");
    assert!(said.starts_with("users.csv:1: there is no column `age`") && said.lines().count() == 1, "{said}");
}

#[test]
fn unknown_ids_are_counted_and_the_first_ten_shown() {
    let lines: String = (0..25).map(|i| format!("w{i},x,1,2,0.5,7\n")).collect();
    let said = said("buys.csv", "u1,x,1,2,0.5,7\n", &lines);
    let expected = "buys.csv:2: 25 lines from here on name a vertex of type `user` that is not there: `w0`, `w1`, `w2`, `w3`, `w4`, `w5`, `w6`, `w7`, `w8`, `w9`, …;";
    assert!(said.starts_with(expected), "{said}");
}
