//! Messages of MOUNT (RFC 1813 5), NFSv3 (RFC 1813 3) and the portmapper (RFC 1833 3), as values.

use super::xdr::{Reader, Short, Writer};
use crate::client::error::ClientError;
use crate::client::share::Entry;

pub(super) const NFS: (u32, u32) = (100_003, 3);
pub(super) const MOUNT: (u32, u32) = (100_005, 3);
pub(super) const PORTMAP: (u32, u32) = (100_000, 2);

pub(super) const GETATTR: u32 = 1;
pub(super) const LOOKUP: u32 = 3;
pub(super) const READ: u32 = 6;
pub(super) const WRITE: u32 = 7;
pub(super) const CREATE: u32 = 8;
pub(super) const MKDIR: u32 = 9;
pub(super) const REMOVE: u32 = 12;
pub(super) const RMDIR: u32 = 13;
pub(super) const READDIRPLUS: u32 = 17;
pub(super) const FSSTAT: u32 = 18;
pub(super) const FSINFO: u32 = 19;
pub(super) const COMMIT: u32 = 21;

pub(super) const MNT: u32 = 1;
pub(super) const UMNT: u32 = 3;
pub(super) const EXPORT: u32 = 5;
pub(super) const GETPORT: u32 = 3;

pub(super) const UNSTABLE: u32 = 0;
pub(super) const FILE_SYNC: u32 = 2;

pub(super) const OK: u32 = 0;
pub(super) const NOENT: u32 = 2;
pub(super) const ACCES: u32 = 13;
pub(super) const EXIST: u32 = 17;
pub(super) const NOTDIR: u32 = 20;
/// "Try again later": the server is waiting for its disks.
pub(super) const JUKEBOX: u32 = 10_008;

const FOLDER: u32 = 2;
const HANDLE_BYTES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 4096;
const ENTRIES_MAX: usize = 100_000;
const EXPORTS_MAX: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handle(pub Vec<u8>);

pub(super) fn handle(r: &mut Reader<'_>) -> Result<Handle, Short> {
    r.opaque(HANDLE_BYTES_MAX).map(|bytes| Handle(bytes.to_vec()))
}

/// fattr3: what kind of thing, and its size.
pub(super) fn attributes(r: &mut Reader<'_>) -> Result<(u32, u64), Short> {
    let kind = r.u32()?;
    r.take(16)?;
    let size = r.u64()?;
    r.take(56)?;
    Ok((kind, size))
}

/// post_op_attr
pub(super) fn maybe_attributes(r: &mut Reader<'_>) -> Result<Option<(u32, u64)>, Short> {
    r.flag()?.then(|| attributes(r)).transpose()
}

/// wcc_data
pub(super) fn skip_wcc(r: &mut Reader<'_>) -> Result<(), Short> {
    if r.flag()? {
        r.take(24)?;
    }
    maybe_attributes(r).map(drop)
}

/// sattr3: the mode, and the size if the thing is to be cut. Owner and times are the server's affair.
pub(super) fn put_new_attributes(w: &mut Writer, mode: u32, cut: bool) {
    w.u32(1);
    w.u32(mode);
    w.u32(0);
    w.u32(0);
    w.u32(u32::from(cut));
    if cut {
        w.u64(0);
    }
    w.u32(0);
    w.u32(0);
}

/// LOOKUP3resok begins with the handle, those of CREATE and MKDIR may have one.
pub(super) fn made(r: &mut Reader<'_>) -> Result<Option<Handle>, Short> {
    r.flag()?.then(|| handle(r)).transpose()
}

/// WRITE3resok: (count, committed, verifier)
pub(super) fn written(r: &mut Reader<'_>) -> Result<(u32, u32, u64), Short> {
    skip_wcc(r)?;
    Ok((r.u32()?, r.u32()?, r.u64()?))
}

/// COMMIT3resok: the verifier.
pub(super) fn committed(r: &mut Reader<'_>) -> Result<u64, Short> {
    skip_wcc(r)?;
    r.u64()
}

/// FSSTAT3resok: abytes, what this user may still write.
pub(super) fn free_bytes(r: &mut Reader<'_>) -> Result<u64, Short> {
    maybe_attributes(r)?;
    r.take(16)?;
    r.u64()
}

/// FSINFO3resok: (rtmax, wtmax)
pub(super) fn transfer_sizes(r: &mut Reader<'_>) -> Result<(u32, u32), Short> {
    maybe_attributes(r)?;
    let read = r.u32()?;
    r.take(8)?;
    Ok((read, r.u32()?))
}

