//! The `hgnnc` command as a user meets it: exit codes, messages, and what lies on the disk afterwards.

mod attention;
mod bad_data;
mod bad_files;
mod bounds;
mod commands;
mod common;
mod cuda;
mod device;
mod environment;
mod escapes;
mod fmt;
mod import;
mod interrupt;
mod keep;
mod levels;
mod links;
mod metapaths;
mod profile;
mod ptx;
mod relations;
mod resume;
mod sampling;
mod switches;
mod training;
