//! The bytes between a sender and a receiver.
//!
//! ```text
//! LARDSEND | version 4 | 0 4 | frames: kind 1, length 4, body, checksum 8
//! header (JSON)   object (length 8, path)   data (up to 1 MiB), as many as the object needs   ...   end (JSON)
//! ```
//!
//! - `stream.frames_in_order`: the checksum of a frame is seeded with its number. A frame that is left out, repeated, moved or
//!   changed is noticed at once.
//! - `stream.ends`: nothing counts before the end was read. A stream that was cut says so.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_base::checksum::checksum;
use larder_fs::{FsError, FsResult};
use serde::{Deserialize, Serialize};

use crate::properties::Properties;

const MAGIC: &[u8; 8] = b"LARDSEND";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 16;
const FRAME_HEAD_BYTES: usize = 5;
const SUM_BYTES: usize = 8;
/// The longest piece of an object's data.
pub(super) const DATA_BYTES_MAX: usize = 1 << 20;
/// The longest frame: an end names every range of segments.
const FRAME_BYTES_MAX: usize = 32 << 20;
/// The longest header: ten thousand quotas of users are a third of it.
const HEADER_BYTES_MAX: usize = 2 << 20;
const PATH_BYTES_MAX: usize = 256;

fn body_bytes_max(kind: u8) -> usize {
    match kind {
        1 => HEADER_BYTES_MAX,
        2 => 8 + PATH_BYTES_MAX,
        3 => DATA_BYTES_MAX,
        _ => FRAME_BYTES_MAX,
    }
}

/// A snapshot of a volume, the same wherever it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Its number among the snapshots of its volume.
    pub(super) number: u64,
    /// Its name when it was sent.
    pub(super) name: String,
    /// Nanoseconds since 1970: two volumes that were one go on with the same numbers at different times.
    pub(super) created_ns: i64,
}

impl Identity {
    pub(super) fn is(&self, other: &Identity) -> bool {
        self.number == other.number && self.created_ns == other.created_ns
    }
}

/// What a stream brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The volume that was snapshotted first, whoever sends.
    pub(super) source: uuid::Uuid,
    /// The sources that it had before it was encrypted or re-keyed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) former_sources: Vec<uuid::Uuid>,
    /// Its name at the sender.
    pub(super) volume: String,
    pub(super) properties: Properties,
    /// It is encrypted: everything but this stream's own frames is sealed.
    pub(super) sealed: bool,
    /// Features that a program must know to write the volume.
    pub(super) features: Vec<String>,
    /// The snapshot that the receiver has. `None`: none is needed.
    pub(super) from: Option<Identity>,
    pub(super) to: Identity,
    /// The image lies over that of `from`, whose tables it reads.
    pub(super) is_delta: bool,
    /// About, in bytes.
    pub(super) bytes: u64,
    /// The stream has the keyring alone, for a replica that has the snapshot `to`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) keyring_only: bool,
}

/// What the snapshot needs; all of it is in the stream, or at the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// Numbers of segments: the first and how many.
    pub(super) segments: Vec<(u64, u64)>,
    /// Names of tables; none of a delta's.
    pub(super) tables: Vec<String>,
    /// How many objects the stream has.
    pub(super) objects: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Header(Header),
    Object { path: String, bytes: u64 },
    Data(Bytes),
    End(End),
}

/// Makes frames.
pub(super) struct Encoder {
    number: u64,
}

impl Encoder {
    /// An encoder and the beginning of its stream.
    pub(super) fn new() -> (Self, Bytes) {
        let mut out = BytesMut::with_capacity(HEAD_BYTES);
        out.put_slice(MAGIC);
        out.put_u32(VERSION);
        out.put_u32(0);
        (Self { number: 0 }, out.freeze())
    }

    /// The frame without its body, which goes between the two.
    fn around(&mut self, kind: u8, body: &[u8]) -> (Bytes, Bytes) {
        assert!(body.len() <= FRAME_BYTES_MAX, "a frame is bounded");
        let mut head = BytesMut::with_capacity(FRAME_HEAD_BYTES);
        head.put_u8(kind);
        head.put_u32(body.len() as u32);
        let sum = sum_of(self.number, kind, body);
        self.number += 1;
        (head.freeze(), Bytes::copy_from_slice(&sum.to_be_bytes()))
    }

    pub(super) fn frame(&mut self, frame: &Frame) -> FsResult<[Bytes; 3]> {
        let json = |value: serde_json::Result<Vec<u8>>| value.map_err(|error| FsError::Io(error.to_string().into()));
        let (kind, body) = match frame {
            Frame::Header(header) => (1, json(serde_json::to_vec(header))?.into()),
            Frame::Object { path, bytes } => (2, [&bytes.to_be_bytes()[..], path.as_bytes()].concat().into()),
            Frame::Data(data) => (3, data.clone()),
            Frame::End(end) => (4, json(serde_json::to_vec(end))?.into()),
        };
        let (head, sum) = self.around(kind, &body);
        Ok([head, body, sum])
    }
}

fn sum_of(number: u64, kind: u8, body: &[u8]) -> u64 {
    checksum(number << 8 | u64::from(kind), body)
}

/// Reads frames out of a stream of bytes that nobody is trusted for.
pub(super) struct Decoder<'a> {
    input: BoxStream<'a, FsResult<Bytes>>,
    held: BytesMut,
    number: u64,
}

fn bad(why: &str) -> FsError {
    FsError::Io(format!("the stream is damaged, or none of a larder: {why}").into())
}

/// What has the right checksum is as it was sent: sending it again would not help.
fn nonsense(why: &str) -> FsError {
    FsError::Refused(format!("the stream is none of a larder: {why}").into())
}

