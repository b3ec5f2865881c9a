//! A limit on the number of reports.

use hgnnc_diag::{Diagnostic, Diagnostics};

/// Maximum number of reports per file; a file with more is not a `.hgnn` file.
const MAX_REPORTS: usize = 200;

/// Adds a report, up to the maximum per file.
pub(crate) fn push(diagnostics: &mut Diagnostics, diagnostic: Diagnostic) {
    if diagnostics.len() < MAX_REPORTS {
        diagnostics.push(diagnostic);
    }
}
