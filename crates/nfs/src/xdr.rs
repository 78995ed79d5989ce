//! XDR (RFC 4506), as much of it as RPC, MOUNT and NFS v3 use.
//!
//! - `xdr.pure_slices`: the codec is pure: bytes in, values out. Decoding copies and allocates
//!   nothing; a value of variable length is a slice of the input.
//! - `xdr.no_panic`: no input panics, and no length field is believed before the bytes behind it
//!   have arrived.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::panic)]

/// The input does not decode: too short, or a value out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("arguments do not decode")]
pub struct Garbage;

/// Bytes of padding behind `len` bytes of opaque data (RFC 4506 4.10): up to a multiple of four.
#[inline]
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Takes values off the front of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Garbage)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32, Garbage> {
        self.fixed().map(u32::from_be_bytes)
    }

    #[inline]
    pub fn u64(&mut self) -> Result<u64, Garbage> {
        self.fixed().map(u64::from_be_bytes)
    }

    /// RFC 4506 4.4: 0 or 1, nothing else.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// The next `len` bytes as they are, without padding.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Garbage> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Garbage)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn skip(&mut self, len: usize) -> Result<(), Garbage> {
        self.rest = self.rest.get(len..).ok_or(Garbage)?;
        Ok(())
    }

    /// A length and how many bytes of padding follow that many bytes of data.
    #[inline]
    pub fn length(&mut self, max: usize) -> Result<usize, Garbage> {
        let len = usize::try_from(self.u32()?).map_err(|_| Garbage)?;
        if len > max { Err(Garbage) } else { Ok(len) }
    }

    /// Variable-length opaque data or a string (RFC 4506 4.10, 4.11) of at most `max` bytes.
    #[inline]
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Garbage> {
        let len = self.length(max)?;
        let (data, rest) = self.rest.split_at_checked(len).ok_or(Garbage)?;
        self.rest = rest.get(padding(len)..).ok_or(Garbage)?;
        Ok(data)
    }
}

/// Appends values to a message. A wrapper only for the names: the bytes are a plain vector.
#[derive(Debug, Default)]
pub struct Writer {
    buf: Vec<u8>,
}

impl Writer {
    pub fn new(buf: Vec<u8>) -> Self {
        Self { buf }
    }

    pub fn into_inner(self) -> Vec<u8> {
        self.buf
    }

    /// Bytes written so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.buf.len()
    }

    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(len);
    }

    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.buf.extend_from_slice(&value.to_be_bytes());
    }

    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Fixed-length opaque data; the caller's lengths are multiples of four.
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// The length that goes before `len` bytes of data.
    #[inline]
    pub fn length(&mut self, len: usize) {
        self.u32(u32::try_from(len).unwrap_or(u32::MAX));
    }

    #[inline]
    pub fn opaque(&mut self, data: &[u8]) {
        const ZEROS: [u8; 4] = [0; 4];
        self.length(data.len());
        self.buf.extend_from_slice(data);
        self.buf.extend_from_slice(ZEROS.get(..padding(data.len())).unwrap_or_default());
    }

    /// Replaces the four bytes at `at`, which were written before.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        if let Some(place) = self.buf.get_mut(at..at.saturating_add(4)) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_bytes() {
        let mut w = Writer::default();
        w.u32(7);
        w.u64(0x0102_0304_0506_0708);
        w.bool(true);
        w.opaque(b"abcde");
        let bytes = w.into_inner();
        assert_eq!(
            bytes,
            [0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0]
        );
        let mut r = Reader::new(&bytes);
        assert_eq!(r.u32(), Ok(7));
        assert_eq!(r.u64(), Ok(0x0102_0304_0506_0708));
        assert_eq!(r.bool(), Ok(true));
        assert_eq!(r.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(r.remaining(), 0);
        assert_eq!(r.u32(), Err(Garbage));
    }

    #[test]
    fn bounds_are_kept() {
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Garbage));
        assert_eq!(Reader::new(&[0, 0, 0, 5, 1, 2, 3, 4, 5]).opaque(8), Err(Garbage), "padding is missing");
        assert_eq!(Reader::new(&[0, 0, 0, 8, 1, 2, 3, 4]).opaque(8), Err(Garbage), "data is missing");
        assert_eq!(Reader::new(&[0, 0, 0, 4, 1, 2, 3, 4]).opaque(3), Err(Garbage), "too long");
        assert_eq!(Reader::new(&[0xff; 64]).opaque(usize::MAX), Err(Garbage));
        assert_eq!((padding(0), padding(1), padding(4), padding(7)), (0, 3, 0, 1));
    }

    proptest! {
        #[test]
        fn opaque_round_trips(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut w = Writer::default();
            w.opaque(&data);
            let bytes = w.into_inner();
            prop_assert_eq!(bytes.len() % 4, 0);
            let mut r = Reader::new(&bytes);
            prop_assert_eq!(r.opaque(300).unwrap(), &data[..]);
            prop_assert_eq!(r.remaining(), 0);
        }
    }
}
