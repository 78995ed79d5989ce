//! Input that the SFTP server decodes: the stream of packets, and each of them.

use bytes::Bytes;

use super::packet::{Frames, PACKET_BYTES_MAX, Request, decode};

/// A stream of packets, received in one piece and in small ones: the same packets.
pub fn sftp_stream(data: &[u8]) {
    assert_eq!(cut(data, data.len()), cut(data, 7));
}

/// Lengths of the packets, and whether the stream was refused in the end.
fn cut(stream: &[u8], step: usize) -> (Vec<usize>, bool) {
    let (mut frames, mut found) = (Frames::default(), Vec::new());
    for mut piece in stream.chunks(step.max(1)) {
        loop {
            match frames.next(&mut piece) {
                Ok(Some(packet)) => {
                    assert!((1..=PACKET_BYTES_MAX).contains(&packet.len()));
                    found.push(packet.len());
                }
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}

/// One packet. What is decoded lies within it, and its paths can be made plain.
pub fn sftp_packet(data: &[u8]) {
    let Ok((_, Ok(request))) = decode(Bytes::copy_from_slice(data)) else { return };
    match request {
        Request::Write { data: written, .. } => assert!(written.len() <= data.len()),
        Request::Open { path, .. } | Request::MkDir { path, .. } | Request::RealPath { path } => {
            let plain = crate::tree::plain(&path);
            assert!(plain.len() <= path.len() && !plain.starts_with(b"/") && !plain.ends_with(b"/"));
        }
        Request::Names { uids, gids } => assert!(4 * (uids.len() + gids.len()) <= data.len()),
        _ => {}
    }
}
