//! Outputs of semantic graphs and of their edges as tables.

use hgnnc_ir::VertexType;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_train::FamilyOutputRows;

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
        let mut head = vec!["graph".to_owned()];
        if of_edges {
            head.extend(["src".to_owned(), "dst".to_owned()]);
        }
        match found.width {
            1 => head.push(output.to_owned()),
            width => head.extend((0..width).map(|column| format!("{output}.{column}"))),
        }
        out.write_record(&head).map_err(failed)?;
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

    /// The id of a vertex at an end of an edge, or its number.
    fn end(&self, vertex: VertexType, row: u32) -> String {
        match self.ends.get(&vertex).filter(|ids| (row as usize) < ids.len()) {
            Some(ids) => ids.text(row as usize).into_owned(),
            None => row.to_string(),
        }
    }
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
}
