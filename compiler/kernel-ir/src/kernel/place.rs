//! Memory planning: assigns arena offsets to stored values by liveness, before anything runs.
//!
//! A computed buffer is live from the launch that writes it to the last that reads it. Buffers with disjoint lifetimes
//! may share memory. [`memory`] computes the lifetimes of a program and gives every buffer an offset in one arena. The
//! compiler predicts the memory use from this plan, and the runtime allocates exactly the plan. [`place`] does the same
//! for any values with lifetimes, such as those within a block of rows.
//!
//! Partial results of tasks, scratch memory of threads, inputs, parameters and states are not planned here; the runtime
//! owns them.

use std::collections::BTreeMap;

use super::{Buffer, Contents, Program, Source};

/// Elements of a cache line; offsets are multiples of it.
pub const ALIGN: usize = 16;

/// The end of a lifetime that outlives a run.
pub const END: usize = usize::MAX;

/// A value that is live from step `start` to step `end`, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Lifetime {
    pub start: usize,
    pub end: usize,
    /// Size, in elements of 4 bytes.
    pub len: usize,
}

impl Lifetime {
    /// Size rounded up to whole cache lines, in elements.
    fn room(&self) -> usize {
        self.len.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX)
    }

    fn meets(&self, other: &Lifetime) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// A computed buffer with its lifetime and offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Slot {
    pub buffer: Buffer,
    /// Live range in launches, counted from the first of the prelude, and size.
    pub life: Lifetime,
    /// Offset in the arena, in elements: of buffers that share it, that of the largest one.
    pub offset: usize,
}

/// Buffers that share one arena.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Area {
    /// The planned buffers, in program order.
    pub slots: Vec<Slot>,
    /// Size of the arena, in elements.
    pub len: usize,
    /// The lifetime of each allocation; buffers that alias each other share one.
    lives: Vec<Lifetime>,
}

impl Area {
    /// Plans (buffer, lifetime, owner of its memory) triples.
    fn of(values: &[(Buffer, Lifetime, Buffer)]) -> Self {
        let mut homes: BTreeMap<Buffer, Lifetime> = BTreeMap::new();
        for &(_, life, home) in values {
            let all = homes.entry(home).or_insert(life);
            (all.start, all.end) = (all.start.min(life.start), all.end.max(life.end));
            all.len = all.len.max(life.len);
        }
        let lives: Vec<Lifetime> = homes.values().copied().collect();
        let (offsets, len) = place(&lives);
        let offsets: BTreeMap<Buffer, usize> = homes.keys().copied().zip(offsets).collect();
        let slot = |&(buffer, life, home): &_| Slot { buffer, life, offset: offsets[&home] };
        Self { slots: values.iter().map(slot).collect(), len, lives }
    }

    /// The step of peak memory and the elements live at it, rounded up to cache lines: a lower bound for every plan.
    pub fn peak(&self) -> (usize, usize) {
        peak(&self.lives)
    }
}

/// The memory plan of all computed buffers of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    /// Results of the prelude, which persist across runs.
    pub fixed: Area,
    /// Values that each run computes.
    pub run: Area,
}

/// Plans the computed buffers of a program. `len` gives the number of stored elements of a buffer.
pub fn memory(program: &Program, len: impl Fn(Buffer) -> usize) -> Memory {
    let num_fixed = program.prelude.len();
    // First and last launch that use each computed buffer.
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; program.buffers.len()];
    for (step, launch) in program.prelude.iter().chain(&program.launches).enumerate() {
        for kernel in &launch.kernels {
            for buffer in kernel.writes() {
                lives[buffer.index()].get_or_insert((step, step));
            }
            for buffer in kernel.reads() {
                if let Some(life) = &mut lives[buffer.index()] {
                    // Every run reads the prelude's results again, so they stay live.
                    life.1 = if life.0 < num_fixed && step >= num_fixed { END } else { step.max(life.1) };
                }
            }
        }
    }
    for output in &program.outputs {
        if let Source::Buffer(buffer) = output.source
            && let Some(life) = &mut lives[buffer.index()]
        {
            life.1 = END;
        }
    }
    let (mut fixed, mut run) = (vec![], vec![]);
    let homes = program.homes();
    for (index, (decl, life)) in program.buffers.iter().zip(lives).enumerate() {
        let home = homes[index];
        // A buffer that updates a parameter or state in place needs no memory.
        let own = decl.contents == Contents::Computed && program.buffer(home).contents == Contents::Computed;
        if let (true, Some((start, end))) = (own, life) {
            let life = Lifetime { start, end, len: len(Buffer::new(index)) };
            if start < num_fixed { &mut fixed } else { &mut run }.push((Buffer::new(index), life, home));
        }
    }
    Memory { fixed: Area::of(&fixed), run: Area::of(&run) }
}