/// One part of a listing. A name that could lead elsewhere, and what the server gave no attributes for, is left out.
pub(super) struct Listing {
    pub entries: Vec<Entry>,
    pub cookie: u64,
    pub verifier: u64,
    pub end: bool,
}

pub(super) fn listing(r: &mut Reader<'_>, cookie: u64) -> Result<Listing, Short> {
    maybe_attributes(r)?;
    let verifier = r.u64()?;
    let mut found = Listing { entries: Vec::new(), cookie, verifier, end: false };
    while r.flag()? {
        if found.entries.len() == ENTRIES_MAX {
            return Err(Short);
        }
        r.u64()?;
        let name = String::from_utf8_lossy(r.opaque(NAME_BYTES_MAX)?).into_owned();
        found.cookie = r.u64()?;
        let attributes = maybe_attributes(r)?;
        made(r)?;
        if name != "." && name != ".." && !name.contains('/') {
            found.entries.push(Entry { name, folder: attributes.is_some_and(|(kind, _)| kind == FOLDER) });
        }
    }
    found.end = r.flag()?;
    Ok(found)
}

pub(super) fn exports(r: &mut Reader<'_>) -> Result<Vec<String>, Short> {
    let mut found = Vec::new();
    while r.flag()? && found.len() < EXPORTS_MAX {
        found.push(String::from_utf8_lossy(r.opaque(NAME_BYTES_MAX)?).into_owned());
        let mut groups = 0;
        while r.flag()? {
            r.opaque(NAME_BYTES_MAX)?;
            groups += 1;
            if groups > EXPORTS_MAX {
                return Err(Short);
            }
        }
    }
    Ok(found)
}

/// nfsstat3 and mountstat3, which have the same numbers where they mean the same.
pub(super) fn failure(status: u32, what: &str) -> ClientError {
    let what = what.to_owned();
    match status {
        NOENT => ClientError::NotFound { what, reason: "the server has no such file or folder".into() },
        1 | ACCES => {
            let reason = format!("NFS status {status}; a server may also want other users, or addresses that it knows");
            ClientError::Denied { what, reason }
        }
        28 | 69 => ClientError::NoSpace { what },
        30 => ClientError::ReadOnly { what },
        _ => {
            let name = match status {
                5 => "an input or output error of its disks",
                NOTDIR => "no folder",
                27 => "the file is too large",
                63 => "the name is too long",
                66 => "the folder is not empty",
                70 => "the file is gone",
                10_004 => "it does not support that",
                10_006 => "a defect of the server",
                JUKEBOX => "it is too busy, for a long time",
                _ => "an error",
            };
            ClientError::Protocol { what, reason: format!("the server answers with {name} (NFS status {status})") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attrs(w: &mut Writer, kind: u32, size: u64) {
        w.u32(1);
        w.u32(kind);
        (0..4).for_each(|_| w.u32(0));
        w.u64(size);
        (0..14).for_each(|_| w.u32(0));
    }

    #[test]
    fn a_listing_keeps_to_the_folder() {
        let mut w = Writer(Vec::new());
        w.u32(0);
        w.u64(99);
        for (cookie, (name, kind)) in [("a", 1), ("b", 2), ("..", 2), ("x/y", 1)].into_iter().enumerate() {
            w.u32(1);
            w.u64(1);
            w.opaque(name.as_bytes());
            w.u64(cookie as u64 + 1);
            attrs(&mut w, kind, 5);
            w.u32(0);
        }
        w.u32(0);
        w.u32(1);
        let found = listing(&mut Reader(&w.0), 0).unwrap();
        let names: Vec<(&str, bool)> = found.entries.iter().map(|e| (e.name.as_str(), e.folder)).collect();
        assert_eq!(names, [("a", false), ("b", true)]);
        assert_eq!((found.cookie, found.verifier, found.end), (4, 99, true));
        for cut in 0..w.0.len() {
            assert!(listing(&mut Reader(&w.0[..cut]), 0).is_err(), "{cut}");
        }
    }

    #[test]
    fn exports_without_their_groups() {
        let mut w = Writer(Vec::new());
        for name in ["/a", "/b/c"] {
            w.u32(1);
            w.opaque(name.as_bytes());
            w.u32(1);
            w.opaque(b"10.0.0.0/8");
            w.u32(0);
        }
        w.u32(0);
        assert_eq!(exports(&mut Reader(&w.0)).unwrap(), ["/a", "/b/c"]);
    }

    #[test]
    fn statuses_become_errors_that_help() {
        assert!(matches!(failure(28, "x"), ClientError::NoSpace { .. }));
        assert!(matches!(failure(30, "x"), ClientError::ReadOnly { .. }));
        assert!(failure(2, "x").is_not_found());
        assert!(failure(70, "x").to_string().contains("70"));
    }
}
