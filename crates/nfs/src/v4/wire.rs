//! XDR of whole types: one trait, and macros that write its two functions for structures, enumerations and unions.
//!
//! - `nfsxdr.values_borrow`: every decoded value is `Copy` and borrows from the message. A list is checked element by
//!   element when it is decoded and decoded again when it is read, so a message of any shape allocates nothing.
//! - `nfsxdr.every_length_bounded`: the type of an opaque or a list names its bound. A longer one does not decode.
//! - `nfsxdr.payload_never_copied`: file data is a slice of the message, or the chunks in which it was received. In a
//!   reply it is queued as chunks between encoded bytes, at any position.

use bytes::Bytes;

use super::super::xdr::{Garbage, Reader, Writer, padding};

/// A type of the protocol.
pub trait Xdr<'a>: Sized {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage>;
    fn put(&self, out: &mut XdrOut);
}

/// Data that goes out between encoded bytes.
#[derive(Debug)]
struct Splice {
    at: usize,
    chunks: Vec<Bytes>,
}

/// A message in the making: encoded bytes, with file data between them (`nfsxdr.payload_never_copied`).
#[derive(Debug, Default)]
pub struct XdrOut {
    w: Writer,
    splices: Vec<Splice>,
    spliced_bytes: usize,
}

/// A place in a message in the making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdrMark {
    at: usize,
    splices: usize,
    spliced_bytes: usize,
}

impl XdrOut {
    pub fn new(buf: Vec<u8>) -> Self {
        Self { w: Writer::new(buf), splices: Vec::new(), spliced_bytes: 0 }
    }

    /// Bytes of the message so far, file data included.
    pub fn len(&self) -> usize {
        self.w.position() + self.spliced_bytes
    }

    pub fn mark(&self) -> XdrMark {
        XdrMark { at: self.w.position(), splices: self.splices.len(), spliced_bytes: self.spliced_bytes }
    }

    /// Forgets all that was written after `mark`.
    pub fn rewind(&mut self, mark: XdrMark) {
        self.w.truncate(mark.at);
        self.splices.truncate(mark.splices);
        self.spliced_bytes = mark.spliced_bytes;
    }

    /// Replaces the word at `mark`, which was written before.
    pub fn set_u32(&mut self, mark: XdrMark, value: u32) {
        self.w.set_u32(mark.at, value);
    }

    pub fn writer(&mut self) -> &mut Writer {
        &mut self.w
    }

    /// Opaque data in chunks: its length, the data, its padding.
    fn chunks(&mut self, chunks: &[Bytes]) {
        let bytes = chunks.iter().map(Bytes::len).sum();
        self.w.length(bytes);
        let chunks = chunks.iter().filter(|chunk| !chunk.is_empty()).cloned().collect();
        self.splices.push(Splice { at: self.w.position(), chunks });
        self.spliced_bytes += bytes;
        self.w.fixed([0; 4].get(..padding(bytes)).unwrap_or_default());
    }

    /// The message, in the order of its bytes. File data is passed on as it came.
    pub fn into_segments(self) -> Vec<Bytes> {
        let mut encoded = Bytes::from(self.w.into_inner());
        let mut segments =
            Vec::with_capacity(1 + self.splices.iter().map(|splice| 1 + splice.chunks.len()).sum::<usize>());
        let mut before = 0;
        for splice in self.splices {
            let here = splice.at.saturating_sub(before).min(encoded.len());
            segments.push(encoded.split_to(here));
            before = splice.at;
            segments.extend(splice.chunks);
        }
        segments.push(encoded);
        segments.retain(|segment| !segment.is_empty());
        segments
    }

    /// The message in one piece: a copy of its file data.
    pub fn into_bytes(self) -> Vec<u8> {
        if self.splices.is_empty() {
            return self.w.into_inner();
        }
        self.into_segments().concat()
    }
}

impl<'a> Xdr<'a> for () {
    fn get(_: &mut Reader<'a>) -> Result<Self, Garbage> {
        Ok(())
    }

    fn put(&self, _: &mut XdrOut) {}
}

