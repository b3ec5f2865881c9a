//! Performance counters of kernels on a GPU: what a profiler counts of their instructions and accesses to memory.
//!
//! The types only: the PTX interpreter counts, profiles show the counts.

/// Class of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum Class {
    /// Integer and bit arithmetic, and moves.
    Integer,
    Float,
    Convert,
    /// Reciprocals, roots, exponentials, logarithms, sines and divisions.
    Special,
    /// Comparisons, selections and predicate logic.
    Predicate,
    /// Loads of parameters and constants.
    Constant,
    /// Loads from global memory.
    GlobalLoad,
    /// Stores to global memory.
    GlobalStore,
    /// Loads from shared memory, including `ldmatrix`.
    SharedLoad,
    /// Stores to shared memory.
    SharedStore,
    /// `atom` and `red` instructions.
    Atomic,
    /// `cp.async` and its commits and waits.
    AsyncCopy,
    Control,
    /// Barriers of blocks and warps, and fences.
    Barrier,
    /// Shuffles, votes, matches and warp reductions.
    Exchange,
    Mma,
}

impl Class {
    /// All classes, in the order of [`Counters::warp`].
    pub const ALL: [Class; 16] = [
        Class::Integer,
        Class::Float,
        Class::Convert,
        Class::Special,
        Class::Predicate,
        Class::Constant,
        Class::GlobalLoad,
        Class::GlobalStore,
        Class::SharedLoad,
        Class::SharedStore,
        Class::Atomic,
        Class::AsyncCopy,
        Class::Control,
        Class::Barrier,
        Class::Exchange,
        Class::Mma,
    ];

    /// Name of the class in tables.
    pub fn name(self) -> &'static str {
        match self {
            Class::Integer => "integer",
            Class::Float => "float",
            Class::Convert => "convert",
            Class::Special => "special",
            Class::Predicate => "predicate",
            Class::Constant => "constant",
            Class::GlobalLoad => "global load",
            Class::GlobalStore => "global store",
            Class::SharedLoad => "shared load",
            Class::SharedStore => "shared store",
            Class::Atomic => "atomic",
            Class::AsyncCopy => "async copy",
            Class::Control => "control",
            Class::Barrier => "barrier",
            Class::Exchange => "exchange",
            Class::Mma => "mma",
        }
    }
}

/// Accesses to global memory. A request is one instruction of a warp, with the lanes that execute it together.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct GlobalTraffic {
    pub requests: u64,
    /// Distinct sectors of 32 bytes, summed over requests.
    pub sectors: u64,
    /// Fewest possible sectors: distinct bytes of a request / 32, rounded up, summed over requests.
    pub ideal_sectors: u64,
    /// Distinct bytes, summed over requests.
    pub bytes: u64,
}

/// Accesses to shared memory. A wavefront serves each of the 32 banks of 4 bytes once, for all lanes that access the
/// same word of it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SharedTraffic {
    pub requests: u64,
    /// Number of wavefronts; those of a request are serialized.
    pub wavefronts: u64,
    /// Number of wavefronts without bank conflicts: 1, or up to 2 and 4 for accesses of 8 and 16 bytes, one per active
    /// half or quarter of a warp.
    pub ideal_wavefronts: u64,
}

/// The counters of one or several runs.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Warp instructions by class, in the order of [`Class::ALL`]. A diverged warp executes an instruction once for
    /// each group of lanes that takes the same branch.
    pub warp: [u64; Class::ALL.len()],
    /// Lane instructions by class. Lanes with a false guard do not count.
    pub lane: [u64; Class::ALL.len()],
    /// Floating-point operations: fma 2; additions, products, divisions and special functions 1 (packed pairs twice
    /// that); m·n·k·2 of a matrix product; atomic additions 1. Minima, comparisons and conversions 0.
    pub flops: u64,
    /// The part of `flops` in matrix products.
    pub mma_flops: u64,
    /// Loads from global memory, including the sources of `cp.async`.
    pub global_loads: GlobalTraffic,
    /// Stores to global memory.
    pub global_stores: GlobalTraffic,
    /// Atomic operations on global memory.
    pub global_atomics: GlobalTraffic,
    /// Loads from shared memory; each matrix of `ldmatrix` takes at least one wavefront.
    pub shared_loads: SharedTraffic,
    /// Stores to shared memory, including the destinations of `cp.async`.
    pub shared_stores: SharedTraffic,
    /// Atomic operations on shared memory; lanes of one bank are serialized.
    pub shared_atomics: SharedTraffic,
    /// Sectors that hit in the cache.
    pub cache_hits: u64,
    /// Bytes fetched from device memory.
    pub device_read_bytes: u64,
    /// Bytes written back to device memory on eviction; dirty sectors still cached do not count.
    pub device_written_bytes: u64,
    /// Branches with a guard.
    pub branches: u64,
    /// Branches that split the active lanes.
    pub divergent_branches: u64,
    /// Barriers passed, summed over blocks.
    pub barriers: u64,
    /// Number of executed blocks.
    pub blocks: u64,
}

impl Counters {
    /// Warp instructions of a class.
    pub fn warp_of(&self, class: Class) -> u64 {
        self.warp[class as usize]
    }

    /// Lane instructions of a class.
    pub fn lane_of(&self, class: Class) -> u64 {
        self.lane[class as usize]
    }

    /// Warp instructions of all classes.
    pub fn warp_total(&self) -> u64 {
        self.warp.iter().sum()
    }

    /// Lane instructions of all classes.
    pub fn lane_total(&self) -> u64 {
        self.lane.iter().sum()
    }

    /// Adds the counters of another run.
    pub fn merge(&mut self, other: &Counters) {
        let Counters {
            warp,
            lane,
            flops,
            mma_flops,
            global_loads,
            global_stores,
            global_atomics,
            shared_loads,
            shared_stores,
            shared_atomics,
            cache_hits,
            device_read_bytes,
            device_written_bytes,
            branches,
            divergent_branches,
            barriers,
            blocks,
        } = other;
        self.warp.iter_mut().zip(warp).for_each(|(a, b)| *a += b);
        self.lane.iter_mut().zip(lane).for_each(|(a, b)| *a += b);
        self.flops += flops;
        self.mma_flops += mma_flops;
        self.global_loads.merge(global_loads);
        self.global_stores.merge(global_stores);
        self.global_atomics.merge(global_atomics);
        self.shared_loads.merge(shared_loads);
        self.shared_stores.merge(shared_stores);
        self.shared_atomics.merge(shared_atomics);
        self.cache_hits += cache_hits;
        self.device_read_bytes += device_read_bytes;
        self.device_written_bytes += device_written_bytes;
        self.branches += branches;
        self.divergent_branches += divergent_branches;
        self.barriers += barriers;
        self.blocks += blocks;
    }
}

impl GlobalTraffic {
    fn merge(&mut self, other: &GlobalTraffic) {
        self.requests += other.requests;
        self.sectors += other.sectors;
        self.ideal_sectors += other.ideal_sectors;
        self.bytes += other.bytes;
    }
}

impl SharedTraffic {
    fn merge(&mut self, other: &SharedTraffic) {
        self.requests += other.requests;
        self.wavefronts += other.wavefronts;
        self.ideal_wavefronts += other.ideal_wavefronts;
    }
}
