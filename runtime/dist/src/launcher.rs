//! The program that started the processes of a job, by the variables that it sets for them.

/// A launcher of several processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launcher {
    /// Its name, in words.
    pub name: &'static str,
    /// Number of processes, if it says so.
    pub size: Option<usize>,
    /// Number of this process, if it says so.
    pub rank: Option<usize>,
    /// The family of its MPI libraries.
    pub family: Family,
}

/// Libraries that a launcher can start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Open MPI, whose library is `libmpi.so.40`.
    OpenMpi,
    /// MPICH and what is made of it: Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
    /// Not known: any of them.
    Any,
}

impl Launcher {
    /// The launcher of this process. `variable` gives variables of the environment.
    ///
    /// A job script that Slurm runs once, outside of `srun`, is one process.
    pub fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> Option<Launcher> {
        let number = |name: &str| variable(name).and_then(|text| text.parse::<usize>().ok());
        let of =
            |name, family, size: &str, rank: &str| Launcher { name, size: number(size), rank: number(rank), family };
        if variable("OMPI_COMM_WORLD_SIZE").is_some() {
            return Some(of("mpirun of Open MPI", Family::OpenMpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"));
        }
        if variable("PMI_SIZE").is_some() || variable("PMI_RANK").is_some() {
            let name = if variable("SLURM_STEP_NUM_TASKS").is_some() { "srun" } else { "mpirun of MPICH" };
            return Some(of(name, Family::Mpich, "PMI_SIZE", "PMI_RANK"));
        }
        let by_slurm = number("SLURM_STEP_NUM_TASKS").is_some_and(|tasks| tasks > 1);
        if by_slurm {
            return Some(of("srun", Family::Any, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"));
        }
        variable("PMIX_RANK").map(|_| of("a launcher with PMIx", Family::Any, "", "PMIX_RANK"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, Launcher};

    fn of(variables: &[(&str, &str)]) -> Option<Launcher> {
        Launcher::of_environment(&|name| variables.iter().find(|of| of.0 == name).map(|of| of.1.to_owned()))
    }

    #[test]
    fn launchers_are_known_by_their_variables() {
        for (variables, expected) in [
            (&[][..], None),
            // A job script itself.
            (&[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0")], None),
            (&[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")], None),
            (
                &[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "2"), ("PMIX_RANK", "2")],
                Some(("mpirun of Open MPI", Some(4), Some(2), Family::OpenMpi)),
            ),
            (&[("PMI_SIZE", "3"), ("PMI_RANK", "1")], Some(("mpirun of MPICH", Some(3), Some(1), Family::Mpich))),
            (
                &[("SLURM_STEP_NUM_TASKS", "2"), ("PMI_SIZE", "2"), ("PMI_RANK", "0")],
                Some(("srun", Some(2), Some(0), Family::Mpich)),
            ),
            (
                &[("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_PROCID", "1"), ("PMIX_RANK", "1")],
                Some(("srun", Some(2), Some(1), Family::Any)),
            ),
            (&[("PMIX_RANK", "1")], Some(("a launcher with PMIx", None, Some(1), Family::Any))),
        ] {
            let found = of(variables).map(|of| (of.name, of.size, of.rank, of.family));
            assert_eq!(found, expected, "{variables:?}");
        }
    }
}
