//! Outputs of semantic graphs and of their edges as tables.

#[cfg(feature = "parquet")]
use hgnnc_dataset::VertexIds;
use hgnnc_ir::VertexType;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_train::FamilyOutputRows;
#[cfg(feature = "parquet")]
use hgnnc_train::GraphOutputRows;

#[cfg(feature = "parquet")]
use crate::results::parquet::{self, Column};
use crate::{Error, Naming};

impl Naming {
    /// A table of an output of semantic graphs, or of their edges: the name of the semantic graph; of an edge also the ids
    /// of its source and its destination (the numbers of their rows where the dataset has no ids); and a column for each
    /// of its numbers.
    ///
    /// # Errors
    /// When there is no memory for the text.
    pub fn family_csv(&self, output: &str, found: &FamilyOutputRows) -> Result<Vec<u8>, Error> {
        let failed = |error: csv::Error| Error::Machine(format!("cannot write the results: {error}"));
        let mut out = csv::Writer::from_writer(Vec::new());
        let of_edges = found.rows == FamilyRows::Edges;
        out.write_record(family_columns(output, found)).map_err(failed)?;
        let mut record: Vec<String> = vec![];
        for graph in &found.graphs {
            for (row, numbers) in graph.data.chunks_exact(found.width.max(1)).enumerate() {
                record.clear();
                record.push(graph.name.clone());
                if of_edges {
                    let (src, dst) = graph.edges[row];
                    record.push(self.end(graph.ends.0, src));
                    record.push(self.end(graph.ends.1, dst));
                }
                record.extend(numbers.iter().map(f32::to_string));
                out.write_record(&record).map_err(failed)?;
            }
        }
        out.into_inner().map_err(|error| Error::Machine(format!("cannot write the results: {error}")))
    }

    /// [`Naming::family_csv`] as Parquet: names of semantic graphs as texts, ids as 64-bit integers, or as texts where
    /// some of the column are, numbers as 32-bit floats.
    ///
    /// # Errors
    /// When it cannot be encoded, or there is no memory for it.
    #[cfg(feature = "parquet")]
    pub fn family_parquet(&self, output: &str, found: &FamilyOutputRows) -> Result<Vec<u8>, Error> {
        // The number of rows before each semantic graph.
        let (mut starts, mut rows) = (vec![], 0);
        for graph in &found.graphs {
            starts.push(rows);
            rows += graph.data.len() / found.width.max(1);
        }
        let place = |row: usize| {
            let graph = starts.partition_point(|&start| start <= row) - 1;
            (&found.graphs[graph], row - starts[graph])
        };
        let mut columns = vec![Column::Texts(Box::new(|row| place(row).0.name.clone()))];
        if found.rows == FamilyRows::Edges {
            let (src, dst) = (|of: &GraphOutputRows| of.ends.0, |of: &GraphOutputRows| of.ends.1);
            columns.push(self.end_column(found, &place, src, |edge| edge.0));
            columns.push(self.end_column(found, &place, dst, |edge| edge.1));
        }
        for at in 0..found.width {
            columns.push(Column::Numbers(Box::new(move |row| {
                let (graph, row) = place(row);
                graph.data[row * found.width + at]
            })));
        }
        let columns: Vec<_> = family_columns(output, found).into_iter().zip(columns).collect();
        parquet::bytes(rows, &columns).map_err(|error| Error::Machine(format!("cannot write the results: {error}")))
    }

    /// A build without the feature `parquet` writes no Parquet.
    ///
    /// # Errors
    /// That of [`crate::check_parquet`].
    #[cfg(not(feature = "parquet"))]
    pub fn family_parquet(&self, _output: &str, _found: &FamilyOutputRows) -> Result<Vec<u8>, Error> {
        crate::check_parquet().map(|()| Vec::new())
    }

