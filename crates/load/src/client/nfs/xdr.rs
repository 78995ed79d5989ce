//! XDR (RFC 4506), as far as NFS needs it.

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reply is shorter than it says")]
pub(super) struct Short;

pub(super) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// RFC 4506 4.10: the length, the bytes, zeros up to a multiple of four.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
    }
}

#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Short> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Short)?;
        self.0 = tail;
        Ok(head)
    }

    pub fn u32(&mut self) -> Result<u32, Short> {
        let bytes = self.take(4)?.try_into().map_err(|_| Short)?;
        Ok(u32::from_be_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64, Short> {
        let bytes = self.take(8)?.try_into().map_err(|_| Short)?;
        Ok(u64::from_be_bytes(bytes))
    }

    pub fn flag(&mut self) -> Result<bool, Short> {
        self.u32().map(|v| v != 0)
    }

    pub fn opaque(&mut self, len_max: usize) -> Result<&'a [u8], Short> {
        let len = self.u32()? as usize;
        if len > len_max {
            return Err(Short);
        }
        let bytes = self.take(len)?;
        self.take(len.next_multiple_of(4) - len)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut w = Writer(Vec::new());
        w.u32(7);
        w.u64(1 << 40);
        w.opaque(b"abcde");
        assert_eq!(w.0.len(), 4 + 8 + 4 + 8);
        let mut r = Reader(&w.0);
        assert_eq!((r.u32(), r.u64(), r.opaque(5)), (Ok(7), Ok(1 << 40), Ok(&b"abcde"[..])));
        assert_eq!(r.u32(), Err(Short));
    }

    #[test]
    fn lengths_are_not_believed() {
        for bytes in [&[0, 0, 0, 5, 1][..], &[0xff; 8], &[0, 0, 0, 1, 9]] {
            assert_eq!(Reader(bytes).opaque(1 << 30), Err(Short), "{bytes:?}");
        }
        assert_eq!(Reader(&[0, 0, 0, 4, 1, 2, 3, 4]).opaque(3), Err(Short));
    }
}
