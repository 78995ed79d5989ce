//! Extended attributes: names, the two-step protocol of size probes, and what is refused.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use fuser::{Errno, ReplyXattr};
use larder_fs::{FsResult, NAME_BYTES_MAX, XattrMode};

use super::convert::errno;

/// The kernel's bound on the list of names of one inode.
const LIST_BYTES_MAX: usize = 65_536;

/// `None` for flags that setxattr(2) does not have.
pub(super) fn mode(flags: i32) -> Option<XattrMode> {
    match flags {
        0 => Some(XattrMode::Set),
        1 => Some(XattrMode::Create),
        2 => Some(XattrMode::Replace),
        _ => None,
    }
}

/// The namespaces that Linux has. POSIX ACLs, all there is in `system.`, are refused: they would be kept, yet no
/// protocol would obey them.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

pub(super) fn name(name: &OsStr) -> Result<Bytes, Errno> {
    let name = name.as_bytes();
    if !NAMESPACES.iter().any(|namespace| name.starts_with(namespace)) {
        return Err(Errno::EOPNOTSUPP);
    }
    if name.len() > NAME_BYTES_MAX { Err(Errno::ERANGE) } else { Ok(Bytes::copy_from_slice(name)) }
}

/// Names as listxattr(2) returns them, each ended by a zero byte.
pub(super) fn list(names: &[Bytes]) -> Vec<u8> {
    let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
    for name in names {
        list.extend_from_slice(name);
        list.push(0);
    }
    list
}

/// A size of 0 asks how large the value is.
pub(super) fn send(reply: ReplyXattr, size: u32, value: FsResult<Vec<u8>>) {
    match value {
        Err(error) => reply.error(errno(&error)),
        Ok(value) if value.len() > LIST_BYTES_MAX => reply.error(Errno::E2BIG),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_zero_terminated() {
        assert_eq!(list(&["user.a".into(), "user.b".into()]), b"user.a\0user.b\0");
        assert_eq!(list(&[]), b"");
    }

    #[test]
    fn acls_and_unknown_namespaces_are_refused() {
        assert!(name(OsStr::new("nonsense.x")).is_err());
        assert!(name(OsStr::new("system.posix_acl_access")).is_err());
        assert!(name(OsStr::new("user.x")).is_ok());
    }
}
