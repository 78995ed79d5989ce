//! Batteries of the machine itself, as Linux shows them below /sys/class/power_supply (Documentation/ABI/testing/sysfs-class-power).

use std::path::Path;

use super::reading::Reading;

/// Supplies that are looked at.
const SUPPLIES_MAX: usize = 64;
const LOW_PERCENT: u32 = 5;

/// What the batteries of a folder say together. It runs on them where one discharges and no other supply is plugged in.
pub fn read_batteries(folder: &Path) -> Result<Reading, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let (mut batteries, mut discharges, mut is_plugged) = (0, false, false);
    let (mut charge, mut is_low, mut model, mut runtime_s) = (None::<u32>, false, None, None);
    for entry in entries.flatten().take(SUPPLIES_MAX) {
        let path = entry.path();
        let text = |name: &str| std::fs::read_to_string(path.join(name)).ok().map(|text| text.trim().to_owned());
        // Batteries of mice and keyboards say so.
        if text("scope").as_deref() == Some("Device") {
            continue;
        }
        if text("type").as_deref() != Some("Battery") {
            is_plugged |= text("online").as_deref() == Some("1");
            continue;
        }
        batteries += 1;
        discharges |= text("status").as_deref() == Some("Discharging");
        let percent = text("capacity").and_then(|text| text.parse::<u32>().ok());
        charge = percent.map(|percent| charge.map_or(percent, |other| other.max(percent))).or(charge);
        is_low |= text("capacity_level").as_deref() == Some("Critical");
        runtime_s = runtime_s.or_else(|| text("time_to_empty_now").and_then(|text| text.parse().ok()));
        model = model.or_else(|| text("model_name"));
    }
    if batteries == 0 {
        return Err(format!("there is no battery in {}", folder.display()));
    }
    Ok(Reading {
        on_battery: discharges && !is_plugged,
        is_low: is_low || charge.is_some_and(|charge| charge <= LOW_PERCENT),
        charge_percent: charge,
        runtime_s,
        model,
        ..Reading::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_board_with_a_battery() {
        let folder = tempfile::tempdir().unwrap();
        let set = |supply: &str, name: &str, text: &str| {
            std::fs::create_dir_all(folder.path().join(supply)).unwrap();
            std::fs::write(folder.path().join(supply).join(name), format!("{text}\n")).unwrap();
        };
        set("ac", "type", "Mains");
        set("ac", "online", "1");
        assert!(read_batteries(folder.path()).is_err());
        set("mouse", "type", "Battery");
        set("mouse", "scope", "Device");
        set("mouse", "status", "Discharging");
        assert!(read_batteries(folder.path()).is_err());
        set("bat", "type", "Battery");
        set("bat", "status", "Discharging");
        set("bat", "capacity", "71");
        let now = || read_batteries(folder.path()).unwrap();
        assert!(!now().on_battery, "a test of the battery, on mains");
        set("ac", "online", "0");
        assert_eq!((now().on_battery, now().is_low, now().charge_percent), (true, false, Some(71)));
        set("bat", "capacity", "5");
        assert!(now().is_low);
        set("bat", "capacity", "garbage");
        assert_eq!((now().is_low, now().charge_percent), (false, None));
    }
}
