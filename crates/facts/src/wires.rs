//! Wires by name: PCIe, USB, SATA, Ethernet, Wi-Fi, each with its rate after coding and after protocols.

use serde::{Deserialize, Serialize};

/// Whether both directions have the rate at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Duplex {
    Full,
    Half,
}

/// A named wire and its rates, in bytes per second.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// As a person says it: `PCIe 3.0 x4`.
    pub name: String,
    /// After coding: nothing exceeds it.
    pub line: f64,
    /// After framing and protocols.
    pub practical: f64,
    pub duplex: Duplex,
    pub why: &'static str,
}

/// Bits on the line by PCIe generation, and the part that the coding leaves (PCI Express Base Specification:
/// 8b/10b to 2.0, 128b/130b to 5.0, FLITs of 236 bytes in 256 in 6.0).
const PCIE: [(u32, f64, f64); 6] = [
    (1, 2.5e9, 8.0 / 10.0),
    (2, 5e9, 8.0 / 10.0),
    (3, 8e9, 128.0 / 130.0),
    (4, 16e9, 128.0 / 130.0),
    (5, 32e9, 128.0 / 130.0),
    (6, 64e9, 236.0 / 256.0),
];
/// A packet of 256 bytes of data has 20 to 28 around it (Intel AN 829, "Understanding PCI Express Throughput"), and
/// acknowledgements take a little of the rest.
const PCIE_PAYLOAD: f64 = 0.90;
const PCIE_WHY: &str =
    "the line's rate after 8b/10b or 128b/130b coding, less a tenth for packet headers (Intel AN 829)";

struct Named {
    /// Any of these words makes it this wire: compared without case, blanks and dashes.
    names: &'static [&'static str],
    name: &'static str,
    line: f64,
    practical: f64,
    duplex: Duplex,
    why: &'static str,
}

const fn wire(
    names: &'static [&'static str],
    name: &'static str,
    (line, practical): (f64, f64),
    duplex: Duplex,
    why: &'static str,
) -> Named {
    Named { names, name, line, practical, duplex, why }
}

const TCP: &str =
    "1448 bytes of data in each 1538 on the line (IEEE 802.3 framing and gap, IPv4, TCP with timestamps): 94.1 %";
const USB2: &str = "480 Mbit/s, at most 13 packets of 512 bytes in each microframe (USB 2.0, 5.8.4) = 53 MB/s; disks reach 40 with UAS";
const USB2_BOT: &str = "Bulk-Only Transport sends one command at a time: 30 to 35 MB/s were measured on USB 2.0 boards";
const USB3: &str = "5 Gbit/s after 8b/10b (USB 3.2, 6.3) less packet headers";
const USB31: &str = "10 Gbit/s after 128b/132b (USB 3.2, 6.3) less packet headers";
const USB32: &str = "two lanes of 10 Gbit/s after 128b/132b (USB 3.2) less packet headers";
const SATA: &str = "8b/10b coding and FIS framing (Serial ATA 3.x)";
const SAS: &str = "8b/10b coding to 12 Gbit/s (SAS-3) less frames";
const AIR: &str =
    "about 60 % of the rate that is shown: one station at a time, acknowledgements and gaps (IEEE 802.11)";

use Duplex::{Full, Half};

/// How a wire's name ends on which disks are asked one thing at a time.
pub const BOT: &str = "with BOT";
const USB3_BOT: &str =
    "5 Gbit/s after 8b/10b (USB 3.2, 6.3), and Bulk-Only Transport sends one command at a time: the line waits between";

