//! `--device cuda` from the command to the driver, on a driver that executes PTX on this processor.

use crate::common::{Place, Run, names, usual, with_metapath};
use crate::links;

/// A place where the loader of commands finds the driver for tests.
struct Driver {
    place: Place,
}

impl Driver {
    /// `None` where no program can be told to load it.
    fn new(model: &str) -> Option<Driver> {
        Self::at(Place::new(), model)
    }

    fn at(place: Place, model: &str) -> Option<Driver> {
        place.model(model);
        let folder = place.path("driver");
        std::fs::create_dir(&folder).expect("a folder");
        match hgnnc_cuda_driver::install(&folder) {
            Ok(()) => Some(Driver { place }),
            Err(reason) => {
                println!("skipped: no driver for tests: {reason}");
                None
            }
        }
    }

    /// Runs a command with the model and the dataset, and a driver with such settings.
    fn run(&self, settings: &str, command: &str, args: &[&str]) -> Run {
        self.run_with(settings, &[], command, args)
    }

    fn run_with(&self, settings: &str, variables: &[(&str, &str)], command: &str, args: &[&str]) -> Run {
        let mut command = self.place.command(&[&[command, "m.hgnn", "--data", "data"], args].concat());
        command.env("LD_LIBRARY_PATH", self.place.path("driver")).env("HGNN_TEST_DRIVER", settings);
        command.envs(variables.iter().copied());
        Run::of(command.output().expect("it starts"))
    }
}

const TRAIN: [&str; 5] = ["--quiet", "--epochs", "8", "--device", "cuda"];

#[test]
fn training_is_equal_to_the_bit_to_the_same_code_without_a_driver() {
    let Some(driver) = Driver::new(&with_metapath()) else { return };
    let place = &driver.place;
    let args = ["--quiet", "--epochs", "8", "--device"];
    let train = |device: &'static str| [&args[..], &[device, "--report", device, "--weights-out", "w"]].concat();
    driver.run("", "train", &train("cuda")).is_silent();
    let weights = place.bytes("w");
    place.with_data("train", &train("ptx-interp")).is_silent();
    assert_eq!(weights, place.bytes("w"));
    let (cuda, interpreted) = (place.json("cuda"), place.json("ptx-interp"));
    assert_eq!(cuda["device"], "cuda:0 (interpreter of PTX)");
    for field in ["losses", "metrics", "best_epoch", "device_bytes"] {
        assert_eq!(cuda[field], interpreted[field], "{field}");
    }
    let names = |report: &serde_json::Value| -> Vec<String> {
        report.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
    };
    place.with_data("train", &train("cpu")).is_silent();
    assert_eq!(names(&cuda), names(&place.json("cpu")), "no field is missing");
    // A driver that cannot capture is as good, and so is waiting for every launch.
    for (settings, variables) in [("graphs=0", &[][..]), ("", &[("CUDA_LAUNCH_BLOCKING", "1")])] {
        driver.run_with(settings, variables, "train", &train("cuda")).is_silent();
        assert_eq!(weights, place.bytes("w"), "{settings} {variables:?}");
    }
}

/// Each batch frees memory that is too small, and replaces the launches of the one before.
#[test]
fn batches_are_equal_to_the_bit_to_the_same_code_without_a_driver() {
    let train = "batch     7\n    fanout    [3, 2]\n    epochs    3";
    let Some(driver) = Driver::new(&usual().replace("epochs    30", train)) else { return };
    let place = &driver.place;
    let train = |device: &'static str| ["--quiet", "--device", device, "--report", device, "--weights-out", "w"];
    driver.run("", "train", &train("cuda")).is_silent();
    let weights = place.bytes("w");
    place.with_data("train", &train("ptx-interp")).is_silent();
    assert_eq!(weights, place.bytes("w"));
    let (cuda, interpreted) = (place.json("cuda"), place.json("ptx-interp"));
    for field in ["losses", "metrics", "best_epoch", "device_bytes"] {
        assert_eq!(cuda[field], interpreted[field], "{field}");
    }
    // A device that is found trains on them as well.
    driver.run("", "train", &["--quiet", "--device", "auto", "--report", "auto"]).is_silent();
    assert_eq!(place.json("auto")["losses"], cuda["losses"]);
}

