//! The language from outside: its reports, its library and examples, its reference, and files that nobody
//! would write.

mod diagnostics;
mod library;
mod meaning;
mod mutations;
mod reference;
mod scale;
