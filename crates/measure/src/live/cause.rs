//! The names of what limits a connection.

/// What limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Nothing,
    Client,
    Wire,
    Processor,
    Disks,
    Durability,
    OtherClient,
}

/// What limits it, more exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Idle,
    OneRequest,
    SlowToTake,
    SlowToGive,
    WireRate,
    WireLoss,
    Quota,
    OtherWork,
    Cores,
    DiskRead,
    DiskWrite,
    Journal,
    JournalFull,
    Lease,
}

impl Cause {
    /// Stable, for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::OneRequest => "one-request",
            Self::SlowToTake => "slow-to-take",
            Self::SlowToGive => "slow-to-give",
            Self::WireRate => "rate",
            Self::WireLoss => "loss",
            Self::Quota => "quota",
            Self::OtherWork => "other-work",
            Self::Cores => "cores",
            Self::DiskRead => "disk-read",
            Self::DiskWrite => "disk-write",
            Self::Journal => "journal",
            Self::JournalFull => "journal-full",
            Self::Lease => "lease",
        }
    }

    pub fn limit(self) -> Limit {
        match self {
            Self::Idle => Limit::Nothing,
            Self::OneRequest | Self::SlowToTake | Self::SlowToGive => Limit::Client,
            Self::WireRate | Self::WireLoss => Limit::Wire,
            Self::Quota | Self::OtherWork | Self::Cores => Limit::Processor,
            Self::DiskRead | Self::DiskWrite => Limit::Disks,
            Self::Journal | Self::JournalFull => Limit::Durability,
            Self::Lease => Limit::OtherClient,
        }
    }
}