/// Integers and `bool`.
macro_rules! xdr_plain {
    ($($ty:ty, $get:ident, $via:ty;)*) => {$(
        impl<'a> Xdr<'a> for $ty {
            fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
                r.$get().map(|value| value as $ty)
            }

            fn put(&self, out: &mut XdrOut) {
                out.writer().$get(*self as $via);
            }
        }
    )*};
}

xdr_plain! {
    u32, u32, u32;
    u64, u64, u64;
    i64, u64, u64;
    bool, bool, bool;
}

impl<'a> Xdr<'a> for i32 {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        r.fixed().map(i32::from_be_bytes)
    }

    fn put(&self, out: &mut XdrOut) {
        out.writer().fixed(&self.to_be_bytes());
    }
}

/// Fixed-length opaque data, of a multiple of four bytes.
impl<'a, const N: usize> Xdr<'a> for [u8; N] {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        const { assert!(N.is_multiple_of(4)) };
        r.fixed()
    }

    fn put(&self, out: &mut XdrOut) {
        out.writer().fixed(self);
    }
}

/// `type *name` and `type name<1>`: both are a word of 0 or 1 and perhaps a value.
impl<'a, T: Xdr<'a>> Xdr<'a> for Option<T> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        if r.bool()? { T::get(r).map(Some) } else { Ok(None) }
    }

    fn put(&self, out: &mut XdrOut) {
        out.writer().bool(self.is_some());
        if let Some(value) = self {
            value.put(out);
        }
    }
}

/// Opaque data or a string of at most `MAX` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opaque<'a, const MAX: usize>(pub &'a [u8]);

impl<'a, const MAX: usize> Xdr<'a> for Opaque<'a, MAX> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        r.opaque(MAX).map(Self)
    }

    fn put(&self, out: &mut XdrOut) {
        debug_assert!(self.0.len() <= MAX, "longer than its reader takes");
        out.writer().opaque(self.0);
    }
}

/// File data (`nfsxdr.payload_never_copied`).
#[derive(Clone, Copy, Debug)]
pub enum FileData<'a> {
    /// Part of the message.
    Slice(&'a [u8]),
    /// As it was received, or as a cache holds it.
    Chunks(&'a [Bytes]),
}

impl<'a> FileData<'a> {
    pub fn len(&self) -> usize {
        match self {
            FileData::Slice(slice) => slice.len(),
            FileData::Chunks(chunks) => chunks.iter().map(Bytes::len).sum(),
        }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        let (slice, chunks) = match *self {
            FileData::Slice(slice) => (slice, [].as_slice()),
            FileData::Chunks(chunks) => ([].as_slice(), chunks),
        };
        slice.iter().chain(chunks.iter().flatten()).copied()
    }
}

impl PartialEq for FileData<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.bytes().eq(other.bytes())
    }
}

impl Eq for FileData<'_> {}

impl<'a> Xdr<'a> for FileData<'a> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        r.opaque(usize::MAX).map(FileData::Slice)
    }

    fn put(&self, out: &mut XdrOut) {
        match *self {
            FileData::Slice(slice) => out.writer().opaque(slice),
            FileData::Chunks(chunks) => out.chunks(chunks),
        }
    }
}

/// Values one after the other: those of a message that was checked, or those of a caller.
#[derive(Clone, Copy, Debug)]
enum Values<'a, T> {
    Encoded { count: u32, bytes: &'a [u8] },
    Given(&'a [T]),
}

/// A list of at most `MAX` values (`nfsxdr.values_borrow`).
#[derive(Clone, Copy, Debug)]
pub struct XdrList<'a, T, const MAX: usize>(Values<'a, T>);