/// Longer names come first: the first that a text contains is meant.
const WIRES: &[Named] = &[
    wire(&["usb2.0bot", "usb2bot", "usb2.0withbot", "usb2withbot"], "USB 2.0 with BOT", (53.2e6, 35e6), Half, USB2_BOT),
    wire(
        &["usb3.0bot", "usb3bot", "usb3.1gen1bot", "usb3.2gen1bot", "usb5gbot", "usb3.0withbot", "usb3withbot"],
        "USB 3 with BOT",
        (500e6, 330e6),
        Full,
        USB3_BOT,
    ),
    wire(
        &["usb3.1bot", "usb3.2bot", "usb3.1gen2bot", "usb3.2gen2bot", "usb10gbot"],
        "USB 3.2 Gen 2 with BOT",
        (1.212e9, 500e6),
        Full,
        USB3_BOT,
    ),
    wire(&["usb3.2gen2x2", "usb20g"], "USB 3.2 Gen 2x2", (2.424e9, 2.0e9), Full, USB32),
    wire(&["usb3.2gen2", "usb3.1gen2", "usb10g"], "USB 3.2 Gen 2", (1.212e9, 1.05e9), Full, USB31),
    wire(
        &["usb4", "thunderbolt3", "thunderbolt4"],
        "USB4",
        (4.85e9, 3.1e9),
        Full,
        "40 Gbit/s, of which PCIe tunnels get 32 (USB4)",
    ),
    wire(&["usb3", "usb5g"], "USB 3", (500e6, 440e6), Full, USB3),
    wire(&["usb2", "usb480m"], "USB 2.0", (53.2e6, 40e6), Half, USB2),
    wire(&["usb1", "usb12m"], "USB 1.1", (1.216e6, 1.0e6), Half, "12 Mbit/s, 19 packets of 64 bytes a frame (USB 1.1)"),
    wire(&["sata6g", "sata3.", "sataiii", "sata600"], "SATA 6 Gbit/s", (600e6, 550e6), Half, SATA),
    wire(&["sata3g", "sata2", "sataii", "sata300"], "SATA 3 Gbit/s", (300e6, 275e6), Half, SATA),
    wire(&["sata1.5g", "sata1", "sata150"], "SATA 1.5 Gbit/s", (150e6, 135e6), Half, SATA),
    wire(&["sata3"], "SATA 6 Gbit/s", (600e6, 550e6), Half, SATA),
    wire(&["sas12g", "sas3"], "SAS 12 Gbit/s", (1200e6, 1100e6), Full, SAS),
    wire(&["sas6g", "sas2"], "SAS 6 Gbit/s", (600e6, 550e6), Full, SAS),
    wire(&["100gbe", "100gigabit", "100gethernet", "100gbit"], "100 gigabit Ethernet", (12.5e9, 11.77e9), Full, TCP),
    wire(&["40gbe", "40gigabit", "40gethernet", "40gbit"], "40 gigabit Ethernet", (5e9, 4.7e9), Full, TCP),
    wire(&["25gbe", "25gigabit", "25gethernet", "25gbit"], "25 gigabit Ethernet", (3.125e9, 2.94e9), Full, TCP),
    wire(
        &["10gbe", "10gigabit", "10gethernet", "10gbit", "10gbase"],
        "10 gigabit Ethernet",
        (1.25e9, 1.177e9),
        Full,
        TCP,
    ),
    wire(
        &["2.5gbe", "2.5gigabit", "2.5gethernet", "2.5gbit", "2.5gbase"],
        "2.5 gigabit Ethernet",
        (312.5e6, 294e6),
        Full,
        TCP,
    ),
    wire(&["5gbe", "5gigabit", "5gethernet", "5gbit", "5gbase"], "5 gigabit Ethernet", (625e6, 588e6), Full, TCP),
    wire(
        &["100mbit", "100base", "fastethernet", "100mb/s", "100mbps"],
        "100 Mbit Ethernet",
        (12.5e6, 11.7e6),
        Full,
        TCP,
    ),
    wire(&["10base", "10mbitethernet"], "10 Mbit Ethernet", (1.25e6, 1.1e6), Half, TCP),
    wire(&["gigabit", "1gbe", "gbe", "1000base", "1gbit", "1000mbit"], "gigabit Ethernet", (125e6, 117e6), Full, TCP),
    wire(&["wifi7", "802.11be"], "Wi-Fi 7, two streams of 160 MHz", (360e6, 216e6), Half, AIR),
    wire(&["wifi6", "802.11ax"], "Wi-Fi 6, two streams of 80 MHz", (150e6, 90e6), Half, AIR),
    wire(&["wifi5", "802.11ac"], "Wi-Fi 5, two streams of 80 MHz", (108e6, 65e6), Half, AIR),
    wire(&["wifi4", "802.11n"], "Wi-Fi 4, two streams of 40 MHz", (37.5e6, 22e6), Half, AIR),
];

