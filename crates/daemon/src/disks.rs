//! Disks for a pool that is yet to be made: what there is, and what each layout would make of it.
//!
//! - `disks.none_asked`: [`found`] reads what the kernel and udev know. Of a filesystem that is mounted it reads the
//!   names in one folder and a label; a disk that is not mounted stays asleep.
//! - `disks.system_never_offered`: a disk that the machine starts from, or that anything uses, is refused.
//! - `disks.data_never_proposed`: a disk is proposed only if udev looked and found nothing on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use larder_api::{
    DiskFound, DiskNote, DisksFound, Failure, FolderFound, LayoutPreview, LayoutSpeed, LayoutsPreview, LayoutsRequest,
    PoolOnDisks, PreviewedDisk, SpeedRange,
};
use larder_base::task;
use larder_facts::Machine;
use larder_facts::disk::{
    CheckOptions, Contents, DiskReport, FilesystemFound, Finding, Level, Listed, check, filesystems, list,
};
use larder_facts::machine::{BlockDevice, Bus, whole_devices};
use larder_measure::doctor::{DiskKind, kind_name, kind_of, kind_rates};
use larder_pool::{DISKS_MAX, FoundDisk, FoundPool, Layout, Pool, Room};

use super::translate;

/// The folder of a pool on a filesystem that is there for it.
pub const FOLDER: &str = "larder";
/// A filesystem needs as much for itself: XFS without reflink takes a thousandth, and a log.
const FILESYSTEM_SHARE: u64 = 1000;
const FILESYSTEM_LOG_BYTES: u64 = 64 << 20;
/// Below that no disk is worth its socket.
const DEVICE_BYTES_MIN: u64 = 1 << 30;
const LAYOUTS: [Layout; 6] =
    [Layout::Stripe, Layout::Mirror2, Layout::Mirror3, Layout::Raidz1, Layout::Raidz2, Layout::Raidz3];

/// The answer of `GetDisks`; pools are looked for in further folders, too.
pub fn found(machine: &Machine, further: &[PathBuf]) -> DisksFound {
    let filesystems = filesystems(machine);
    let listed = list(machine);
    let mounted = |name: &str| -> Vec<PathBuf> {
        let on = filesystems.iter().filter(|one| one.devices.iter().any(|device| device == name));
        on.map(|one| one.mount.point.clone()).collect()
    };
    let disks =
        listed.iter().filter(|one| is_for_people(one)).map(|one| disk(machine, one, &mounted(&one.device.name)));
    let folders: Vec<FolderFound> = filesystems.iter().map(|one| folder_on(machine, one)).collect();
    let places: Vec<PathBuf> = filesystems
        .iter()
        .flat_map(|one| [one.mount.point.join(FOLDER), one.mount.point.clone()])
        .filter(|_| machine.is_live())
        .chain(further.iter().cloned())
        .collect();
    let pools = Pool::scan(&places).into_iter().map(pool).collect();
    DisksFound { disks: disks.collect(), folders, pools }
}

fn pool(found: FoundPool) -> PoolOnDisks {
    let (there, missing): (Vec<FoundDisk>, Vec<FoundDisk>) = found.disks.into_iter().partition(|disk| disk.present);
    PoolOnDisks {
        name: found.name,
        id: found.id.to_string(),
        layout: found.layout.to_string(),
        folders: there.into_iter().map(|disk| disk.path).collect(),
        missing: missing.len(),
        is_importable: found.importable,
    }
}

/// `GetDisks` on this machine.
pub async fn answer_found() -> Result<DisksFound, Failure> {
    aside(|| Ok(found(&Machine::this(), &[]))).await
}

/// `PreviewLayouts` on this machine.
pub async fn answer_layouts(request: LayoutsRequest) -> Result<LayoutsPreview, Failure> {
    aside(move || layouts(&Machine::this(), &request)).await
}

/// On a thread that may wait for files.
pub async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    task::blocking(work).await.unwrap_or_else(|e| Err(Failure::internal(format!("the look at the disks failed: {e}"))))
}

