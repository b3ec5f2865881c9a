//! A PTX interpreter that runs on the CPU.
//!
//! A tool for verification, and a profiler for machines without a GPU. [`Module::parse`] reads the PTX text of a GPU
//! program; [`Module::run`] executes a kernel on a [`Memory`], checks every access, and returns [`Counters`].
//!
//! ```
//! use hgnnc_ptx_interp::{Launch, Memory, Module, Value};
//!
//! let module = Module::parse(
//!     ".version 7.8
//!      .target sm_80
//!      .address_size 64
//!      .visible .entry iota(.param .u64 out) {
//!        .reg .b32 %i; .reg .b64 %p, %o;
//!        ld.param.u64 %p, [out];
//!        mov.u32 %i, %tid.x;
//!        mul.wide.u32 %o, %i, 4;
//!        add.s64 %p, %p, %o;
//!        st.global.u32 [%p], %i;
//!        ret;
//!      }",
//! )?;
//! let mut memory = Memory::new();
//! let out = memory.alloc("out", 256, 4);
//! let params = module.kernel("iota").expect("it is there").lay_out(&[Value::U64(out)])?;
//! let launch = Launch { block: [64, 1, 1], params, ..Launch::default() };
//! let counters = module.run("iota", &mut memory, &launch)?;
//! assert_eq!(memory.read(out + 4 * 63, 4)?, [63, 0, 0, 0]);
//! assert_eq!(counters.global_stores.sectors, counters.global_stores.ideal_sectors);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Execution model
//!
//! Blocks run one after the other, in order (or reversed: [`Launch::backward`]). Each thread has its own program
//! counter; threads of a warp at the same instruction execute it together, and of several such groups the one with the
//! smallest counter goes first, so that structured control flow reconverges. A `.sync` instruction waits until all
//! lanes of its mask have arrived at it (at the same instruction: PTX allows others for `bar.warp.sync`). Barriers
//! count warps.
//!
//! # Stricter than a GPU
//!
//! Lanes of a mask must not have exited. Shuffles must not read from lanes that do not take part. A barrier of all
//! threads does not complete after threads have exited. Reads of uninitialised registers and memory are faults.
//!
//! # Not modelled
//!
//! Time, register spills, the memory model beyond races (writes are visible to all threads at once, in program order),
//! and blocks that wait for each other. `.approx` is computed in f64 and rounded, so it is more accurate than on a GPU.
//! Matrix products are accumulated one by one in f32, in the order of k; a GPU adds several at once with other
//! roundings.

#![forbid(unsafe_code)]

#[macro_use]
mod alu;
mod cache;
mod counters;
mod exec;
mod fault;
mod lex;
mod memory;
mod module;
mod numeric;
mod ops;
mod parse;
mod register_allocation;
mod registers;
mod shared;
mod types;

pub use cache::{Cache, SECTOR};
pub use exec::{Launch, Value};
pub use fault::{Fault, FaultKind, ParseError};
pub use hgnnc_machine::counters::{Class, Counters, GlobalTraffic, SharedTraffic};
pub use memory::{AccessError, Memory};
pub use module::{Kernel, Module, Param};
pub use types::Type;