impl<'a, T: Xdr<'a> + Copy, const MAX: usize> XdrList<'a, T, MAX> {
    pub fn of(values: &'a [T]) -> Self {
        debug_assert!(values.len() <= MAX, "longer than its reader takes");
        Self(Values::Given(values))
    }

    pub fn len(&self) -> usize {
        match self.0 {
            Values::Encoded { count, .. } => usize::try_from(count).unwrap_or(usize::MAX),
            Values::Given(values) => values.len(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T, MAX> {
        let (bytes, given) = match self.0 {
            Values::Encoded { bytes, .. } => (bytes, [].as_slice()),
            Values::Given(values) => ([].as_slice(), values),
        };
        let mut r = Reader::new(bytes);
        let decoded = std::iter::from_fn(move || if r.remaining() == 0 { None } else { T::get(&mut r).ok() });
        decoded.chain(given.iter().copied())
    }
}

impl<'a, T: Xdr<'a> + Copy + PartialEq, const MAX: usize> PartialEq for XdrList<'a, T, MAX> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: Xdr<'a> + Copy + Eq, const MAX: usize> Eq for XdrList<'a, T, MAX> {}

impl<'a, T: Xdr<'a> + Copy, const MAX: usize> Xdr<'a> for XdrList<'a, T, MAX> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        let count = r.u32()?;
        if usize::try_from(count).map_err(|_| Garbage)? > MAX {
            return Err(Garbage);
        }
        let mut start = *r;
        for _ in 0..count {
            T::get(r)?;
        }
        let bytes = start.take(start.remaining() - r.remaining())?;
        Ok(Self(Values::Encoded { count, bytes }))
    }

    fn put(&self, out: &mut XdrOut) {
        out.writer().length(self.len());
        match self.0 {
            Values::Encoded { bytes, .. } => out.writer().fixed(bytes),
            Values::Given(values) => values.iter().for_each(|value| value.put(out)),
        }
    }
}

/// A linked list (RFC 4506 4.19): each value behind a word of 1, a word of 0 at the end.
#[derive(Clone, Copy, Debug)]
pub struct XdrChain<'a, T>(Values<'a, T>);

impl<'a, T: Xdr<'a> + Copy> XdrChain<'a, T> {
    #[cfg(test)]
    pub fn of(values: &'a [T]) -> Self {
        Self(Values::Given(values))
    }

    /// Values that were encoded with their words before them, without the end.
    pub fn encoded(bytes: &'a [u8]) -> Self {
        Self(Values::Encoded { count: 0, bytes })
    }

    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let (bytes, given) = match self.0 {
            Values::Encoded { bytes, .. } => (bytes, [].as_slice()),
            Values::Given(values) => ([].as_slice(), values),
        };
        let mut r = Reader::new(bytes);
        let decoded =
            std::iter::from_fn(move || if r.remaining() == 0 { None } else { Option::<T>::get(&mut r).ok().flatten() });
        decoded.chain(given.iter().copied())
    }
}

impl<'a, T: Xdr<'a> + Copy + PartialEq> PartialEq for XdrChain<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Xdr<'a> + Copy + Eq> Eq for XdrChain<'a, T> {}

impl<'a, T: Xdr<'a> + Copy> Xdr<'a> for XdrChain<'a, T> {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        let mut start = *r;
        while r.bool()? {
            T::get(r)?;
        }
        // Without the word that ends it.
        let bytes = start.take((start.remaining() - r.remaining()).saturating_sub(4))?;
        Ok(Self::encoded(bytes))
    }

    fn put(&self, out: &mut XdrOut) {
        match self.0 {
            Values::Encoded { bytes, .. } => out.writer().fixed(bytes),
            Values::Given(values) => values.iter().for_each(|value| Some(*value).put(out)),
        }
        out.writer().bool(false);
    }
}

/// A structure: its fields one after the other.
macro_rules! xdr_struct {
    ($($(#[$meta:meta])* $name:ident $(<$lt:lifetime>)? { $($(#[$field_meta:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name $(<$lt>)? {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl<'a> Xdr<'a> for $name $(<$lt>)? {
            fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
                Ok(Self { $($field: Xdr::get(r)?,)* })
            }

            fn put(&self, out: &mut XdrOut) {
                $(self.$field.put(out);)*
            }
        }

        #[cfg(test)]
        impl<'a> $crate::v4::sample::Sample<'a> for $name $(<$lt>)? {
            fn sample(chance: &mut $crate::v4::sample::Sampler) -> Self {
                Self { $($field: $crate::v4::sample::Sample::sample(chance),)* }
            }
        }
    )*};
}

