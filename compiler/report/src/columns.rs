//! Columns of the kernel tables, shared by all tables, which differ in their selection and order.

use crate::profile::{Kernel, Profile};
use crate::table::{amount, bytes, digits, percent, time};

/// A column of a table of kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    Name,
    NameAndRows,
    Rows,
    Stores,
    Stage,
    Direction,
    Kind,
    Bound,
    Measured,
    Predicted,
    Ratio,
    /// Share of the kernel's time spent waiting for memory, if measured for any kernel.
    Waits,
    /// Time of waiting for other ranks, if there are any.
    ForRanks,
    FlopsPerSecond,
    OfPeak,
    BytesPerSecond,
    FlopsPerByte,
    Share,
}

impl Column {
    /// The columns that the profile has data for.
    pub(crate) fn known(columns: &[Self], profile: &Profile) -> Vec<Self> {
        let is_known = |column: &Self| match column {
            Self::Waits => profile.tells_waits(),
            Self::ForRanks => profile.tells_ranks(),
            _ => true,
        };
        columns.iter().copied().filter(is_known).collect()
    }

    pub(crate) fn head(self) -> &'static str {
        match self {
            Self::Name | Self::NameAndRows => "kernel",
            Self::Rows => "rows",
            Self::Stores => "stores",
            Self::Stage => "stage",
            Self::Direction => "direction",
            Self::Kind => "kind",
            Self::Bound => "bound",
            Self::Measured => "measured",
            Self::Predicted => "predicted",
            Self::Ratio => "ratio",
            Self::Waits => "waits",
            Self::ForRanks => "for ranks",
            Self::FlopsPerSecond => "FLOP/s",
            Self::OfPeak => "of peak",
            Self::BytesPerSecond => "B/s",
            Self::FlopsPerByte => "FLOP/B",
            Self::Share => "share",
        }
    }

    pub(crate) fn cell(self, profile: &Profile, kernel: &Kernel) -> String {
        match self {
            Self::Name => kernel.name(),
            Self::NameAndRows => format!("{} {}", kernel.name(), kernel.rows),
            Self::Rows => kernel.rows.clone(),
            Self::Stores => kernel.stores.clone(),
            Self::Stage => kernel.stage.clone(),
            Self::Direction => kernel.phase.clone(),
            Self::Kind => kernel.kind.clone(),
            Self::Bound => kernel.bound.clone(),
            Self::Measured => time(kernel.measured_ms * 1e-3),
            Self::Predicted => kernel.predicted_ms.map_or(String::new(), |ms| time(ms * 1e-3)),
            Self::Ratio => kernel.ratio().map_or(String::new(), digits),
            Self::Waits => kernel.waits().map_or(String::new(), percent),
            Self::ForRanks => kernel.waiting_ms.map_or(String::new(), |ms| time(ms * 1e-3)),
            Self::FlopsPerSecond => amount(kernel.flops_per_s()),
            Self::OfPeak => percent(kernel.flops_per_s() / profile.machine.fma_flops),
            Self::BytesPerSecond => bytes(kernel.bytes_per_s()),
            Self::FlopsPerByte => digits(kernel.intensity()),
            Self::Share => percent(profile.share(kernel.measured_ms)),
        }
    }
}
