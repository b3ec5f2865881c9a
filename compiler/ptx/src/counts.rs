//! PTX that counts how outputs compare with labels, so that metrics need no outputs of a device.
//!
//! Counts are integers: they are the same in whatever order they are added up, and equal to those of a processor to the
//! last one. A warp has a row of outputs at a time, and its lanes the columns: a class is guessed as by a search from the
//! first column for the largest number, which the first of equals wins, and which a first number that is none wins too.

use std::fmt::Write;

use crate::{Module, THREADS, Target};

/// Rows that a block has at a time: one for each warp.
const PER_BLOCK: usize = THREADS / 32;
/// Most blocks; then each has several times as many rows.
const MOST_BLOCKS: usize = 1024;

/// Parts of a split that are counted: each has an entry.
pub const PARTS: usize = 3;
/// Entries of the table of [`counts`].
pub const TABLE: usize = 3 + 3 * PARTS;

/// How outputs are compared with labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Labels {
    /// One class for each row: a number from 0, or a negative one for none. The class with the largest output is guessed.
    Classes,
    /// A number for each output, which stands for a label above 0.5. Labels with positive outputs are guessed.
    Several,
}

/// A module with the entries `part0`, `part1` and `part2`. Its table:
///
/// | entry | what |
/// | --- | --- |
/// | 0, 1 | addresses of the outputs (f32) and of the labels (i32, or as many f32 as outputs), by row |
/// | 2 | outputs of a row |
/// | 3 + 3 p, 4 + 3 p | address and number of the rows (u32) of part p |
/// | 5 + 3 p | address of the counts of part p, which must be zero: see [`words`] |
pub fn counts(target: Target, labels: Labels) -> Module {
    let put = "strings can be written to";
    let mut text = String::new();
    writeln!(text, "// counts of metrics\n.version 7.8\n.target {}\n.address_size 64\n", target.name()).expect(put);
    writeln!(text, ".visible .const .align 8 .b64 table[{TABLE}];").expect(put);
    for part in 0..PARTS {
        let [rows, count, counts] = [3, 4, 5].map(|first| 8 * (first + 3 * part));
        let of_row = match labels {
            Labels::Classes => CLASSES,
            Labels::Several => SEVERAL,
        };
        writeln!(
            text,
            "
.visible .entry {name}()
.maxntid {THREADS}, 1, 1
{{
    .reg .b32 %lane, %at, %step, %width, %count, %row, %k, %guess, %other_guess, %label, %slot, %thirds;
    .reg .b64 %outputs, %labels, %rows, %counts, %own, %wanted, %a;
    .reg .f32 %best, %other, %value, %t;
    .reg .pred %p, %q, %r, %wrong;
    ld.const.u64 %outputs, [table];
    ld.const.u64 %labels, [table+8];
    ld.const.u32 %width, [table+16];
    ld.const.u64 %rows, [table+{rows}];
    ld.const.u32 %count, [table+{count}];
    ld.const.u64 %counts, [table+{counts}];
    mul.lo.u32 %thirds, %width, 3;
    mov.u32 %at, %tid.x;
    and.b32 %lane, %at, 31;
    shr.u32 %at, %at, 5;
    mov.u32 %step, %ctaid.x;
    mad.lo.u32 %at, %step, {PER_BLOCK}, %at;
    mov.u32 %step, %nctaid.x;
    mul.lo.u32 %step, %step, {PER_BLOCK};
$row:
    setp.ge.u32 %p, %at, %count;
    @%p ret;
    mad.wide.u32 %a, %at, 4, %rows;
    ld.global.nc.u32 %row, [%a];
    mul.wide.u32 %own, %row, %width;
    shl.b64 %own, %own, 2;
{of_row}
    add.u32 %at, %at, %step;
    bra $row;
}}",
            name = name(part)
        )
        .expect(put);
    }
    Module { text, table: vec![], prelude: vec![], launches: vec![], first_update: 0, commit: None }
}

/// The entry of a part.
pub fn name(part: usize) -> String {
    format!("part{part}")
}

/// Blocks of an entry, for so many rows.
pub fn blocks(rows: usize) -> usize {
    rows.div_ceil(PER_BLOCK).clamp(1, MOST_BLOCKS)
}

