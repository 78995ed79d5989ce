//! SFTP version 3 (draft-ietf-secsh-filexfer-02): what is sent, and what is made of what comes.

use bytes::Bytes;

use crate::client::error::ClientError;
use crate::client::share::Entry;

pub(super) const INIT: u8 = 1;
pub(super) const VERSION: u8 = 2;
pub(super) const OPEN: u8 = 3;
pub(super) const CLOSE: u8 = 4;
pub(super) const READ: u8 = 5;
pub(super) const WRITE: u8 = 6;
pub(super) const OPENDIR: u8 = 11;
pub(super) const READDIR: u8 = 12;
pub(super) const REMOVE: u8 = 13;
pub(super) const MKDIR: u8 = 14;
pub(super) const RMDIR: u8 = 15;
pub(super) const STAT: u8 = 17;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;
pub(super) const EXTENDED: u8 = 200;
const EXTENDED_REPLY: u8 = 201;

pub(super) const OPEN_READ: u32 = 1;
pub(super) const OPEN_WRITE: u32 = 2;
pub(super) const OPEN_CREATE: u32 = 8;
pub(super) const OPEN_TRUNCATE: u32 = 16;

const STATUS_OK: u32 = 0;
pub(super) const STATUS_EOF: u32 = 1;
const STATUS_NO_SUCH_FILE: u32 = 2;
const STATUS_PERMISSION_DENIED: u32 = 3;
const STATUS_FAILURE: u32 = 4;
const STATUS_CONNECTION_LOST: u32 = 7;
const STATUS_UNSUPPORTED: u32 = 8;

const HANDLE_BYTES_MAX: usize = 256;
const NAMES_MAX: u32 = 100_000;
const EXTENSIONS_MAX: usize = 256;
/// S_IFMT and S_IFDIR.
const KIND: u32 = 0o170000;
const FOLDER: u32 = 0o040000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an SFTP packet that is cut short or makes no sense")]
pub(super) struct Malformed;

/// A request's bytes; the length before them follows at the end.
pub(super) struct Request(Vec<u8>);

impl Request {
    pub fn new(kind: u8, number: u32, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity + 64);
        bytes.extend_from_slice(&[0, 0, 0, 0, kind]);
        bytes.extend_from_slice(&number.to_be_bytes());
        Self(bytes)
    }

    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub fn string(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.raw(bytes);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn finish(mut self) -> Bytes {
        let len = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&len.to_be_bytes());
        self.0.into()
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = tail;
        Ok(head)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().map_err(|_| Malformed)?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().map_err(|_| Malformed)?))
    }

    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// ATTRS (5): size and permissions.
    fn attributes(&mut self) -> Result<(Option<u64>, Option<u32>), Malformed> {
        let flags = self.u32()?;
        let size = (flags & 1 != 0).then(|| self.u64()).transpose()?;
        if flags & 2 != 0 {
            self.take(8)?;
        }
        let permissions = (flags & 4 != 0).then(|| self.u32()).transpose()?;
        if flags & 8 != 0 {
            self.take(8)?;
        }
        if flags & 1 << 31 != 0 {
            for _ in 0..self.u32()?.min(NAMES_MAX) {
                self.string()?;
                self.string()?;
            }
        }
        Ok((size, permissions))
    }
}

pub(super) enum Reply {
    Status {
        code: u32,
        text: String,
    },
    Handle(Vec<u8>),
    /// File data, a slice of the packet.
    Data(Bytes),
    Names(Vec<Entry>),
    Size(Option<u64>),
    Extended(Bytes),
}

/// A whole packet without its length: which request it answers, and how.
pub(super) fn reply(packet: &Bytes) -> Result<(u32, Reply), Malformed> {
    let mut r = Reader(packet);
    let kind = *r.take(1)?.first().ok_or(Malformed)?;
    let number = r.u32()?;
    let reply = match kind {
        STATUS => {
            let code = r.u32()?;
            // Old servers leave the text out.
            Reply::Status { code, text: String::from_utf8_lossy(r.string().unwrap_or_default()).into_owned() }
        }
        HANDLE => {
            let handle = r.string()?;
            if handle.len() > HANDLE_BYTES_MAX {
                return Err(Malformed);
            }
            Reply::Handle(handle.to_vec())
        }
        DATA => Reply::Data(packet.slice_ref(r.string()?)),
        NAME => Reply::Names(names(&mut r)?),
        ATTRS => Reply::Size(r.attributes()?.0),
        EXTENDED_REPLY => Reply::Extended(packet.slice_ref(r.0)),
        _ => return Err(Malformed),
    };
    Ok((number, reply))
}

