//! Partitions a dataset and prints the time of each stage, the peak of memory, the cut and the balance:
//! `cargo run --release -p hgnnc-partition --example measure DIR OUT RANKS WAY PASSES`.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use hgnnc_graph::show_bytes;
use hgnnc_partition::{By, Needs, Observer, Options, Stage, partition};

/// Prints a line where a stage begins.
struct Times {
    begin: Instant,
    last: Mutex<Option<Stage>>,
}

impl Observer for Times {
    fn begin(&self, needs: &Needs) {
        println!("needs {} of memory, {} of disk", show_bytes(needs.memory), show_bytes(needs.work_disk));
    }

    fn progress(&self, stage: Stage, _: u64, _: u64) -> ControlFlow<()> {
        let mut last = self.last.lock().expect("no thread has panicked");
        if last.replace(stage) != Some(stage) {
            println!("{:7.2} s  {stage}", self.begin.elapsed().as_secs_f64());
        }
        ControlFlow::Continue(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, out, ranks, by, passes] = &args[..] else { return Err("DIR OUT RANKS WAY PASSES".into()) };
    let by = By::ALL.into_iter().find(|way| way.name() == by).ok_or("there is no such way")?;
    let options = Options { by, passes: passes.parse()?, ..Options::new(ranks.parse()?) };
    let times = Times { begin: Instant::now(), last: Mutex::new(None) };
    let found = partition(Path::new(dir), Path::new(out), &options, &times)?;
    println!("{:7.2} s  done", times.begin.elapsed().as_secs_f64());
    let (cut, edges) = (found.cut_edges, found.source.edges);
    println!("cut {cut} of {edges} edges, {:.1} %", 100.0 * cut as f64 / edges as f64);
    for ty in &found.vertex_types {
        let sizes: Vec<u64> = ty.borders.windows(2).map(|w| w[1] - w[0]).collect();
        println!("{}: {sizes:?}, seeds {:?}", ty.name, ty.seeds);
    }
    let peak = std::fs::read_to_string("/proc/self/status")?;
    peak.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
    Ok(())
}
