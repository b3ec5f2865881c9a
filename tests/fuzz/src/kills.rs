//! Runs of the command that are killed at random moments and resumed until they end: their parameters equal those of an
//! undisturbed run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::Rng;

use crate::{of_case, sample};

/// Starts and kills runs of each kind in turn, until `count` kills have struck. Returns the number of runs with other
/// results.
pub fn campaign(count: u64, seed: u64, hgnnc: &Path) -> u64 {
    let kinds = [
        ("full batch", sample::vertices("epochs 1500")),
        ("mini-batches", sample::vertices("epochs 120 batch 2 fanout [3, 3]")),
        ("reuse", sample::vertices("epochs 120 batch 2 fanout [3, 3] reuse hot(0.3, batches: 2)")),
        ("links", sample::links("epochs 120 batch 4 fanout [3]")),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    sample::write(&folder.path().join("data"));
    let mut undisturbed = vec![];
    for (index, (name, text)) in kinds.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{index}.hgnn")), text).expect("written");
        let run = Run { hgnnc, folder: folder.path(), model: index, name: "undisturbed" };
        // The first run of all also measures the processor.
        let mut took = Duration::ZERO;
        for _ in 0..2 {
            run.clear();
            let start = Instant::now();
            if let Err(problem) = run.train(false, None) {
                println!("{name}: {problem}");
                return 1;
            }
            took = start.elapsed();
        }
        println!("{name}: undisturbed {:.2} s", took.as_secs_f64());
        undisturbed.push((run.weights(), took));
        run.clear();
    }
    let (mut struck, mut runs, mut failed) = ([0u64; 4], [0u64; 4], 0);
    for number in 0.. {
        if struck.iter().sum::<u64>() >= count {
            break;
        }
        let index = (number % 4) as usize;
        let (weights, took) = &undisturbed[index];
        let run = Run { hgnnc, folder: folder.path(), model: index, name: "killed" };
        let mut rng = of_case(seed, number);
        let mut kills = vec![];
        let outcome = loop {
            // The first kills are more likely during training than before it.
            let until = (kills.len() < 6).then(|| took.mul_f64(rng.random_range(0.0..1.1)));
            match run.train(!kills.is_empty(), until) {
                Ok(true) => break Ok(run.weights()),
                Ok(false) => kills.push(until.unwrap_or_default()),
                Err(problem) => break Err(problem),
            }
        };
        struck[index] += kills.len() as u64;
        runs[index] += 1;
        let problem = match outcome {
            Ok(found) if found == *weights => None,
            Ok(_) => Some("the parameters are others than those of the undisturbed run".to_owned()),
            Err(problem) => Some(problem),
        };
        if let Some(problem) = problem {
            failed += 1;
            println!("run {number} ({}), killed after {kills:?}: {problem}", kinds[index].0);
        }
        run.clear();
    }
    for (index, (name, _)) in kinds.iter().enumerate() {
        println!("{name}: {} kills in {} runs", struck[index], runs[index]);
    }
    println!("{} kills in {} runs, {failed} runs failed", struck.iter().sum::<u64>(), runs.iter().sum::<u64>());
    failed
}

struct Run<'a> {
    hgnnc: &'a Path,
    folder: &'a Path,
    model: usize,
    name: &'a str,
}

impl Run<'_> {
    /// Trains, resuming from the checkpoint if there is one and `again` is set, and kills the run after `until`.
    /// Returns whether it ended by itself.
    fn train(&self, again: bool, until: Option<Duration>) -> Result<bool, String> {
        let checkpoint = format!("{}.checkpoint", self.name);
        let resumes = again && self.folder.join(&checkpoint).join("checkpoint.safetensors").exists();
        let log = self.folder.join("log");
        let output = std::fs::File::create(&log).expect("it can be written");
        let mut child = Command::new(self.hgnnc)
            .current_dir(self.folder)
            .args(["train", &format!("{}.hgnn", self.model), "--data", "data", "--threads", "1", "--quiet"])
            .args(["--device", "cpu", "--checkpoint", &checkpoint, "--checkpoint-every", "0"])
            .args(["--weights-out", &format!("{}.safetensors", self.name)])
            .args(if resumes { &["--resume"][..] } else { &[] })
            .env("HGNNC_CACHE", self.folder.join("cache"))
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(|e| format!("{} cannot be started: {e}", self.hgnnc.display()))?;
        if let Some(until) = until {
            let start = Instant::now();
            while start.elapsed() < until && child.try_wait().map_err(|e| e.to_string())?.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Fails if the process has already ended.
            let _ = child.kill();
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        match status.code() {
            Some(0) => Ok(true),
            None if until.is_some() => Ok(false),
            _ => Err(format!("{status}: {}", std::fs::read_to_string(log).unwrap_or_default())),
        }
    }

    fn weights(&self) -> Vec<u8> {
        std::fs::read(self.folder.join(format!("{}.safetensors", self.name))).unwrap_or_default()
    }

    fn clear(&self) {
        let _ = std::fs::remove_dir_all(self.folder.join(format!("{}.checkpoint", self.name)));
        let _ = std::fs::remove_file(self.folder.join(format!("{}.safetensors", self.name)));
    }
}