impl Wire {
    /// The wire that a text names, such as `PCIe 3.0 x4`, `SATA 6G`, `USB 2.0 BOT` or `the gigabit switch`. `None` for
    /// none and for several: `a PCIe 3.0 card in a USB case` is nothing certain.
    pub fn named(text: &str) -> Option<Self> {
        let plain: String = text.to_lowercase().chars().filter(|c| !matches!(c, ' ' | '-' | '_')).collect();
        let pcie = pcie(&text.to_lowercase());
        let named = WIRES.iter().find(|w| w.names.iter().any(|name| has(&plain, name)));
        match (pcie, named) {
            (Some(pcie), None) => Some(pcie),
            (None, Some(w)) => Some(Self {
                name: w.name.to_owned(),
                line: w.line,
                practical: w.practical,
                duplex: w.duplex,
                why: w.why,
            }),
            _ => None,
        }
    }

    pub fn pcie(generation: u32, lanes: u32) -> Option<Self> {
        let (_, bits, coding) = PCIE.iter().find(|(g, ..)| *g == generation)?;
        let line = bits * coding / 8.0 * f64::from(lanes);
        matches!(lanes, 1 | 2 | 4 | 8 | 16 | 32).then(|| Self {
            name: format!("PCIe {generation}.0 x{lanes}"),
            line,
            practical: line * PCIE_PAYLOAD,
            duplex: Full,
            why: PCIE_WHY,
        })
    }

    /// Fewer lanes of the same generation, most first, then older generations with as many.
    fn pcie_below(&self) -> Vec<Self> {
        let Some((generation, lanes)) = self.name.strip_prefix("PCIe ").and_then(|rest| rest.split_once(".0 x")) else {
            return Vec::new();
        };
        let (Ok(generation), Ok(lanes)) = (generation.parse::<u32>(), lanes.parse::<u32>()) else { return Vec::new() };
        let narrower = [16, 8, 4, 2, 1].into_iter().filter(|fewer| *fewer < lanes);
        let narrower = narrower.filter_map(|fewer| Self::pcie(generation, fewer));
        narrower.chain((1..generation).rev().filter_map(|older| Self::pcie(older, lanes))).collect()
    }

    pub fn is_pcie(&self) -> bool {
        self.name.starts_with("PCIe")
    }

    pub fn is_ethernet(&self) -> bool {
        self.name.ends_with("Ethernet")
    }

    pub fn is_air(&self) -> bool {
        self.name.starts_with("Wi-Fi")
    }

    /// Rungs below it on which such a wire ends up when a cable, a port or an adapter is worse than it should be.
    pub fn rungs_below(&self) -> Vec<Self> {
        if self.is_pcie() {
            return self.pcie_below();
        }
        let rungs: &[&str] = match self.name.as_str() {
            "gigabit Ethernet" => &["100 Mbit"],
            "2.5 gigabit Ethernet" | "5 gigabit Ethernet" => &["gigabit", "100 Mbit"],
            "10 gigabit Ethernet" => &["5gbe", "2.5gbe", "gigabit", "100 Mbit"],
            "25 gigabit Ethernet" => &["10gbe", "5gbe", "2.5gbe", "gigabit", "100 Mbit"],
            "40 gigabit Ethernet" => &["10gbe", "gigabit"],
            "100 gigabit Ethernet" => &["40gbe", "25gbe", "10gbe"],
            "USB 3.2 Gen 2" => &["USB 3.0", "USB 2.0"],
            "USB 3.2 Gen 2x2" | "USB4" => &["USB 3.2 Gen 2", "USB 3.0", "USB 2.0"],
            name if name.starts_with("USB 3") => &["USB 2.0"],
            "SATA 6 Gbit/s" => &["SATA 3G", "SATA 1.5G"],
            "SATA 3 Gbit/s" => &["SATA 1.5G"],
            _ => &[],
        };
        rungs.iter().filter_map(|name| Self::named(name)).collect()
    }

    /// The next faster wires that one would buy.
    pub fn rungs_above(&self) -> Vec<Self> {
        let rungs: &[&str] = match self.name.as_str() {
            "10 Mbit Ethernet" | "100 Mbit Ethernet" => &["gigabit", "2.5gbe"],
            "gigabit Ethernet" => &["2.5gbe", "10gbe"],
            "2.5 gigabit Ethernet" | "5 gigabit Ethernet" => &["10gbe", "25gbe"],
            "10 gigabit Ethernet" => &["25gbe", "40gbe"],
            "25 gigabit Ethernet" | "40 gigabit Ethernet" => &["100gbe"],
            name if name.starts_with("Wi-Fi") => &["gigabit", "2.5gbe"],
            _ => &[],
        };
        rungs.iter().filter_map(|name| Self::named(name)).collect()
    }

