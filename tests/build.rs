//! Makes a test of each case file.

fn main() {
    hgnnc_case_tests::generate("diagnostics", "cases/diagnostics", "hgnn");
    hgnnc_case_tests::generate("language", "cases/language", "hgnn");
}