/// Names that could lead elsewhere are left out.
fn names(r: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
    let mut entries = Vec::new();
    for _ in 0..r.u32()?.min(NAMES_MAX) {
        let name = String::from_utf8_lossy(r.string()?).into_owned();
        r.string()?;
        let (_, permissions) = r.attributes()?;
        if name != "." && name != ".." && !name.contains('/') {
            entries.push(Entry { name, folder: permissions.is_some_and(|p| p & KIND == FOLDER) });
        }
    }
    Ok(entries)
}

/// The server's version and its extensions.
pub(super) fn version(packet: &[u8]) -> Result<(u32, Vec<String>), Malformed> {
    let mut r = Reader(packet);
    if r.take(1)? != [VERSION] {
        return Err(Malformed);
    }
    let version = r.u32()?;
    let mut extensions = Vec::new();
    while !r.0.is_empty() && extensions.len() < EXTENSIONS_MAX {
        extensions.push(String::from_utf8_lossy(r.string()?).into_owned());
        r.string()?;
    }
    Ok((version, extensions))
}

/// Reply to limits@openssh.com: the largest read and the largest write; 0 is "no limit known".
pub(super) fn limits(reply: &[u8]) -> Result<(u64, u64), Malformed> {
    let mut r = Reader(reply);
    r.u64()?;
    Ok((r.u64()?, r.u64()?))
}

pub(super) fn check(code: u32, text: &str, what: &str) -> Result<(), ClientError> {
    let what = if what.is_empty() { "the folder" } else { what }.to_owned();
    let reason = if text.is_empty() { format!("SFTP status {code}") } else { text.to_owned() };
    Err(match code {
        STATUS_OK => return Ok(()),
        STATUS_NO_SUCH_FILE => ClientError::NotFound { what, reason },
        STATUS_PERMISSION_DENIED => ClientError::Denied { what, reason },
        // OpenSSH has one status for all that its system refuses.
        STATUS_FAILURE => ClientError::Protocol {
            what,
            reason: "the server answers only 'Failure': often the disk is full or the folder is read-only".into(),
        },
        STATUS_CONNECTION_LOST => ClientError::Lost { what, reason },
        STATUS_UNSUPPORTED => ClientError::Unsupported { access: "sftp".into(), reason },
        _ => ClientError::Protocol { what, reason },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(build: impl FnOnce(&mut Request), kind: u8) -> Bytes {
        let mut request = Request::new(kind, 7, 0);
        build(&mut request);
        request.finish().slice(4..)
    }

    #[test]
    fn handles_need_not_be_text() {
        let found = reply(&packet(|r| r.string(&[0, 0, 0, 200]), HANDLE)).unwrap();
        assert!(matches!(found, (7, Reply::Handle(h)) if h == [0, 0, 0, 200]));
        assert!(reply(&packet(|r| r.string(&[1; 300]), HANDLE)).is_err());
    }

    #[test]
    fn listings_keep_to_the_folder() {
        let names = packet(
            |r| {
                r.u32(3);
                for (name, mode) in [("a", 0o100644), ("..", FOLDER), ("b", FOLDER | 0o755)] {
                    r.string(name.as_bytes());
                    r.string(b"long");
                    r.u32(1 | 4);
                    r.u64(5);
                    r.u32(mode);
                }
            },
            NAME,
        );
        let Ok((7, Reply::Names(entries))) = reply(&names) else { panic!("no names") };
        assert_eq!(
            entries.iter().map(|e| (e.name.as_str(), e.folder)).collect::<Vec<_>>(),
            [("a", false), ("b", true)]
        );
        for cut in 5..names.len() {
            assert!(reply(&names.slice(..cut)).is_err(), "{cut}");
        }
    }

    #[test]
    fn lengths_are_not_believed() {
        for bytes in [&[][..], &[DATA], &[DATA, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff], &[99, 0, 0, 0, 1]] {
            assert!(reply(&Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
        assert!(version(&[VERSION, 0, 0, 0, 3, 0, 0, 0, 9]).is_err());
        assert_eq!(version(&[VERSION, 0, 0, 0, 3]), Ok((3, vec![])));
    }

    #[test]
    fn refusals_say_what_to_do() {
        assert!(check(2, "No such file", "x").unwrap_err().is_not_found());
        assert!(matches!(check(3, "", "x"), Err(ClientError::Denied { .. })));
        assert!(check(0, "", "x").is_ok());
    }
}
