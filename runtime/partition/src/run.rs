//! The stages of a partition, one after the other.

use std::path::Path;

use hgnnc_dataset::write::vacant;

use crate::adjacency;
use crate::assign::{self, Classes, Fennel};
use crate::counts::{Counts, count};
use crate::error::{PartitionError, Result};
use crate::manifest::{self, Partition, RelationParts, SourceIdentity, TypeParts, borders};
use crate::memory::Needs;
use crate::plan::{Plan, description, plan, relations_named};
use crate::progress::{Observer, Progress, Stage};
use crate::source::{Source, hash_text};
use crate::work::Work;
use crate::write::{self, Layout};
use crate::{By, MOST_PASSES, MOST_RANKS, Options};

/// Partitions the dataset in `folder`, and writes it to the folder `target`, which appears complete or not at all. Runs on
/// the threads of the calling thread's pool.
///
/// # Errors
/// Wrong options, faults of the dataset, too little memory, a target that is there, and failures to write. After the last
/// kind, and after a kill, `options.resume` continues the run.
pub fn partition(folder: &Path, target: &Path, options: &Options, observer: &dyn Observer) -> Result<Partition> {
    check(options)?;
    vacant(target)?;
    let source = Source::open(folder)?;
    let used = relations_named(&source, &options.relations)
        .map_err(|name| unknown("relation", name, source.outline.relations.iter().map(|r| &r.name)))?;
    let seeds = seeds(&source, options)?;
    let needs = needs(&source, options);
    observer.begin(&needs);
    if let Some(available) = options.available.filter(|&available| available < needs.memory) {
        let hash = Options { by: By::Hash, ..options.clone() };
        let simpler = self::needs(&source, &hash).memory;
        return Err(PartitionError::Memory { needed: needs.memory, available, simpler });
    }
    let work = Work::open(target, &source.stamp, options, options.resume)?;
    let run = Run { source: &source, options, used: &used, work: &work, observer };
    match run.stages(seeds) {
        Ok(partition) => {
            work.finish(target)?;
            Ok(partition)
        }
        Err(error) if error.can_resume() => Err(error),
        Err(error) => {
            work.remove();
            Err(error)
        }
    }
}

fn check(options: &Options) -> Result<()> {
    let &Options { ranks, passes, by, .. } = options;
    if ranks == 0 || ranks > MOST_RANKS {
        return Err(PartitionError::Ranks { ranks, most: MOST_RANKS });
    }
    if by == By::Fennel && (passes == 0 || passes > MOST_PASSES) {
        return Err(PartitionError::Passes { passes, most: MOST_PASSES });
    }
    Ok(())
}

fn unknown<'a>(of: &'static str, name: String, names: impl Iterator<Item = &'a String>) -> PartitionError {
    let mut known: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    known.dedup();
    if known.len() > 10 {
        known.truncate(10);
        known.push("…".into());
    }
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    PartitionError::Unknown { of, name, known }
}

/// The ids of the training vertices of each type.
fn seeds(source: &Source, options: &Options) -> Result<Vec<Vec<u32>>> {
    let outline = &source.outline;
    let of_edges = outline.relations.iter().flat_map(|relation| &relation.splits).map(|split| &split.name);
    let names = outline.splits.iter().map(|split| &split.name).chain(of_edges);
    if let Some(name) = &options.split
        && !names.clone().any(|known| known == name)
    {
        return Err(unknown("split", name.clone(), names));
    }
    let of = |ty| source.outline.split(ty, options.split.as_deref()).map_or(vec![], |split| split.train.clone());
    Ok((0..source.outline.vertex_types.len()).map(of).collect())
}

fn needs(source: &Source, options: &Options) -> Needs {
    let listed = |ids: [&Vec<u32>; 3]| ids.iter().map(|ids| ids.len() as u64).sum::<u64>();
    // Training vertices are listed once more while they are balanced, and the ids of a part while it is written.
    let splits = source.outline.splits.iter().map(|split| listed([&split.train, &split.val, &split.test]));
    let of_edges = source.outline.relations.iter().flat_map(|relation| &relation.splits);
    let of_edges = of_edges.map(|split| listed([&split.train, &split.val, &split.test]));
    let listed = splits.chain(of_edges).sum::<u64>() * 4;
    let threads = rayon::current_num_threads();
    Needs::new(source.num_vertices() as u64, source.num_edges(), listed, threads, options)
}

