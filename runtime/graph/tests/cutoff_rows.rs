//! Rows of vertices as of cutoffs: those that are read, their edges and numbers, and the errors of the list.

use hgnnc_dataset::{Dataset, RelationData, Step, VertexTypeData};
use hgnnc_graph::{CutoffRows, CutoffType, CutoffWalk, SgbError};

/// Papers with times, authors without, and who wrote which paper when. `edges`: author, paper, time.
fn dataset(papers: &[i64], authors: usize, edges: &[(u32, u32, i64)]) -> Dataset {
    let vertex = |name: &str, count: usize, time: Option<Vec<i64>>| VertexTypeData {
        name: name.into(),
        count,
        time,
        ..Default::default()
    };
    let writes = RelationData {
        name: "writes".into(),
        src: 1,
        dst: 0,
        src_ids: edges.iter().map(|edge| edge.0).collect(),
        dst_ids: edges.iter().map(|edge| edge.1).collect(),
        time: Some(edges.iter().map(|edge| edge.2).collect()),
        weight: Some((0..edges.len()).map(|edge| edge as f32).collect::<Vec<f32>>().into()),
        ..Default::default()
    };
    Dataset {
        name: "papers".into(),
        vertex_types: vec![vertex("paper", papers.len(), Some(papers.to_vec())), vertex("author", authors, None)],
        relations: vec![writes],
        ..Default::default()
    }
}

/// Rows of authors, who read papers and are read by papers.
fn of_authors(memory_budget: u64) -> CutoffRows {
    let walk = |step: Step, relation: &str| CutoffWalk { step, relation: relation.into(), read: true };
    CutoffRows {
        types: vec![CutoffType { of: 1, vertex_type: "rows".into(), relation: "from".into() }],
        walks: vec![walk(Step::reverse(0), "to rows"), walk(Step::forward(0), "to papers")],
        memory_budget,
    }
}

/// The vertex and the cutoff of each row.
fn rows(data: &Dataset) -> Vec<(u32, i64)> {
    let times = data.vertex_types[2].time.as_ref().expect("rows have times");
    data.relations[1].src_ids.iter().copied().zip(times.iter().copied()).collect()
}

/// The edges of a relation: source, destination and weight.
fn edges(data: &Dataset, name: &str) -> Vec<(u32, u32, f32)> {
    let relation = &data.relations[data.relation(name).expect("it was added")];
    let weight = relation.weight.as_ref().expect("edges keep their weights");
    (0..relation.src_ids.len()).map(|e| (relation.src_ids[e], relation.dst_ids[e], weight[e])).collect()
}

#[test]
fn a_row_is_a_vertex_and_the_time_of_a_reader() {
    // Author 0 wrote papers of 2001 and 2003, author 1 that of 2003, author 2 a paper whose edge is later than the paper.
    let mut data = dataset(&[2003, 2001, 2002], 3, &[(0, 0, 2003), (0, 1, 2001), (1, 0, 2000), (2, 2, 2005)]);
    of_authors(1 << 20).add_to(&mut data).unwrap();
    assert_eq!(rows(&data), [(0, 2001), (0, 2003), (1, 2003)], "by cutoff, then by vertex; nobody reads author 2");
    assert_eq!(edges(&data, "to papers"), [(1, 0, 0.0), (2, 0, 2.0), (0, 1, 1.0)]);
    // As of 2001, the paper of 2003 is not there.
    assert_eq!(edges(&data, "to rows"), [(1, 0, 1.0), (0, 1, 0.0), (1, 1, 1.0), (0, 2, 2.0)]);
}

#[test]
fn numbers_of_rows_do_not_depend_on_what_is_later() {
    let (papers, early) = ([2001, 2002, 2002, 2005, 2006], [(0, 0, 2001), (1, 1, 2002), (0, 2, 2000), (1, 2, 2001)]);
    let late = [(1, 3, 2005), (0, 4, 2006), (0, 3, 2003)];
    let both = [&late[..], &early[..]].concat();
    let [mut without, mut with] = [&early[..], &both[..]].map(|edges| dataset(&papers, 2, edges));
    [&mut without, &mut with].into_iter().for_each(|data| of_authors(1 << 20).add_to(data).unwrap());
    let (few, all) = (rows(&without), rows(&with));
    assert!(few.len() < all.len());
    assert_eq!(few, all[..few.len()]);
    let ends = |data: &Dataset| -> Vec<(u32, u32)> {
        let to_early = edges(data, "to rows").into_iter().filter(|edge| (edge.1 as usize) < few.len());
        to_early.map(|(src, dst, _)| (src, dst)).collect()
    };
    assert_eq!(ends(&without), ends(&with));
}

#[test]
fn what_no_program_reads_is_not_listed() {
    let mut data = dataset(&[2003, 2001], 1, &[(0, 0, 2003), (0, 1, 2001)]);
    let mut unread = of_authors(1 << 20);
    unread.walks[0].read = false;
    unread.add_to(&mut data).unwrap();
    assert_eq!(rows(&data), [(0, 2001), (0, 2003)]);
    assert_eq!(edges(&data, "to rows"), []);
}

#[test]
fn too_many_rows_are_counted_and_refused() {
    // An author of 200 papers at 200 times: 200 rows, and 200 · 201 / 2 edges to them.
    let papers: Vec<i64> = (0..200).collect();
    let edges: Vec<(u32, u32, i64)> = (0..200).map(|paper| (0, paper, i64::from(paper))).collect();
    let mut data = dataset(&papers, 1, &edges);
    let error = of_authors(100_000).add_to(&mut data).unwrap_err();
    assert!(matches!(error, SgbError::TooManyCutoffRows { rows: 200, budget: 100_000, .. }), "{error}");
    assert!(error.to_string().contains("in a coarser unit"), "{error}");
    assert_eq!((data.vertex_types.len(), data.relations.len()), (2, 1), "the dataset is unchanged");
    of_authors(1 << 20).add_to(&mut data).unwrap();
    assert_eq!(data.relations[2].src_ids.len(), 200 * 201 / 2);
}