#[test]
fn a_run_is_continued_bit_by_bit() {
    let Some(driver) = Driver::new(&with_metapath()) else { return };
    let on = ["--device", "cuda", "--quiet", "--checkpoint", "c"];
    driver.run("", "train", &["--device", "cuda", "--quiet", "--epochs", "9", "--weights-out", "whole"]).is_silent();
    driver.run("", "train", &[&on[..], &["--epochs", "5"]].concat()).is_silent();
    driver.run("", "train", &[&on[..], &["--epochs", "9", "--resume", "--weights-out", "parts"]].concat()).is_silent();
    assert_eq!(driver.place.bytes("whole"), driver.place.bytes("parts"));
}

#[test]
fn an_older_device_gets_code_of_its_own() {
    let Some(driver) = Driver::new(&usual()) else { return };
    driver.run("capability=80", "train", &TRAIN).is_silent();
    driver.run("capability=75", "train", &TRAIN).fails(3, &["has compute capability 7.5; 8.0 is needed"]);
}

#[test]
fn evaluation_and_outputs_are_those_of_the_same_code_without_a_driver() {
    let Some(driver) = Driver::new(&with_metapath()) else { return };
    let place = &driver.place;
    driver.run("", "train", &[&TRAIN[..], &["--weights-out", "w"]].concat()).is_silent();
    let eval = ["--weights", "w", "--device"];
    let on_cuda = driver.run("", "eval", &[&eval[..], &["cuda"]].concat()).works().out;
    assert_eq!(on_cuda, place.with_data("eval", &[&eval[..], &["ptx-interp"]].concat()).works().out);
    let infer = |device: &'static str| ["--weights", "w", "--out", "o.npy", "--device", device];
    driver.run("", "infer", &infer("cuda")).works();
    let outputs = place.bytes("o.npy");
    place.with_data("infer", &infer("ptx-interp")).works();
    assert_eq!(outputs, place.bytes("o.npy"));
}

#[test]
fn a_profile_has_a_time_for_each_launch() {
    let Some(driver) = Driver::new(&usual()) else { return };
    let out = driver.run("", "profile", &["--device", "cuda", "--epochs", "2", "-o", "p"]).works().out;
    for word in ["ms per epoch, median of 2, on cuda:0 (interpreter of PTX)", "step0", "update0", "one by one"] {
        assert!(out.contains(word), "no `{word}` in:\n{out}");
    }
    // The same files as on this processor, made of launches.
    assert_eq!(names(&driver.place.path("p")), ["profile.html", "profile.json", "profile.txt", "trace.json"]);
    let json = driver.place.json("p/profile.json");
    let (kernels, launches) =
        (json["kernels"].as_array().expect("a list"), json["launches"].as_array().expect("a list"));
    assert!(kernels.len() == launches.len() && launches.len() > 3, "{json:#}");
    let share = |part: &serde_json::Value| part["share"].as_f64().expect("a share");
    let all: f64 =
        ["stages", "rest"].iter().flat_map(|key| json[key].as_object().expect("parts").values()).map(share).sum();
    assert!((all - 1.0).abs() < 1e-9, "{json:#}");
    let page = String::from_utf8(driver.place.bytes("p/profile.html")).expect("text");
    assert!(page.contains("interpreter of PTX") && page.contains("update0"));
    driver.place.run(&["profile", "diff", "p", "p"]).works();
}

#[test]
fn auto_takes_a_device_that_works_and_says_why_it_does_not_take_another() {
    let Some(driver) = Driver::new(&usual()) else { return };
    let auto = ["--epochs", "1", "--quiet", "--device", "auto", "--report", "r"];
    driver.run("", "train", &auto).is_silent();
    assert_eq!(driver.place.json("r")["device"], "cuda:0 (interpreter of PTX)");
    for (settings, why) in [("version=11040", "CUDA 11.8 is needed"), ("memory=3000", "the model needs")] {
        let run = driver.run(settings, "train", &auto[..2].iter().chain(&auto[3..]).copied().collect::<Vec<_>>());
        let run = run.works();
        assert!(run.err.contains("running on the processor") && run.err.contains(why), "{run:?}");
        assert_eq!(driver.place.json("r")["device"], "cpu");
    }
}