    /// The ids of one end of all edges.
    #[cfg(feature = "parquet")]
    fn end_column<'t>(
        &'t self,
        found: &FamilyOutputRows,
        place: &'t impl Fn(usize) -> (&'t GraphOutputRows, usize),
        vertex: fn(&GraphOutputRows) -> VertexType,
        end: fn((u32, u32)) -> u32,
    ) -> Column<'t> {
        let is_text = |of: &GraphOutputRows| matches!(self.ends.get(&vertex(of)), Some(VertexIds::Text { .. }));
        let at = move |row: usize| {
            let (graph, row) = place(row);
            (vertex(graph), end(graph.edges[row]))
        };
        if found.graphs.iter().any(is_text) {
            return Column::Texts(Box::new(move |row| {
                let (vertex, row) = at(row);
                self.end(vertex, row)
            }));
        }
        Column::Integers(Box::new(move |row| {
            let (vertex, row) = at(row);
            match self.ends.get(&vertex) {
                Some(VertexIds::Integer(ids)) if (row as usize) < ids.len() => ids[row as usize],
                _ => i64::from(row),
            }
        }))
    }

    /// The id of a vertex at an end of an edge, or its number.
    fn end(&self, vertex: VertexType, row: u32) -> String {
        match self.ends.get(&vertex).filter(|ids| (row as usize) < ids.len()) {
            Some(ids) => ids.text(row as usize).into_owned(),
            None => row.to_string(),
        }
    }
}

/// Names of the columns of a table of semantic graphs, or of their edges.
fn family_columns(output: &str, found: &FamilyOutputRows) -> Vec<String> {
    let mut names = vec!["graph".to_owned()];
    if found.rows == FamilyRows::Edges {
        names.extend(["src".to_owned(), "dst".to_owned()]);
    }
    match found.width {
        1 => names.push(output.to_owned()),
        width => names.extend((0..width).map(|column| format!("{output}.{column}"))),
    }
    names
}

#[cfg(test)]
mod tests {
    use hgnnc_train::GraphOutputRows;

    use super::*;

    fn graph(name: &str, edges: &[(u32, u32)], data: &[f32]) -> GraphOutputRows {
        let ends = (VertexType(0), VertexType(1));
        GraphOutputRows { name: name.into(), ends, edges: edges.to_vec(), data: data.to_vec() }
    }

    fn text(naming: &Naming, found: &FamilyOutputRows) -> String {
        String::from_utf8(naming.family_csv("w", found).unwrap()).unwrap()
    }

    #[test]
    fn semantic_graphs_have_a_row_each() {
        let graphs = vec![graph("PAP", &[], &[0.75]), graph("P,P", &[], &[0.25])];
        let found = FamilyOutputRows { rows: FamilyRows::Graphs, width: 1, graphs };
        assert_eq!(text(&Naming::default(), &found), "graph,w\nPAP,0.75\n\"P,P\",0.25\n");
    }

    #[test]
    fn edges_have_the_ids_of_both_ends_where_there_are_some() {
        let graphs = vec![graph("writes", &[(1, 0), (0, 2)], &[1.0, 2.0, 3.0, 4.0]), graph("none", &[], &[])];
        let found = FamilyOutputRows { rows: FamilyRows::Edges, width: 2, graphs };
        let mut naming = Naming::default();
        naming.ends.insert(VertexType(0), ["ada", "bob"].into_iter().collect());
        assert_eq!(text(&naming, &found), "graph,src,dst,w.0,w.1\nwrites,bob,0,1,2\nwrites,ada,2,3,4\n");
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_has_the_columns_of_the_csv_with_types() {
        let rows = |naming: &Naming, found: &FamilyOutputRows| {
            crate::results::parquet::rows(naming.family_parquet("w", found).unwrap())
        };
        let graphs = vec![graph("PAP", &[], &[0.75]), graph("P,P", &[], &[0.25])];
        let found = FamilyOutputRows { rows: FamilyRows::Graphs, width: 1, graphs };
        assert_eq!(rows(&Naming::default(), &found), [r#"{graph: "PAP", w: 0.75}"#, r#"{graph: "P,P", w: 0.25}"#]);
        let none = graph("none", &[], &[]);
        let graphs = vec![none.clone(), graph("writes", &[(1, 0), (0, 2)], &[1.0, 2.0, 3.0, 4.0]), none];
        let found = FamilyOutputRows { rows: FamilyRows::Edges, width: 2, graphs };
        let mut naming = Naming::default();
        naming.ends.insert(VertexType(0), ["ada", "bob"].into_iter().collect());
        naming.ends.insert(VertexType(1), VertexIds::Integer(vec![7, 8, -9]));
        assert_eq!(
            rows(&naming, &found),
            [
                r#"{graph: "writes", src: "bob", dst: 7, w.0: 1.0, w.1: 2.0}"#,
                r#"{graph: "writes", src: "ada", dst: -9, w.0: 3.0, w.1: 4.0}"#
            ]
        );
        assert_eq!(text(&naming, &found), "graph,src,dst,w.0,w.1\nwrites,bob,7,1,2\nwrites,ada,-9,3,4\n");
    }
}
