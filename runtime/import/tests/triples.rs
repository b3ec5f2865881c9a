//! Triples become a dataset of one vertex type.

use hgnnc_graph::Dataset;
use hgnnc_import::{Kind, read};

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