#[test]
fn too_little_memory_is_refused_before_anything_runs() {
    let Some(driver) = Driver::new(&usual()) else { return };
    driver.run("", "train", &[&TRAIN[..], &["--report", "r"]].concat()).is_silent();
    let needed = driver.place.json("r")["device_bytes"].as_u64().expect("a number");
    let run = driver.run(&format!("memory={},launches=0", needed - 1), "train", &TRAIN);
    run.fails(3, &["the model needs", "graphs and features", "the free memory of the device is"]);
    // The reported bytes suffice, except that allocations are rounded up.
    driver.run(&format!("memory={}", needed + (64 << 10)), "train", &TRAIN).is_silent();
}

/// The evaluation fits on the device alone; with the scores of links and the parameters of batches it does not.
#[test]
fn sessions_that_do_not_fit_together_are_refused_before_anything_runs() {
    let model = links::MODEL.replace("epochs    25", "epochs    1");
    let Some(driver) = Driver::at(links::place(&links::links(90)), &model) else { return };
    let train = |memory: u64| {
        driver.run(&format!("memory={memory},launches=0"), "train", &["--quiet", "--device", "cuda", "--report", "r"])
    };
    let words = ["the model needs", "scores of links", "of batches", "the free memory of the device is"];
    let run = train(4096);
    run.fails(3, &words);
    let (needed, parts) = links::memory_named(&run);
    // All of them fit, but for what is left to the values of batches.
    let run = train((needed * 1024.0) as u64);
    run.fails(3, &words);
    assert!(parts.iter().all(|&part| part < 0.75 * needed), "{}", run.err);
}

#[test]
fn what_the_compiler_of_the_driver_says_is_told() {
    let Some(driver) = Driver::new(&usual()) else { return };
    let words = ["bytes of PTX", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "Unsupported .version 7.8", "'7.0'"];
    driver.run("ptx=70", "train", &TRAIN).fails(3, &words);
}

#[test]
fn a_kernel_that_fails_is_named_with_its_shapes() {
    let Some(driver) = Driver::new(&usual()) else { return };
    let run = driver.run("instructions=300", "train", &TRAIN);
    run.fails(3, &["cannot execute `", " blocks", " rows", "CUDA_ERROR_LAUNCH_TIMEOUT"]);
}

/// Later, launches are not waited for one by one.
#[test]
fn a_kernel_that_fails_later_can_be_asked_for() {
    let Some(driver) = Driver::new(&usual()) else { return };
    let args = ["--quiet", "--epochs", "5000", "--device", "cuda", "--weights-out", "w"];
    let hint = "CUDA_LAUNCH_BLOCKING=1";
    // The best parameters are read from the device once a minute, and when training ends.
    let lost = "the parameters of the best epoch were on the device, or with other processes, and are lost";
    driver.run("launches=600", "train", &args).fails(3, &["CUDA_ERROR_LAUNCH_FAILED", hint, lost]);
    assert!(!driver.place.names().contains(&"w".to_owned()), "nothing is written");
    let run = driver.run_with("launches=600", &[("CUDA_LAUNCH_BLOCKING", "1")], "train", &args);
    run.fails(3, &["cannot execute `", " blocks", "CUDA_ERROR_LAUNCH_FAILED"]);
    assert!(!run.err.contains(hint), "{run:?}");
}

#[test]
fn a_device_that_is_not_there_is_named_and_so_are_those_that_are() {
    let Some(driver) = Driver::new(&usual()) else { return };
    let on = |device: &'static str| ["--quiet", "--epochs", "1", "--device", device];
    driver.run("devices=2", "train", &on("cuda:1")).is_silent();
    driver.run("devices=2", "train", &on("cuda:2")).fails(3, &["cuda:2", "no such device: cuda:0 to cuda:1"]);
    driver.run("", "train", &on("cuda:1")).fails(3, &["no such device: only cuda:0"]);
    driver.run("devices=0", "train", &on("cuda")).fails(3, &["cannot start", "no CUDA-capable device"]);
}

#[test]
fn an_old_driver_is_refused_with_both_versions() {
    let Some(driver) = Driver::new(&usual()) else { return };
    driver.run("version=11040", "train", &TRAIN).fails(3, &["the driver is for CUDA 11.4; CUDA 11.8 is needed"]);
}
