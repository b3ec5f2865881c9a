//! Cheap vertex orders.

use super::{Gather, Order, adjacency};

/// Descending degree: frequently gathered rows become neighbours. Degrees are summed over all gathers.
pub fn by_degree(num_vertices: &[usize], gathers: &[Gather<'_>]) -> Vec<Order> {
    let mut degrees: Vec<Vec<u32>> = num_vertices.iter().map(|&n| vec![0u32; n]).collect();
    for gather in gathers {
        let degrees = &mut degrees[gather.owner_type];
        for (degree, ends) in degrees.iter_mut().zip(gather.indptr.windows(2)) {
            *degree = degree.saturating_add((ends[1] - ends[0]) as u32);
        }
    }
    let order = |degrees: &Vec<u32>| {
        let most = degrees.iter().copied().max().unwrap_or(0);
        Order::by_key(&degrees.iter().map(|&degree| most - degree).collect::<Vec<u32>>())
    };
    degrees.iter().map(order).collect()
}

/// Breadth-first search over all relations from the vertex of the highest degree.
pub fn by_first_use(num_vertices: &[usize], gathers: &[Gather<'_>]) -> Vec<Order> {
    let mut seen: Vec<Vec<bool>> = num_vertices.iter().map(|&n| vec![false; n]).collect();
    let mut places: Vec<Vec<u32>> = num_vertices.iter().map(|&n| Vec::with_capacity(n)).collect();
    let mut queue = std::collections::VecDeque::new();
    let starts = by_degree(num_vertices, gathers);
    for (of, order) in starts.iter().enumerate() {
        for &start in &order.original {
            if std::mem::replace(&mut seen[of][start as usize], true) {
                continue;
            }
            queue.push_back((of, start));
            while let Some((of, vertex)) = queue.pop_front() {
                places[of].push(vertex);
                for gather in gathers.iter().filter(|gather| gather.owner_type == of) {
                    for &other in adjacency(gather.indptr, gather.other, vertex as usize) {
                        if !std::mem::replace(&mut seen[gather.other_type][other as usize], true) {
                            queue.push_back((gather.other_type, other));
                        }
                    }
                }
            }
        }
    }
    places.into_iter().map(Order::of).collect()
}
