//! Checks that `docs/dataset.md` and the reader agree on the fields, and that the page's examples load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hgnnc_dataset::load::FIELDS;
use hgnnc_dataset::{Dataset, npy};
use hgnnc_graph::DatasetInfo;
use toml::{Table, Value};

const PAGE: &str = include_str!("../../../docs/dataset.md");

/// The contents of the fenced code blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let mut found = vec![];
    let mut open: Option<String> = None;
    for line in PAGE.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(text), None) => *text += &format!("{line}\n"),
            (None, Some(of)) if of == language => open = Some(String::new()),
            (None, _) => {}
        }
    }
    found
}

/// Writes the arrays that a block lists: name, type, shape and elements.
fn write_arrays(folder: &Path, list: &str) {
    for line in list.lines() {
        let (head, rest) = line.split_once('[').expect("a shape");
        let (shape, values) = rest.split_once(']').expect("a shape");
        let (name, kind) = head.trim().split_once(' ').expect("a name and a type");
        let shape: Vec<usize> = shape.split(',').map(|n| n.trim().parse().expect("a length")).collect();
        fn parsed<T: std::str::FromStr>(text: &str) -> Vec<T> {
            text.split_whitespace().map(|n| n.parse().unwrap_or_else(|_| panic!("an element: {n}"))).collect()
        }
        let path = folder.join(name);
        match kind.trim() {
            "int32" => npy::write::<i32>(&path, &shape, &parsed(values)),
            "int64" => npy::write::<i64>(&path, &shape, &parsed(values)),
            "uint8" => npy::write::<u8>(&path, &shape, &parsed(values)),
            "float16" => npy::write::<half::f16>(&path, &shape, &parsed(values)),
            "float64" => npy::write::<f64>(&path, &shape, &parsed(values)),
            "float32" => npy::write::<f32>(&path, &shape, &parsed(values)),
            other => panic!("no type `{other}`"),
        }
        .unwrap_or_else(|e| panic!("{line}: {e}"));
    }
}

/// The examples of the page: `dataset.toml` and the arrays beside it.
fn examples() -> Vec<(String, tempfile::TempDir)> {
    let (tables, arrays) = (blocks("toml"), blocks("arrays"));
    assert!(tables.len() == arrays.len() && tables.len() > 1);
    let write = |(text, arrays): (String, String)| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("dataset.toml"), &text).unwrap();
        write_arrays(folder.path(), &arrays);
        (text, folder)
    };
    tables.into_iter().zip(arrays).map(write).collect()
}

#[test]
fn examples_of_the_page_are_datasets() {
    for (text, folder) in examples() {
        let dataset = Dataset::load(folder.path()).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let named: BTreeSet<&str> = text.split('"').filter(|word| word.ends_with(".npy")).collect();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), named.len() + 1, "arrays without a use");
        let counted = DatasetInfo::new(&dataset).unwrap();
        for (path, found) in dataset.metapaths.iter().zip(&counted.metapaths) {
            assert_eq!(path.pairs, Some(found.pairs), "{}", path.name);
            assert_eq!((path.self_pairs, path.instances), (Some(found.self_pairs), found.instances.try_into().ok()));
        }
        let all: Vec<usize> = (0..dataset.relations.len()).collect();
        for split in &dataset.link_splits {
            assert_eq!(dataset.check_links(split, &all, &[]), Ok(()));
        }
    }
}

/// Tables of the page, by the heading above them, with the entries of their first column.
fn documented() -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut heading = "";
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            heading = title.trim_matches('`');
        } else if let Some(row) = line.strip_prefix("| `") {
            let field = row.split('`').next().expect("a field");
            found.entry(heading.to_owned()).or_default().push(field.to_owned());
        }
    }
    found
}

#[test]
fn every_field_is_documented_and_no_other() {
    let known: BTreeMap<String, Vec<String>> = FIELDS
        .iter()
        .map(|(table, fields)| (table.to_string(), fields.iter().map(ToString::to_string).collect()))
        .map(|(table, mut fields): (String, Vec<String>)| {
            fields.sort();
            (table, fields)
        })
        .collect();
    let mut told = documented();
    told.values_mut().for_each(|fields| fields.sort());
    assert_eq!(told, known);
}

/// The tables of a kind, such as `[vertex_type.features]`.
fn tables_of<'a>(root: &'a mut Table, kind: &str) -> Vec<&'a mut Table> {
    if kind == "dataset.toml" {
        return vec![root];
    }
    let mut names = kind.trim_matches(['[', ']']).split('.');
    let list = names.next().and_then(|name| root.get_mut(name)).and_then(Value::as_array_mut);
    let tables = list.into_iter().flatten().filter_map(Value::as_table_mut);
    match names.next() {
        None => tables.collect(),
        Some(inner) => tables
            .filter_map(|table| table.get_mut(inner))
            .flat_map(|found| match found {
                Value::Array(tables) => tables.iter_mut().filter_map(Value::as_table_mut).collect(),
                one => one.as_table_mut().into_iter().collect::<Vec<_>>(),
            })
            .collect(),
    }
}

/// The reader reads every field that the page names: a value of the wrong type is an error about this field.
#[test]
fn every_documented_field_is_read() {
    let examples = examples();
    let nonsense: Value = "x = 1979-05-27".parse::<Table>().unwrap().remove("x").unwrap();
    for (kind, fields) in documented() {
        for field in fields {
            let mut changed = 0;
            for (text, folder) in &examples {
                let count = tables_of(&mut text.parse::<Table>().unwrap(), &kind).len();
                for position in 0..count {
                    let mut root: Table = text.parse().unwrap();
                    let table = tables_of(&mut root, &kind).swap_remove(position);
                    if table.insert(field.clone(), nonsense.clone()).is_none() {
                        continue;
                    }
                    std::fs::write(folder.path().join("dataset.toml"), root.to_string()).unwrap();
                    let error = Dataset::load(folder.path()).expect_err(&format!("`{field}` of {kind} is ignored"));
                    let told = error.errors.iter().any(|e| e.to_string().contains(&format!("`{field}`")));
                    assert!(told, "{kind} {field}: {error}");
                    changed += 1;
                }
            }
            assert!(changed > 0, "no example has `{field}` of {kind}");
        }
    }
}