/// Loop devices without a file and the like are no disks to anybody.
fn is_for_people(one: &Listed) -> bool {
    let is_loop = one.device.name.starts_with("loop");
    one.device.size_bytes > 0 && !(is_loop && (!one.used.is_empty() || one.device.read_only)) && !is_made_of_others(one)
}

/// md, dm and zvols: whoever built them makes filesystems on them.
fn is_made_of_others(one: &Listed) -> bool {
    one.device.bus == Bus::Virtual && !one.device.name.starts_with("loop")
}

fn disk(machine: &Machine, one: &Listed, mounted: &[PathBuf]) -> DiskFound {
    let device = &one.device;
    let report = report(machine, &device.path);
    let kind = kind_of(device, is_shingled(&report));
    let refused = refusal(machine, one, mounted);
    let mut notes = notes(&report, &["in-use", "system-disk", "member"]);
    if let Some(state) = state(machine, device).filter(|state| !["running", "live"].contains(&state.as_str())) {
        let text = format!("the kernel says that it is {state}");
        notes.insert(0, DiskNote { level: Level::Refuse.word().to_owned(), text, action: None });
    }
    let is_fit = refused.is_none() && notes.iter().all(|note| note.level == Level::Note.word());
    DiskFound {
        device: device.path.clone(),
        model: device.model.clone(),
        serial: device.serial.as_ref().map(|serial| serial.text.clone()),
        size_bytes: device.size_bytes,
        kind: kind.map(|kind| kind_name(kind).to_owned()),
        bus: device.bus.word().to_owned(),
        rotational: device.rotational,
        removable: device.removable,
        is_system: one.system,
        used: one.used.clone(),
        holds: one.contents.phrases().to_vec(),
        is_contents_known: one.contents != Contents::Unknown,
        is_proposed: is_fit && one.contents.is_empty() && !device.removable && device.bus != Bus::Usb,
        notes,
        refused,
        token: device.serial.as_ref().map_or_else(|| device.path.display().to_string(), |serial| serial.text.clone()),
    }
}

/// Why a whole disk is not offered (`disks.system_never_offered`).
fn refusal(machine: &Machine, one: &Listed, mounted: &[PathBuf]) -> Option<String> {
    if one.system {
        return Some("this machine starts from it".to_owned());
    }
    if let Some(point) = mounted.first() {
        return Some(format!("its filesystem is mounted at {}, and offered as a folder", point.display()));
    }
    if let Some(used) = one.used.first() {
        return Some(used.clone());
    }
    if one.device.read_only {
        return Some("it is write-protected".to_owned());
    }
    if one.device.size_bytes < DEVICE_BYTES_MIN {
        return Some("it is smaller than 1 GiB".to_owned());
    }
    if machine.is_live() && !rustix::process::geteuid().is_root() {
        return Some(
            "only root makes filesystems: run larder with sudo, or prepare it with larder disk prepare".to_owned(),
        );
    }
    None
}

/// What is known of a device or folder without asking a disk.
fn report(machine: &Machine, path: &Path) -> Option<DiskReport> {
    let options = CheckOptions { flush_test: false, smart: false, ..CheckOptions::default() };
    check(machine, &[path.to_owned()], &options).disks.into_iter().next()
}

fn is_shingled(report: &Option<DiskReport>) -> bool {
    report.iter().flat_map(|report| &report.findings).any(|finding| finding.code == "smr")
}

fn note(finding: &Finding) -> DiskNote {
    let text = match finding.why.is_empty() {
        true => finding.what.clone(),
        false => format!("{}: {}", finding.what, finding.why),
    };
    DiskNote { level: finding.level.word().to_owned(), text, action: finding.action.clone() }
}

fn notes(report: &Option<DiskReport>, but: &[&str]) -> Vec<DiskNote> {
    let findings = report.iter().flat_map(|report| &report.findings);
    findings.filter(|finding| finding.level > Level::Ok && !but.contains(&finding.code)).map(note).collect()
}

/// `running` of a SCSI or ATA disk, `live` of NVMe.
fn state(machine: &Machine, device: &BlockDevice) -> Option<String> {
    machine.read(Path::new("/sys/class/block").join(&device.name).join("device/state"))
}

