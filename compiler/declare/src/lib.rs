//! Declarations: all that a file says before any expression of a model is checked.
//!
//! [`imports`] joins the names of several files, [`consts`] evaluates constants, [`schema`] resolves vertex types,
//! relations, metapaths and families, with the expressions that name semantic graphs. [`initialiser`] reads initialisers of
//! parameters and of learned rows. Reports about names and arguments are made in [`names`] and [`arguments`].
//!
//! This crate knows no layers but by their names, and no values.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod consts;
pub mod imports;
pub mod initialiser;
pub mod names;
pub mod schema;
