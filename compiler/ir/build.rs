//! Makes a test of each case file.

fn main() {
    hgnnc_case_tests::generate("round_trip", "tests/cases/round_trip", "ir");
    hgnnc_case_tests::generate("verify", "tests/cases/verify", "ir");
    hgnnc_case_tests::generate("parse", "tests/cases/parse", "ir");
}