struct Run<'a> {
    source: &'a Source,
    options: &'a Options,
    /// Whether the edges of each relation decide.
    used: &'a [bool],
    work: &'a Work,
    observer: &'a dyn Observer,
}

/// Name of the file of neighbours.
const NEIGHBOURS: &str = "neighbours";

impl Run<'_> {
    fn stages(&self, seeds: Vec<Vec<u32>>) -> Result<Partition> {
        let Run { source, options, work, observer, .. } = *self;
        let ranks = self.assign(&seeds)?;
        let counts = match work.state().counts {
            Some(counts) => counts,
            None => {
                let counts = count(source, &ranks, options.ranks, observer)?;
                work.done(|state| state.counts = Some(counts.clone()))?;
                counts
            }
        };
        let sizes = self.sizes(&ranks);
        let type_borders: Vec<Vec<u64>> = sizes.iter().map(|sizes| borders(sizes)).collect();
        let numbers = self.numbers(&ranks, &type_borders);
        let plan = plan(source, options.ranks)?;
        let layout = Layout { source, ranks: &ranks, numbers: &numbers, borders: &type_borders, counts: &counts };
        let total = plan.jobs.iter().map(|job| job.bytes).sum();
        let progress = Progress::new(observer, Stage::Write, total)?;
        write::write(&layout, &plan.jobs, work, &progress)?;
        self.describe(&plan, &seeds, &ranks, type_borders, counts)
    }

    /// Checks the edges of all relations, and takes their hashes.
    fn check_edges(&self) -> Result<()> {
        if self.work.state().edges.is_some() {
            return Ok(());
        }
        let progress = Progress::new(self.observer, Stage::Check, self.source.edge_bytes())?;
        let hashes = self.source.check(&progress, |_, _| {})?;
        self.work.done(|state| state.edges = Some(hashes))
    }

    /// The rank of each vertex.
    fn assign(&self, seeds: &[Vec<u32>]) -> Result<Vec<u16>> {
        let &Options { ranks, by, seed, .. } = self.options;
        if by == By::Fennel && ranks > 1 {
            return self.stream(seeds);
        }
        self.check_edges()?;
        let classes = Classes::new(self.source, seeds);
        Ok(match by {
            By::Hash => assign::hash(&classes, ranks, seed),
            By::Range => assign::range(&classes, ranks),
            By::Fennel => vec![0; self.source.num_vertices()],
        })
    }

    /// Streams the vertices, from the first pass whose assignment is not stored.
    fn stream(&self, seeds: &[Vec<u32>]) -> Result<Vec<u16>> {
        let Run { source, options, used, work, observer } = *self;
        let vertices = source.num_vertices();
        let neighbours = work.path(NEIGHBOURS);
        let edges: u64 = (0..used.len()).filter(|&r| used[r]).map(|r| source.edges[r].len() as u64).sum();
        let mut state = work.state();
        if !state.sorted && state.passes < options.passes {
            let progress = Progress::new(observer, Stage::Check, source.edge_bytes())?;
            let positions = assign::positions(source, options.seed);
            let (degrees, hashes) = adjacency::degrees(source, used, &positions, &progress)?;
            work.done(|state| state.edges = Some(hashes))?;
            adjacency::write(source, used, &positions, &degrees, &neighbours, observer)?;
            work.done(|state| state.sorted = true)?;
            state = work.state();
        }
        let stored = |pass: usize| work.path(&format!("assignment-{pass}"));
        let mut ranks = match state.passes {
            0 => vec![],
            pass => read_ranks(&stored(pass), vertices, options.ranks)?,
        };
        if state.passes < options.passes {
            let positions = assign::positions(source, options.seed);
            let classes = Classes::new(source, seeds);
            let caps = classes.caps(options.ranks);
            let placed = assign::placed(&classes.of, &positions);
            drop((classes, positions));
            let mut fennel = Fennel::new(ranks, options.ranks, &placed, caps, edges);
            for pass in state.passes + 1..=options.passes {
                let stage = Stage::Pass(pass, options.passes);
                let progress = Progress::new(observer, stage, 8 * edges + 4 * vertices as u64)?;
                fennel.pass(&neighbours, &progress)?;
                let path = stored(pass);
                std::fs::write(&path, bytemuck::cast_slice(&fennel.ranks)).map_err(PartitionError::io(&path))?;
                work.done(|state| state.passes = pass)?;
                // Those of the pass before are not read again.
                let _ = std::fs::remove_file(stored(pass - 1));
            }
            ranks = fennel.ranks;
        }
        // Frees its disk for the partition.
        let _ = std::fs::remove_file(&neighbours);
        let positions = assign::positions(source, options.seed);
        Ok(positions.iter().map(|&position| ranks[position as usize]).collect())
    }

    /// Number of vertices of each type that each rank owns.
    fn sizes(&self, ranks: &[u16]) -> Vec<Vec<u64>> {
        let of = |ty| {
            let mut sizes = vec![0; self.options.ranks];
            ranks[self.source.vertices(ty)].iter().for_each(|&rank| sizes[usize::from(rank)] += 1);
            sizes
        };
        (0..self.source.outline.vertex_types.len()).map(of).collect()
    }

    /// The new number of each vertex: behind those of the ranks before, in the order of the source.
    fn numbers(&self, ranks: &[u16], borders: &[Vec<u64>]) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(ranks.len());
        for (ty, borders) in borders.iter().enumerate() {
            let mut next = borders.clone();
            numbers.extend(ranks[self.source.vertices(ty)].iter().map(|&rank| {
                let next = &mut next[usize::from(rank)];
                *next += 1;
                // A type has at most 2^30 vertices.
                (*next - 1) as u32
            }));
        }
        numbers
    }

    /// Writes `partition.json` and `dataset.toml`.
    fn describe(
        &self,
        plan: &Plan,
        seeds: &[Vec<u32>],
        ranks: &[u16],
        type_borders: Vec<Vec<u64>>,
        counts: Counts,
    ) -> Result<Partition> {
        let Run { source, options, work, .. } = *self;
        let state = work.state();
        let identity: Vec<String> = std::iter::once(description(source))
            .chain(state.edges.iter().flatten().cloned())
            .chain(state.files.values().cloned())
            .collect();
        let types = source.outline.vertex_types.iter().zip(type_borders).zip(counts.mirrors).enumerate();
        let vertex_types = types.map(|(ty, ((of, borders), mirrors))| {
            let mut owned = vec![0; options.ranks];
            let ranks = &ranks[source.vertices(ty)];
            seeds[ty].iter().for_each(|&seed| owned[usize::from(ranks[seed as usize])] += 1);
            TypeParts {
                name: of.name.clone(),
                borders,
                numbers: plan.numbers[ty].clone(),
                seeds: owned,
                mirror_sources: mirrors.sources,
                mirror_destinations: mirrors.destinations,
            }
        });
        let vertex_types: Vec<TypeParts> = vertex_types.collect();
        let relations = source.outline.relations.iter().zip(&counts.relations).zip(&plan.out);
        let relations = relations.map(|((of, counts), out)| RelationParts {
            name: of.name.clone(),
            in_borders: borders(&counts.in_edges),
            out_borders: borders(&counts.out_edges),
            cut_edges: counts.cut,
            out_edges: out.as_ref().map(|out| out.edges.clone()),
            out_ends: out.as_ref().map(|out| out.ends.clone()),
        });
        let partition = Partition {
            version: manifest::VERSION,
            ranks: options.ranks,
            by: options.by.name().into(),
            passes: if options.by == By::Fennel { options.passes } else { 0 },
            relations_used: options.relations.clone(),
            source: SourceIdentity {
                name: source.outline.name.clone(),
                hash: hash_text(&identity.join("\n")),
                vertices: source.num_vertices() as u64,
                edges: source.num_edges(),
            },
            cut_edges: counts.relations.iter().map(|counts| counts.cut).sum(),
            vertex_types,
            relations: relations.collect(),
        };
        let path = work.new_path(Partition::FILE);
        let text = serde_json::to_string_pretty(&partition).map_err(|error| PartitionError::read(&path, error))?;
        std::fs::write(&path, text + "\n").map_err(PartitionError::io(&path))?;
        let path = work.new_path("dataset.toml");
        std::fs::write(&path, plan.table.to_string()).map_err(PartitionError::io(&path))?;
        Ok(partition)
    }
}

/// Reads a stored assignment.
fn read_ranks(path: &Path, vertices: usize, num: usize) -> Result<Vec<u16>> {
    let bytes = std::fs::read(path).map_err(|error| PartitionError::read(path, error))?;
    let ranks: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|&word| u16::from_ne_bytes(word)).collect();
    if ranks.len() != vertices || ranks.iter().any(|&rank| usize::from(rank) >= num) {
        return Err(PartitionError::read(path, "it is damaged; run the command without `--resume`"));
    }
    Ok(ranks)
}
