//! Attributes as clients read them, and the lines of a listing.

use std::collections::HashMap;

use bytes::Bytes;
use larder_base::Timestamp;
use larder_fs::{Attr, FileKind};
use larder_people::User;

use super::packet::{Attrs, Names};

/// About the longest answer to READDIR.
const PAGE_BYTES: usize = 32 << 10;

/// Names of users and groups by their numbers.
#[derive(Default)]
pub struct People {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl People {
    pub fn new<'u>(users: impl Iterator<Item = &'u User>) -> Self {
        let mut people = Self::default();
        for user in users {
            people.users.entry(user.uid).or_insert_with(|| user.name.clone());
            people.groups.entry(user.gid).or_insert_with(|| user.name.clone());
        }
        people
    }

    pub fn user(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid).map(String::as_str)
    }

    /// A user's own group bears the user's name.
    pub fn group(&self, gid: u32) -> Option<&str> {
        self.groups.get(&gid).map(String::as_str)
    }
}

/// The bits of st_mode.
fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::File => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

/// The protocol knows no times before 1970 and none after 2106.
fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time.secs.max(0)).unwrap_or(u32::MAX)
}

pub fn attrs(attr: &Attr) -> Attrs {
    Attrs {
        size: Some(attr.size),
        ids: Some((attr.uid, attr.gid)),
        mode: Some(kind_bits(attr.kind) | attr.mode & 0o7777),
        times: Some((seconds(attr.atime), seconds(attr.mtime))),
    }
}

/// Of the directory of shares.
pub fn top_attrs(user: &User, since: Timestamp) -> Attrs {
    Attrs {
        size: Some(0),
        ids: Some((user.uid, user.gid)),
        mode: Some(kind_bits(FileKind::Directory) | 0o555),
        times: Some((seconds(since), seconds(since))),
    }
}

/// An answer to READDIR.
pub struct Page<'p> {
    names: Names,
    people: &'p People,
    line: Vec<u8>,
}

impl<'p> Page<'p> {
    pub fn new(id: u32, people: &'p People) -> Self {
        Self { names: Names::new(id, PAGE_BYTES), people, line: Vec::new() }
    }

    pub fn push(&mut self, name: &[u8], links: u32, attrs: &Attrs) {
        self.line.clear();
        long_name(&mut self.line, name, links, attrs, self.people);
        self.names.push(name, &self.line, attrs);
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// `None`: nothing is in it.
    pub fn finish(self) -> Option<Bytes> {
        (!self.names.is_empty()).then(|| self.names.finish())
    }
}

/// The line of `ls -l`, with times in UTC.
fn long_name(out: &mut Vec<u8>, name: &[u8], links: u32, attrs: &Attrs, people: &People) {
    use std::io::Write;
    let mode = attrs.mode.unwrap_or(0);
    let (uid, gid) = attrs.ids.unwrap_or_default();
    let owner = people.user(uid).map_or_else(|| uid.to_string(), str::to_owned);
    let group = people.group(gid).map_or_else(|| gid.to_string(), str::to_owned);
    let (letters, size) = (letters(mode), attrs.size.unwrap_or(0));
    let when = date(attrs.times.map_or(0, |(_, mtime)| mtime));
    // Writing to memory does not fail.
    let _ = write!(out, "{letters} {links:>4} {owner:<8} {group:<8} {size:>8} {when} ");
    out.extend_from_slice(name);
}

fn letters(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o010_000 => 'p',
        0o020_000 => 'c',
        0o040_000 => 'd',
        0o060_000 => 'b',
        0o120_000 => 'l',
        0o140_000 => 's',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, set, alone) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => set,
            (false, true) => alone,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `Jan  2  2024`, in UTC. The year rather than the hour: the line must not depend on when it is written.
fn date(secs: u32) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // Days since the first of March of the year 0, in eras of 400 years.
    let days = i64::from(secs / 86_400) + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(from_march >= 10);
    let name = usize::try_from(month).ok().and_then(|month| MONTHS.get(month)).unwrap_or(&"???");
    format!("{name} {day:>2}  {year}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_ls() {
        let user = User::new("ann", 5, 6);
        let people = People::new([&user].into_iter());
        let attrs = Attrs { size: Some(12), ids: Some((5, 7)), mode: Some(0o104_755), times: Some((0, 1_709_164_800)) };
        let mut line = Vec::new();
        long_name(&mut line, b"a b", 1, &attrs, &people);
        assert_eq!(line, b"-rwsr-xr-x    1 ann      7              12 Feb 29  2024 a b");
        assert_eq!(letters(0o041_776), "drwxrwxrwT");
    }

    #[test]
    fn dates_are_right() {
        for (secs, expected) in [
            (0, "Jan  1  1970"),
            (951_782_400, "Feb 29  2000"),
            (1_704_067_199, "Dec 31  2023"),
            (u32::MAX, "Feb  7  2106"),
        ] {
            assert_eq!(date(secs), expected);
        }
    }
}