fn folder_on(machine: &Machine, one: &FilesystemFound) -> FolderFound {
    let point = &one.mount.point;
    let path = point.join(FOLDER);
    let titles = one.devices.iter().filter_map(|name| BlockDevice::read(machine, name)).map(|device| device.title());
    let mut found = FolderFound { disks: titles.collect(), ..folder_at(machine, &path) };
    // A recorded machine has the mount, and nothing in it.
    found.mount.get_or_insert_with(|| point.clone());
    found.filesystem.get_or_insert_with(|| one.mount.filesystem.clone());
    found
}

/// A folder that somebody names as a disk. It may be missing, and its parent has to be there.
pub fn folder_at(machine: &Machine, path: &Path) -> FolderFound {
    let there = if machine.is_live() && !path.exists() { path.parent().unwrap_or(path) } else { path };
    let report = report(machine, there);
    let notes = notes(&report, &["missing"]);
    let refused = notes.iter().find(|note| note.level == Level::Refuse.word()).map(|note| note.text.clone());
    let pool =
        if machine.is_live() { Pool::scan(&[path.to_owned()]).into_iter().next().map(pool_of_label) } else { None };
    let of_pool = pool.as_ref().map(|pool| format!("it is a disk of the pool '{}'", pool.name));
    let refused = of_pool.or(refused).or_else(|| refused_folder(machine, path));
    let report = report.as_ref();
    let space = report.and_then(|report| report.space);
    FolderFound {
        path: path.to_owned(),
        mount: report.and_then(|report| report.mount.as_ref()).map(|mount| mount.point.clone()),
        filesystem: report.and_then(|report| report.mount.as_ref()).map(|mount| mount.filesystem.clone()),
        size_bytes: space.map_or(0, |space| space.total_bytes),
        available_bytes: space.map_or(0, |space| space.available_bytes),
        disks: report.iter().flat_map(|report| &report.devices).map(|entry| entry.device.title()).collect(),
        notes,
        refused,
        pool,
    }
}

/// By the label of one disk the others are where they were last seen.
fn pool_of_label(found: FoundPool) -> PoolOnDisks {
    let folders = found.disks.iter().map(|disk| disk.path.clone()).collect();
    PoolOnDisks { folders, missing: 0, ..pool(found) }
}

fn refused_folder(machine: &Machine, path: &Path) -> Option<String> {
    if !machine.is_live() {
        return None;
    }
    if !path.is_absolute() {
        return Some("the path does not begin with /".to_owned());
    }
    match path.parent() {
        Some(parent) if !parent.is_dir() => return Some(format!("there is no folder {}", parent.display())),
        _ => {}
    }
    Pool::room(path).err().map(|error| error.to_string())
}

/// A disk of a preview.
struct Part {
    room: Room,
    kind: Option<DiskKind>,
    shown: PreviewedDisk,
}

/// The answer of `PreviewLayouts`.
pub fn layouts(machine: &Machine, request: &LayoutsRequest) -> Result<LayoutsPreview, Failure> {
    if request.folders.is_empty() && request.devices.is_empty() {
        return Err(Failure::invalid("no disk was chosen").action("choose one at least"));
    }
    if request.folders.len() + request.devices.len() > DISKS_MAX {
        return Err(Failure::invalid(format!("a pool has at most {DISKS_MAX} disks")).action("choose fewer"));
    }
    let folders = request.folders.iter().map(|path| part_of_folder(machine, path));
    let devices = request.devices.iter().enumerate().map(|(at, path)| part_of_device(machine, path, at as u64));
    let parts: Vec<Part> = folders.chain(devices).collect::<Result<_, _>>()?;
    let rooms: Vec<Room> = parts.iter().map(|part| part.room.clone()).collect();
    let kinds: Option<Vec<DiskKind>> = parts.iter().map(|part| part.kind).collect();
    let layouts = LAYOUTS.iter().map(|layout| preview(*layout, &rooms, kinds.as_deref())).collect();
    Ok(LayoutsPreview {
        layouts,
        notes: beside(machine, request),
        disks: parts.into_iter().map(|part| part.shown).collect(),
    })
}

