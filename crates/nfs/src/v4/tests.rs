//! The codec as a whole.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use bytes::Bytes;
use proptest::prelude::*;

use super::super::xdr::{Garbage, Reader};
use super::attrs::{FileAttrs, number};
use super::bitmap::Bitmap;
use super::callback::{CbArgOp, CbCompound, CbCompoundResult, CbNumber, CbResOp};
use super::compound::{
    Arrived, Compound, CompoundArgs, CompoundReply, CompoundResult, NO_TAG, OPERATIONS_MAX, PayloadPlace, Undecodable,
    payload_place,
};
use super::ops::{ArgOp, OpNumber, ReadArgs, ReadOk, ResOp, SequenceArgs, WriteArgs};
use super::sample::{Sample, Sampler};
use super::types::{Fattr, FileType4, NfsStat, StableHow, StateId, Time4};
use super::wire::{FileData, Opaque, Xdr, XdrList, XdrOut};

const STATEID: StateId = StateId { seqid: 0x0102_0304, other: [9; 12] };

fn encoded<'a>(value: &impl Xdr<'a>) -> Vec<u8> {
    let mut out = XdrOut::default();
    value.put(&mut out);
    out.into_bytes()
}

fn decoded<'a, T: Xdr<'a>>(bytes: &'a [u8]) -> Result<T, Garbage> {
    let mut r = Reader::new(bytes);
    let value = T::get(&mut r)?;
    if r.remaining() == 0 { Ok(value) } else { Err(Garbage) }
}

/// The value comes back from its bytes, and from no beginning of them.
fn check_round_trip<'a, T: Xdr<'a> + PartialEq + std::fmt::Debug>(value: &T) {
    let bytes: &'static [u8] = encoded(value).leak();
    assert_eq!(bytes.len() % 4, 0, "{value:?}");
    assert_eq!(decoded::<T>(bytes).as_ref(), Ok(value));
    for len in 0..bytes.len() {
        let start = &bytes[..len];
        assert!(decoded::<T>(start).is_err(), "{len} bytes of {value:?}");
    }
}

#[test]
fn every_operation_round_trips() {
    for seed in 0..60 {
        let mut chance = Sampler::new(seed);
        ArgOp::samples(&mut chance).iter().for_each(check_round_trip);
        ResOp::samples(&mut chance).iter().for_each(check_round_trip);
        CbArgOp::samples(&mut chance).iter().for_each(check_round_trip);
        CbResOp::samples(&mut chance).iter().for_each(check_round_trip);
        check_round_trip(&CompoundArgs::sample(&mut chance));
        check_round_trip(&CompoundResult::sample(&mut chance));
        check_round_trip(&CbCompound::sample(&mut chance));
        check_round_trip(&CbCompoundResult::sample(&mut chance));
    }
}

#[test]
fn every_failure_round_trips() {
    for number in OpNumber::ALL.iter().copied().chain([OpNumber::Illegal]) {
        let failed = ResOp::failed(number, NfsStat::Delay);
        check_round_trip(&failed);
        let status = if number == OpNumber::Illegal { NfsStat::OpIllegal } else { NfsStat::Delay };
        assert_eq!((failed.number(), failed.status()), (number, status));
    }
    for number in CbNumber::ALL {
        check_round_trip(&CbResOp::failed(*number, NfsStat::BadHandle));
    }
    assert_eq!(ResOp::failed(OpNumber::Lock, NfsStat::Denied).status(), NfsStat::ServerFault, "it says by whom");
}

/// RFC 7531, RFC 5662, RFC 7863, RFC 8276: which minor version has which operations.
#[test]
fn operations_by_minor_version() {
    let known = |minor| (0..200).filter(|number| OpNumber::from_number(*number, minor).is_some()).collect::<Vec<_>>();
    assert_eq!(known(0), (3..40).collect::<Vec<_>>());
    assert_eq!(known(1), (3..59).collect::<Vec<_>>());
    assert_eq!(known(2), (3..76).collect::<Vec<_>>());
    let back = |minor| (0..200).filter(|number| CbNumber::from_number(*number, minor).is_some()).count();
    assert_eq!((back(0), back(1), back(2)), (2, 12, 13));
    assert_eq!(OpNumber::from_number(10044, 2), None, "the number of an answer");
}

