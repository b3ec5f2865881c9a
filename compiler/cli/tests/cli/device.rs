//! `--device`: what runs where, and what is said where it cannot.

use crate::common::{Place, usual, with_metapath};

/// Commands that run a model, with what else they need.
const COMMANDS: [(&str, &[&str]); 4] = [
    ("train", &["--epochs", "1"]),
    ("eval", &["--weights", "w.safetensors"]),
    ("infer", &["--weights", "w.safetensors", "--out", "o.npy"]),
    ("profile", &["--epochs", "1"]),
];

/// A driver would make other things true.
fn has_driver() -> bool {
    let found = hgnnc_cuda::Cuda::driver_is_present();
    if found {
        println!("skipped: this machine has an NVIDIA driver");
    }
    found
}

#[test]
fn without_a_driver_cuda_is_an_error_of_the_machine() {
    if has_driver() {
        return;
    }
    let place = Place::new();
    place.model(&usual());
    std::fs::write(place.path("w.safetensors"), "").expect("written");
    for (command, args) in COMMANDS {
        for device in ["cuda", "cuda:0", "cuda:7"] {
            let run = place.with_data(command, &[args, &["--device", device]].concat());
            run.fails(3, &["no NVIDIA driver", if device == "cuda:7" { "cuda:7" } else { "cuda:0" }]);
        }
    }
    assert_eq!(place.names(), ["data", "m.hgnn", "w.safetensors"], "nothing is written");
}

#[test]
fn auto_is_the_processor_without_a_word_where_there_is_no_driver() {
    if has_driver() {
        return;
    }
    let place = Place::new();
    place.model(&usual());
    for device in ["auto", "cpu"] {
        let args = ["--epochs", "2", "--quiet", "--device", device, "--report", "r.json", "--weights-out", device];
        place.with_data("train", &args).is_silent();
        let report = place.json("r.json");
        assert_eq!(report["device"], "cpu");
        assert_eq!(report["device_bytes"], 0);
    }
    assert_eq!(place.bytes("auto"), place.bytes("cpu"));
}

#[test]
fn a_device_that_is_none_is_wrong_usage() {
    let place = Place::new();
    place.model(&usual());
    for (device, word) in [("gpu", "auto, cpu, cuda or cuda:N"), ("cuda:x", "not the number of a GPU"), ("", "device")]
    {
        for (command, args) in COMMANDS {
            place.with_data(command, &[args, &["--device", device]].concat()).fails(2, &[word]);
        }
    }
}

/// The help mentions the interpreter for the command where it is of use, profiles; otherwise it is for tests only.
#[test]
fn the_interpreter_is_documented_for_profiles_only() {
    let place = Place::new();
    for (command, _) in COMMANDS {
        let help = place.run(&[command, "--help"]).works().out;
        assert_eq!(help.contains("ptx-interp"), command == "profile", "{help}");
        assert!(help.contains("cuda:N"), "{help}");
    }
}

#[test]
fn train_eval_and_infer_agree_between_the_processor_and_the_code_for_a_gpu() {
    let place = Place::new();
    place.model(&with_metapath());
    place.with_data("train", &["--quiet", "--epochs", "8", "--report", "cpu.json", "--weights-out", "w"]).is_silent();
    let on = ["--device", "ptx-interp"];
    let args = ["--quiet", "--epochs", "8", "--report", "gpu.json", "--weights-out", "wg"];
    place.with_data("train", &[&args[..], &on].concat()).is_silent();
    let (cpu, gpu) = (place.json("cpu.json"), place.json("gpu.json"));
    assert_eq!(gpu["device"], "ptx-interp");
    assert!(gpu["device_bytes"].as_u64() > gpu["arena_bytes"].as_u64(), "{gpu:#}");
    let ms = |field: &str| gpu[field]["median"].as_f64().unwrap_or_else(|| panic!("{gpu:#}"));
    assert!(ms("forward_ms") > 0.0 && ms("backward_ms") > 0.0 && ms("update_ms") > 0.0, "{gpu:#}");
    let stages: Vec<f64> = ["FP", "NA", "LC", "PU"]
        .iter()
        .map(|stage| gpu["stage_ms"][stage].as_f64().unwrap_or_else(|| panic!("{gpu:#}")))
        .collect();
    assert!(stages.iter().all(|&ms| ms > 0.0), "{gpu:#}");
    assert!(gpu["epoch_ms"]["median"].as_f64() > Some(0.0));
    let losses = |report: &serde_json::Value| -> Vec<f64> {
        report["losses"].as_array().expect("losses").iter().filter_map(|loss| loss.as_f64()).collect()
    };
    let (a, b) = (losses(&cpu), losses(&gpu));
    assert!(a.len() == 8 && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4), "{a:?}\n{b:?}");

    let outputs = ["cpu", "ptx-interp"].map(|device| {
        let name = format!("{device}.npy");
        place.with_data("infer", &["--weights", "w", "--out", &name, "--device", device]).works();
        let eval = place.with_data("eval", &["--weights", "w", "--device", device]).works().out;
        let bytes = place.bytes(&name);
        let numbers: Vec<f32> =
            bytes[bytes.len() - 4 * 40 * 3..].chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        (numbers, eval)
    });
    let [(a, of_cpu), (b, of_gpu)] = outputs;
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?}\n{b:?}");
    assert_eq!(of_cpu, of_gpu);
}

