//! `mpirun` of each MPI that is installed: Debian's `openmpi-bin` and `mpich`, and one with the standard ABI in the folder
//! HGNN_MPI_ABI (`pip install mpich` in a virtual environment). Tests of what is not there say that they are skipped.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A launcher, and the library that belongs to it if it must be named.
pub struct Installed {
    pub name: &'static str,
    launcher: PathBuf,
    args: &'static [&'static str],
    library: Option<PathBuf>,
}

/// All that is installed.
pub fn installed() -> Vec<Installed> {
    let on_path = |name: &str| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    };
    let of_standard = std::env::var_os("HGNN_MPI_ABI").map(PathBuf::from);
    let all = [
        ("Open MPI", on_path("mpirun.openmpi"), &["--allow-run-as-root", "--oversubscribe"][..], None),
        ("MPICH", on_path("mpirun.mpich"), &[], Some(PathBuf::from("libmpich.so.12"))),
        (
            "standard ABI",
            of_standard.as_ref().map(|folder| folder.join("bin/mpiexec")),
            &[],
            of_standard.map(|folder| folder.join("lib/libmpi_abi.so.1")),
        ),
    ];
    let found = all.into_iter().filter_map(|(name, launcher, args, library)| {
        let starts = |launcher: &PathBuf| {
            let output = Command::new(launcher).args(args).args(["-n", "2", "true"]).output();
            output.is_ok_and(|output| output.status.success())
        };
        match launcher.filter(starts) {
            Some(launcher) => Some(Installed { name, launcher, args, library }),
            None => {
                println!("skipped: {name} is not installed, or starts no processes here");
                None
            }
        }
    });
    found.collect()
}

impl Installed {
    /// Runs a test of the same program as the ranks of a job.
    pub fn run(&self, ranks: usize, test: &str, variables: &[(&str, &str)]) -> (Output, Duration) {
        let start = Instant::now();
        let mut command = Command::new(&self.launcher);
        command.args(self.args).args(["-n", &ranks.to_string()]).arg(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", test, "--nocapture"]);
        if let Some(library) = &self.library {
            command.env("HGNNC_MPI", library);
        }
        command.envs(variables.iter().copied());
        (command.output().unwrap(), start.elapsed())
    }
}

/// The output of both streams.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
