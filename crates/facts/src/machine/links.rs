//! The wires to a disk: USB bridges, SATA ports, PCIe lanes.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Machine;

/// Which of the kernel's drivers speaks to a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsbDriver {
    /// USB Attached SCSI: many commands at once.
    Uas,
    /// Bulk-Only Transport: one command at a time.
    BulkOnly,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsbBridge {
    /// Vendor and product as `lsusb` shows them: `152d:0578`.
    pub id: String,
    pub product: Option<String>,
    pub driver: UsbDriver,
    /// The negotiated speed: 480 is USB 2.0, 5000 USB 3.0.
    pub speed_mbits: Option<u64>,
    /// The USB version that the bridge claims: `2.00`, `3.20`.
    pub version: Option<String>,
    /// The port it hangs on, such as `2-1`; with a dot there is a hub in between.
    pub port: String,
    pub behind_hub: bool,
}

impl UsbBridge {
    pub(super) fn read(machine: &Machine, sys: &Path) -> Option<Self> {
        let device = sys.ancestors().find(|dir| machine.exists(dir.join("idVendor")))?;
        let interface = sys.ancestors().find(|dir| machine.exists(dir.join("bInterfaceNumber")));
        let driver = interface.and_then(|dir| machine.link_name(dir.join("driver")));
        let port = device.file_name()?.to_str()?.to_owned();
        Some(Self {
            id: format!("{}:{}", machine.read(device.join("idVendor"))?, machine.read(device.join("idProduct"))?),
            product: machine.read(device.join("product")).filter(|p| !p.is_empty()),
            driver: match driver.as_deref() {
                Some("uas") => UsbDriver::Uas,
                Some("usb-storage") => UsbDriver::BulkOnly,
                _ => UsbDriver::Other,
            },
            speed_mbits: machine.number(device.join("speed")),
            version: machine.read(device.join("version")),
            behind_hub: port.contains('.'),
            port,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SataPort {
    /// The kernel's port, such as `ata3`.
    pub port: String,
    /// As the kernel writes it: `6.0 Gbps`.
    pub speed: Option<String>,
    /// Behind a port multiplier disks share one link, and often fail together.
    pub multiplier: bool,
}

impl SataPort {
    /// libata gives a disk behind a port multiplier the multiplier's port as SCSI channel: `HOST:CHANNEL:TARGET:LUN`.
    pub(super) fn read(machine: &Machine, sys: &Path) -> Option<Self> {
        let is_port = |dir: &&Path| {
            let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            name.strip_prefix("ata").is_some_and(|n| n.parse::<u32>().is_ok())
        };
        let dir = sys.ancestors().find(is_port)?;
        let port = dir.file_name()?.to_str()?.to_owned();
        let number = port.strip_prefix("ata")?;
        let channel = sys.iter().filter_map(|p| p.to_str()).find_map(|part| {
            let mut fields = part.split(':');
            let channel = fields.nth(1)?.parse::<u32>().ok()?;
            (fields.count() == 2 && part.split(':').all(|f| f.parse::<u32>().is_ok())).then_some(channel)
        });
        let multiplier = channel.is_some_and(|c| c > 0) || machine.exists(dir.join(format!("link{number}.0")));
        let speed = machine.read(Path::new("/sys/class/ata_link").join(format!("link{number}")).join("sata_spd"));
        Some(Self { port, speed: speed.filter(|s| s != "<unknown>"), multiplier })
    }
}

/// Speeds as the kernel writes them (`8.0 GT/s PCIe`), widths in lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PcieLink {
    /// `0000:01:00.0`
    pub address: String,
    pub speed: String,
    pub width_lanes: u64,
    pub speed_max: String,
    pub width_lanes_max: u64,
    /// The function, in the device tree.
    #[serde(skip)]
    pub(crate) sys: PathBuf,
}

impl PcieLink {
    /// For NVMe disks only: the link of another controller says little about one of its disks.
    pub(super) fn read(machine: &Machine, sys: &Path) -> Option<Self> {
        let own = sys.ancestors().find(|dir| machine.exists(dir.join("current_link_speed"))).map(Path::to_owned);
        let function = own.or_else(|| subsystem_function(machine, sys))?;
        Some(Self {
            address: function.file_name()?.to_str()?.to_owned(),
            speed: machine.read(function.join("current_link_speed"))?,
            width_lanes: machine.number(function.join("current_link_width"))?,
            speed_max: machine.read(function.join("max_link_speed"))?,
            width_lanes_max: machine.number(function.join("max_link_width"))?,
            sys: function,
        })
    }

    /// Whether the link is slower or narrower than the disk could.
    pub fn below_best(&self) -> bool {
        self.speed != self.speed_max || self.width_lanes < self.width_lanes_max
    }
}

/// A multipath namespace hangs below a virtual subsystem, which links to its controllers.
fn subsystem_function(machine: &Machine, sys: &Path) -> Option<PathBuf> {
    let subsystem = sys.parent()?;
    let controllers = machine.list(subsystem);
    let controller =
        controllers.iter().find(|n| machine.exists(subsystem.join(n).join("device/current_link_speed")))?;
    machine.real(subsystem.join(controller).join("device"))
}