#[test]
fn golden_compound() {
    let ops = [
        ArgOp::Sequence(SequenceArgs { session: [1; 16], sequence: 2, slot: 3, highest_slot: 4, cache_this: true }),
        ArgOp::PutFh(Opaque(b"handle")),
        ArgOp::Write(WriteArgs {
            stateid: STATEID,
            offset: 0x1_0000_0002,
            stable: StableHow::FileSync,
            data: FileData::Slice(b"abcde"),
        }),
        ArgOp::GetAttr(Bitmap::of(&[number::SIZE, number::TIME_MODIFY])),
    ];
    let bytes = encoded(&CompoundArgs { tag: Opaque(b"t"), minor: 1, ops: XdrList::of(&ops) });
    #[rustfmt::skip]
    let wanted = [
        &[0, 0, 0, 1, b't', 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4][..],
        &[0, 0, 0, 53], &[1; 16], &[0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1],
        &[0, 0, 0, 22, 0, 0, 0, 6], b"handle\0\0",
        &[0, 0, 0, 38, 1, 2, 3, 4], &[9; 12], &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 5], b"abcde\0\0\0",
        &[0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 0x10, 0, 0x20, 0, 0],
    ].concat();
    assert_eq!(bytes, wanted);
}

/// Operations of a request one by one, and how it ends.
fn read<'a>(arrived: Arrived<'a>) -> (Vec<ArgOp<'a>>, Option<Undecodable>) {
    let mut compound = Compound::parse(arrived).unwrap();
    let mut ops = Vec::new();
    while let Some(op) = compound.next_op() {
        match op {
            Ok(op) => ops.push(op),
            Err(bad) => {
                assert!(!compound.has_more(), "it is the last");
                return (ops, Some(bad));
            }
        }
    }
    (ops, None)
}

#[test]
fn what_does_not_decode_is_the_last() {
    let cases: [(&[u32], u32, usize, Undecodable); 5] = [
        (&[24, 10, 99], 2, 2, Undecodable { number: OpNumber::Illegal, status: NfsStat::OpIllegal }),
        (&[24, 53, 0], 0, 1, Undecodable { number: OpNumber::Illegal, status: NfsStat::OpIllegal }),
        (&[24, 12, 77, 0], 1, 1, Undecodable { number: OpNumber::Lock, status: NfsStat::BadXdr }),
        (&[24, 22, 200], 1, 1, Undecodable { number: OpNumber::PutFh, status: NfsStat::BadXdr }),
        (&[24], 1, 1, Undecodable { number: OpNumber::Illegal, status: NfsStat::OpIllegal }),
    ];
    for (words, minor, good, wanted) in cases {
        let words = [0, minor, 9].iter().chain(words).flat_map(|word: &u32| word.to_be_bytes()).collect::<Vec<_>>();
        let (ops, bad) = read(Arrived { before: &words, apart: None });
        assert_eq!((ops.len(), bad), (good, Some(wanted)));
    }
    assert!(Compound::parse(Arrived { before: &[0, 0, 4, 1, 0, 0, 0, 0], apart: None }).is_err(), "too long a tag");
}

/// The bytes of a request, with the payload that `payload_place` finds in its first `seen` bytes received apart.
fn apart(bytes: &[u8], seen: usize) -> Option<(&[u8], Vec<Bytes>, &[u8])> {
    let PayloadPlace { before, bytes: len, after, .. } = payload_place(&bytes[..seen], bytes.len())?;
    assert_eq!(before + len + after, bytes.len());
    let payload = &bytes[before..before + len];
    let chunks = payload.chunks(3).map(Bytes::copy_from_slice).collect();
    Some((&bytes[..before], chunks, &bytes[before + len..]))
}

#[test]
fn a_payload_is_received_apart_at_any_position() {
    let getattr = ArgOp::GetAttr(Bitmap::of(&[number::SIZE]));
    for len in [1, 4, 30, 200] {
        let data = vec![7; len];
        for (at, count) in (1..5).flat_map(|count| (0..count).map(move |at| (at, count))) {
            let write = ArgOp::Write(WriteArgs {
                stateid: STATEID,
                offset: 77,
                stable: StableHow::Unstable,
                data: FileData::Slice(&data),
            });
            let ops: Vec<_> = (0..count).map(|of| if of == at { write } else { getattr }).collect();
            let bytes = encoded(&CompoundArgs { tag: NO_TAG, minor: 1, ops: XdrList::of(&ops) });
            let before = 12 + at * 12 + 4 + 16 + 8 + 4 + 4;
            let place = payload_place(&bytes[..before], bytes.len()).unwrap();
            assert_eq!((place.before, place.bytes, place.file_offset), (before, len, 77));
            let (before, payload, after) = apart(&bytes, before).unwrap();
            let (read_ops, bad) = read(Arrived { before, apart: Some((&payload, after)) });
            assert_eq!((read_ops, bad), (ops, None), "{len} bytes, {at} of {count}");
            assert_eq!(payload_place(&bytes, bytes.len()), None, "it is all there");
        }
    }
}

