//! The place of a new pool's folders: refused where somebody meant a disk that is not mounted.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use larder_api::Failure;
use larder_base::shell;

/// Disks are mounted below these, so a folder there that lies on the disk of `/` is one whose disk is away.
const MOUNT_ROOTS: [&str; 3] = ["/mnt", "/media", "/run/media"];

/// A whole disk is no folder: everybody types it first.
pub(super) fn no_devices(disks: &[PathBuf]) -> Result<(), Failure> {
    let is_device = |disk: &&PathBuf| std::fs::metadata(disk).is_ok_and(|found| found.file_type().is_block_device());
    let missing = |disk: &&PathBuf| disk.starts_with("/dev") && !disk.starts_with("/dev/shm") && !disk.exists();
    let Some(device) = disks.iter().find(|disk| is_device(disk) || missing(disk)) else { return Ok(()) };
    let show = device.display();
    if !device.exists() {
        return Err(
            Failure::not_found(format!("there is no disk {show}")).action("see those there are with: larder disk list")
        );
    }
    let word = shell::word(device);
    Err(Failure::invalid(format!("{show} is a disk, and a pool is made of folders on disks")).action(format!(
        "make a filesystem on it and mount it with: larder disk prepare {word}; then name the folder that it says, \
         instead of {show}"
    )))
}

/// Nobody's data goes to the system's disk because another was not mounted.
pub(super) fn fit(disks: &[PathBuf], force: bool) -> Result<(), Failure> {
    if force {
        return Ok(());
    }
    let fstab = std::fs::read_to_string("/etc/fstab").unwrap_or_default();
    let named = mount_points(&fstab);
    let is_mount = |point: &Path| device_of(point) != device_of(point.parent().unwrap_or(Path::new("/")));
    for disk in disks {
        let awaited =
            named.iter().find(|point| disk.starts_with(point) && *point != Path::new("/") && !is_mount(point));
        if let Some(point) = awaited {
            let (show, point) = (disk.display(), shell::word(point));
            return Err(refused(format!("{show}: /etc/fstab mounts a disk on {point}, and it is not mounted"))
                .action(format!("mount it with: mount {point}; if the folder is meant as it is, add --force")));
        }
        let below = MOUNT_ROOTS.iter().find(|root| disk.starts_with(root) && disk.as_path() != Path::new(root));
        if below.is_some() && device_of(disk) == device_of(Path::new("/")) {
            let show = disk.display();
            return Err(refused(format!("no disk is mounted on {show}: it would lie on the disk of /")).action(
                "mount the disk first; which there are: larder disk list; if the folder is meant as it is, add --force",
            ));
        }
    }
    Ok(())
}

fn refused(message: String) -> Failure {
    Failure::unavailable(message)
}

/// The filesystem that a path lies on or would lie on.
fn device_of(path: &Path) -> Option<u64> {
    path.ancestors().find_map(|there| std::fs::metadata(there).ok()).map(|found| found.dev())
}

/// The second field of fstab(5), with its escapes for blanks; swap and the like have none.
fn mount_points(fstab: &str) -> Vec<PathBuf> {
    let lines = fstab.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let points = lines.filter_map(|line| line.split_whitespace().nth(1)).filter(|point| point.starts_with('/'));
    points.map(|point| PathBuf::from(point.replace("\\040", " ").replace("\\011", "\t"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fstab_is_understood() {
        let text = "# comment /mnt/no\nUUID=1 / ext4 defaults 0 1\n\nUUID=2 none swap sw 0 0\nUUID=3\t/mnt/a\\040b xfs noatime 0 2\n";
        assert_eq!(mount_points(text), [PathBuf::from("/"), PathBuf::from("/mnt/a b")]);
    }

    #[test]
    fn a_folder_below_mnt_needs_a_disk() {
        let folder = [PathBuf::from("/mnt/surely-no-disk-of-larder/x")];
        let on_root = device_of(&folder[0]) == device_of(Path::new("/"));
        assert_eq!(fit(&folder, false).is_err(), on_root);
        assert!(fit(&folder, true).is_ok());
    }

    #[test]
    fn devices_are_no_folders() {
        let failure = no_devices(&[PathBuf::from("/dev/surely-not-there")]).err().map(|failure| failure.message);
        assert_eq!(failure.as_deref(), Some("there is no disk /dev/surely-not-there"));
        assert!(no_devices(&[PathBuf::from("/tmp")]).is_ok());
    }
}
