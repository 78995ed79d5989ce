//! A disk's report about itself: `smartctl --json`, read without trusting that any field is there.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::self_test::SelfTest;
use super::{BlockDevice, Bus, Machine, ToolError};

/// The answer, or why there is none.
#[derive(Clone, Debug)]
pub enum SmartAnswer {
    Smart(Box<Smart>),
    /// Not to be had, and what would help.
    Unknown {
        why: String,
        action: Option<String>,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Smart {
    pub model: Option<String>,
    pub serial: Option<String>,
    pub passed: Option<bool>,
    pub temperature_c: Option<i64>,
    pub power_on_hours: Option<u64>,
    /// Share of the rated writes used up.
    pub wear_percent: Option<u64>,
    pub spare_percent: Option<u64>,
    pub spare_percent_min: Option<u64>,
    pub reallocated_sectors: Option<u64>,
    pub pending_sectors: Option<u64>,
    pub uncorrectable_sectors: Option<u64>,
    /// Transfers damaged on the cable.
    pub crc_errors: Option<u64>,
    pub media_errors: Option<u64>,
    pub critical_warning: Option<u64>,
    /// Attributes that are failing now, by name.
    pub failing: Vec<String>,
    /// Absent on flash.
    pub rotation_rpm: Option<u64>,
    pub link: Option<String>,
    pub link_max: Option<String>,
    pub write_cache: Option<bool>,
    pub power_loss_protection: bool,
    pub trim: Option<bool>,
    /// It says that it is shingled and manages its zones itself.
    pub device_managed_zones: bool,
    /// Read errors that it told the host of (attribute 187; on SCSI all uncorrected errors).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_errors: Option<u64>,
    /// Commands that it did not answer in time (attribute 188).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeouts: Option<u64>,
    /// Sectors of a SCSI disk that were replaced since it left the factory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grown_defects: Option<u64>,
    /// Spin-ups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<u64>,
    /// Times that the heads were parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_cycles: Option<u64>,
    /// The highest temperature that the maker allows in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_max_c: Option<i64>,
    /// The temperature at which it protects itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_critical_c: Option<i64>,
    /// Its tests of itself, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub self_tests: Vec<SelfTest>,
}

/// smartctl names two.
const BRIDGE_TYPES_MAX: usize = 2;

impl Machine {
    /// Asks the disk. A sleeping one is woken: who asks is about to use it.
    pub fn smart(&self, device: &BlockDevice) -> SmartAnswer {
        if device.bus == Bus::Virtual || device.bus == Bus::Mmc {
            let why = format!("{} devices have no SMART", device.bus.word());
            return SmartAnswer::Unknown { why, action: None };
        }
        self.ask_through(device, &[]).map_or_else(|error| no_tool(&error), |answer| understood(&answer))
    }

    /// Asks the disk, unless it sleeps: then `None`, and it sleeps on.
    pub fn smart_unless_asleep(&self, device: &BlockDevice) -> Option<SmartAnswer> {
        if self.is_suspended(device) {
            return None;
        }
        // What is no hard disk does not spin; NVMe knows no such mode.
        let more: &[&str] = if device.bus == Bus::Nvme { &[] } else { &["-n", "standby"] };
        if device.bus == Bus::Virtual || device.bus == Bus::Mmc {
            return Some(self.smart(device));
        }
        match self.ask_through(device, more) {
            Ok(answer) if is_asleep(&answer) => None,
            Ok(answer) => Some(understood(&answer)),
            Err(error) => Some(no_tool(&error)),
        }
    }

    /// The kernel stops some disks itself, and would start one for any command.
    pub(super) fn is_suspended(&self, device: &BlockDevice) -> bool {
        let runtime = self.read(device.sys.join("device/power/runtime_status"));
        matches!(runtime.as_deref(), Some("suspended" | "suspending"))
    }

    /// The temperature that the kernel knows of a disk: by `drivetemp` of a SATA disk, of an NVMe disk always. A disk that sleeps may be
    /// woken by the question. The limits come with it; nothing else does.
    pub fn kernel_temperature(&self, device: &BlockDevice) -> Option<Smart> {
        let places = ["device/hwmon", "device/device/hwmon", "device"];
        let of = |place: &str| {
            let folder = device.sys.join(place);
            let names = self.list(&folder);
            let monitors = names.iter().filter(|name| name.starts_with("hwmon") && name.len() > "hwmon".len());
            monitors.map(|name| folder.join(name)).find(|path| self.exists(path.join("temp1_input")))
        };
        let monitor = places.into_iter().find_map(of)?;
        let degrees = |file: &str| {
            let text = self.read(monitor.join(file))?;
            text.parse::<i64>().ok().map(|thousandths| thousandths / 1000)
        };
        Some(Smart {
            temperature_c: Some(degrees("temp1_input")?),
            temperature_max_c: degrees("temp1_max"),
            temperature_critical_c: degrees("temp1_crit"),
            ..Smart::default()
        })
    }

    /// Has the hard disks below these folders park their heads. Returns the names of those that do.
    pub fn park(&self, folders: &[PathBuf]) -> Vec<String> {
        let mounts = self.mounts();
        let below = folders.iter().filter_map(|folder| mounts.of(folder)).map(|mount| self.below_mount(mount));
        let names: BTreeSet<String> = below.flat_map(|below| below.devices).collect();
        let disks = names.iter().filter_map(|name| BlockDevice::read(self, name));
        let spins = |device: &BlockDevice| device.rotational == Some(true) && device.bus != Bus::Virtual;
        let parks = |device: &BlockDevice| {
            let path = device.path.to_string_lossy();
            let done = self.run("smartctl", &["-s", "standby,now", &path], &device.name);
            done.is_ok_and(|said| said.code == Some(0))
        };
        disks.filter(spins).filter(parks).map(|device| device.name).collect()
    }

    /// Asks, and through a USB bridge whose way is open again by each way that it may have.
    fn ask_through(&self, device: &BlockDevice, more: &[&str]) -> Result<Value, ToolError> {
        let mut answer = self.ask(device, more)?;
        if device.bus != Bus::Usb {
            return Ok(answer);
        }
        for kind in bridge_types(&answer) {
            answer = self.ask(device, &[&["-d", &kind], more].concat())?;
            if is_asleep(&answer) || matches!(understood(&answer), SmartAnswer::Smart(_)) {
                break;
            }
        }
        Ok(answer)
    }

    fn ask(&self, device: &BlockDevice, more: &[&str]) -> Result<Value, ToolError> {
        let path = device.path.to_string_lossy();
        let mut args = vec!["--json", "-i", "-H", "-A", "-l", "selftest"];
        // NVMe names its limits of temperature among its capabilities alone, SCSI its failed reads and writes in its error log alone.
        match device.bus {
            Bus::Nvme => args.push("-c"),
            _ => args.extend(["-l", "error", "-g", "wcache"]),
        }
        args.extend(more);
        args.push(&path);
        let said = self.run("smartctl", &args, &device.name)?;
        // The exit code is a set of bits, most of which are findings; an answer that is no JSON says nothing.
        Ok(serde_json::from_slice(&said.stdout).unwrap_or_default())
    }
}

fn no_tool(error: &ToolError) -> SmartAnswer {
    let action = matches!(error, ToolError::Missing { .. }).then(|| "apt install smartmontools".to_owned());
    SmartAnswer::Unknown { why: error.to_string(), action }
}

fn messages(answer: &Value) -> Vec<&str> {
    let list = answer["smartctl"]["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|m| m["string"].as_str()).collect()
}

/// smartctl ends without asking more (`-n standby`): "Device is in STANDBY mode, exit(2)". The mode is also SLEEP, STANDBY_Y,
/// STANDBY (OS), STANDBY BY TIMER or LOW POWER.
fn is_asleep(answer: &Value) -> bool {
    messages(answer).iter().any(|m| m.contains("Device is in") && m.contains("exit("))
}

/// Types of a bridge (`-d`) that are worth a try. A bridge that smartctl does not know may translate (SAT); of one whose number several
/// kinds have, the message names their types: "USB bridge [0x0bda:0x9210] type is ambiguous: 'sat' or 'sntrealtek'".
fn bridge_types(answer: &Value) -> Vec<String> {
    let messages = messages(answer);
    if messages.iter().any(|m| m.contains("Unknown USB bridge")) {
        return vec!["sat".to_owned()];
    }
    let Some(ambiguous) = messages.iter().find(|m| m.contains("USB bridge") && m.contains("type is ambiguous")) else {
        return Vec::new();
    };
    let quoted = ambiguous.split('\'').skip(1).step_by(2);
    let is_type =
        |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || ",/+".contains(c));
    quoted.filter(is_type).take(BRIDGE_TYPES_MAX).map(str::to_owned).collect()
}

fn understood(answer: &Value) -> SmartAnswer {
    let smart = Smart::parse(answer);
    if smart.passed.is_some() || smart.temperature_c.is_some() || smart.power_on_hours.is_some() {
        return SmartAnswer::Smart(Box::new(smart));
    }
    let said = messages(answer).join("; ");
    let denied = said.contains("Permission denied") || said.contains("Operation not permitted");
    let why = if said.is_empty() { "the disk gave smartctl no answer".to_owned() } else { format!("smartctl: {said}") };
    SmartAnswer::Unknown { why, action: denied.then(|| "run it as root".to_owned()) }
}

impl Smart {
    /// Fields as smartctl 7 writes them (`json_format_version` 1.0).
    pub fn parse(answer: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(|s| s.trim().to_owned()).filter(|s| !s.is_empty());
        let nvme = &answer["nvme_smart_health_information_log"];
        let attributes = answer["ata_smart_attributes"]["table"].as_array().map(Vec::as_slice).unwrap_or_default();
        let raw = |id: u64| attributes.iter().find(|a| a["id"] == id && is_named(a)).and_then(raw_count);
        let failing = attributes.iter().filter(|a| a["when_failed"] == "now");
        let zones = answer["zoned_device"].to_string().to_lowercase();
        let scsi_cycles = &answer["scsi_start_stop_cycle_counter"];
        Self {
            model: ["model_name", "scsi_model_name"].iter().find_map(|name| text(&answer[name])),
            serial: text(&answer["serial_number"]),
            passed: answer["smart_status"]["passed"].as_bool(),
            // Volumes of RAID controllers and some bridges answer 0.
            temperature_c: answer["temperature"]["current"].as_i64().filter(|degrees| *degrees != 0),
            power_on_hours: answer["power_on_time"]["hours"].as_u64(),
            wear_percent: wear(answer, attributes),
            spare_percent: nvme["available_spare"].as_u64(),
            spare_percent_min: nvme["available_spare_threshold"].as_u64(),
            reallocated_sectors: raw(5),
            pending_sectors: raw(197),
            uncorrectable_sectors: raw(198),
            crc_errors: raw(199),
            media_errors: nvme["media_errors"].as_u64(),
            critical_warning: nvme["critical_warning"].as_u64(),
            failing: failing.filter_map(|a| text(&a["name"])).collect(),
            rotation_rpm: answer["rotation_rate"].as_u64().filter(|rpm| *rpm > 0),
            link: text(&answer["interface_speed"]["current"]["string"]),
            link_max: text(&answer["interface_speed"]["max"]["string"]),
            write_cache: answer["write_cache"]["enabled"].as_bool(),
            power_loss_protection: attributes.iter().any(protects),
            trim: answer["trim"]["supported"].as_bool(),
            device_managed_zones: zones.contains("device managed") || zones.contains("device_managed"),
            reported_errors: raw(187).or_else(|| scsi_uncorrected(answer)),
            // Some makers count three kinds in one number: the lowest 16 bits have all of them.
            command_timeouts: raw(188).map(|packed| packed & 0xffff),
            grown_defects: answer["scsi_grown_defect_list"].as_u64(),
            starts: raw(4).or_else(|| scsi_cycles["accumulated_start_stop_cycles"].as_u64()),
            load_cycles: raw(193).or_else(|| scsi_cycles["accumulated_load_unload_cycles"].as_u64()),
            temperature_max_c: answer["temperature"]["op_limit_max"].as_i64(),
            temperature_critical_c: ["critical_limit_max", "drive_trip"]
                .iter()
                .find_map(|limit| answer["temperature"][limit].as_i64()),
            self_tests: super::self_test::parse(answer),
        }
    }
}

/// Numbers that a maker leaves out or uses for something else: "Not_In_Use", "Unknown_SSD_Attribute".
fn is_named(attribute: &Value) -> bool {
    let name = attribute["name"].as_str().unwrap_or_default();
    !name.starts_with("Unknown") && !name.starts_with("Not_In_Use")
}

/// Some disks keep further figures in the upper bytes: "2111 (12437 0)" is 2111.
fn raw_count(attribute: &Value) -> Option<u64> {
    let raw = &attribute["raw"];
    let text = raw["string"].as_str().unwrap_or_default();
    match text.split_once(" (") {
        Some((count, _)) => count.parse().ok().or_else(|| raw["value"].as_u64()),
        None => raw["value"].as_u64(),
    }
}

/// Errors of all kinds of calls that neither ECC nor a second try mended.
fn scsi_uncorrected(answer: &Value) -> Option<u64> {
    let log = &answer["scsi_error_counter_log"];
    let of = |kind: &&str| log[kind]["total_uncorrected_errors"].as_u64();
    let found: Vec<u64> = ["read", "write", "verify"].iter().filter_map(of).collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

/// Attribute 175 under these names tells of the capacitor of a disk that has one.
fn protects(attribute: &Value) -> bool {
    let name = attribute["name"].as_str().unwrap_or_default().to_lowercase();
    attribute["id"] == 175 && (name.contains("power_loss") || name.contains("plp") || name.contains("host_powerloss"))
}

/// Normalised values that count down from 100 as flash wears out; which of them there is depends on the maker.
const WEAR_ATTRIBUTES: [u64; 5] = [233, 231, 202, 169, 177];

fn wear(answer: &Value, attributes: &[Value]) -> Option<u64> {
    let nvme = answer["nvme_smart_health_information_log"]["percentage_used"].as_u64();
    let scsi = answer["scsi_percentage_used_endurance_indicator"].as_u64();
    let general = nvme.or(scsi).or_else(|| answer["endurance_used"]["current_percent"].as_u64());
    if answer["rotation_rate"].as_u64() != Some(0) {
        return general;
    }
    let left = left_by_raw(attributes).map(|left| 100 - left);
    if general.is_some() {
        return general.max(left);
    }
    let worn = |id: &u64| {
        let attribute = attributes.iter().find(|a| a["id"] == *id)?;
        let name = attribute["name"].as_str()?.to_lowercase();
        let about_wear = ["wear", "life", "percent_lifetime", "remain"].iter().any(|word| name.contains(word));
        about_wear.then(|| attribute["value"].as_u64()).flatten()
    };
    WEAR_ATTRIBUTES.iter().find_map(worn).map(|left| 100u64.saturating_sub(left)).max(left)
}

/// Controllers of Phison and Silicon Motion say in the raw figure what is left, and some keep the normalised value at 100.
fn left_by_raw(attributes: &[Value]) -> Option<u64> {
    let says = |a: &&Value| matches!(a["name"].as_str(), Some("SSD_Life_Left" | "Remaining_Lifetime_Perc"));
    let raw = attributes.iter().find(says)?["raw"]["value"].as_u64()?;
    (1..=100).contains(&raw).then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fixture::Fixture;

    /// What a disk of this name answers through the recorded smartctl.
    fn answer(json: &str, runtime: &str) -> Option<SmartAnswer> {
        let machine = Fixture::new("/sys/class/block/sda/dev = 8:0\n/sys/class/block/sda/size = 1000\n");
        machine.write("/tools/smartctl/sda", json);
        machine.write("/sys/class/block/sda/device/power/runtime_status", runtime);
        let device = BlockDevice::read(&machine.machine, "sda").unwrap();
        machine.machine.smart_unless_asleep(&device)
    }

    #[test]
    fn a_sleeping_disk_is_left_alone() {
        let asleep = r#"{"smartctl":{"messages":[{"string":"Device is in STANDBY mode, exit(2)"}],"exit_status":2}}"#;
        assert!(answer(asleep, "active").is_none());
        let awake = r#"{"smart_status":{"passed":true},"temperature":{"current":31}}"#;
        assert!(matches!(answer(awake, "active"), Some(SmartAnswer::Smart(_))));
        assert!(answer(awake, "suspended").is_none(), "the kernel has stopped it");
    }

    /// The modes that smartctl names for ATA and SCSI disks.
    #[test]
    fn each_kind_of_sleep_is_sleep() {
        for mode in ["SLEEP", "STANDBY", "STANDBY_Y", "STANDBY (OS)", "STANDBY BY TIMER", "LOW POWER"] {
            let said = format!(r#"{{"smartctl":{{"messages":[{{"string":"Device is in {mode} mode, exit(2)"}}]}}}}"#);
            assert!(answer(&said, "active").is_none(), "{mode}");
        }
        let awake = r#"{"smartctl":{"messages":[{"string":"CHECK POWER MODE not implemented, ignoring -n option"}]},"smart_status":{"passed":true}}"#;
        assert!(answer(awake, "active").is_some());
    }

    #[test]
    fn a_bridge_of_several_kinds_is_asked_by_each() {
        let check = |message: &str, expected: &[&str]| {
            let answer = serde_json::json!({"smartctl": {"messages": [{"string": message, "severity": "error"}]}});
            assert_eq!(bridge_types(&answer), expected, "{message}");
        };
        check("/dev/sdb: Unknown USB bridge [0x152d:0xa586 (0x114)]", &["sat"]);
        check("/dev/sdb: USB bridge [0x0bda:0x9210] type is ambiguous: 'sat' or 'sntrealtek'", &["sat", "sntrealtek"]);
        check("/dev/sdb: USB bridge [0x0bda:0x9210] type is ambiguous: '[unsupported]' or 'sat'", &["sat"]);
        check("/dev/sdb: Unsupported USB bridge [0x1234:0x5678]", &[]);
        check("", &[]);
    }

    /// Shapes that real disks and controllers answer with.
    #[test]
    fn odd_reports_are_understood() {
        let parse = |json: &str| Smart::parse(&serde_json::from_str(json).unwrap());
        // A volume of a RAID controller has no temperature and no status.
        let volume =
            r#"{"scsi_product":"Raid 1 Volume","rotation_rate":7200,"temperature":{"current":0,"drive_trip":0}}"#;
        assert_eq!(parse(volume).temperature_c, None);
        assert!(matches!(answer(volume, "active"), Some(SmartAnswer::Unknown { .. })));
        let sas = parse(
            r#"{"scsi_model_name":"SEAGATE ST4000NM0043","scsi_start_stop_cycle_counter":{"accumulated_load_unload_cycles":224}}"#,
        );
        assert_eq!((sas.model.as_deref(), sas.load_cycles), (Some("SEAGATE ST4000NM0043"), Some(224)));
        let attribute = |id: u64, name: &str, value: u64, raw: u64, text: &str| {
            parse(&format!(
                r#"{{"rotation_rate":0,"ata_smart_attributes":{{"table":[{{"id":{id},"name":"{name}","value":{value},"raw":{{"value":{raw},"string":"{text}"}}}}]}}}}"#
            ))
        };
        assert_eq!(attribute(197, "Not_In_Use", 100, 7, "7").pending_sectors, None);
        assert_eq!(attribute(5, "Reallocated_Sector_Ct", 100, 196_613, "5 (3 0)").reallocated_sectors, Some(5));
        assert_eq!(attribute(231, "SSD_Life_Left", 100, 74, "74").wear_percent, Some(26));
        assert_eq!(attribute(231, "SSD_Life_Left", 100, 0, "0").wear_percent, Some(0));
        assert_eq!(attribute(202, "Percent_Lifetime_Remain", 99, 1, "1").wear_percent, Some(1));
    }

    #[test]
    fn the_kernel_knows_a_temperature_without_smartctl() {
        let machine = Fixture::new("/sys/class/block/sda/dev = 8:0\n/sys/class/block/sda/size = 1000\n");
        let device = BlockDevice::read(&machine.machine, "sda").unwrap();
        assert!(machine.machine.kernel_temperature(&device).is_none());
        machine.write("/sys/class/block/sda/device/hwmon/hwmon3/temp1_input", "34500");
        machine.write("/sys/class/block/sda/device/hwmon/hwmon3/temp1_max", "60000");
        let known = machine.machine.kernel_temperature(&device).unwrap();
        assert_eq!(
            (known.temperature_c, known.temperature_max_c, known.temperature_critical_c),
            (Some(34), Some(60), None)
        );
        machine.write("/sys/class/block/sda/device/hwmon/hwmon3/temp1_input", "rubbish");
        assert!(machine.machine.kernel_temperature(&device).is_none());
    }
}