#[test]
fn a_payload_of_another_length_does_not_decode() {
    let data = [7; 40];
    let write = WriteArgs { stateid: STATEID, offset: 0, stable: StableHow::Unstable, data: FileData::Slice(&data) };
    let ops = [ArgOp::Write(write)];
    let bytes = encoded(&CompoundArgs { tag: NO_TAG, minor: 0, ops: XdrList::of(&ops) });
    let chunks = [Bytes::from_static(&[7; 39])];
    let (ops, bad) = read(Arrived { before: &bytes[..bytes.len() - 40], apart: Some((&chunks, &[])) });
    assert_eq!((ops.len(), bad.unwrap().status), (0, NfsStat::BadXdr));
    assert_eq!(payload_place(&bytes[..bytes.len() - 40], bytes.len() - 8), None, "longer than its message");
}

#[test]
fn replies_have_the_status_of_their_last_operation() {
    let data = [Bytes::from(vec![5; 7])];
    let read = ResOp::Read(Ok(ReadOk { eof: true, data: FileData::Chunks(&data) }));
    let mut reply = CompoundReply::begin(XdrOut::default(), Opaque(b"tag"));
    reply.push(&ResOp::PutFh(Ok(())));
    reply.push(&read);
    let bytes = reply.len() + 8;
    reply.push_within(&ResOp::PutFh(Ok(())), bytes, NfsStat::RepTooBig);
    reply.push_within(&read, bytes + 4, NfsStat::RepTooBig);
    assert_eq!(reply.status(), NfsStat::RepTooBig);
    let segments = reply.finish().into_segments();
    assert!(segments.iter().any(|segment| segment.as_ptr() == data[0].as_ptr()), "not copied");
    let bytes = segments.concat();
    let result: CompoundResult<'_> = decoded(&bytes).unwrap();
    let failed = ResOp::failed(OpNumber::Read, NfsStat::RepTooBig);
    let wanted = [ResOp::PutFh(Ok(())), read, ResOp::PutFh(Ok(())), failed];
    assert_eq!((result.status, result.tag.0), (NfsStat::RepTooBig, &b"tag"[..]));
    assert_eq!(result.results, XdrList::of(&wanted));
}

#[test]
fn attributes_round_trip_alone_and_together() {
    for seed in 0..40 {
        let all = FileAttrs::sample(&mut Sampler::new(seed));
        assert_eq!(all.mask(), FileAttrs::all());
        let masks = FileAttrs::all().iter().map(|one| Bitmap::of(&[one])).chain([Bitmap::EMPTY, FileAttrs::all()]);
        for mask in masks {
            let attrs = all.only(&mask);
            let mut out = XdrOut::default();
            all.put_wanted(&mask, &mut out);
            let bytes = out.into_bytes();
            let list: Fattr<'_> = decoded(&bytes).unwrap();
            assert_eq!(FileAttrs::decode(&list), Ok(attrs));
            let values = attrs.encode_values();
            assert_eq!(list, attrs.list(&values));
            let more = [&values[..], &[0; 4]].concat();
            assert_eq!(FileAttrs::decode(&attrs.list(&more)), Err(NfsStat::BadXdr), "more than the mask says");
            if !values.is_empty() {
                let less = &values[..values.len() - 4];
                assert_eq!(FileAttrs::decode(&attrs.list(less)), Err(NfsStat::BadXdr), "less");
            }
        }
    }
    assert_eq!(FileAttrs::all().iter().collect::<Vec<_>>(), (0..83).chain([86]).collect::<Vec<_>>());
}

