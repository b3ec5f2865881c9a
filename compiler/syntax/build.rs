//! Generates the parser tables from `grammar.lalrpop`, and a test of each case file.

fn main() {
    lalrpop::Configuration::new()
        .use_cargo_dir_conventions()
        .emit_rerun_directives(true)
        .process()
        .expect("the grammar is LR(1)");
    // Tests are made where the cases are.
    if std::path::Path::new("../../tests/cases/parse").exists() {
        hgnnc_case_tests::generate("parse", "../../tests/cases/parse", "hgnn");
    }
}
