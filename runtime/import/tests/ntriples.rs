//! RDF in N-Triples becomes a dataset of one vertex type.

mod layouts;

use std::fmt::Write as _;
use std::io::Write as _;

use hgnnc_dataset::{Dataset, LabelValues};
use hgnnc_import::Kind;
use layouts::{edges, ids, imported, write};

const TRIPLES: &str = r#"# people
<http://e/bob> <http://e/knows> <http://e/ada> .
<http://e/ada> <http://e/name> "Ada \"L\""@en .
<http://e/ada> <http://e/name> "http://e/bob" .

<http://e/bob> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://e/Person> . # twice
<http://e/bob> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://e/Person> .
_:x <http://e/knows> <http://e/bob> .
<http://e/bob> <http://e/works> <http://e/ibm> ."#;

const TRAIN: &str = "id\tlabel_affiliation\tperson\n1\tibm\thttp://e/bob\n";
const TEST: &str = "id\tlabel_affiliation\tperson\n2\tacm\t<http://e/ada>\n";

#[test]
fn terms_are_sorted_and_literals_are_no_iris() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("people.nt", TRIPLES), ("trainingSet.tsv", TRAIN), ("testSet.tsv", TEST)]);
    let dataset = imported(Kind::Ntriples, folder.path(), None);
    assert_eq!(
        ids(&dataset, 0),
        [
            "\"Ada \\\"L\\\"\"@en",
            "\"http://e/bob\"",
            "_:x",
            "http://e/Person",
            "http://e/ada",
            "http://e/bob",
            "http://e/ibm"
        ]
    );
    let names: Vec<&str> = dataset.relations.iter().map(|r| &r.name[..]).collect();
    assert_eq!(
        names,
        ["http://e/knows", "http://e/name", "http://e/works", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"]
    );
    assert_eq!(edges(&dataset, names[0]), [(2, 5), (5, 4)]);
    assert_eq!(edges(&dataset, names[1]), [(4, 0), (4, 1)]);
    assert_eq!(edges(&dataset, names[3]), [(5, 3)]);
    let kinds = dataset.vertex_types[0].kinds.as_ref().unwrap();
    let of: Vec<&str> = kinds.of.iter().map(|&k| &kinds.names[k as usize][..]).collect();
    assert_eq!(of, ["literal", "literal", "untyped", "class", "untyped", "http://e/Person", "untyped"]);
    let label = &dataset.labels[0];
    assert_eq!(label.class_names, ["acm", "ibm"]);
    assert_eq!(label.values, LabelValues::Single { classes: 2, of: vec![-1, -1, -1, -1, 0, 1, -1] });
    let split = &dataset.splits[0];
    assert_eq!(
        (&split.name[..], &split.train[..], &split.val.len(), &split.test[..]),
        ("standard", &[5][..], &0, &[4][..])
    );
}

#[test]
fn literals_and_relations_may_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let config = "name = \"few\"\nliterals = \"drop\"\ndrop = [\"http://e/works\"]\ntrain = \"labels.csv\"\nentity = \"who\"\nclass = \"where\"\nunknown = \"skip\"\n";
    let labels = "who,where\nhttp://e/bob,\"a, b\"\nhttp://e/ibm,c\n";
    write(
        folder.path(),
        &[("people.nt", TRIPLES), ("labels.csv", labels), ("settings.toml", config), ("testSet.tsv", TEST)],
    );
    let dataset = imported(Kind::Ntriples, folder.path(), Some(&folder.path().join("settings.toml")));
    assert_eq!(ids(&dataset, 0), ["_:x", "http://e/Person", "http://e/ada", "http://e/bob"]);
    assert_eq!((&dataset.name[..], dataset.relations.len()), ("few", 2));
    // `ibm` is in no triple that is kept.
    assert_eq!(dataset.labels[0].class_names, ["a, b", "c"]);
    assert_eq!(dataset.splits[0].train, [3]);
}