    /// The Ethernet whose line a rate fits.
    pub fn ethernet_of(bytes_per_s: f64) -> Option<Self> {
        let all = ["100 Mbit", "gigabit", "2.5gbe", "5gbe", "10gbe", "25gbe", "40gbe", "100gbe"];
        all.iter().filter_map(|n| Self::named(n)).find(|w| bytes_per_s <= w.line && bytes_per_s > w.practical * 0.7)
    }
}

/// A name within a text, not as the tail of a longer number: "10gbe" has no "gbe", "2.5gbe" no "5gbe".
fn has(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let digit = name.starts_with(|c: char| c.is_ascii_digit()) || name == "gbe" || name == "gigabit";
        !(digit && before.is_some_and(|c| c.is_ascii_digit() || c == '.'))
    })
}

/// `pcie 3.0 x4`, `PCIe Gen4x4`, `pci express 2 x1`; one lane where no number is given would be a guess.
fn pcie(text: &str) -> Option<Wire> {
    let text = text.replace("pci express", "pcie").replace("pci-express", "pcie");
    let rest = text.split_once("pcie")?.1;
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    let rest = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    let generation = digits(rest)?;
    let lanes =
        rest.match_indices(['x', '×']).find_map(|(at, sign)| digits(rest.get(at + sign.len()..)?.trim_start()))?;
    Wire::pcie(generation, lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wires_are_known_by_many_names() {
        for (text, name, practical) in [
            ("PCIe 2.0 x1", "PCIe 2.0 x1", 450e6),
            ("the PCIe 3.0 x4 slot", "PCIe 3.0 x4", 3.5446e9),
            ("pcie gen4 x4", "PCIe 4.0 x4", 7.0892e9),
            ("PCIe4x2", "PCIe 4.0 x2", 3.5446e9),
            ("USB 2.0", "USB 2.0", 40e6),
            ("usb 2.0 bot", "USB 2.0 with BOT", 35e6),
            ("USB 3.0 BOT", "USB 3 with BOT", 330e6),
            ("USB 3.2 Gen 2 BOT", "USB 3.2 Gen 2 with BOT", 500e6),
            ("USB 3.0", "USB 3", 440e6),
            ("USB 3.1 Gen 1", "USB 3", 440e6),
            ("usb 3.2 gen 2", "USB 3.2 Gen 2", 1.05e9),
            ("SATA 6G", "SATA 6 Gbit/s", 550e6),
            ("SATA 3", "SATA 6 Gbit/s", 550e6),
            ("SATA 3G", "SATA 3 Gbit/s", 275e6),
            ("SATA II", "SATA 3 Gbit/s", 275e6),
            ("the old gigabit switch", "gigabit Ethernet", 117e6),
            ("10 GbE", "10 gigabit Ethernet", 1.177e9),
            ("10-gigabit", "10 gigabit Ethernet", 1.177e9),
            ("2.5 GbE", "2.5 gigabit Ethernet", 294e6),
            ("100 Mbit Ethernet", "100 Mbit Ethernet", 11.7e6),
            ("Wi-Fi 5", "Wi-Fi 5, two streams of 80 MHz", 65e6),
            ("1000BASE-T", "gigabit Ethernet", 117e6),
        ] {
            let wire = Wire::named(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(wire.name, name, "{text}");
            assert!((wire.practical / practical - 1.0).abs() < 0.001, "{text} {}", wire.practical);
            assert!(wire.practical < wire.line, "{text}");
        }
        for text in
            ["", "PCIe", "PCIe 3.0", "a cable", "PCIe 9 x4", "PCIe 3 x3", "USB", "a USB 2.0 case on PCIe 3.0 x4"]
        {
            assert_eq!(Wire::named(text), None, "{text}");
        }
        for wire in WIRES {
            let again = Wire::named(wire.names[0]).unwrap();
            assert_eq!(again.name, wire.name);
            assert!(wire.practical < wire.line);
        }
    }
}