/// The step of peak memory and the elements live at it; (0, 0) without values.
pub fn peak(lives: &[Lifetime]) -> (usize, usize) {
    let mut starts: Vec<&Lifetime> = lives.iter().collect();
    starts.sort_unstable_by_key(|life| life.start);
    let mut ends: Vec<&Lifetime> = lives.iter().collect();
    ends.sort_unstable_by_key(|life| life.end);
    let mut ended = ends.into_iter().peekable();
    // Sizes that fit in `usize` one by one may overflow in sum.
    let (mut best, mut alive) = ((0, 0), 0u128);
    // Peaks occur only where a lifetime starts.
    for now in starts.chunk_by(|a, b| a.start == b.start) {
        let step = now[0].start;
        alive += now.iter().map(|life| life.room() as u128).sum::<u128>();
        while let Some(life) = ended.next_if(|life| life.end < step) {
            alive -= life.room() as u128;
        }
        let elements = usize::try_from(alive).unwrap_or(usize::MAX);
        if elements > best.1 {
            best = (step, elements);
        }
    }
    best
}

/// Number of live elements at each of `steps` steps; all values must end before `steps`.
pub fn sum_alive(lives: impl IntoIterator<Item = Lifetime>, steps: usize) -> Vec<usize> {
    let (mut starting, mut ending) = (vec![0; steps], vec![0; steps]);
    for life in lives {
        starting[life.start] += life.len;
        ending[life.end] += life.len;
    }
    let mut alive = 0;
    let sums = starting.iter().zip(ending).map(|(starting, ending)| {
        let now = alive + starting;
        alive = now - ending;
        now
    });
    sums.collect()
}

/// An offset for each value such that live values do not overlap, and the total size.
///
/// First-fit by decreasing size is rarely far from the lower bound (the peak of live elements). If it exceeds the
/// bound, other orders are tried, and the smallest plan wins.
pub fn place(lives: &[Lifetime]) -> (Vec<usize>, usize) {
    let last = lives.iter().map(|life| life.start).chain(lives.iter().map(|life| life.end).filter(|&e| e != END)).max();
    let duration = |life: &Lifetime| life.end.min(last.unwrap_or(0) + 1) - life.start;
    let orders: [&dyn Fn(usize) -> (usize, usize, usize); 4] = [
        &|i| (usize::MAX - lives[i].len, lives[i].start, i),
        &|i| (usize::MAX - lives[i].len.saturating_mul(1 + duration(&lives[i])), lives[i].start, i),
        &|i| (usize::MAX - duration(&lives[i]), usize::MAX - lives[i].len, i),
        &|i| (lives[i].start, usize::MAX - lives[i].len, i),
    ];
    let least = peak(lives).1;
    let mut best: Option<(Vec<usize>, usize)> = None;
    for key in orders {
        let mut order: Vec<usize> = (0..lives.len()).collect();
        order.sort_by_key(|&i| key(i));
        for fit in [Fit::Lowest, Fit::Tightest] {
            let found = in_order(lives, &order, fit);
            if best.as_ref().is_none_or(|best| found.1 < best.1) {
                best = Some(found);
            }
            if best.as_ref().is_some_and(|best| best.1 == least) {
                return best.unwrap_or_default();
            }
        }
    }
    best.unwrap_or_default()
}

/// The free range that a value is put into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// First fit: the lowest offset.
    Lowest,
    /// Best fit: the smallest gap between two values; above all values if there is no gap.
    Tightest,
}

/// Places values in the given order.
fn in_order(lives: &[Lifetime], order: &[usize], fit: Fit) -> (Vec<usize>, usize) {
    let mut offsets: Vec<usize> = vec![0; lives.len()];
    // Values placed so far, by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(lives.len());
    let mut total: usize = 0;
    for &i in order {
        let life = lives[i];
        let len = life.room();
        if len == 0 {
            continue;
        }
        let (mut free, mut gap) = (0, None);
        for &j in &placed {
            if !life.meets(&lives[j]) {
                continue;
            }
            let size = offsets[j].saturating_sub(free);
            if len <= size && gap.is_none_or(|(_, least)| size < least) {
                gap = Some((free, size));
                if fit == Fit::Lowest {
                    break;
                }
            }
            free = free.max(offsets[j].saturating_add(lives[j].room()));
        }
        let offset = gap.map_or(free, |(offset, _)| offset);
        offsets[i] = offset;
        total = total.max(offset.saturating_add(len));
        let at = placed.partition_point(|&j| offsets[j] <= offset);
        placed.insert(at, i);
    }
    debug_assert!(is_disjoint(lives, &offsets) || total == usize::MAX);
    (offsets, total)
}

/// Do values with overlapping lifetimes have disjoint memory?
pub fn is_disjoint(lives: &[Lifetime], offsets: &[usize]) -> bool {
    (0..lives.len()).all(|i| {
        (0..i).all(|j| {
            let (a, b) = (lives[i], lives[j]);
            let endpoints = |i: usize| offsets[i].saturating_add(lives[i].len);
            !a.meets(&b) || endpoints(i) <= offsets[j] || endpoints(j) <= offsets[i]
        })
    })
}