fn part_of_folder(machine: &Machine, path: &Path) -> Result<Part, Failure> {
    let room = Pool::room(path).map_err(|e| translate::pool_error(&e))?;
    let report = report(machine, path.ancestors().find(|path| path.is_dir()).unwrap_or(path));
    let shingled = is_shingled(&report);
    let devices: Vec<&BlockDevice> =
        report.iter().flat_map(|report| &report.devices).map(|entry| &entry.device).collect();
    let kind = match devices[..] {
        [device] => kind_of(device, shingled),
        _ => None,
    };
    Ok(part(room, path, kind))
}

fn part_of_device(machine: &Machine, path: &Path, at: u64) -> Result<Part, Failure> {
    let name = machine.device_name(path).filter(|name| whole_devices(machine).contains(name));
    let device = name.and_then(|name| BlockDevice::read(machine, &name)).ok_or_else(|| {
        let message = format!("{} is not a whole disk of this machine", path.display());
        Failure::not_found(message).action("see which there are: larder disk list")
    })?;
    let kind = kind_of(&device, is_shingled(&report(machine, path)));
    let own = device.size_bytes / FILESYSTEM_SHARE + FILESYSTEM_LOG_BYTES;
    let total_bytes = device.size_bytes.saturating_sub(own);
    let room = Room { path: path.to_owned(), filesystem: u64::MAX - at, total_bytes, free_bytes: total_bytes };
    Ok(part(room, path, kind))
}

fn part(room: Room, path: &Path, kind: Option<DiskKind>) -> Part {
    let size_bytes = room.total_bytes;
    let shown = PreviewedDisk { path: path.to_owned(), size_bytes, kind: kind.map(|kind| kind_name(kind).to_owned()) };
    Part { room, kind, shown }
}

/// As `up` chooses.
pub fn layout_default(disks: usize) -> Layout {
    match disks {
        1 => Layout::Stripe,
        2 => Layout::Mirror2,
        _ => Layout::Raidz1,
    }
}

fn preview(layout: Layout, rooms: &[Room], kinds: Option<&[DiskKind]>) -> LayoutPreview {
    let name = layout.to_string();
    let is_proposed = layout == layout_default(rooms.len());
    match Pool::foresee(layout, rooms) {
        Ok(plan) => LayoutPreview {
            refused: None,
            is_proposed,
            raw_bytes: plan.raw_bytes,
            usable_bytes: plan.usable_bytes,
            failures_survived: plan.failures_survived,
            data: plan.data,
            parity: plan.parity,
            warnings: plan.warnings,
            speed: kinds.and_then(|kinds| kind_rates(&name, kinds)).map(|rates| LayoutSpeed {
                read: range(rates.read),
                write: range(rates.write),
                random_read: range(rates.random_read),
                source: rates.source,
            }),
            layout: name,
        },
        Err(error) => LayoutPreview {
            layout: name,
            refused: Some(error.to_string()),
            is_proposed: false,
            raw_bytes: 0,
            usable_bytes: 0,
            failures_survived: 0,
            data: 0,
            parity: 0,
            warnings: Vec::new(),
            speed: None,
        },
    }
}

fn range((low, high): (f64, f64)) -> SpeedRange {
    SpeedRange { low, high }
}

