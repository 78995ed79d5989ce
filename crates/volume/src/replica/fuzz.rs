//! The bytes of a sender, and the document that they are written down in.
#![allow(clippy::unwrap_used)]

use bytes::{BufMut, Bytes, BytesMut};
use futures::{FutureExt, StreamExt};
use larder_base::Timestamp;
use larder_base::checksum::checksum;
use larder_fs::FsResult;

use super::document::Document;
use super::limits::check_header;
use super::stream::{Decoder, Encoder, End, Frame};
use super::{Had, numbers_of};

const HEAD_BYTES: usize = 16;

/// Reads frames to the end, in pieces of `step` bytes. What comes through is within its bounds.
fn read(data: &[u8], step: usize) -> Option<usize> {
    let pieces: Vec<FsResult<Bytes>> = data.chunks(step).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let read = async {
        let mut decoder = Decoder::new(futures::stream::iter(pieces).boxed()).await.ok()?;
        let mut count = 0;
        while let Ok(frame) = decoder.next().await {
            count += 1;
            match frame {
                Frame::Header(header) => {
                    if check_header(&header).is_ok() {
                        assert!((1..=200).contains(&header.to.name.len()) && header.to.name.is_ascii());
                        let (mut encoder, _) = Encoder::new();
                        encoder.frame(&Frame::Header(header)).unwrap();
                    }
                }
                Frame::End(End { segments, .. }) => {
                    let some = segments.first().map_or(0, |(first, _)| *first);
                    if let (Ok(had), Ok(mut numbers)) = (Had::of(&segments), numbers_of(&segments)) {
                        assert!(numbers.next().is_none_or(|number| had.contains(number)), "{some}");
                    }
                }
                Frame::Object { path, .. } => assert!(path.len() <= data.len()),
                Frame::Data(bytes) => assert!(bytes.len() <= data.len()),
            }
        }
        Some(count)
    };
    read.now_or_never().unwrap()
}

pub(crate) fn stream(data: &[u8]) {
    assert_eq!(read(data, data.len().max(1)), read(data, 7));
    // With the head, the lengths and the checksums put right.
    let mut right = BytesMut::from(&b"LARDSEND\0\0\0\x01\0\0\0\0"[..]);
    let mut rest = data.get(HEAD_BYTES..).unwrap_or(data);
    let mut number = 0u64;
    while let Some((&[kind, a, b, c, d], tail)) = rest.split_first_chunk() {
        let length = (u32::from_be_bytes([a, b, c, d]) as usize).min(tail.len());
        let (body, tail) = tail.split_at(length);
        right.put_u8(kind);
        right.put_u32(length as u32);
        right.put_slice(body);
        right.put_u64(checksum(number << 8 | u64::from(kind), body));
        rest = tail.get(8..).unwrap_or_default();
        number += 1;
    }
    read(&right, right.len());
}

pub(crate) fn document(data: &[u8]) {
    let Ok(mut document) = Document::decode(data) else { return };
    let once = serde_json::to_vec(&document).unwrap();
    assert_eq!(Document::decode(&once).unwrap(), document);
    document.tick(Timestamp::new(1_790_000_000, 0));
    let _ = (document.used(), document.newest_segment());
    let numbers: Vec<u64> = document.snapshots.iter().map(|one| one.identity.number).collect();
    for number in &numbers {
        document.metadata_of(*number);
    }
    document.remove(&numbers);
    assert!(document.snapshots.is_empty() && document.objects.is_empty());
}

/// Streams to begin with.
#[cfg(test)]
pub(crate) fn streams() -> Vec<Vec<u8>> {
    use super::stream::{Header, Identity};
    let identity = |number| Identity { number, name: format!("s{number}"), created_ns: 5 };
    let header = |from| Header {
        source: uuid::Uuid::from_u128(1),
        former_sources: vec![uuid::Uuid::from_u128(2)],
        volume: "v".into(),
        properties: crate::properties::Properties::default(),
        sealed: false,
        features: vec!["snapshots".into()],
        from,
        to: identity(2),
        is_delta: false,
        keyring_only: false,
        bytes: 9,
    };
    let frames = |from| {
        vec![
            Frame::Header(header(from)),
            Frame::Object { path: "seg/0000000000000001".into(), bytes: 3 },
            Frame::Data(Bytes::from_static(b"abc")),
            Frame::End(End { segments: vec![(1, 1), (5, 2)], tables: vec!["meta/x".into()], objects: 1 }),
        ]
    };
    let encoded = |frames: Vec<Frame>| {
        let (mut encoder, head) = Encoder::new();
        let mut out = head.to_vec();
        for frame in frames {
            encoder.frame(&frame).unwrap().iter().for_each(|part| out.extend_from_slice(part));
        }
        out
    };
    vec![encoded(frames(None)), encoded(frames(Some(identity(1))))]
}
