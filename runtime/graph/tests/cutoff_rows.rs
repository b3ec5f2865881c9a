//! Rows of vertices as of cutoffs: those that are read, their edges and numbers, and the errors of the list.

use hgnnc_dataset::{Dataset, LinkSplitData, Links, RelationData, Step, VertexTypeData};
use hgnnc_graph::{CutoffLinks, CutoffRows, CutoffType, CutoffWalk, SgbError};

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
        ..CutoffRows::default()
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

/// Users, artists, and plays with their days; two links in each held-out part.
fn music() -> Dataset {
    let vertex = |name: &str, count: usize| VertexTypeData { name: name.into(), count, ..Default::default() };
    let links = |links: &[(u32, u32, i64)]| Links {
        src: links.iter().map(|link| link.0).collect(),
        relation: vec![0; links.len()],
        dst: links.iter().map(|link| link.1).collect(),
        time: Some(links.iter().map(|link| link.2).collect()),
    };
    // A pair of the first week twice, and once in the second.
    let edges = [(0, 1, 3), (1, 0, 5), (0, 1, 6), (0, 1, 8), (1, 1, 13)];
    Dataset {
        name: "music".into(),
        vertex_types: vec![vertex("user", 2), vertex("artist", 3)],
        relations: vec![RelationData {
            name: "listens".into(),
            src: 0,
            dst: 1,
            src_ids: edges.iter().map(|edge| edge.0).collect(),
            dst_ids: edges.iter().map(|edge| edge.1).collect(),
            time: Some(edges.iter().map(|edge| edge.2).collect()),
            ..Default::default()
        }],
        link_splits: vec![LinkSplitData {
            name: "weeks".into(),
            val: links(&[(1, 1, 12), (1, 2, 15)]),
            test: links(&[(1, 2, 16), (0, 0, 30)]),
        }],
        ..Default::default()
    }
}

/// Rows of users and artists at the ends of links; messages go from artists to users.
fn of_links(memory_budget: u64) -> CutoffRows {
    let rows = |of: usize| CutoffType { of, vertex_type: format!("rows {of}"), relation: format!("from {of}") };
    CutoffRows {
        types: vec![rows(0), rows(1)],
        walks: vec![CutoffWalk { step: Step::reverse(0), relation: "to users".into(), read: true }],
        links: vec![CutoffLinks { relation: 0, name: "links".into(), period: 7 }],
        latest: vec![(1, "latest".into())],
        split: Some(0),
        memory_budget,
        ..CutoffRows::default()
    }
}

#[test]
fn each_vertex_at_an_end_of_links_has_a_row_at_each_cutoff_of_a_link() {
    let mut data = music();
    of_links(1 << 20).add_to(&mut data).unwrap();
    // Weeks end at 6, 13, 20, 27; the last link is of day 30.
    let cutoffs = |of: usize| data.vertex_types[of].time.clone().expect("rows have times");
    let each = |count: usize| -> Vec<i64> { [-1, 6, 13, 27, 30].into_iter().flat_map(|c| vec![c; count]).collect() };
    assert_eq!((cutoffs(2), cutoffs(3)), (each(2), each(3)));
    let ends = |name: &str| -> Vec<(u32, u32)> {
        let relation = &data.relations[data.relation(name).expect("it was added")];
        relation.src_ids.iter().copied().zip(relation.dst_ids.iter().copied()).collect()
    };
    // A pair is one link of a week: (0, 1) of the first and of the second.
    assert_eq!(ends("links"), [(0, 1), (1, 0), (2, 4), (3, 4)]);
    // Of the first week nobody reads anything, of the second what the first had.
    let to_users = ends("to users");
    assert!(to_users.iter().all(|&(artist, user)| artist / 3 == user / 2), "rows of one cutoff: {to_users:?}");
    assert_eq!(to_users.iter().filter(|edge| edge.1 < 2).count(), 0);
    assert_eq!(to_users.iter().filter(|edge| (2..4).contains(&edge.1)).count(), 3);
    // Training reads until day 6. Held-out links of days 12, 15, 16 and 30 are messages to what is later than they and that.
    let read = |block: u32| to_users.iter().filter(|edge| edge.1 / 2 == block).count();
    assert_eq!([read(2), read(3), read(4)], [5 + 1, 5 + 3, 5 + 4]);
    assert_eq!(data.relations[0].src_ids.len(), 5, "the relation keeps its own edges");
    assert_eq!(ends("latest"), [(12, 0), (13, 1), (14, 2)]);
}

#[test]
fn held_out_links_are_rows_as_of_their_times_and_of_the_earliest_part() {
    let mut data = music();
    of_links(1 << 20).add_to(&mut data).unwrap();
    let number = data.relation("links").expect("it was added") as u32;
    let LinkSplitData { val, test, .. } = &data.link_splits[0];
    let of = |links: &Links| -> Vec<(u32, u32, i64)> {
        let times = links.time.as_ref().expect("links keep their times");
        let own = (0..links.src.len()).filter(|&link| links.relation[link] == number);
        own.map(|link| (links.src[link], links.dst[link], times[link])).collect()
    };
    // (1, 1) of the second week is a training link, and (1, 2) of the third a validation link.
    assert_eq!(of(val), [(5, 8, 15)]);
    assert_eq!(of(test), [(6, 9, 30)]);
    assert_eq!(val.src.len(), 3, "the split keeps its own links");
}

#[test]
fn pairs_to_score_alone_have_one_cutoff() {
    let mut data = music();
    CutoffRows { outputs_only: true, ..of_links(1 << 20) }.add_to(&mut data).unwrap();
    assert_eq!(data.vertex_types[2].time, Some(vec![30, 30]), "held-out links have happened");
    assert_eq!((data.vertex_types[2].count, data.vertex_types[3].count), (2, 3));
    assert!(data.relations[data.relation("links").expect("it was added")].src_ids.is_empty());
}

#[test]
fn too_many_periods_are_counted_and_refused() {
    let mut data = music();
    let error = of_links(500).add_to(&mut data).unwrap_err();
    assert!(matches!(error, SgbError::TooManyPeriods { rows: 25, period: 7, budget: 500, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("edges or more, but the memory budget") && text.contains("`cutoff time every 70`"), "{text}");
    assert_eq!((data.vertex_types.len(), data.relations.len()), (2, 1), "the dataset is unchanged");
}
