//! The remedies.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// Something to type.
    Free,
    /// Something to arrange otherwise.
    Work,
    Money,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    FullSpeed,
    FullRate,
    BothEndsSpeed,
    FasterNetwork,
    Upgrade,
    WithoutLosses,
    BothDirections,
    WithoutAdapter,
    FullDuplex,
    SeveralConnections,
    LargerWindow,
    WiderLink,
    OwnLinkForCard,
    OwnPaths,
    FasterPort,
    OtherKind,
    EqualDisk,
    MoreDisks,
    Mirrors,
    SmallerRecords,
    Stripe,
    Rebuild,
    CoolDisk,
    CopyAnew,
    DisksAsFigure,
    WholeStripes,
    SeveralFiles,
    PowerLossProtection,
    MoreRequests,
    RequestsAsMeant,
    SpreadWork,
    SpreadInterrupts,
    FasterCore,
    LessWork,
    CoolProcessor,
    CalmHost,
    OtherProgram,
    FasterClientCard,
    CableForRadio,
    FasterClientDisk,
}

/// Each remedy with its cost, its name and its instructions: `{at}` is the resource that limits, `{thing}` the part that
/// the remedy brings. A new remedy is a row here and an arm of `choice::changes`.
pub(crate) const REMEDIES: &[(Remedy, Cost, &str, &str)] = &[
    (
        Remedy::FullSpeed,
        Cost::Work,
        "the full speed of {at}",
        "Replace the cable, then change the port: ethtool IFACE, smartctl -i or lsusb -t say what was negotiated",
    ),
    (
        Remedy::FullRate,
        Cost::Work,
        "the rate that {at} has by its name",
        "Find what holds the card: a USB 2.0 port, a slot of one lane (lsusb -t, lspci -vv)",
    ),
    (
        Remedy::BothEndsSpeed,
        Cost::Work,
        "{thing}, which both ends support",
        "Reseat it or replace the cable: both ends support more than they negotiated",
    ),
    (
        Remedy::FasterNetwork,
        Cost::Money,
        "{thing}",
        "Buy cards for both ends, a switch port and a cable of that standard",
    ),
    (Remedy::Upgrade, Cost::Money, "{thing}", "Buy it, and what it needs at the other end"),
    (
        Remedy::WithoutLosses,
        Cost::Work,
        "a way without losses",
        "Replace the cable and the switch port: ethtool -S IFACE counts errors",
    ),
    (
        Remedy::BothDirections,
        Cost::Work,
        "both directions as fast as the better one",
        "Set one MTU at both ends (ip link set IFACE mtu 1500); then try without flow control and offloads",
    ),
    (
        Remedy::WithoutAdapter,
        Cost::Work,
        "another adapter, dock, port or cable",
        "Change them one at a time: lsusb -t and ethtool IFACE say what was negotiated",
    ),
    (Remedy::FullDuplex, Cost::Free, "full duplex at both ends", "ethtool -s IFACE autoneg on"),
    (
        Remedy::SeveralConnections,
        Cost::Free,
        "several connections",
        "mount -o nconnect=4 (NFS), multichannel (SMB), several files at once",
    ),
    (Remedy::LargerWindow, Cost::Free, "larger TCP windows", "sysctl -w net.ipv4.tcp_rmem='4096 131072 16777216'"),
    (
        Remedy::WiderLink,
        Cost::Money,
        "a wider link than {at}",
        "Divide its devices over several links, or buy a wider one",
    ),
    (
        Remedy::OwnLinkForCard,
        Cost::Work,
        "a port of its own for the network card",
        "Move the network card to a port that does not share {at}",
    ),
    (
        Remedy::OwnPaths,
        Cost::Work,
        "a port of its own for each disk",
        "larder bench disk A B finds disks that slow each other: give each its own port",
    ),
    (Remedy::FasterPort, Cost::Work, "a faster port than {at}", "Move the disk to a faster port, slot or enclosure"),
    (Remedy::OtherKind, Cost::Money, "{thing}", "Replace the disks by a kind without this limit"),
    (
        Remedy::EqualDisk,
        Cost::Money,
        "a disk like the others instead of {thing}",
        "Replace the slowest disk by one like the others",
    ),
    (Remedy::MoreDisks, Cost::Money, "{thing}", "Buy as many disks as the layout takes at a time"),
    (
        Remedy::Mirrors,
        Cost::Work,
        "mirrors instead of parity",
        "Make the pool anew of mirrors: each pair answers by itself, for half of the space",
    ),
    (
        Remedy::SmallerRecords,
        Cost::Work,
        "records as small as the requests",
        "zfs set recordsize=16K DATASET, and write the files anew",
    ),
    (
        Remedy::Stripe,
        Cost::Work,
        "files on several disks",
        "Make the pool anew as a stripe, mirror or with parity, so that a file lies on several disks",
    ),
    (Remedy::Rebuild, Cost::Work, "a rebuilt pool", "Replace the missing disk, and wait until it is rebuilt"),
    (
        Remedy::CopyAnew,
        Cost::Free,
        "the file in one piece",
        "cp --reflink=never FILE FILE.new && mv FILE.new FILE (once there is room for it in one piece), and have it allocated before it is filled",
    ),
    (Remedy::CoolDisk, Cost::Work, "cooler disks", "Give them air or a heat sink"),
    (
        Remedy::DisksAsFigure,
        Cost::Work,
        "disks that give their own figure",
        "Find the disk that is waited for: iostat -x 5, smartctl -a, larder bench disk",
    ),
    (Remedy::WholeStripes, Cost::Free, "whole stripes in one write", "echo 8192 > /sys/block/mdX/md/stripe_cache_size"),
    (
        Remedy::SeveralFiles,
        Cost::Free,
        "several readers at once",
        "Read several files at once: fio --numjobs=4, rclone copy --transfers=4",
    ),
    (
        Remedy::PowerLossProtection,
        Cost::Money,
        "a disk, or a log, with power-loss protection",
        "Buy an SSD with capacitors, for all or for the log alone",
    ),
    (
        Remedy::MoreRequests,
        Cost::Free,
        "more requests in flight",
        "fio --iodepth={depth}; mount -o nconnect=8; several files at once",
    ),
    (
        Remedy::RequestsAsMeant,
        Cost::Free,
        "as many requests in flight as were meant",
        "fio --ioengine=io_uring --direct=1; several threads of an application",
    ),
    (
        Remedy::SpreadWork,
        Cost::Free,
        "the work on all cores",
        "mount -o nconnect=4 (NFS), multichannel (SMB), more server threads or jobs",
    ),
    (Remedy::SpreadInterrupts, Cost::Free, "interrupts on all cores", "larder doctor --fix"),
    (
        Remedy::FasterCore,
        Cost::Money,
        "a processor with faster cores",
        "Buy a processor with faster cores; before that, set the governor to performance",
    ),
    (Remedy::LessWork, Cost::Work, "less work for the processor than {at}", "Choose a lighter cipher or compression"),
    (
        Remedy::CoolProcessor,
        Cost::Work,
        "a processor at its full clock",
        "Add a heat sink or a fan; give a Pi its own power supply",
    ),
    (
        Remedy::CalmHost,
        Cost::Work,
        "a host that leaves this machine its cores",
        "At the host: fewer guests, or cores reserved for this one",
    ),
    (Remedy::OtherProgram, Cost::Free, "{thing}", "Use the client or program that was faster"),
    (Remedy::FasterClientCard, Cost::Money, "{thing} at the client", "Buy a faster card or adapter for the client"),
    (Remedy::CableForRadio, Cost::Work, "a cable to the client", "Connect the client by cable"),
    (Remedy::FasterClientDisk, Cost::Money, "{thing} at the client", "Copy to or from a faster disk at the client"),
];

impl Remedy {
    fn row(self) -> &'static (Self, Cost, &'static str, &'static str) {
        REMEDIES.iter().find(|(remedy, ..)| *remedy == self).unwrap_or(&REMEDIES[0])
    }

    pub(crate) fn cost(self) -> Cost {
        self.row().1
    }

    pub(crate) fn what(self) -> &'static str {
        self.row().2
    }

    pub(crate) fn how(self) -> &'static str {
        self.row().3
    }
}
