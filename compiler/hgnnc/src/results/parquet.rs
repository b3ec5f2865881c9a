//! Results in files of the format Parquet.

use std::sync::Arc;

use hgnnc_dataset::VertexIds;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use super::{EdgeEnds, ResultTable};

/// Rows of a row group: few enough for readers that hold one in memory.
const GROUP: usize = 1 << 20;

/// The values of a column, by row.
pub(crate) enum Column<'t> {
    Integers(Box<dyn Fn(usize) -> i64 + 't>),
    Texts(Box<dyn Fn(usize) -> String + 't>),
    Numbers(Box<dyn Fn(usize) -> f32 + 't>),
}

/// The bytes of a file with rows of named columns.
pub(crate) fn bytes(rows: usize, columns: &[(String, Column<'_>)]) -> Result<Vec<u8>> {
    let field = |(name, column): &(String, Column<'_>)| -> Result<Arc<Type>> {
        let (physical, logical) = match column {
            Column::Integers(_) => (Physical::INT64, None),
            Column::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Column::Numbers(_) => (Physical::FLOAT, None),
        };
        let column = Type::primitive_type_builder(name, physical);
        let column = column.with_repetition(Repetition::REQUIRED).with_logical_type(logical);
        Ok(Arc::new(column.build()?))
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("results").with_fields(fields).build()?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut start = 0;
    while start < rows {
        let of_group = start..rows.min(start + GROUP);
        start = of_group.end;
        let mut group = writer.next_row_group()?;
        for (_, values) in columns {
            // There are as many as fields.
            let Some(mut column) = group.next_column()? else { break };
            let of_group = of_group.clone();
            match values {
                Column::Integers(value) => {
                    let values: Vec<i64> = of_group.map(value).collect();
                    column.typed::<Int64Type>().write_batch(&values, None, None)?;
                }
                Column::Texts(value) => {
                    let values: Vec<ByteArray> = of_group.map(|row| value(row).into_bytes().into()).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
                }
                Column::Numbers(value) => {
                    let values: Vec<f32> = of_group.map(value).collect();
                    column.typed::<FloatType>().write_batch(&values, None, None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}

impl ResultTable<'_> {
    /// The columns of the CSV, with types.
    pub(super) fn typed_columns(&self) -> Vec<(String, Column<'_>)> {
        let id = match self.ids {
            Some(VertexIds::Text { .. }) => Column::Texts(Box::new(|row| self.id(row))),
            Some(VertexIds::Integer(ids)) => Column::Integers(Box::new(|row| ids[row])),
            None => Column::Integers(Box::new(|row| row as i64)),
        };
        let ends = self.edges.into_iter().flatten().map(EdgeEnds::typed_column);
        let class = self.has_classes().then(|| Column::Texts(Box::new(|row| self.class(row).unwrap_or_default())));
        let numbers = (0..self.numbers.len()).map(|at| Column::Numbers(Box::new(move |row: usize| self.row(row)[at])));
        self.columns().into_iter().zip(std::iter::once(id).chain(ends).chain(class).chain(numbers)).collect()
    }
}

impl EdgeEnds {
    /// The vertex of each edge: its id, or its number where the vertices have no ids.
    fn typed_column(&self) -> Column<'_> {
        match &self.ids {
            Some(VertexIds::Text { .. }) => Column::Texts(Box::new(|row| self.text(row))),
            Some(VertexIds::Integer(ids)) => Column::Integers(Box::new(|row| ids[self.vertices[row] as usize])),
            None => Column::Integers(Box::new(|row| i64::from(self.vertices[row]))),
        }
    }
}

/// The rows of a file, as the library displays them.
#[cfg(test)]
pub(crate) fn rows(bytes: Vec<u8>) -> Vec<String> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.parquet");
    std::fs::write(&path, bytes).unwrap();
    let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hgnnc_train::OutputRows;

    use super::rows as read;
    use crate::results::{EdgeEnds, Naming, Predicted};

    #[test]
    fn it_has_the_columns_of_the_csv_with_types() {
        let names = ["cat", "dog"].map(String::from).to_vec();
        let ids = Some(["a,b", "ü"].into_iter().collect());
        let naming = Naming {
            ids: BTreeMap::from([("logits".into(), ids)]),
            trained: Some(("logits".into(), Predicted::Class(names))),
            ..Naming::default()
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

    #[test]
    fn edges_have_the_ids_of_their_ends() {
        let ids = Some(["u", "v"].into_iter().collect());
        let ends = [EdgeEnds { vertices: vec![1, 0], ids }, EdgeEnds { vertices: vec![7, 9], ids: None }];
        let naming = Naming {
            ids: BTreeMap::from([("stars".into(), None)]),
            edges: BTreeMap::from([("stars".into(), ends)]),
            ..Naming::default()
        };
        let rows = OutputRows { rows: 2, width: 1, data: vec![2.5, 4.0] };
        let found = read(naming.table("stars", &rows, false).parquet().unwrap());
        let expected = [r#"{edge: 0, src: "v", dst: 7, stars.0: 2.5}"#, r#"{edge: 1, src: "u", dst: 9, stars.0: 4.0}"#];
        assert_eq!(found, expected);
    }
}