/// What the disks mean to each other: two on one disk, on one hub. Each remark once.
fn beside(machine: &Machine, request: &LayoutsRequest) -> Vec<DiskNote> {
    let there = |path: &PathBuf| path.ancestors().find(|path| path.is_dir()).unwrap_or(path).to_owned();
    let folders = request.folders.iter().map(|path| if machine.is_live() { there(path) } else { path.clone() });
    let paths: Vec<PathBuf> = folders.chain(request.devices.iter().cloned()).collect();
    let options = CheckOptions { flush_test: false, smart: false, ..CheckOptions::default() };
    let report = check(machine, &paths, &options);
    let mut notes = BTreeMap::new();
    for finding in report.disks.iter().flat_map(|disk| &disk.findings) {
        // Folders that are yet to be made share the folder above them; disks in use were not offered.
        let is_said = ["same-place", "missing", "member", "in-use"].contains(&finding.code);
        if finding.level >= Level::Warning && !is_said {
            notes.entry(finding.code).or_insert_with(|| note(finding));
        }
    }
    notes.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const SMR: &str = include_str!("../../facts/fixtures/smr-disks.txt");
    const VIRTUAL: &str = include_str!("../../facts/fixtures/virtual-machine.txt");
    /// 4 TB, as hard disks have it.
    const SECTORS: &str = "7814037168";

    /// Empty disks beside the system's.
    fn box_with(empty: usize, size: &str) -> Fixture {
        let mut text = String::from(
            "/proc/self/mountinfo = 25 1 8:1 / / rw - ext4 /dev/sda1 rw\n/proc/swaps = Filename\n\
             @bus = /sys/devices/pci0000:00/0000:00:1f.2\n",
        );
        for at in 0..=empty {
            let name = format!("sd{}", char::from(b'a' + u8::try_from(at).unwrap()));
            let disk = format!("@bus/ata{at}/host{at}/target0:0:0/0:0:0:0/block/{name}");
            text.push_str(&format!(
                "@{name} = {disk}\n@{name}/dev = 8:{}\n@{name}/size = {size}\n@{name}/queue/rotational = 1\n\
                 @{name}/device/model = MODEL {name}\n@{name}/device/wwid = naa.5001{at}\n/sys/class/block/{name} -> @{name}\n\
                 /sys/dev/block/8:{} -> @{name}\n/run/udev/data/b8:{} = E:ID_SERIAL_SHORT=SERIAL-{name}\n",
                at * 16,
                at * 16,
                at * 16
            ));
        }
        text.push_str("@sda/sda1/partition = 1\n@sda/sda1/dev = 8:1\n/sys/class/block/sda1 -> @sda/sda1\n/sys/dev/block/8:1 -> @sda/sda1\n");
        Fixture::new(&text)
    }

    fn devices(names: &[&str]) -> LayoutsRequest {
        let devices = names.iter().map(|name| PathBuf::from(format!("/dev/{name}"))).collect();
        LayoutsRequest { folders: Vec::new(), devices }
    }

    #[test]
    fn empty_disks_are_proposed_and_the_systems_is_refused() {
        let fixture = box_with(3, SECTORS);
        let of = |found: &DisksFound, name: &str| {
            found.disks.iter().find(|disk| disk.device.ends_with(name)).cloned().unwrap()
        };
        let all = found(&fixture.machine, &[]);
        assert_eq!(all.disks.len(), 4);
        let system = of(&all, "sda");
        assert!(system.is_system && !system.is_proposed);
        assert_eq!(system.refused.as_deref(), Some("this machine starts from it"));
        let empty = of(&all, "sdb");
        assert!(empty.is_proposed && empty.refused.is_none() && empty.holds.is_empty(), "{empty:?}");
        assert_eq!((empty.kind.as_deref(), empty.token.as_str()), (Some("hard disk"), "SERIAL-sdb"));
        // `disks.data_never_proposed`
        fixture.write("/run/udev/data/b8:16", "E:ID_FS_TYPE=ntfs\nE:ID_FS_LABEL=Holidays\n");
        let full = of(&found(&fixture.machine, &[]), "sdb");
        assert!(!full.is_proposed && full.refused.is_none());
        assert_eq!(full.holds, ["ntfs 'Holidays'"]);
        std::fs::remove_file(fixture.machine.place("/run/udev/data/b8:16").unwrap()).unwrap();
        let unknown = of(&found(&fixture.machine, &[]), "sdb");
        assert!(!unknown.is_proposed && !unknown.is_contents_known, "nobody looked: it may hold anything");
    }

    #[test]
    fn disks_in_use_are_refused_and_their_filesystems_offered() {
        let fixture = Fixture::new(SMR);
        let all = found(&fixture.machine, &[]);
        assert!(all.disks.iter().all(|disk| !disk.is_proposed), "each is mounted or the system's");
        let b = all.disks.iter().find(|disk| disk.device.ends_with("sdb")).unwrap();
        assert!(b.refused.as_ref().unwrap().contains("/mnt/b"), "{:?}", b.refused);
        assert!(b.notes.iter().any(|note| note.text.contains("shingle") || note.text.contains("SMR")), "{:?}", b.notes);
        let paths: Vec<&Path> = all.folders.iter().map(|folder| folder.path.as_path()).collect();
        assert!(paths.contains(&Path::new("/mnt/b/larder")), "{paths:?}");
        let machine = Fixture::new(VIRTUAL);
        assert!(found(&machine.machine, &[]).folders.is_empty(), "the system's own filesystem is not offered");
    }

    #[test]
    fn layouts_say_what_they_hold_survive_and_give() {
        let fixture = box_with(5, SECTORS);
        let of = |names: &[&str]| layouts(&fixture.machine, &devices(names)).unwrap();
        let named = |preview: &LayoutsPreview, name: &str| {
            preview.layouts.iter().find(|layout| layout.layout == name).cloned().unwrap()
        };
        let three = of(&["sdb", "sdc", "sdd"]);
        let check = |preview: &LayoutsPreview, name: &str, disks: f64, survived: u8| {
            let layout = named(preview, name);
            let share = layout.usable_bytes as f64 / preview.disks[0].size_bytes as f64;
            assert!(layout.refused.is_none(), "{layout:?}");
            assert!((disks * 0.9..=disks).contains(&share), "{name}: {share} disks of data, not {disks}");
            assert_eq!(layout.failures_survived, survived, "{name}");
        };
        check(&three, "stripe", 3.0, 0);
        check(&three, "mirror", 1.5, 1);
        check(&three, "mirror3", 1.0, 2);
        check(&three, "raidz1", 2.0, 1);
        assert!(named(&three, "raidz2").refused.unwrap().contains("4 disks"), "what is not possible says why");
        assert!(named(&three, "raidz3").refused.is_some());
        let proposed: Vec<&str> =
            three.layouts.iter().filter(|one| one.is_proposed).map(|one| one.layout.as_str()).collect();
        assert_eq!(proposed, ["raidz1"]);
        check(&of(&["sdb", "sdc", "sdd", "sde", "sdf"]), "raidz3", 2.0, 3);
        let speed = named(&three, "raidz1").speed.unwrap();
        assert!(speed.read.low >= 100e6 && speed.read.high <= 600e6 && speed.random_read.high < 1000.0, "{speed:?}");
        assert!(speed.source.contains("hard disk"), "{speed:?}");
    }

    #[test]
    fn kinds_that_are_hidden_give_no_speed_and_bad_choices_a_reason() {
        let fixture = box_with(2, SECTORS);
        fixture.write(
            "/sys/devices/pci0000:00/0000:00:1f.2/ata1/host1/target0:0:0/0:0:0:0/block/sdb/device/model",
            "QEMU HARDDISK",
        );
        let preview = layouts(&fixture.machine, &devices(&["sdb", "sdc"])).unwrap();
        assert!(preview.layouts.iter().all(|layout| layout.speed.is_none()));
        for (request, word) in [
            (LayoutsRequest::default(), "no disk"),
            (devices(&["sdz"]), "not a whole disk"),
            (devices(&["sda1"]), "not a whole disk"),
            (devices(&["sdb"; DISKS_MAX + 1]), "at most"),
        ] {
            let failure = layouts(&fixture.machine, &request).unwrap_err();
            assert!(failure.message.contains(word) && failure.action.is_some(), "{failure:?}");
        }
        let twice = layouts(&fixture.machine, &devices(&["sdb", "sdb"])).unwrap();
        assert!(twice.layouts.iter().all(|layout| layout.refused.is_some()), "one disk is no two");
    }

    #[test]
    fn folders_are_looked_at_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::this();
        let at = |name: &str| folder_at(&machine, &folder.path().join(name));
        std::fs::create_dir(folder.path().join("full")).unwrap();
        std::fs::write(folder.path().join("full/holiday.jpg"), "x").unwrap();
        let refused = |name: &str| at(name).refused.unwrap_or_default();
        assert!(refused("full").contains("empty") || !refused("full").is_empty());
        assert!(refused("no/where").contains("there is no folder"), "{}", refused("no/where"));
        assert!(folder_at(&machine, Path::new("relative")).refused.is_some());
        assert!(!at("new").notes.iter().any(|note| note.text.contains("there is no folder")));
    }
}
