//! File handles of the kernel: an inode's identity that survives renames and restarts.
//!
//! - `handle.two_numbers`: on ext4, XFS and btrfs a handle is an inode number, a generation, and bytes that all files of one
//!   filesystem have in common. So number and generation, which every protocol carries, suffice to make the handle again.
//! - `handle.number_in_the_making`: while the host gives a freed number to a new file, `iget_locked` of the kernel (fs/inode.c)
//!   finds no inode for the old handle, and the call fails as if memory were short. So that answer is asked for again: a moment
//!   later the handle is stale. Memory that is short stays so.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

/// `MAX_HANDLE_SZ` of linux/exportfs.h.
const BYTES_MAX: usize = 128;
/// `FILEID_INO32_GEN` of linux/exportfs.h: ext4, and XFS with small inode numbers.
const INO32_GEN: i32 = 1;
/// `XFS_FILEID_TYPE_64FLAG | FILEID_INO32_GEN` of fs/xfs/xfs_export.h.
const XFS_INO64_GEN: i32 = 0x81;
/// `FILEID_BTRFS_WITHOUT_PARENT` of linux/exportfs.h.
const BTRFS: i32 = 0x4d;
/// How often a handle is tried while its number is in the making, and how long apart. Making an inode takes microseconds, or
/// a wait for the filesystem's journal.
const TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_micros(500);

/// `struct file_handle`, with room for any handle.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    body: [u8; BYTES_MAX],
}

/// How a filesystem forms its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Ino32,
    Ino64,
    /// With the number of the subvolume.
    Btrfs(u64),
}

impl RawHandle {
    fn body(&self) -> &[u8] {
        self.body.get(..self.bytes as usize).unwrap_or(&[])
    }

    fn made(kind: i32, parts: &[&[u8]]) -> RawHandle {
        let mut handle = RawHandle { bytes: 0, kind, body: [0; BYTES_MAX] };
        let joined = parts.concat();
        for (to, from) in handle.body.iter_mut().zip(&joined) {
            *to = *from;
        }
        handle.bytes = joined.len() as u32;
        handle
    }

    fn of(file: BorrowedFd<'_>) -> Result<RawHandle, Errno> {
        let mut handle = RawHandle { bytes: BYTES_MAX as u32, kind: 0, body: [0; BYTES_MAX] };
        let mut mount_id: libc::c_int = 0;
        // SAFETY: the descriptor is open, the path is an empty C string, and both outputs outlive the call. The kernel writes
        // at most `bytes` bytes into the body.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_raw_fd(),
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount_id,
                libc::AT_EMPTY_PATH,
            )
        };
        if done < 0 { Err(last_errno()) } else { Ok(handle) }
    }

    fn open(&self, mount: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        let mut handle = *self;
        // SAFETY: the descriptor is open and the handle outlives the call, which reads it.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                &raw mut handle,
                libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC,
            )
        };
        let Ok(fd) = i32::try_from(fd) else { return Err(Errno::IO) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// The number and the generation in a handle of this shape.
fn numbers(handle: &RawHandle, shape: Shape) -> Option<(u64, u32)> {
    let body = handle.body();
    let word = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    match (shape, handle.kind, body.len()) {
        (Shape::Ino32, INO32_GEN, 8) => Some((u64::from(word(0)?), word(4)?)),
        (Shape::Ino64, XFS_INO64_GEN, 12) => Some((long(0)?, word(8)?)),
        (Shape::Btrfs(tree), BTRFS, 20) if long(8)? == tree => Some((long(0)?, word(16)?)),
        _ => None,
    }
}

impl Shape {
    /// The shape of the handles of the filesystem of `dir`, whose number is `ino`. `None` where they are of another kind, or may
    /// not be opened: that needs CAP_DAC_READ_SEARCH.
    pub(crate) fn of(dir: BorrowedFd<'_>, ino: u64) -> Option<Shape> {
        let handle = RawHandle::of(dir).ok()?;
        let subvolume = handle.body().get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
        let shapes = [Some(Shape::Ino32), Some(Shape::Ino64), subvolume.map(Shape::Btrfs)];
        let shape = shapes.into_iter().flatten().find(|shape| numbers(&handle, *shape).is_some())?;
        let (known, generation) = numbers(&handle, shape)?;
        (known == ino && shape.open(dir, ino, generation).is_ok()).then_some(shape)
    }

    /// The generation of an open inode.
    pub(crate) fn generation(self, file: BorrowedFd<'_>, ino: u64) -> Result<u32, Errno> {
        let handle = RawHandle::of(file)?;
        match numbers(&handle, self) {
            Some((known, generation)) if known == ino => Ok(generation),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Opens an inode as a path. [`Errno::STALE`] if it is gone or has another generation.
    pub(crate) fn open(self, mount: BorrowedFd<'_>, ino: u64, generation: u32) -> Result<OwnedFd, Errno> {
        let generation = generation.to_ne_bytes();
        let handle = match self {
            Shape::Ino32 => {
                let ino = u32::try_from(ino).map_err(|_| Errno::STALE)?;
                RawHandle::made(INO32_GEN, &[&ino.to_ne_bytes(), &generation])
            }
            Shape::Ino64 => RawHandle::made(XFS_INO64_GEN, &[&ino.to_ne_bytes(), &generation]),
            Shape::Btrfs(tree) => RawHandle::made(BTRFS, &[&ino.to_ne_bytes(), &tree.to_ne_bytes(), &generation]),
        };
        // `handle.number_in_the_making`
        for _ in 1..TRIES {
            match handle.open(mount.as_fd()) {
                Err(Errno::NOMEM) => std::thread::sleep(BETWEEN_TRIES),
                opened => return opened,
            }
        }
        handle.open(mount.as_fd())
    }
}