#[test]
fn golden_attributes() {
    let time = Time4 { seconds: -1, nanoseconds: 5 };
    let attrs = FileAttrs {
        kind: Some(FileType4::Directory),
        size: Some(7),
        mode: Some(0o644),
        owner: Some(Opaque(b"1000")),
        time_modify: Some(time),
        ..FileAttrs::default()
    };
    let mut out = XdrOut::default();
    let wanted = Bitmap::of(&[number::TYPE, number::SIZE, number::MODE, number::OWNER, number::TIME_MODIFY, 82]);
    attrs.put_wanted(&wanted, &mut out);
    #[rustfmt::skip]
    let bytes = [
        &[0, 0, 0, 2, 0, 0, 0, 0x12, 0, 0x20, 0, 0x12, 0, 0, 0, 36][..],
        &[0, 0, 0, 2], &[0, 0, 0, 0, 0, 0, 0, 7], &[0, 0, 1, 0xa4], &[0, 0, 0, 4], b"1000",
        &[0xff; 8], &[0, 0, 0, 5],
    ].concat();
    assert_eq!(out.into_bytes(), bytes);
}

#[test]
fn attributes_that_there_are_not() {
    for unknown in [83, 95, 96, 5000] {
        let list = Fattr { mask: Bitmap::of(&[unknown]), values: Opaque(&[0; 4]) };
        assert_eq!(FileAttrs::decode(&list), Err(NfsStat::AttrNotSupp), "{unknown}");
    }
}

#[test]
fn bitmaps() {
    let bytes = [0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1];
    let set: Bitmap = decoded(&bytes).unwrap();
    assert_eq!((set.iter().collect::<Vec<_>>(), set.has_unknown()), (vec![0, 65], true));
    let words = [0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0];
    assert_eq!(decoded::<Bitmap>(&words), Ok(Bitmap::of(&[0, 65])));
    assert_eq!(
        encoded(&Bitmap::of(&[0, 65])),
        [&[0, 0, 0, 3][..], &words[4..16]].concat(),
        "no words of zeros at the end"
    );
    assert!(decoded::<Bitmap>(&[0xff; 300]).is_err());
    let (one, other) = (Bitmap::of(&[1, 40, 99]), Bitmap::of(&[1, 41]));
    assert_eq!((one.common(&other), one.without(&other)), (Bitmap::of(&[1]), Bitmap::of(&[40, 99])));
    assert!(Bitmap::of(&[]).is_empty() && !Bitmap::of(&[200]).is_empty());
}

/// A request of many operations is bounded where it is read as a client reads it, and counted where the server does.
#[test]
fn the_number_of_operations() {
    let ops = vec![ArgOp::PutRootFh(()); OPERATIONS_MAX as usize];
    let mut bytes = encoded(&CompoundArgs { tag: NO_TAG, minor: 0, ops: XdrList::of(&ops) });
    assert_eq!(read(Arrived { before: &bytes, apart: None }).0.len(), ops.len());
    bytes[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(decoded::<CompoundArgs<'_>>(&bytes).is_err());
    assert_eq!(Compound::parse(Arrived { before: &bytes, apart: None }).unwrap().count, u32::MAX);
    let args = ReadArgs { stateid: STATEID, offset: 0, count: 1 };
    check_round_trip(&ArgOp::Read(args));
}

proptest! {
    /// Requests in one piece and with a payload apart are the same, at whatever byte it is noticed.
    #[test]
    fn apart_or_not(seed: u64, seen in 12usize..600) {
        let mut chance = Sampler::new(seed);
        let count = chance.below(6);
        let mut ops: Vec<ArgOp<'_>> = (0..count).map(|_| Sample::sample(&mut chance)).collect();
        let data = chance.bytes(40);
        ops.push(ArgOp::Write(WriteArgs { data: FileData::Slice(data), ..Sample::sample(&mut chance) }));
        ops.push(Sample::sample(&mut chance));
        let bytes = encoded(&CompoundArgs { tag: NO_TAG, minor: 2, ops: XdrList::of(&ops) });
        let (whole, bad) = read(Arrived { before: &bytes, apart: None });
        prop_assert_eq!((&whole, bad), (&ops, None));
        if let Some((before, payload, after)) = apart(&bytes, seen.min(bytes.len())) {
            let (parts, bad) = read(Arrived { before, apart: Some((&payload, after)) });
            prop_assert_eq!((&parts, bad), (&ops, None));
        }
    }

    /// Anything is read to its end, and what is read is written as it came or in its shortest form.
    #[test]
    fn garbage_never_panics(seed: u64, flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..8)) {
        let mut chance = Sampler::new(seed);
        let mut bytes = encoded(&CompoundArgs::sample(&mut chance));
        for (at, flip) in flips {
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= flip;
        }
        super::super::fuzz::nfs4_compound(&bytes);
        super::super::fuzz::nfs4_callback(&bytes);
        super::super::fuzz::nfs4_attributes(&bytes);
    }
}
