//! Triples become a dataset of one vertex type.

use std::sync::{Arc, Mutex};

use hgnnc_dataset::Dataset;
use hgnnc_import::{Kind, Observer, read, read_observed};

#[test]
fn parts_become_edges_and_held_out_links_in_the_order_of_names() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("train.tsv", "b\tlikes\ta\na\tknows\tc\nc\tlikes\tb\n");
    write("valid.txt", "a\tlikes\tb\r\n");
    write("test.tsv", "d\tknows\ta");
    let made = read(Kind::Triples, folder.path(), None).unwrap();
    let target = folder.path().join("made");
    made.write(&target).unwrap();
    let dataset = Dataset::load(&target).unwrap();
    let ids = dataset.vertex_types[0].ids.as_ref().unwrap();
    assert_eq!((0..4).map(|v| ids.text(v).into_owned()).collect::<String>(), "abcd");
    let edges: Vec<_> = dataset.relations.iter().map(|r| (&r.name[..], &r.src_ids[..], &r.dst_ids[..])).collect();
    assert_eq!(edges, [("knows", &[0][..], &[2][..]), ("likes", &[1, 2][..], &[0, 1][..])]);
    let split = &dataset.link_splits[0];
    assert_eq!((&split.val.src[..], &split.val.relation[..], &split.val.dst[..]), (&[0][..], &[1][..], &[1][..]));
    assert_eq!((&split.test.src[..], &split.test.relation[..], &split.test.dst[..]), (&[3][..], &[0][..], &[0][..]));
}

#[test]
fn a_line_without_three_fields_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.txt");
    std::fs::write(&file, "a\tr\tb\na r b\n\tr\tb\n").unwrap();
    let error = read(Kind::Triples, &file, None).unwrap_err().to_string();
    assert!(error.contains("all.txt:2: there are 1 fields, but 3 columns"), "{error}");
    assert!(error.contains("all.txt:3: there is no head"), "{error}");
}

#[test]
fn a_byte_order_mark_and_windows_ends_of_lines_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.tsv");
    std::fs::write(&file, "\u{feff}a\tr\tb\r\nb\tr\ta\r\n").unwrap();
    assert_eq!(read(Kind::Triples, &file, None).unwrap().vertex_types[0].count, 2);
    std::fs::write(&file, "a\tr\tb\r\n\r\nb\tr\r\n").unwrap();
    let error = read(Kind::Triples, &file, None).unwrap_err().to_string();
    assert!(error.contains("all.tsv:3: there are 2 fields, but 3 columns"), "{error}");
}

#[test]
fn a_configuration_is_refused_where_there_are_no_settings() {
    let nowhere = std::path::Path::new("nowhere");
    for kind in [Kind::Triples, Kind::Hgb, Kind::Ogb] {
        let error = read(kind, nowhere, Some(&nowhere.join("c.toml"))).unwrap_err().to_string();
        let expected =
            format!("nowhere/c.toml: a configuration describes tables or has settings, and `{}` has none", kind.name());
        assert_eq!(error, expected);
    }
}

/// Adds up what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<(u64, u64)>>);

impl Observer for Told {
    fn progress(&self, read: u64, total: u64) {
        self.0.lock().unwrap().push((read, total));
    }
}

#[test]
fn an_observer_is_told_of_all_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let files = [("train.tsv", "a\tr\tb\nb\tr\tc\n"), ("test.tsv", "a\tr\tc\n")];
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    let bytes = files.iter().map(|(_, text)| text.len() as u64).sum();
    let told = Arc::new(Told::default());
    read_observed(Kind::Triples, folder.path(), None, None, Arc::clone(&told) as _).unwrap();
    let told = told.0.lock().unwrap();
    assert!(told.iter().all(|&(_, total)| total == bytes), "{told:?}");
    assert!(told.is_sorted() && told.last() == Some(&(bytes, bytes)), "{told:?}");
}
