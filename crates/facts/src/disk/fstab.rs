//! One line of `/etc/fstab`, added with care: the file is kept beside itself, replaced as a whole, and nobody else's
//! line is touched. Ours are those under a comment of ours.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const MARK: &str = "# larder disk prepare:";
/// As the file was before the last change.
const BACKUP_SUFFIX: &str = ".before-larder";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) uuid: String,
    pub(super) point: PathBuf,
    /// For people: model and serial number.
    pub(super) comment: String,
}

impl Entry {
    /// nofail: a missing disk must not keep the machine from starting; the pool names it then. noatime: reads write
    /// nothing.
    pub(super) const OPTIONS: &'static str = "nofail,noatime";

    pub(super) fn line(&self) -> String {
        format!("UUID={} {} xfs {} 0 0", self.uuid, escaped(&self.point.to_string_lossy()), Self::OPTIONS)
    }
}

/// The text with the entry in it; `None` when it is there already. An error names the line that is in the way.
pub(super) fn with(text: &str, entry: &Entry) -> Result<Option<String>, String> {
    let point = escaped(&entry.point.to_string_lossy());
    let mut kept: Vec<&str> = Vec::new();
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let (source, at) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        if line.trim() == entry.line() {
            return Ok(None);
        }
        if source.starts_with('#') || at != point {
            kept.push(line);
            continue;
        }
        // A line for the same folder: ours of an earlier disk goes, anybody else's stays and is in the way.
        match kept.last() {
            Some(before) if before.starts_with(MARK) => drop(kept.pop()),
            _ => return Err(line.to_owned()),
        }
    }
    let mut new: String = kept.iter().flat_map(|line| [*line, "\n"]).collect();
    new.push_str(&format!("{MARK} {}\n{}\n", one_line(&entry.comment), entry.line()));
    Ok(Some(new))
}

/// Replaces the file atomically after it was copied. `None`: nothing had to be changed.
pub(super) fn add(file: &Path, entry: &Entry) -> io::Result<Option<PathBuf>> {
    let (text, mode) = match fs::read_to_string(file) {
        Ok(text) => (text, fs::metadata(file)?.permissions().mode() & 0o777),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (String::new(), 0o644),
        Err(e) => return Err(e),
    };
    let in_the_way = |line| io::Error::new(io::ErrorKind::AlreadyExists, format!("the line '{line}' is in the way"));
    let Some(new) = with(&text, entry).map_err(in_the_way)? else { return Ok(None) };
    let backup = beside(file, BACKUP_SUFFIX);
    write(&backup, &text, mode)?;
    let temporary = beside(file, ".larder-new");
    write(&temporary, &new, mode)?;
    fs::rename(&temporary, file)?;
    if let Some(folder) = file.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(Some(backup))
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// fstab(5): blanks and tabs in a field are written in octal.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(uuid: &str, point: &str) -> Entry {
        Entry { uuid: uuid.to_owned(), point: PathBuf::from(point), comment: "MODEL SERIAL".to_owned() }
    }

    #[test]
    fn lines_are_added_once_and_replaced_only_when_ours() {
        let others = "# /etc/fstab\nUUID=1 / ext4 defaults 0 1\n/dev/sdz /mnt/theirs xfs defaults 0 0\n";
        let once = with(others, &entry("aa", "/mnt/my disk")).unwrap().unwrap();
        let line = "UUID=aa /mnt/my\\040disk xfs nofail,noatime 0 0\n";
        assert_eq!(once, format!("{others}# larder disk prepare: MODEL SERIAL\n{line}"));
        assert_eq!(with(&once, &entry("aa", "/mnt/my disk")), Ok(None));
        let again = with(&once, &entry("bb", "/mnt/my disk")).unwrap().unwrap();
        assert_eq!(again, once.replace("UUID=aa", "UUID=bb"));
        let blocked = with(others, &entry("aa", "/mnt/theirs")).unwrap_err();
        assert!(blocked.contains("/dev/sdz"), "{blocked}");
    }

    #[test]
    fn the_file_is_kept_before_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fstab");
        fs::write(&file, "UUID=1 / ext4 defaults 0 1").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let backup = add(&file, &entry("aa", "/mnt/a")).unwrap().unwrap();
        assert_eq!(fs::read_to_string(backup).unwrap(), "UUID=1 / ext4 defaults 0 1");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("UUID=1 / ext4 defaults 0 1\n#") && text.ends_with("0 0\n"), "{text}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(add(&file, &entry("aa", "/mnt/a")).unwrap(), None);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}