/// 32-bit numbers of the counts of a part: for each output how often it was guessed and right, not guessed but right,
/// guessed but not right; then the number of rows of which all is right.
pub fn words(width: usize) -> usize {
    3 * width + 1
}

/// Each lane looks at every 32nd class. The first number decides where it is none: nothing is larger.
const CLASSES: &str = "    add.u64 %own, %own, %outputs;
    mov.f32 %best, 0fFF800000;
    mov.u32 %guess, 0xffffffff;
    mov.u32 %k, %lane;
$class:
    setp.ge.u32 %p, %k, %width;
    @%p bra $reduce;
    mad.wide.u32 %a, %k, 4, %own;
    ld.global.f32 %value, [%a];
    setp.gt.f32 %p, %value, %best;
    @%p mov.f32 %best, %value;
    @%p mov.u32 %guess, %k;
    add.u32 %k, %k, 32;
    bra $class;
$reduce:
    bar.warp.sync 0xffffffff;
    mov.u32 %k, 16;
$exchange:
    shfl.sync.bfly.b32 %other, %best, %k, 0x1f, 0xffffffff;
    shfl.sync.bfly.b32 %other_guess, %guess, %k, 0x1f, 0xffffffff;
    setp.gt.f32 %p, %other, %best;
    setp.eq.f32 %q, %other, %best;
    setp.lt.u32 %r, %other_guess, %guess;
    and.pred %q, %q, %r;
    or.pred %p, %p, %q;
    @%p mov.f32 %best, %other;
    @%p mov.u32 %guess, %other_guess;
    shr.u32 %k, %k, 1;
    setp.ne.u32 %p, %k, 0;
    @%p bra $exchange;
    ld.global.f32 %value, [%own];
    setp.nan.f32 %p, %value, %value;
    setp.eq.u32 %q, %guess, 0xffffffff;
    or.pred %p, %p, %q;
    @%p mov.u32 %guess, 0;
    mad.wide.u32 %wanted, %row, 4, %labels;
    ld.global.nc.u32 %label, [%wanted];
    setp.eq.u32 %q, %lane, 0;
    setp.eq.and.u32 %p, %label, %guess, %q;
    mul.wide.u32 %a, %guess, 12;
    add.u64 %a, %a, %counts;
    @%p red.global.add.u32 [%a], 1;
    mad.wide.u32 %wanted, %thirds, 4, %counts;
    @%p red.global.add.u32 [%wanted], 1;
    setp.ne.and.u32 %p, %label, %guess, %q;
    @%p red.global.add.u32 [%a+8], 1;
    setp.lt.and.u32 %p, %label, %width, %p;
    mul.wide.u32 %a, %label, 12;
    add.u64 %a, %a, %counts;
    @%p red.global.add.u32 [%a+4], 1;";

/// Each lane looks at every 32nd label.
const SEVERAL: &str = "    add.u64 %wanted, %own, %labels;
    add.u64 %own, %own, %outputs;
    setp.ne.u32 %wrong, %lane, %lane;
    mov.u32 %k, %lane;
$label:
    setp.ge.u32 %p, %k, %width;
    @%p bra $reduce;
    mad.wide.u32 %a, %k, 4, %own;
    ld.global.f32 %value, [%a];
    mad.wide.u32 %a, %k, 4, %wanted;
    ld.global.nc.f32 %t, [%a];
    setp.gt.f32 %p, %value, 0f00000000;
    setp.gt.f32 %q, %t, 0f3F000000;
    xor.pred %r, %p, %q;
    or.pred %wrong, %wrong, %r;
    or.pred %r, %p, %q;
    selp.u32 %slot, 0, 1, %p;
    not.pred %q, %q;
    and.pred %p, %p, %q;
    @%p mov.u32 %slot, 2;
    mad.lo.u32 %slot, %k, 3, %slot;
    mad.wide.u32 %a, %slot, 4, %counts;
    @%r red.global.add.u32 [%a], 1;
    add.u32 %k, %k, 32;
    bra $label;
$reduce:
    bar.warp.sync 0xffffffff;
    vote.sync.any.pred %wrong, %wrong, 0xffffffff;
    not.pred %p, %wrong;
    setp.eq.and.u32 %p, %lane, 0, %p;
    mad.wide.u32 %a, %thirds, 4, %counts;
    @%p red.global.add.u32 [%a], 1;";