impl<'a> Decoder<'a> {
    pub(super) async fn new(input: BoxStream<'a, FsResult<Bytes>>) -> FsResult<Self> {
        let mut decoder = Self { input, held: BytesMut::new(), number: 0 };
        let mut head = decoder.take(HEAD_BYTES).await?;
        if head.split_to(8) != MAGIC[..] {
            return Err(bad("it begins otherwise"));
        }
        match head.get_u32() {
            VERSION => Ok(decoder),
            version => Err(FsError::Unsupported(
                format!("the stream has version {version}, this larder knows {VERSION}: a newer larder is needed")
                    .into(),
            )),
        }
    }

    async fn take(&mut self, bytes: usize) -> FsResult<Bytes> {
        while self.held.len() < bytes {
            match self.input.next().await {
                Some(more) => self.held.extend_from_slice(&more?),
                None => {
                    return Err(FsError::Io(
                        "the stream ends in the middle: nothing of it is shown; send it again".into(),
                    ));
                }
            }
        }
        Ok(self.held.split_to(bytes).freeze())
    }

    pub(super) async fn next(&mut self) -> FsResult<Frame> {
        let mut head = self.take(FRAME_HEAD_BYTES).await?;
        let (kind, length) = (head.get_u8(), head.get_u32() as usize);
        if length > body_bytes_max(kind) {
            return Err(bad("a frame has an impossible length"));
        }
        let body = self.take(length).await?;
        let sum = self.take(SUM_BYTES).await?.get_u64();
        if sum != sum_of(self.number, kind, &body) {
            return Err(bad(&format!("the checksum of frame {} is wrong", self.number)));
        }
        self.number += 1;
        // The error cites the text.
        let json = |error: serde_json::Error| nonsense(&error.to_string().escape_debug().to_string());
        match kind {
            1 => Ok(Frame::Header(serde_json::from_slice(&body).map_err(json)?)),
            2 => object(body),
            3 => Ok(Frame::Data(body)),
            4 => Ok(Frame::End(serde_json::from_slice(&body).map_err(json)?)),
            other => Err(nonsense(&format!("a frame has the unknown kind {other}"))),
        }
    }
}

fn object(mut body: Bytes) -> FsResult<Frame> {
    if body.len() < 8 || body.len() > 8 + PATH_BYTES_MAX {
        return Err(nonsense("an object has an impossible name"));
    }
    let bytes = body.get_u64();
    let path = std::str::from_utf8(&body).map_err(|_| nonsense("an object's name is no text"))?.to_owned();
    Ok(Frame::Object { path, bytes })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn frames() -> Vec<Frame> {
        let identity = |number| Identity { number, name: format!("s{number}"), created_ns: 5 };
        vec![
            Frame::Header(Header {
                source: uuid::Uuid::from_u128(1),
                former_sources: Vec::new(),
                volume: "v".into(),
                properties: Properties::default(),
                sealed: false,
                features: vec!["snapshots".into()],
                from: Some(identity(1)),
                to: identity(2),
                is_delta: true,
                bytes: 9,
                keyring_only: false,
            }),
            Frame::Object { path: "seg/0000000000000001".into(), bytes: 3 },
            Frame::Data(Bytes::from_static(b"abc")),
            Frame::End(End { segments: vec![(1, 1)], tables: vec![], objects: 1 }),
        ]
    }

    fn encoded() -> Vec<u8> {
        let (mut encoder, head) = Encoder::new();
        let mut out = head.to_vec();
        for frame in frames() {
            encoder.frame(&frame).unwrap().iter().for_each(|part| out.extend_from_slice(part));
        }
        out
    }

    /// Read in pieces of `step` bytes.
    async fn decoded(bytes: &[u8], step: usize) -> FsResult<Vec<Frame>> {
        let pieces: Vec<FsResult<Bytes>> = bytes.chunks(step).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let mut decoder = Decoder::new(futures::stream::iter(pieces).boxed()).await?;
        let mut out = Vec::new();
        while !matches!(out.last(), Some(Frame::End(_))) {
            out.push(decoder.next().await?);
        }
        Ok(out)
    }

    #[tokio::test]
    async fn frames_come_through_in_pieces_of_any_size() {
        for step in [1, 7, 1000] {
            assert_eq!(decoded(&encoded(), step).await.unwrap(), frames());
        }
    }

    #[tokio::test]
    async fn every_flipped_bit_and_every_cut_is_noticed() {
        let bytes = encoded();
        for at in 0..bytes.len() {
            assert!(decoded(&bytes[..at], 100).await.is_err(), "cut at {at}");
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            // Four bytes of the head are kept for later.
            assert_eq!(decoded(&bad, 100).await.is_err(), !(12..16).contains(&at), "bit of byte {at}");
        }
    }

    #[tokio::test]
    async fn frames_that_change_places_are_noticed() {
        let (mut encoder, head) = Encoder::new();
        let data = |encoder: &mut Encoder, text: &'static str| {
            encoder.frame(&Frame::Data(Bytes::from_static(text.as_bytes()))).unwrap().concat()
        };
        let (one, other) = (data(&mut encoder, "one"), data(&mut encoder, "two"));
        let swapped = [&head[..], &other, &one].concat();
        assert!(decoded(&swapped, 100).await.unwrap_err().to_string().contains("checksum of frame 0"));
    }

    #[test]
    fn golden_bytes() {
        let hex: String = encoded()[..40].iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with("4c41524453454e44000000010000000001"), "{hex}");
        let (mut encoder, _) = Encoder::new();
        let data = encoder.frame(&Frame::Data(Bytes::from_static(b"abc"))).unwrap().concat();
        let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(&hex[..16], "0300000003616263");
    }
}
