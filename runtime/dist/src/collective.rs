//! Collective operations that are made of exchanges, and so have one meaning on every engine.

use crate::{Comm, CommError, Tag, parts};

/// Adds `values` of all ranks in the order of the ranks, `((x0 + x1) + x2) + …`; every rank has the sum afterwards.
///
/// Each rank adds a slice: 2·(p−1)/p of the bytes of `values` leave a rank and as many arrive, as in a reduction by
/// reduce-scatter and all-gather, which is the least.
///
/// # Errors
/// As [`Comm::alltoallv`].
pub fn ordered_sum(comm: &dyn Comm, tag: Tag, values: &mut [f32]) -> Result<(), CommError> {
    let (rank, size) = (comm.rank(), comm.size());
    if size == 1 {
        return Ok(());
    }
    // Slices of nearly equal length.
    let share = |rank: usize| values.len() * rank / size;
    let slices: Vec<usize> = (0..size).map(|rank| 4 * (share(rank + 1) - share(rank))).collect();
    let own = slices[rank] / 4;
    let mut summands = vec![0.0f32; own * size];
    let own_counts = vec![4 * own; size];
    comm.alltoallv(
        tag,
        (bytemuck::cast_slice(values), &slices),
        (bytemuck::cast_slice_mut(&mut summands), &own_counts),
    )?;
    let (sum, others) = summands.split_at_mut(own);
    for summand in others.chunks_exact(own.max(1)) {
        sum.iter_mut().zip(summand).for_each(|(sum, summand)| *sum += summand);
    }
    // The sum of the slice, for every rank.
    let sums = sum.repeat(size);
    comm.alltoallv(tag, (bytemuck::cast_slice(&sums), &own_counts), (bytemuck::cast_slice_mut(values), &slices))
}

/// The numbers of all ranks, which have as many each, in the order of the ranks.
///
/// # Errors
/// As [`Comm::alltoallv`].
pub fn all_gather(comm: &dyn Comm, tag: Tag, own: &[u64]) -> Result<Vec<u64>, CommError> {
    let size = comm.size();
    let counts = vec![size_of_val(own); size];
    let mut all = vec![0u64; own.len() * size];
    let send = own.repeat(size);
    comm.alltoallv(tag, (bytemuck::cast_slice(&send), &counts), (bytemuck::cast_slice_mut(&mut all), &counts))?;
    Ok(all)
}

/// The texts of all ranks, in the order of the ranks.
///
/// # Errors
/// As [`Comm::alltoallv`].
pub fn gather_texts(comm: &dyn Comm, tag: Tag, own: &str) -> Result<Vec<String>, CommError> {
    let size = comm.size();
    let lengths: Vec<usize> =
        all_gather(comm, tag, &[own.len() as u64])?.into_iter().map(|length| length as usize).collect();
    let mut all = vec![0; lengths.iter().sum()];
    comm.alltoallv(tag, (own.repeat(size).as_bytes(), &vec![own.len(); size]), (&mut all, &lengths))?;
    Ok(parts(&lengths).map(|part| String::from_utf8_lossy(&all[part]).into_owned()).collect())
}
