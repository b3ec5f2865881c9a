//! Results in files of the format Parquet.

use std::sync::Arc;

use hgnnc_graph::VertexIds;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::ResultTable;

/// Rows of a row group: few enough for readers that hold one in memory.
const GROUP: usize = 1 << 20;

/// The bytes of a file with the rows of a table.
pub(super) fn bytes(table: &ResultTable<'_>) -> Result<Vec<u8>> {
    let integers = !matches!(table.ids, Some(VertexIds::Text { .. }));
    let columns = table.columns();
    let texts = usize::from(table.has_classes());
    let field = |(i, name): (usize, &String)| -> Result<Arc<Type>> {
        let (physical, logical) = match i {
            0 if integers => (Physical::INT64, None),
            i if i <= texts => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            _ => (Physical::FLOAT, None),
        };
        let column = Type::primitive_type_builder(name, physical);
        let column = column.with_repetition(Repetition::REQUIRED).with_logical_type(logical);
        Ok(Arc::new(column.build()?))
    };
    let fields = columns.iter().enumerate().map(field).collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("results").with_fields(fields).build()?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut start = 0;
    while start < table.len() {
        let rows = start..table.len().min(start + GROUP);
        start = rows.end;
        let mut group = writer.next_row_group()?;
        let mut number = 0;
        while let Some(mut column) = group.next_column()? {
            if number == 0 && integers {
                let id = |row: usize| match table.ids {
                    Some(VertexIds::Integer(ids)) => ids[row],
                    _ => row as i64,
                };
                let ids: Vec<i64> = rows.clone().map(id).collect();
                column.typed::<Int64Type>().write_batch(&ids, None, None)?;
            } else if number <= texts {
                let text = |row| if number == 0 { table.id(row) } else { table.class(row).unwrap_or_default() };
                let texts: Vec<ByteArray> = rows.clone().map(|row| text(row).into_bytes().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
            } else {
                let at = number - 1 - texts;
                let numbers: Vec<f32> = rows.clone().map(|row| table.row(row)[at]).collect();
                column.typed::<FloatType>().write_batch(&numbers, None, None)?;
            }
            column.close()?;
            number += 1;
        }
        group.close()?;
    }
    writer.into_inner()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hgnnc_train::OutputRows;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use crate::results::{Naming, Predicted};

    /// The rows of a file, as the library displays them.
    fn read(bytes: Vec<u8>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.parquet");
        std::fs::write(&path, bytes).unwrap();
        let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
        reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
    }

    #[test]
    fn it_has_the_columns_of_the_csv_with_types() {
        let names = ["cat", "dog"].map(String::from).to_vec();
        let ids = Some(["a,b", "ü"].into_iter().collect());
        let naming = Naming {
            ids: BTreeMap::from([("logits".into(), ids)]),
            trained: Some(("logits".into(), Predicted::Class(names))),
        };
        let rows = OutputRows { rows: 2, width: 2, data: vec![0.25, 0.75, 0.5, 0.5] };
        let found = read(naming.table("logits", &rows, true).parquet().unwrap());
        assert_eq!(
            found,
            [r#"{id: "a,b", class: "dog", cat: 0.25, dog: 0.75}"#, r#"{id: "ü", class: "cat", cat: 0.5, dog: 0.5}"#]
        );
        let found = read(naming.table("logits", &rows, false).parquet().unwrap());
        assert_eq!(found, [r#"{id: "a,b", class: "dog"}"#, r#"{id: "ü", class: "cat"}"#]);
        // Without ids they are the numbers of rows.
        let found = read(naming.table("h", &rows, false).parquet().unwrap());
        assert_eq!(found, ["{id: 0, h.0: 0.25, h.1: 0.75}", "{id: 1, h.0: 0.5, h.1: 0.5}"]);
    }
}