/// An enumeration: no other number decodes.
macro_rules! xdr_enum {
    ($($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $number:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $number,)*
        }

        impl $name {
            #[cfg(test)]
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }
        }

        impl<'a> Xdr<'a> for $name {
            fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
                Self::from_number(r.u32()?).ok_or(Garbage)
            }

            fn put(&self, out: &mut XdrOut) {
                out.writer().u32(*self as u32);
            }
        }

        #[cfg(test)]
        impl<'a> $crate::v4::sample::Sample<'a> for $name {
            fn sample(chance: &mut $crate::v4::sample::Sampler) -> Self {
                *chance.pick(Self::ALL)
            }
        }
    )*};
}

/// A union without a default arm: its number, then the arm. `()` is an arm without a value.
macro_rules! xdr_union {
    ($(
        $(#[$meta:meta])* $name:ident $(<$lt:lifetime>)? {
            $($(#[$arm_meta:meta])* $arm:ident = $number:literal: $ty:ty,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name $(<$lt>)? {
            $($(#[$arm_meta])* $arm($ty),)*
        }

        impl<'a> Xdr<'a> for $name $(<$lt>)? {
            fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
                match r.u32()? {
                    $($number => Xdr::get(r).map(Self::$arm),)*
                    _ => Err(Garbage),
                }
            }

            fn put(&self, out: &mut XdrOut) {
                match self {
                    $(Self::$arm(value) => {
                        out.writer().u32($number);
                        value.put(out);
                    })*
                }
            }
        }

        #[cfg(test)]
        impl<'a> $crate::v4::sample::Sample<'a> for $name $(<$lt>)? {
            fn sample(chance: &mut $crate::v4::sample::Sampler) -> Self {
                use $crate::v4::sample::{Sample, Sampler};
                let arms: &[fn(&mut Sampler) -> Self] = &[$(|chance| Self::$arm(Sample::sample(chance)),)*];
                (chance.pick(arms))(chance)
            }
        }
    )*};
}

pub(super) use {xdr_enum, xdr_struct, xdr_union};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn file_data_stays_where_it_is() {
        let chunk = Bytes::from(vec![7; 5]);
        let chunks = [chunk.clone(), Bytes::new(), Bytes::from_static(b"ab")];
        let mut out = XdrOut::default();
        1u32.put(&mut out);
        FileData::Chunks(&chunks).put(&mut out);
        let mark = out.mark();
        2u32.put(&mut out);
        FileData::Chunks(&chunks).put(&mut out);
        out.rewind(mark);
        3u32.put(&mut out);
        let len = out.len();
        let segments = out.into_segments();
        assert!(segments.iter().any(|segment| segment.as_ptr() == chunk.as_ptr()), "the chunk itself");
        let bytes = segments.concat();
        assert_eq!(bytes.len(), len);
        assert_eq!(bytes, [&[0, 0, 0, 1, 0, 0, 0, 7, 7, 7, 7, 7, 7, b'a', b'b', 0, 0, 0, 0, 3][..]].concat());
        let mut r = Reader::new(&bytes);
        assert_eq!(u32::get(&mut r), Ok(1));
        assert_eq!(FileData::get(&mut r).unwrap(), FileData::Chunks(&chunks));
    }

    #[test]
    fn lists_are_bounded_and_checked_at_once() {
        let bytes = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(XdrList::<bool, 2>::get(&mut Reader::new(&bytes)).unwrap(), XdrList::of(&[true, false]));
        assert!(XdrList::<bool, 1>::get(&mut Reader::new(&bytes)).is_err(), "too many");
        assert!(XdrList::<bool, 2>::get(&mut Reader::new(&bytes[..8])).is_err(), "one is missing");
        assert!(XdrList::<bool, 2>::get(&mut Reader::new(&[0, 0, 0, 1, 0, 0, 0, 2])).is_err(), "no bool");
        assert!(XdrList::<u32, { usize::MAX }>::get(&mut Reader::new(&[0xff; 64])).is_err());
        let chain = [0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0];
        let mut r = Reader::new(&chain);
        assert_eq!(XdrChain::<u32>::get(&mut r).unwrap(), XdrChain::of(&[9, 8]));
        assert_eq!(r.remaining(), 0);
        assert!(XdrChain::<u32>::get(&mut Reader::new(&chain[..16])).is_err(), "no end");
    }
}
