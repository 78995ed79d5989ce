//! Input that the SFTP server decodes: the stream of packets, and each of them.

use bytes::Bytes;

pub use super::certificate::ssh_certificate;
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
            let plain = larder_doors::tree::plain(&path);
            assert!(plain.len() <= path.len() && !plain.starts_with(b"/") && !plain.ends_with(b"/"));
        }
        Request::Names { uids, gids } => assert!(4 * (uids.len() + gids.len()) <= data.len()),
        _ => {}
    }
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    /// Packets of SFTP: OPEN, WRITE, READ, RENAME, an extension with lists.
    fn sftp_packets() -> Vec<Vec<u8>> {
        let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
        let packet = |kind: u8, fields: &[Vec<u8>]| [&[kind, 0, 0, 0, 9], &fields.concat()[..]].concat();
        let attrs = [0u32, 4, 0o644].iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>()[4..].to_vec();
        let handle = text(&[0, 0, 0, 1]);
        vec![
            packet(1, &[]),
            packet(3, &[text(b"/files/../a"), vec![0, 0, 0, 0x1a], attrs.clone()]),
            packet(5, &[handle.clone(), vec![0; 8], vec![0, 0, 128, 0]]),
            packet(6, &[handle.clone(), vec![0; 8], text(b"data")]),
            packet(9, &[text(b"a"), vec![0, 0, 0, 15], vec![1; 28]]),
            packet(18, &[text(b"a"), text(b"b")]),
            packet(200, &[text(b"copy-data"), handle.clone(), vec![0; 16], handle, vec![0; 8]]),
            packet(200, &[text(b"users-groups-by-id@openssh.com"), text(&[0; 8]), text(&[0; 4])]),
        ]
    }

    #[test]
    fn fuzz_sftp_packet() {
        drive("sftp_packet", &sftp_packets(), super::sftp_packet);
    }

    #[test]
    fn fuzz_sftp_stream() {
        let framed = |packet: &Vec<u8>| [&(packet.len() as u32).to_be_bytes(), &packet[..]].concat();
        let packets = sftp_packets();
        let all = packets.iter().flat_map(&framed).collect();
        drive("sftp_stream", &[framed(&packets[0]), all], super::sftp_stream);
    }

    #[test]
    fn fuzz_ssh_certificate() {
        let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
        let certificate = [
            text(b"ssh-ed25519-cert-v01@openssh.com"),
            text(&[7; 32]),
            text(&[8; 32]),
            vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
            text(b"id"),
            text(&text(b"ann")),
            vec![0; 8],
            vec![0xFF; 8],
            text(&[text(b"source-address"), text(&text(b"192.168.0.0/16"))].concat()),
            text(b""),
            text(b""),
            text(&[text(b"ssh-ed25519"), text(&[9; 32])].concat()),
            text(&[text(b"ssh-ed25519"), text(&[1; 64])].concat()),
        ];
        let seeds = [
            certificate.concat(),
            b"source-address=192.168.0.0/16,::1".to_vec(),
            b"force-command=internal-sftp".to_vec(),
        ];
        drive("ssh_certificate", &seeds, super::ssh_certificate);
    }
}
