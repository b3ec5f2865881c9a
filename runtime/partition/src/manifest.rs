//! `partition.json`: which rank owns what.

use std::ops::Range;
use std::path::Path;

use hgnnc_dataset::files;
use serde::{Deserialize, Serialize};

use crate::error::{PartitionError, Result};

/// The version of the file.
pub const VERSION: u32 = 1;

/// Which rank owns which vertices and edges of a partitioned dataset, with their numbers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// Version of the file.
    pub version: u32,
    /// Number of ranks.
    pub ranks: usize,
    /// How vertices were assigned.
    pub by: String,
    /// Times that the vertices were streamed, 0 where they were not.
    pub passes: usize,
    /// The relations whose edges decided; all of them if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relations_used: Vec<String>,
    /// The dataset that was partitioned.
    pub source: SourceIdentity,
    /// Edges whose ends have different owners.
    pub cut_edges: u64,
    /// Vertex types, in the order of `dataset.toml`.
    pub vertex_types: Vec<TypeParts>,
    /// Relations, in the order of `dataset.toml`.
    pub relations: Vec<RelationParts>,
}

/// The dataset that was partitioned.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SourceIdentity {
    /// Its name.
    pub name: String,
    /// A hash of its description and of all arrays that it has.
    pub hash: String,
    /// Number of vertices.
    pub vertices: u64,
    /// Number of edges.
    pub edges: u64,
}

/// The vertices of a type.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TypeParts {
    /// Name of the type.
    pub name: String,
    /// Rank `r` owns the vertices `borders[r]..borders[r + 1]`. `[ranks + 1]`
    pub borders: Vec<u64>,
    /// File of the number that each vertex has in the source. int32 `[count]`
    pub numbers: String,
    /// Vertices to train on that each rank owns. `[ranks]`
    pub seeds: Vec<u64>,
    /// Vertices of other ranks that are sources of a rank's in-edges. `[ranks]`
    pub mirror_sources: Vec<u64>,
    /// Vertices of other ranks that are destinations of a rank's out-edges. `[ranks]`
    pub mirror_destinations: Vec<u64>,
}

/// The edges of a relation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RelationParts {
    /// Name of the relation.
    pub name: String,
    /// The edges `in_borders[r]..in_borders[r + 1]` have their destinations at rank `r`. `[ranks + 1]`
    pub in_borders: Vec<u64>,
    /// The edges whose sources rank `r` owns are the elements `out_borders[r]..out_borders[r + 1]` of the two files
    /// below. `[ranks + 1]`
    pub out_borders: Vec<u64>,
    /// Edges whose ends have different owners.
    pub cut_edges: u64,
    /// The position of each edge among those of the relation, ordered by the owner of the source and then ascending.
    /// int32, or int64 from 2^31 edges on, `[E]`. None for one rank: in-edges and out-edges are the same.
    pub out_edges: Option<String>,
    /// The ends of these edges. int32 `[2, E]`
    pub out_ends: Option<String>,
}

impl Partition {
    /// Name of the file in the folder of a partition.
    pub const FILE: &'static str = "partition.json";

    /// Reads the `partition.json` of a folder and checks that its numbers fit each other.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn load(folder: &Path) -> Result<Partition> {
        let path = folder.join(Self::FILE);
        let wrong = |reason: String| PartitionError::read(&path, reason);
        let text = files::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
        let version = |value: &serde_json::Value| value.get("version").and_then(serde_json::Value::as_u64);
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if version(&value) != Some(u64::from(VERSION)) {
            return Err(wrong(format!("it is of another version than {VERSION}, which is what this program reads")));
        }
        let partition: Partition = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        let ranks = partition.ranks;
        let borders = |all: &[u64]| all.len() == ranks + 1 && all[0] == 0 && all.windows(2).all(|w| w[0] <= w[1]);
        let types = partition.vertex_types.iter().all(|ty| {
            let counts = [&ty.seeds, &ty.mirror_sources, &ty.mirror_destinations];
            borders(&ty.borders) && counts.iter().all(|counts| counts.len() == ranks)
        });
        let relations = partition.relations.iter().all(|relation| {
            borders(&relation.in_borders)
                && borders(&relation.out_borders)
                && relation.in_borders.last() == relation.out_borders.last()
        });
        if ranks == 0 || !types || !relations {
            return Err(wrong("its borders are not ascending numbers, one more than there are ranks".into()));
        }
        Ok(partition)
    }

    /// The rank that owns a vertex of a type. Panics if there is no such type.
    pub fn owner(&self, ty: usize, vertex: u64) -> usize {
        owner(&self.vertex_types[ty].borders, vertex)
    }

    /// The vertices of a type that a rank owns. Panics if there is no such type or rank.
    pub fn vertices(&self, ty: usize, rank: usize) -> Range<u64> {
        let borders = &self.vertex_types[ty].borders;
        borders[rank]..borders[rank + 1]
    }

    /// The edges of a relation whose destinations a rank owns. Panics if there is no such relation or rank.
    pub fn in_edges(&self, relation: usize, rank: usize) -> Range<u64> {
        let borders = &self.relations[relation].in_borders;
        borders[rank]..borders[rank + 1]
    }

    /// The elements of the files of out-edges whose sources a rank owns. Panics if there is no such relation or rank.
    pub fn out_edges(&self, relation: usize, rank: usize) -> Range<u64> {
        let borders = &self.relations[relation].out_borders;
        borders[rank]..borders[rank + 1]
    }
}

/// The part that holds an element, of parts with these borders.
pub fn owner(borders: &[u64], element: u64) -> usize {
    // Borders of empty parts are equal: the last part that begins at or before the element has it.
    borders[1..].partition_point(|&end| end <= element).min(borders.len().saturating_sub(2))
}

/// The owners of the elements of a type, found faster than by a search.
pub struct Owners<'a> {
    borders: &'a [u64],
    /// The owner of the first element of each block.
    firsts: Vec<u16>,
}

impl<'a> Owners<'a> {
    /// Elements of a block, as a power of two.
    const SHIFT: u32 = 8;

    /// Of parts with these borders.
    pub fn new(borders: &'a [u64]) -> Owners<'a> {
        let blocks = 0..=borders[borders.len() - 1] >> Owners::SHIFT;
        Owners { borders, firsts: blocks.map(|block| owner(borders, block << Owners::SHIFT) as u16).collect() }
    }

    /// The part that holds an element. Panics if no part does.
    #[inline]
    pub fn of(&self, element: u32) -> usize {
        let mut owner = usize::from(self.firsts[(element >> Owners::SHIFT) as usize]);
        while self.borders[owner + 1] <= u64::from(element) {
            owner += 1;
        }
        owner
    }
}

/// Borders of parts of these sizes.
pub fn borders(sizes: &[u64]) -> Vec<u64> {
    let mut borders = vec![0];
    for size in sizes {
        borders.push(borders[borders.len() - 1] + size);
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_among_empty_and_small_parts() {
        for sizes in [&[0, 300, 0, 1, 1, 0, 700, 0][..], &[1000], &[0, 0, 1, 0]] {
            let borders = borders(sizes);
            let owners = Owners::new(&borders);
            for element in 0..borders[sizes.len()] {
                let found = owners.of(element as u32);
                assert_eq!(found, owner(&borders, element));
                assert!((borders[found]..borders[found + 1]).contains(&element));
            }
        }
    }
}
