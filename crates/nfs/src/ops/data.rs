//! Procedures that move file data: READ, WRITE, COMMIT.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use larder_fs::{
    ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, AccessMask, Attr, Cred, FILE_BYTES_MAX, FileKind, ReadData, Stability,
};

use super::super::proto::{Fail, Status};
use super::super::record::payload;
use super::super::xdr::Garbage;
use super::{Answer, Call};

/// The largest READ and WRITE: rtmax and wtmax.
pub const IO_BYTES_MAX: u32 = 1 << 20;
/// dtpref: what clients should ask of a directory at once.
pub const LISTING_BYTES_PREFERRED: u32 = 128 << 10;

/// Whether a user who is granted `bits` may do what needs one of `masks` to a file.
pub fn may_io(cred: &Cred, attr: &Attr, bits: AccessMask, masks: &[AccessMask]) -> bool {
    cred.uid == attr.uid || masks.iter().any(|mask| bits & mask != 0)
}

impl Call {
    /// The object as a regular file on which one of `masks` is granted. The owner always passes: NFS has
    /// no open, and a file's mode may forbid what the owner opened it for (RFC 1813 4.4).
    async fn file(&self, masks: &[AccessMask]) -> Result<Attr, Fail> {
        let (attr, bits) = self.files().resolve_granted(&self.cred, self.id).await?;
        match attr.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Status::IsDir.into()),
            _ => return Err(Status::Inval.into()),
        }
        if may_io(&self.cred, &attr, bits, masks) { Ok(attr) } else { Err(Status::Acces.into()) }
    }

    /// 3.3.6. Who may execute may read: how else would the client load a program.
    pub(super) async fn read(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let (offset, count) = (args.u64()?, args.u32()?.min(IO_BYTES_MAX));
        let attr = self.file(&[ACCESS_READ, ACCESS_EXECUTE]).await?;
        // Only the read knows the end of the file: another door's client may have more to come.
        let read = if count == 0 {
            ReadData { eof: offset >= attr.size, ..ReadData::default() }
        } else {
            self.files().read(self.id.ino, offset, count as usize).await?
        };
        let len = read.len();
        out.w.status(Status::Ok);
        out.w.post_attr(Some(read.attr.as_ref().unwrap_or(&attr)), self.fsid());
        out.w.length(len);
        out.w.bool(read.eof);
        out.w.length(len);
        self.shared.stats.read_bytes.fetch_add(len as u64, Relaxed);
        (out.data, out.data_bytes) = (read.chunks, len);
        Ok(())
    }

    /// 3.3.7
    pub(super) async fn write(&mut self, out: &mut Answer) -> Result<(), Fail> {
        let (offset, data, stability) = self.write_args()?;
        let len: usize = data.iter().map(Bytes::len).sum();
        let attr = self.file(&[ACCESS_WRITE]).await?;
        if len > 0 && offset.checked_add(len as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Status::FBig.into());
        }
        if len == 0 {
            return self.write_nothing(out, &attr);
        }
        let written = self.files().write(&self.cred, self.id.ino, offset, data, stability).await?;
        out.w.status(Status::Ok);
        out.w.wcc(&written.changed, self.fsid());
        out.w.length(len);
        out.w.u32(written.stability as u32);
        out.w.fixed(&written.verifier.0);
        self.shared.stats.written_bytes.fetch_add(len as u64, Relaxed);
        Ok(())
    }

    /// "If count is 0, the WRITE will succeed and return a count of 0, barring errors."
    fn write_nothing(&self, out: &mut Answer, attr: &Attr) -> Result<(), Fail> {
        out.w.status(Status::Ok);
        out.w.wcc_after(Some(attr), self.fsid());
        out.w.u32(0);
        out.w.u32(Stability::FileSync as u32);
        out.w.fixed(&self.files().verifier().0);
        Ok(())
    }

    /// Offset, data and how stable it is to become. Of data beyond `count` nothing is written, of data
    /// beyond wtmax neither: the reply says so.
    fn write_args(&mut self) -> Result<(u64, Vec<Bytes>, Stability), Fail> {
        let tail = self.tail.take();
        let mut args = self.args();
        let (offset, count, stable) = (args.u64()?, args.u32()?, args.u32()?);
        let (mut data, sent) = match tail {
            // The length ends the head; of a longer payload only what may be written was kept.
            Some(tail) => (tail, args.u32()? as usize),
            None => {
                let data = payload(&self.message, args.opaque(usize::MAX)?);
                let sent = data.len();
                (vec![data], sent)
            }
        };
        let stability = match stable {
            0 => Stability::Unstable,
            1 => Stability::DataSync,
            2 => Stability::FileSync,
            _ => return Err(Garbage.into()),
        };
        if count as usize > sent {
            return Err(Status::Inval.into());
        }
        let mut left = count.min(IO_BYTES_MAX) as usize;
        data.retain_mut(|chunk| {
            chunk.truncate(left);
            left -= chunk.len();
            !chunk.is_empty()
        });
        Ok((offset, data, stability))
    }

    /// 3.3.21. The whole file, whatever the range: more is not wrong, and durability comes in groups.
    pub(super) async fn commit(&self, out: &mut Answer) -> Result<(), Fail> {
        let mut args = self.args();
        let (_offset, _count) = (args.u64()?, args.u32()?);
        let attr = self.resolve().await?;
        match attr.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(Status::IsDir.into()),
            _ => return Err(Status::Inval.into()),
        }
        let (changed, verifier) = self.files().commit(self.id.ino).await?;
        out.w.status(Status::Ok);
        out.w.wcc(&changed, self.fsid());
        out.w.fixed(&verifier.0);
        Ok(())
    }
}
