//! `fmt`: files in canonical form.

use std::io::Write;
use std::process::Stdio;

use crate::common::{Place, Run, usual};

const LOOSE: &str = "// a note\nconst   a=1 // one\nconst b = f(\n  a )\n";
const CANONICAL: &str = "// a note\nconst a = 1 // one\nconst b = f(a)\n";

/// Gives a text to standard input.
fn piped(place: &Place, args: &[&str], text: &[u8]) -> Run {
    let mut command = place.command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(text).expect("written");
    Run::of(child.wait_with_output().expect("it ends"))
}

#[test]
fn files_are_formatted_where_they_change() {
    let place = Place::new();
    let write = |name: &str, text: &str| std::fs::write(place.path(name), text).expect("written");
    write("a.hgnn", LOOSE);
    write("b.hgnn", CANONICAL);
    let before = std::fs::metadata(place.path("b.hgnn")).and_then(|m| m.modified()).expect("a time");

    let run = place.run(&["fmt", "--check", "a.hgnn", "b.hgnn"]);
    assert_eq!((run.code, &run.out[..], &run.err[..]), (Some(1), "", "a.hgnn is not formatted\n"));
    assert_eq!(place.bytes("a.hgnn"), LOOSE.as_bytes());

    place.run(&["fmt", "a.hgnn", "b.hgnn"]).is_silent();
    assert_eq!(place.bytes("a.hgnn"), CANONICAL.as_bytes());
    assert_eq!(std::fs::metadata(place.path("b.hgnn")).and_then(|m| m.modified()).expect("a time"), before);
    place.run(&["fmt", "--check", "a.hgnn", "b.hgnn"]).is_silent();
    assert_eq!(place.names(), ["a.hgnn", "b.hgnn", "data"]);
}

#[test]
fn broken_files_are_left_alone() {
    let place = Place::new();
    let broken = "model {{ const a=1";
    std::fs::write(place.path("broken.hgnn"), broken).expect("written");
    std::fs::write(place.path("loose.hgnn"), LOOSE).expect("written");
    std::fs::write(place.path("latin.hgnn"), b"// \xe9\n").expect("written");
    // Well-formed files are formatted, wherever they stand in the list.
    let run = place.run(&["fmt", "broken.hgnn", "latin.hgnn", "nowhere.hgnn", "data", "loose.hgnn"]);
    run.fails(
        1,
        &["error[E01", "broken.hgnn:1:", "`latin.hgnn` is not UTF-8", "`nowhere.hgnn`", "`data` is not a file"],
    );
    assert_eq!(place.bytes("broken.hgnn"), broken.as_bytes());
    assert_eq!(place.bytes("latin.hgnn"), b"// \xe9\n");
    assert_eq!(place.bytes("loose.hgnn"), CANONICAL.as_bytes());
    place.run(&["fmt"]).fails(2, &["<FILE>"]);
    // A mistake that is none of form does no harm.
    place.model(&usual().replace("Paper.y)", "Paper.z)"));
    place.run(&["fmt", "m.hgnn"]).is_silent();
}

#[test]
fn standard_input_is_formatted_to_standard_output() {
    let place = Place::new();
    let run = piped(&place, &["fmt", "-"], LOOSE.as_bytes()).works();
    assert_eq!((&run.out[..], &run.err[..]), (CANONICAL, ""));
    let run = piped(&place, &["fmt", "-"], b"").works();
    assert_eq!(run.out, "");
    let run = piped(&place, &["fmt", "--check", "-"], LOOSE.as_bytes());
    assert_eq!((run.code, &run.out[..], &run.err[..]), (Some(1), "", "<standard input> is not formatted\n"));
    piped(&place, &["fmt", "--check", "-"], CANONICAL.as_bytes()).is_silent();
    let run = piped(&place, &["fmt", "-"], b"model {");
    run.fails(1, &["error[E01", "<standard input>:1:"]);
    assert_eq!(run.out, "");
}

#[cfg(unix)]
#[test]
fn a_formatted_file_keeps_its_permissions_and_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = Place::new();
    std::fs::write(place.path("a.hgnn"), LOOSE).expect("written");
    std::fs::set_permissions(place.path("a.hgnn"), PermissionsExt::from_mode(0o640)).expect("set");
    symlink("a.hgnn", place.path("link.hgnn")).expect("a link");
    place.run(&["fmt", "link.hgnn"]).is_silent();
    assert_eq!(place.bytes("a.hgnn"), CANONICAL.as_bytes());
    assert!(std::fs::symlink_metadata(place.path("link.hgnn")).expect("there").is_symlink());
    assert_eq!(std::fs::metadata(place.path("a.hgnn")).expect("there").permissions().mode() & 0o777, 0o640);
}
