//! Makes a test of each case file.

fn main() {
    hgnnc_case_tests::generate("kernel_round_trip", "tests/cases/kernel/round_trip", "ir");
    hgnnc_case_tests::generate("kernel_verify", "tests/cases/kernel/verify", "ir");
    hgnnc_case_tests::generate("kernel_parse", "tests/cases/kernel/parse", "ir");
    hgnnc_case_tests::generate("loops_round_trip", "tests/cases/loops/round_trip", "ir");
    hgnnc_case_tests::generate("loops_verify", "tests/cases/loops/verify", "ir");
    hgnnc_case_tests::generate("loops_parse", "tests/cases/loops/parse", "ir");
}
