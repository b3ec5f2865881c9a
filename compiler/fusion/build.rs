//! Makes a test of each case file.

fn main() {
    hgnnc_case_tests::generate("cases", "tests/cases", "ir");
}
