//! Input that the codec decodes: requests, call-backs' answers, attributes. What decodes encodes to what decodes to the same.

use bytes::Bytes;

use super::super::xdr::Reader;
use super::attrs::FileAttrs;
use super::bitmap::Bitmap;
use super::callback::{CbCompound, CbCompoundResult};
use super::compound::{Arrived, Compound, CompoundResult, payload_place};
use super::ops::{ArgOp, OpNumber};
use super::types::Fattr;
use super::wire::{Xdr, XdrOut};

/// Operations that are looked at: one of four bytes is as good as the next of its kind.
const OPERATIONS_MAX: usize = 64;

/// Encodes a value and hands its bytes on.
fn encoded<'a>(value: &impl Xdr<'a>) -> Vec<u8> {
    let mut out = XdrOut::default();
    value.put(&mut out);
    out.into_bytes()
}

fn same_again<'a>(op: &ArgOp<'a>, minor: u32) {
    let bytes = encoded(op);
    let mut r = Reader::new(&bytes);
    let number = r.u32().ok().and_then(|number| OpNumber::from_number(number, minor)).expect("an operation");
    let again = ArgOp::get_arguments(number, &mut r).expect("it was encoded");
    assert!(again == *op && r.remaining() == 0);
}

/// COMPOUND4args: operation by operation; the same with a payload apart.
pub fn compound(data: &[u8]) {
    let arrived = Arrived { before: data, apart: None };
    let Ok(mut whole) = Compound::parse(arrived) else { return };
    let minor = whole.minor;
    for _ in 0..OPERATIONS_MAX {
        match whole.next_op() {
            Some(Ok(op)) => same_again(&op, minor),
            Some(Err(_)) => assert!(!whole.has_more()),
            None => break,
        }
    }
    let seen = data.len() / 2;
    let Some(place) = data.get(..seen).and_then(|start| payload_place(start, data.len())) else { return };
    let (before, rest) = data.split_at(place.before);
    let (payload, after) = rest.split_at(place.bytes);
    assert_eq!(after.len(), place.after);
    let chunks = [Bytes::copy_from_slice(payload)];
    let apart = Arrived { before, apart: Some((&chunks, after)) };
    let (Ok(mut whole), Ok(mut parts)) = (Compound::parse(arrived), Compound::parse(apart)) else { return };
    for _ in 0..OPERATIONS_MAX {
        let (one, other) = (whole.next_op(), parts.next_op());
        assert!(one == other);
        if one.is_none() {
            break;
        }
    }
}

/// CB_COMPOUND4res, and what a client of NFSv4 reads.
pub fn callback(data: &[u8]) {
    if let Ok(answer) = CbCompoundResult::get(&mut Reader::new(data)) {
        assert!(CbCompoundResult::get(&mut Reader::new(&encoded(&answer))) == Ok(answer));
    }
    if let Ok(call) = CbCompound::get(&mut Reader::new(data)) {
        assert!(CbCompound::get(&mut Reader::new(&encoded(&call))) == Ok(call));
    }
    if let Ok(answer) = CompoundResult::get(&mut Reader::new(data)) {
        assert!(CompoundResult::get(&mut Reader::new(&encoded(&answer))) == Ok(answer));
    }
}

/// `fattr4` with its values.
pub fn attributes(data: &[u8]) {
    let Ok(list) = Fattr::get(&mut Reader::new(data)) else { return };
    let Ok(attrs) = FileAttrs::decode(&list) else { return };
    let values = attrs.encode_values();
    assert!(FileAttrs::decode(&attrs.list(&values)) == Ok(attrs));
    assert!(attrs.mask().without(&FileAttrs::all()) == Bitmap::EMPTY);
}

/// Requests of a few operations with deep arguments, and one with a payload between two others.
pub fn some_requests() -> Vec<Vec<u8>> {
    use OpNumber::{Copy, CreateSession, ExchangeId, GetAttr, Lock, Open, SetAttr, SetClientId, WriteSame};
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mut requests = Vec::new();
    for number in [Copy, CreateSession, ExchangeId, GetAttr, Lock, Open, SetAttr, SetClientId, WriteSame] {
        // An operation, and arguments of ones and zeros: lists of one, names of a byte, first arms of unions.
        let mut request = vec![0, 2, 2, 24, number.number()];
        request.extend([1; 24].iter().chain(&[0; 24]));
        requests.push(words(&request));
    }
    requests.push(words(&[0, 1, 3, 24, 38, 1, 2, 3, 4, 0, 9, 2, 8, 0x6162_6364, 0x6566_6768, 10]));
    requests
}