#[test]
fn the_real_aifb_is_read_back_as_it_is() {
    let Some(folder) = layouts::real_data("aifb") else { return };
    let aifb = Dataset::load(&folder).unwrap();
    let entities = &aifb.vertex_types[0];
    assert_eq!((entities.count, aifb.relations.len(), aifb.num_edges()), (8285, 45, 29043));
    let kinds = entities.kinds.as_ref().unwrap();
    // The dataset has no ids. These sort as its numbers do, literals first.
    let literal = |v: u32| kinds.names[kinds.of[v as usize] as usize] == "literal";
    let id = |v: u32| if literal(v) { format!("\"{v:05}\"") } else { format!("http://e/{v:05}") };
    let term = |v: u32| if literal(v) { id(v) } else { format!("<{}>", id(v)) };
    let mut text = String::new();
    // The order of the lines does not matter.
    for relation in aifb.relations.iter().rev() {
        for (&s, &o) in relation.src_ids.iter().zip(&relation.dst_ids).rev() {
            writeln!(text, "{} <{}> {} .", term(s), relation.name, term(o)).unwrap();
        }
    }
    let LabelValues::Single { of, .. } = &aifb.labels[0].values else { panic!("classes") };
    let table = |part: &[u32]| {
        let rows: String = part.iter().map(|&v| format!("{}\tclass {}\n", id(v), of[v as usize])).collect();
        format!("person\tlabel_affiliation\n{rows}")
    };
    let made = tempfile::tempdir().unwrap();
    let split = &aifb.splits[0];
    write(made.path(), &[("trainingSet.tsv", &table(&split.train)), ("testSet.tsv", &table(&split.test))]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    std::fs::write(made.path().join("aifb.nt.gz"), packed.finish().unwrap()).unwrap();

    let dataset = imported(Kind::Ntriples, made.path(), None);
    assert_eq!(dataset.vertex_types[0].count, entities.count);
    assert!(ids(&dataset, 0).iter().enumerate().all(|(v, found)| *found == id(v as u32)));
    assert_eq!(dataset.relations.len(), aifb.relations.len());
    for relation in &aifb.relations {
        let expected: Vec<(u32, u32)> =
            relation.src_ids.iter().copied().zip(relation.dst_ids.iter().copied()).collect();
        assert!(edges(&dataset, &relation.name) == expected, "{}", relation.name);
    }
    assert!(dataset.labels[0].values == aifb.labels[0].values);
    let found = &dataset.splits[0];
    assert!(found.train == split.train && found.test == split.test && found.val.is_empty());
    // Kinds are the same up to the names of types, which are made up.
    let found = dataset.vertex_types[0].kinds.as_ref().unwrap();
    let mut renamed = std::collections::BTreeMap::new();
    for (v, (&a, &b)) in kinds.of.iter().zip(&found.of).enumerate() {
        let known = *renamed.entry(a).or_insert(b);
        assert!(known == b, "vertex {v}: {} is {}", kinds.names[a as usize], found.names[b as usize]);
    }
    assert_eq!(found.names.len(), kinds.names.len());
}

#[test]
fn triples_alone_have_no_labels() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("people.nt", TRIPLES), ("trainingSet.tsv", TRAIN)]);
    let dataset = imported(Kind::Ntriples, &folder.path().join("people.nt"), None);
    assert_eq!((dataset.vertex_types[0].count, dataset.labels.len(), dataset.splits.len()), (7, 0, 0));
}

#[test]
fn faults_are_told_with_file_line_value_and_way_out() {
    let settings = "unknown = \"error\"\n";
    let files =
        [("people.nt", TRIPLES), ("trainingSet.tsv", TRAIN), ("testSet.tsv", TEST), ("settings.toml", settings)];
    let cases: &[layouts::Case<'_>] = &[
        (
            ("people.nt", "<http://e/ada> .", "<http://e/ada>"),
            &[
                "people.nt:2: `<http://e/bob> <http://e/knows> <http://e/ada>` is no triple",
                "write `<subject> <predicate> object .`",
            ],
        ),
        (
            ("people.nt", "<http://e/bob> <http://e/knows>", "<bob> <http://e/knows>"),
            &["people.nt:2: `<bob> <http://e/knows>"],
        ),
        (("people.nt", "\"http://e/bob\" .", "\"http://e/bob ."), &["people.nt:4:"]),
        (("people.nt", "<http://e/name> \"Ada", "\"name\" \"Ada"), &["people.nt:3:"]),
        (("people.nt", "_:x <http", "<http://e/a b> <http"), &["people.nt:8:"]),
        (
            ("trainingSet.tsv", "http://e/bob", "http://e/bo"),
            &[
                "trainingSet.tsv:2: this line names a term with a label that is not there: `http://e/bo`",
                "`unknown = \"skip\"` of `--config`",
            ],
        ),
        (
            ("trainingSet.tsv", "person", "human"),
            &[
                "trainingSet.tsv:1: no two columns are those of a well-known table (there is `id`, `label_affiliation`, `human`)",
                "`entity = \"…\"`",
            ],
        ),
        (("trainingSet.tsv", "\tibm\t", "\t\t"), &["trainingSet.tsv:2: column `label_affiliation` has no value"]),
        (("trainingSet.tsv", "1\tibm", "1\tibm\tibm"), &["trainingSet.tsv:2: there are 4 fields, but 3 columns"]),
        (
            ("testSet.tsv", "<http://e/ada>", "http://e/bob"),
            &[
                "testSet.tsv:2: `http://e/bob` has the class `acm` here, and `ibm` before",
                "`http://e/bob` is in the split already",
            ],
        ),
        (("settings.toml", "unknown", "unknwon"), &["settings.toml: TOML parse error", "unknown field `unknwon`"]),
        (
            ("settings.toml", "unknown = \"error\"", "drop = [\"knows\"]"),
            &["settings.toml: `drop` names a relation that no triple has: `knows`"],
        ),
        (("settings.toml", "unknown = \"error\"", "train = \"none.tsv\""), &["none.tsv: cannot be read"]),
    ];
    for (change, parts) in cases {
        let said = layouts::said_of(Kind::Ntriples, &files, *change);
        assert!(parts.iter().all(|part| said.contains(part)), "{change:?}\nsaid: {said}\nexpected: {parts:?}");
    }
}

#[test]
fn a_folder_without_triples_says_what_it_looks_for() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("people.ttl", TRIPLES)]);
    let said = layouts::said(Kind::Ntriples, folder.path(), None, "no triples");
    assert!(said.contains("there is no `.nt` or `.nt.gz` file"), "{said}");
}
