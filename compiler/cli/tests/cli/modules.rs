//! Models that import from other files: by path, and by a package of an `hgnnc.toml`.

use std::fs;

use crate::common::{BODY, Place, SCHEMA, TRAIN, replace, usual};

/// The same layer as `std::rgcn::RgcnConv`, in a file of the user's.
const LAYER: &str = include_str!("../../../../stdlib/rgcn.hgnn");

fn write(place: &Place, name: &str, text: &str) {
    let path = place.path(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// The usual model, with its schema and its constants in `parts/`, and its layer in a package beside the folder of models.
fn in_parts() -> Place {
    let place = Place::new();
    let body = BODY.replace("hidden: 8", "hidden: hidden").replace("hidden: 3", "hidden: classes");
    let uses = "use \"../parts/schema.hgnn\"\nuse \"../parts/sizes.hgnn\"::hidden\nuse mine::deep::layers::RgcnConv\n";
    write(&place, "models/m.hgnn", &format!("{uses}\nmodel Net(schema: Tiny) {{{body}}}\n{TRAIN}"));
    let schema = SCHEMA.replace("class[3]", "class[classes]");
    write(&place, "parts/schema.hgnn", &format!("use \"sizes.hgnn\"::of_labels\nconst classes = of_labels\n{schema}"));
    write(&place, "parts/sizes.hgnn", "const hidden = 8\nconst of_labels = 3\n");
    write(&place, "hgnnc.toml", "[packages]\nmine = \"lib\"\n");
    write(&place, "lib/deep/layers.hgnn", LAYER);
    place
}

const CHECK: [&str; 2] = ["check", "models/m.hgnn"];

#[test]
fn is_the_same_model_in_one_file() {
    let place = in_parts();
    place.model(&usual());
    let train = |model: &str, weights: &str| {
        place
            .run(&["train", model, "--data", "data", "--epochs", "3", "--quiet", "--weights-out", weights])
            .is_silent();
    };
    train("m.hgnn", "one.safetensors");
    train("models/m.hgnn", "parts.safetensors");
    assert_eq!(place.weights("one.safetensors"), place.weights("parts.safetensors"));
    // Paths are relative to the file that says them, and not to where the command runs.
    let inside = place.command(&["check", "m.hgnn"]).current_dir(place.path("models")).output().expect("it runs");
    assert!(inside.status.success(), "{inside:?}");
    place.run(&["build", "models/m.hgnn", "--data", "data", "--emit", "model"]).works();
    assert_eq!(place.run(&["fmt", "--check", "models/m.hgnn"]).code, Some(0));
}

#[test]
fn a_mistake_is_shown_in_its_file_with_the_use_that_led_there() {
    let place = in_parts();
    replace(&place.path("parts/sizes.hgnn"), "= 3", "= 3 / 0");
    place.run(&CHECK).fails(
        1,
        &[
            "E0327",
            "parts/sizes.hgnn:2:23",
            "parts/schema.hgnn:1:5",
            "`parts/sizes.hgnn` is imported here",
            "models/m.hgnn:1:5",
            "`parts/schema.hgnn` is imported here",
        ],
    );
    // So is what does not fit the dataset.
    let place = in_parts();
    replace(&place.path("parts/schema.hgnn"), "f32[3]", "f32[4]");
    let words = ["E0423", "parts/schema.hgnn:", "models/m.hgnn:1:5", "`parts/schema.hgnn` is imported here"];
    place.run(&[&CHECK[..], &["--data", "data"]].concat()).fails(1, &words);
    let place = in_parts();
    replace(&place.path("lib/deep/layers.hgnn"), "e.src.x @ w", "e.src.x @ v");
    place.run(&CHECK).fails(1, &["E0201", "lib/deep/layers.hgnn:", "models/m.hgnn:", "in this use of `RgcnConv`"]);
}

#[test]
fn says_where_it_looked_for_a_file() {
    let place = in_parts();
    replace(&place.path("models/m.hgnn"), "../parts/schema.hgnn", "../parts/shcema.hgnn");
    place.run(&CHECK).fails(1, &["E0207", "models/m.hgnn:1:5", "`parts/shcema.hgnn`", "did you mean"]);
    replace(&place.path("models/m.hgnn"), "../parts/shcema.hgnn", "../parts/schema.hgnn");
    replace(&place.path("models/m.hgnn"), "deep::layers", "deep::lawyers");
    place.run(&CHECK).fails(1, &["E0207", "`lib/deep/lawyers.hgnn`", "did you mean `mine::deep::layers`?"]);
    replace(&place.path("models/m.hgnn"), "deep::lawyers", "deep::`../../parts/sizes`");
    place.run(&CHECK).fails(1, &["E0207", "there is no module"]);
    replace(&place.path("models/m.hgnn"), "mine::deep::`../../parts/sizes`", "yours::layers");
    place.run(&CHECK).fails(1, &["E0207", "there is no package `yours`", "hgnnc.toml", "yours = \"PATH\""]);
    fs::remove_file(place.path("hgnnc.toml")).expect("removed");
    place.run(&CHECK).fails(1, &["E0207", "no folder from that of the model upwards has an `hgnnc.toml`"]);
}

#[test]
fn says_why_a_file_cannot_be_imported() {
    let place = in_parts();
    let schema = place.path("parts/schema.hgnn");
    fs::write(&schema, b"const classes = 3 // \xff").expect("written");
    place.run(&CHECK).fails(1, &["E0217", "`parts/schema.hgnn` is not UTF-8 text: byte 21"]);
    fs::remove_file(&schema).expect("removed");
    fs::create_dir(&schema).expect("made");
    place.run(&CHECK).fails(1, &["E0217", "parts/schema.hgnn", "it is a folder"]);

    let place = in_parts();
    for (manifest, why) in [
        ("[package]\nmine = \"lib\"", "unknown field `package`"),
        ("[packages]\nmine = 3", "invalid type"),
        ("[packages", "hgnnc.toml"),
        ("[packages]\nstd = \"lib\"", "the package `std` is the standard library"),
    ] {
        write(&place, "hgnnc.toml", manifest);
        place.run(&CHECK).fails(1, &["E0217", "models/m.hgnn:3:", "hgnnc.toml", why]);
    }
    // A model that names no package needs none.
    write(&place, "plain.hgnn", &usual());
    place.run(&["check", "plain.hgnn"]).works();
}

#[test]
fn the_nearest_manifest_counts() {
    let place = in_parts();
    write(&place, "models/hgnnc.toml", "[packages]\nmine = \"../lib/deep/..\"\n");
    fs::write(place.path("hgnnc.toml"), "is not read").expect("written");
    place.run(&CHECK).works();
}

#[cfg(unix)]
#[test]
fn a_file_is_the_same_by_all_its_paths() {
    let place = in_parts();
    std::os::unix::fs::symlink("parts", place.path("others")).expect("linked");
    // Two imports of one file, each by another path: `hidden` is one constant.
    replace(&place.path("models/m.hgnn"), "../parts/schema.hgnn", "../others/schema.hgnn");
    place.run(&CHECK).works();
    write(
        &place,
        "parts/sizes.hgnn",
        "use \"../others/schema.hgnn\"::classes\nconst hidden = 8\nconst of_labels = 3\n",
    );
    place
        .run(&CHECK)
        .fails(1, &["E0216", "these files import each other", "`others/sizes.hgnn`", "`others/schema.hgnn`"]);
}

#[test]
fn a_run_is_not_continued_with_another_imported_file() {
    let place = in_parts();
    let train = |args: &[&str]| {
        place.run(&[&["train", "models/m.hgnn", "--data", "data", "--checkpoint", "c", "--quiet"], args].concat())
    };
    train(&["--epochs", "2"]).is_silent();
    replace(&place.path("lib/deep/layers.hgnn"), "mean(e.src.x @ w)", "sum(e.src.x @ w)");
    train(&["--epochs", "3", "--resume"]).fails(1, &["is of another run: the program has changed"]);
    replace(&place.path("lib/deep/layers.hgnn"), "sum(e.src.x @ w)", "mean(e.src.x @ w)");
    train(&["--epochs", "3", "--resume"]).is_silent();
}

#[test]
fn imported_constants_can_be_set_and_swept() {
    let place = in_parts();
    let train = |set: &str| {
        let args = ["--epochs", "1", "--quiet", "--set", set, "--weights-out", "w.safetensors"];
        place.run(&[&["train", "models/m.hgnn", "--data", "data"], &args[..]].concat())
    };
    train("hidden=5").is_silent();
    assert_eq!(place.weights("w.safetensors")["hidden.w.writes"].0, [3, 5]);
    // The file that declares it follows, and so do others that import it.
    train("classes=4").fails(1, &["class"]);
    // It is no constant of the model's file, though of one that it imports from.
    train("of_labels=4").fails(1, &["E0201", "the model has no constant `of_labels`"]);

    let sweep = || {
        let args = ["--epochs", "1", "--set", "hidden=4,5", "-o", "s"];
        place.run(&[&["sweep", "models/m.hgnn", "--data", "data"], &args[..]].concat())
    };
    sweep().works();
    sweep().works();
    replace(&place.path("lib/deep/layers.hgnn"), "mean(e.src.x @ w)", "sum(e.src.x @ w)");
    sweep().fails(1, &["holds a sweep with another list of imported files"]);
}

/// A file of layers is no model, and right nevertheless.
#[test]
fn a_file_to_import_from_is_checked_by_itself() {
    let place = in_parts();
    place.run(&["check", "lib/deep/layers.hgnn"]).works();
    place.run(&["check", "parts/schema.hgnn"]).works();
    place.run(&["check", "lib/deep/layers.hgnn", "--data", "data"]).fails(1, &["E0505"]);
    place.run(&["train", "lib/deep/layers.hgnn", "--data", "data"]).fails(1, &["E0505"]);
    write(&place, "empty.hgnn", "// Nothing.\n");
    place.run(&["check", "empty.hgnn"]).fails(1, &["E0505"]);
    replace(&place.path("lib/deep/layers.hgnn"), "e.src.x @ w", "e.src.x @ v");
    place.run(&["check", "lib/deep/layers.hgnn"]).fails(1, &["E0201"]);
}