/// A run of 6 epochs, and one that is continued after 3: the same bits on the same device.
#[test]
fn a_run_on_a_device_is_continued_bit_by_bit() {
    let place = Place::new();
    place.model(&with_metapath());
    let on = ["--device", "ptx-interp", "--quiet", "--checkpoint", "c"];
    place.with_data("train", &["--device", "ptx-interp", "--quiet", "--epochs", "6", "--weights-out", "whole"]).works();
    place.with_data("train", &[&on[..], &["--epochs", "3"]].concat()).works();
    place.with_data("train", &[&on[..], &["--epochs", "6", "--resume", "--weights-out", "parts"]].concat()).works();
    assert_eq!(place.bytes("whole"), place.bytes("parts"));
}

#[test]
fn a_budget_that_is_too_small_for_a_device_is_an_error_of_the_machine() {
    let place = Place::new();
    place.model(&usual());
    let args = ["--device", "ptx-interp", "--epochs", "1", "--memory-budget", "2k"];
    place.with_data("train", &args).fails(3, &["budget"]);
}

#[test]
fn a_loss_that_is_not_finite_ends_training_on_a_device() {
    let place = Place::new();
    place.model(&usual().replace("lr: 0.02", "lr: 1e30"));
    let args = ["--device", "ptx-interp", "--epochs", "9", "--quiet"];
    place.with_data("train", &args).fails(1, &["the loss is", "are kept"]);
}

#[test]
fn a_profile_counts_what_every_launch_does() {
    let place = Place::new();
    place.model(&usual());
    let run = place.with_data("profile", &["--device", "ptx-interp", "-o", "p"]).works();
    for word in ["one training step", "sectors", "wavefronts", "exchange", "step0", "update0"] {
        assert!(run.out.contains(word), "no `{word}` in:\n{}", run.out);
    }
    assert_eq!(String::from_utf8_lossy(&place.bytes("p/profile.txt")), run.out);
    let profile = place.json("p/profile.json");
    assert_eq!((&profile["device"], &profile["target"]), (&"ptx-interp".into(), &"sm_90".into()));
    let launches = profile["launches"].as_array().expect("launches");
    assert!(launches.len() > 3);
    for launch in launches {
        let counters = &launch["counters"];
        let number = |of: &serde_json::Value| of.as_u64().unwrap_or_else(|| panic!("{launch:#}"));
        assert!(number(&counters["blocks"]) > 0);
        let classes = counters["warp_instructions"].as_object().expect("classes");
        assert!(classes.values().map(number).sum::<u64>() > 0);
        let loads = &counters["global_loads"];
        assert!(number(&loads["sectors"]) >= number(&loads["ideal_sectors"]), "{launch:#}");
    }
}

/// Batches on a device are trained and evaluated, with a cache as well. A profile of them is refused.
#[test]
fn batches_on_a_device() {
    let place = Place::new();
    place.model(&usual().replace("epochs    30", "batch     7\n    fanout    [3, 2]\n    epochs    2"));
    let on = ["--device", "ptx-interp", "--quiet", "--report", "r"];
    place.with_data("train", &on).is_silent();
    let report = place.json("r");
    assert_eq!((&report["device"], report["batches"]["per_epoch"].as_u64().is_some()), (&"ptx-interp".into(), true));
    place.with_data("train", &[&on[..], &["--cache", "4K"]].concat()).is_silent();
    assert_eq!(place.json("r")["losses"], report["losses"], "a cache changes no bit");
    place.with_data("profile", &["--device", "ptx-interp"]).fails(1, &["trained on batches", "--device cpu"]);
    place.with_data("profile", &["--device", "ptx-interp", "--in-cache"]).fails(1, &["--device cpu"]);
    place.with_data("train", &[&on[..], &["--memory-budget", "1K"]].concat()).fails(3, &["the budget"]);
}
