//! Tables in Parquet are read as those in CSV are, by a build with the feature.

#![cfg(feature = "parquet")]

mod layouts;

use std::path::Path;
use std::sync::Arc;

use hgnnc_import::{ImportError, Kind, read};
use layouts::{edges, ids, imported, rows, said, write};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

const CONFIG: &str = r#"
[[vertex_type]]
name = "user"
files = "users*.parquet"
id = "id"
time = "joined"
features = [{ column = "age", scale = "none", missing = 1 }, { column = "place", vector = true }]
label = { column = "group" }

[[relation]]
name = "knows"
src = "user"
dst = "user"
files = "knows.parquet"
src_key = "a"
dst_key = "b"
weight = "w"
"#;

const USERS: &str = "message users {
    REQUIRED BYTE_ARRAY id (UTF8);
    REQUIRED INT64 unread;
    OPTIONAL DOUBLE age;
    REQUIRED INT64 joined (TIMESTAMP(NANOS,true));
    REQUIRED group place (LIST) { REPEATED group list { OPTIONAL FLOAT element; } }
    OPTIONAL BYTE_ARRAY group (UTF8);
}";

const KNOWS: &str = "message knows { REQUIRED BYTE_ARRAY b (UTF8); REQUIRED BYTE_ARRAY a (UTF8); REQUIRED INT32 w; }";

/// Fills the column of a number.
type Fill<'f> = &'f dyn Fn(usize, &mut ColumnWriter<'_>);

/// Writes row groups, each by a function that fills the columns.
fn file(path: &Path, schema: &str, compression: Compression, groups: &[Fill<'_>]) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let out = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(out, schema, properties).unwrap();
    for fill in groups {
        let mut group = writer.next_row_group().unwrap();
        let mut number = 0;
        while let Some(mut column) = group.next_column().unwrap() {
            fill(number, column.untyped());
            column.close().unwrap();
            number += 1;
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Columns of two users, whose names begin with `prefix`.
fn users(prefix: &'static str) -> impl Fn(usize, &mut ColumnWriter<'_>) {
    let text = |text: String| ByteArray::from(text.into_bytes());
    move |number, column| {
        let written = match (number, column) {
            (0, ColumnWriter::ByteArrayColumnWriter(c)) => {
                c.write_batch(&[text(format!("{prefix}1")), text(format!("{prefix}2"))], None, None)
            }
            (1, ColumnWriter::Int64ColumnWriter(c)) => c.write_batch(&[7, 8], None, None),
            (2, ColumnWriter::DoubleColumnWriter(c)) => c.write_batch(&[30.5], Some(&[1, 0]), None),
            (3, ColumnWriter::Int64ColumnWriter(c)) => {
                c.write_batch(&[1_500_000_000_000_000_000, 1_600_000_000_000_000_000], None, None)
            }
            (4, ColumnWriter::FloatColumnWriter(c)) => {
                c.write_batch(&[0.1, 2.0, 3.0, 4.0], Some(&[2, 2, 2, 2]), Some(&[0, 1, 0, 1]))
            }
            (5, ColumnWriter::ByteArrayColumnWriter(c)) => c.write_batch(&[text("x".into())], Some(&[1, 0]), None),
            _ => panic!("there is no column {number}"),
        };
        written.unwrap();
    }
}

fn knows(number: usize, column: &mut ColumnWriter<'_>) {
    let written = match (number, column) {
        (0, ColumnWriter::ByteArrayColumnWriter(c)) => c.write_batch(&["a2".into(), "b1".into()], None, None),
        (1, ColumnWriter::ByteArrayColumnWriter(c)) => c.write_batch(&["a1".into(), "c2".into()], None, None),
        (2, ColumnWriter::Int32ColumnWriter(c)) => c.write_batch(&[3, 4], None, None),
        _ => panic!("there is no column {number}"),
    };
    written.unwrap();
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("import.toml", CONFIG)]);
    let (a, b, c) = (users("a"), users("b"), users("c"));
    let zstd = Compression::ZSTD(Default::default());
    file(&folder.path().join("users1.parquet"), USERS, Compression::SNAPPY, &[&a, &b]);
    file(&folder.path().join("users2.parquet"), USERS, zstd, &[&c]);
    file(&folder.path().join("knows.parquet"), KNOWS, Compression::UNCOMPRESSED, &[&knows]);
    folder
}

#[test]
fn columns_lists_times_and_missing_values_are_read() {
    let folder = folder();
    let dataset = imported(Kind::Tables, folder.path(), None);
    assert_eq!(ids(&dataset, 0), ["a1", "a2", "b1", "b2", "c1", "c2"]);
    assert_eq!(rows(&dataset, 0)[..2], [[30.5, 0.1, 2.0], [1.0, 3.0, 4.0]]);
    assert_eq!(dataset.vertex_types[0].time.as_deref().unwrap()[..2], [1_500_000_000, 1_600_000_000]);
    assert_eq!(dataset.labels[0].num_labelled(), 3);
    assert_eq!(edges(&dataset, "knows"), [(0, 1), (5, 2)]);
    assert_eq!(dataset.relations[0].weight.as_deref().unwrap(), [3.0, 4.0]);
}

#[test]
fn faults_are_told_with_file_row_and_way_out() {
    let folder = folder();
    let change = |from: &str, to: &str| {
        write(folder.path(), &[("import.toml", &CONFIG.replacen(from, to, 1))]);
        said(Kind::Tables, folder.path(), None, from)
    };
    let missing = change("column = \"age\"", "column = \"height\"");
    assert!(
        missing.contains(
            "users1.parquet: there is no column `height` (there is `id`, `unread`, `age`, `joined`, `place`, `group`)"
        ),
        "{missing}"
    );
    let none = change("scale = \"none\", missing = 1", "scale = \"none\"");
    assert!(none.contains("users1.parquet:2: column `age` has no value"), "{none}");
    let unknown = change("dst_key = \"b\"", "dst_key = \"w\"");
    assert!(
        unknown
            .contains("knows.parquet:1: 2 lines from here on name a vertex of type `user` that is not there: `3`, `4`"),
        "{unknown}"
    );
    write(folder.path(), &[("import.toml", CONFIG), ("knows.parquet", "a,b,w\na1,a2,3\n")]);
    let text = said(Kind::Tables, folder.path(), None, "text");
    assert!(text.contains("knows.parquet: is not a Parquet file that can be read"), "{text}");
}

/// Damaged files are refused or read, and neither ends the process.
#[test]
fn mutated_files_do_not_panic() {
    let folder = folder();
    let path = folder.path().join("users1.parquet");
    let sound = std::fs::read(&path).unwrap();
    // Panics that the reader catches print no message.
    std::panic::set_hook(Box::new(|_| {}));
    let rounds: u64 = std::env::var("MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..rounds {
        let mut bytes = sound.clone();
        for _ in 0..1 + random(3) {
            let at = random(bytes.len());
            bytes[at] = random(256) as u8;
        }
        if random(8) == 0 {
            bytes.truncate(random(bytes.len()));
        }
        std::fs::write(&path, &bytes).unwrap();
        match read(Kind::Tables, folder.path(), None) {
            Ok(_) => taken += 1,
            Err(ImportError::Faults(faults)) => refused += usize::from(faults.count > 0),
            Err(error) => panic!("{error}"),
        }
    }
    let _ = std::panic::take_hook();
    assert_eq!(refused + taken, rounds as usize);
    assert!(refused > 0 && taken > 0, "{refused} {taken}");
}
