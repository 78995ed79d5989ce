//! Input that the SMB server and the bench's client decode: frames, requests and their contents,
//! logons, remote procedure calls; and the names, rules and times in them, as the door has them.

mod decoders;

use crate::door::{names, times};

/// A frame: requests one after the other.
pub fn smb_frame(data: &[u8]) {
    decoders::frame(data);
    decoders::header(data);
    decoders::requests(data);
}

/// The body of any request.
pub fn smb_request(data: &[u8]) {
    decoders::bodies(data);
}

/// Contents of requests: security descriptors, copy-chunk, targets of renames, paths, patterns.
pub fn smb_input(data: &[u8]) {
    decoders::inputs(data);
}

/// Contexts of a CREATE, and the answers to breaks.
pub fn smb_context(data: &[u8]) {
    decoders::durable_ask(data);
    decoders::durable_context(data);
    decoders::lease_context(data);
    decoders::lease_ack(data);
}

/// Tokens of a logon: SPNEGO (RFC 4178) and NTLM (MS-NLMP).
pub fn smb_logon(data: &[u8]) {
    decoders::spnego(data);
    decoders::ntlm(data);
}

/// The header of an encrypted message (MS-SMB2 2.2.41).
pub fn smb_encrypted(data: &[u8]) {
    decoders::transform(data);
}

/// A server's answers, and its challenge at a logon.
pub fn smb_answer(data: &[u8]) {
    decoders::answer(data);
}

/// Remote procedure calls over a pipe: their packets, associations, and requests to the server service (MS-SRVS).
pub fn smb_rpc(data: &[u8]) {
    decoders::rpc_pdu(data);
    decoders::rpc_association(data);
    decoders::srvsvc_request(data);
}

/// Names and times. The shown form of a name leads back to the name (`names.listed_is_found`).
pub fn smb_name(data: &[u8]) {
    if !data.iter().any(|byte| matches!(byte, 0 | b'/')) {
        let shown = names::shown(data);
        assert!(*names::stored(&shown) == *data || names::verbatim(&shown) == Some(data), "{shown:?}");
    }
    if let Some(ticks) = data.first_chunk::<8>() {
        let _ = times::timestamp(u64::from_le_bytes(*ticks));
    }
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    /// The addresses of the arena are no memory that an input asked for: they are there before it is measured.
    fn drive(name: &str, seeds: &[Vec<u8>], entry: fn(&[u8])) {
        drop(larder_base::arena::take(1));
        super::driver::drive(name, seeds, entry);
    }

    /// Integers of these widths, little-endian.
    fn packed(fields: &[(u64, usize)]) -> Vec<u8> {
        fields.iter().flat_map(|(value, width)| value.to_le_bytes()[..*width].to_vec()).collect()
    }

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    /// MS-SMB2 2.2.1.2, and a body of that command; `next` is the offset of the next request.
    fn smb(command: u64, next: u64, body: &[u8]) -> Vec<u8> {
        let front = [(64, 2), (1, 2), (0, 4), (command, 2), (1, 2), (0, 4), (next, 4), (7, 8), (0, 4), (1, 4), (1, 8)];
        [b"\xfeSMB", &packed(&front)[..], &[0; 16], body].concat()
    }

    /// A body of fixed fields and what follows them.
    fn body(fields: &[(u64, usize)], rest: &[u8]) -> Vec<u8> {
        [&packed(fields)[..], rest].concat()
    }

    /// NEGOTIATE, CREATE, WRITE, LOCK, IOCTL, QUERY_DIRECTORY, SET_INFO: each with its command.
    fn smb_bodies() -> Vec<(u64, Vec<u8>)> {
        let id = [(5, 8), (6, 8)];
        let context = body(&[(1, 2), (38, 2), (0, 4), (1, 2), (32, 2), (1, 2)], &[0; 32]);
        let negotiate = [(36, 2), (2, 2), (1, 2), (0, 2), (0, 4), (1, 8), (2, 8), (104, 4), (1, 2), (0, 2)];
        let negotiate = body(&[&negotiate[..], &[(0x0210, 2), (0x0311, 2)]].concat(), &context);
        let create = [(57, 2), (0, 1), (2, 1), (2, 4), (0, 8), (0, 8), (0x0012_019f, 4), (0x80, 4), (7, 4), (3, 4)];
        let create = [&create[..], &[(0x40, 4), (120, 2), (6, 2), (128, 4), (24, 4)]].concat();
        let context = body(&[(0, 4), (16, 2), (4, 2), (0, 2), (0, 2), (0, 4)], b"MxAc\0\0\0\0");
        let create = body(&create, &[&utf16("a.b")[..], &[0; 2], &context].concat());
        let write = [&[(49, 2), (112, 2), (4, 4), (9, 8)][..], &id, &[(0, 4), (0, 4), (0, 2), (0, 2), (0, 4)]].concat();
        let lock = [&[(48, 2), (1, 2), (0, 4)][..], &id, &[(4, 8), (8, 8), (2, 4), (0, 4)]].concat();
        let ioctl = [(120, 4), (24, 4), (0, 4), (120, 4), (0, 4), (64, 4), (1, 4), (0, 4)];
        let ioctl = [&[(57, 2), (0, 2), (0x0014_0204, 4)][..], &id, &ioctl].concat();
        let list = [&[(33, 2), (37, 1), (0, 1), (0, 4)][..], &id, &[(96, 2), (2, 2), (4096, 4)]].concat();
        let set = [&[(33, 2), (1, 1), (20, 1), (8, 4), (96, 2), (0, 2), (0, 4)][..], &id].concat();
        vec![
            (0, negotiate),
            (5, create),
            (9, body(&write, b"data")),
            (10, body(&lock, &[])),
            (11, body(&ioctl, &[0; 24])),
            (14, body(&list, &utf16("*"))),
            (17, body(&set, &[1; 8])),
        ]
    }

    #[test]
    fn fuzz_smb_frame() {
        let mut seeds: Vec<Vec<u8>> = smb_bodies().iter().map(|(command, body)| smb(*command, 0, body)).collect();
        seeds.push([smb(5, 200, &[0; 136]), smb(6, 0, &body(&[(24, 2), (0, 6), (5, 8), (6, 8)], &[]))].concat());
        drive("smb_frame", &seeds, super::smb_frame);
    }

    #[test]
    fn fuzz_smb_request() {
        let seeds: Vec<Vec<u8>> = smb_bodies().into_iter().map(|(_, body)| body).collect();
        drive("smb_request", &seeds, super::smb_request);
    }

    #[test]
    fn fuzz_smb_input() {
        let everyone = [1u8, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let rule = body(&[(0, 1), (0, 1), (20, 2), (0x001f_01ff, 4)], &everyone);
        let rules = body(&[(2, 1), (0, 1), (28, 2), (1, 2), (0, 2)], &rule);
        let descriptor = body(&[(1, 1), (0, 1), (0x8004, 2), (20, 4), (0, 4), (0, 4), (32, 4)], &everyone);
        let descriptor = [descriptor, rules].concat();
        let copy = body(&[(5, 8), (6, 8), (0, 8), (1, 4), (0, 4), (0, 8), (0, 8), (4096, 4), (0, 4)], &[]);
        let rename = body(&[(1, 8), (0, 8), (6, 4)], &utf16("d\\e"));
        let negotiated = body(&[(0, 4), (1, 8), (2, 8), (1, 2), (2, 2), (0x0210, 2), (0x0311, 2)], &[]);
        let seeds = [descriptor, copy, rename, negotiated, utf16("*.t?t|a.txt"), utf16("a\\b:c")];
        drive("smb_input", &seeds, super::smb_input);
    }

    #[test]
    fn fuzz_smb_context() {
        let lease = body(&[(1, 8), (2, 8), (7, 4), (0, 4), (0, 8)], &[]);
        let durable = body(&[(0, 4), (0, 4), (0, 8), (3, 8), (4, 8)], &[]);
        let named = |name: &[u8; 4], next: u64, data: &[u8]| {
            let front = [(next, 4), (16, 2), (4, 2), (0, 2), (24, 2), (data.len() as u64, 4)];
            body(&front, &[name, &[0; 4][..], data].concat())
        };
        let chain = [named(b"DH2Q", 56, &durable), named(b"RqLs", 0, &lease)].concat();
        let answer = body(&[(36, 2), (0, 2), (0, 4), (1, 8), (2, 8), (1, 4), (0, 8)], &[]);
        drive("smb_context", &[lease, durable, chain, answer, vec![0; 16]], super::smb_context);
    }

    #[test]
    fn fuzz_smb_logon() {
        let negotiate = body(&[(1, 4), (0xe208_8297, 4), (0, 8), (0, 8), (0, 8)], &[]);
        let first = [b"NTLMSSP\0", &negotiate[..]].concat();
        let field = |length: u64, at: u64| [(length, 2), (length, 2), (at, 4)];
        let fields = [field(0, 88), field(44, 88), field(2, 132), field(2, 134), field(0, 136), field(0, 136)].concat();
        let last = body(&[&[(3, 4)][..], &fields, &[(0xe208_8297, 4), (0, 8), (0, 8), (0, 8)]].concat(), &[5; 48]);
        let last = [b"NTLMSSP\0", &last[..]].concat();
        // SPNEGO (RFC 4178): a NegTokenInit that offers NTLM, with the first message, and a NegTokenResp with the last.
        let wrapped = |tag: u8, bytes: &[u8]| match bytes.len() {
            short @ 0..128 => [&[tag, short as u8][..], bytes].concat(),
            long => [&[tag, 0x82, (long >> 8) as u8, long as u8][..], bytes].concat(),
        };
        let ntlm = [0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x02, 0x02, 0x0a];
        let kinds = wrapped(0xa0, &wrapped(0x30, &ntlm));
        let init = wrapped(0xa0, &wrapped(0x30, &[kinds, wrapped(0xa2, &wrapped(0x04, &first))].concat()));
        let init = wrapped(0x60, &[&[0x06, 0x06, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x02][..], &init].concat());
        let response = wrapped(0xa1, &wrapped(0x30, &wrapped(0xa2, &wrapped(0x04, &last))));
        drive("smb_logon", &[first, last, init, response], super::smb_logon);
    }

    #[test]
    fn fuzz_smb_encrypted() {
        let front = body(&[(0, 8), (0, 8), (1, 8), (0, 8), (9, 4), (0, 2), (1, 2), (1, 8)], b"encrypted");
        drive("smb_encrypted", &[[b"\xfdSMB", &front[..]].concat()], super::smb_encrypted);
    }

    #[test]
    fn fuzz_smb_answer() {
        let challenge = body(&[(2, 4), (2, 2), (2, 2), (56, 4), (0xe208_8235, 4), (7, 8), (0, 8)], &[]);
        let target = packed(&[(7, 2), (8, 2), (9, 8), (6, 2), (4, 2), (1, 4), (0, 4)]);
        let fields = [(target.len() as u64, 2), (target.len() as u64, 2), (58, 4), (0, 8)];
        let challenge = [b"NTLMSSP\0", &challenge[..], &packed(&fields), b"S\0", &target].concat();
        let sizes = [(0x4f, 4), (1 << 20, 4), (1 << 20, 4), (1 << 20, 4), (1, 8), (2, 8), (128, 2), (0, 2), (128, 4)];
        let negotiated = [&[(65, 2), (1, 2), (0x0311, 2), (2, 2), (3, 8), (4, 8)][..], &sizes].concat();
        let contexts = [(2, 2), (4, 2), (0, 4), (1, 2), (2, 2), (0, 4), (8, 2), (4, 2), (0, 4), (1, 2), (2, 2)];
        let entry =
            [&[(0, 4), (0, 4), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (0, 8), (0x10, 4)][..], &[(2, 4), (0, 8)]];
        let entry = [&packed(&entry.concat())[..], &[0; 32], b"a\0"].concat();
        let listing = body(&[(9, 2), (72, 2), (entry.len() as u64, 4)], &entry);
        let data = body(&[(17, 2), (80, 1), (0, 1), (4, 4), (0, 8)], b"data");
        let size = body(&[(9, 2), (72, 2), (32, 4), (9, 8), (8, 8), (7, 8), (8, 4), (512, 4)], &[]);
        let answers = [body(&negotiated, &packed(&contexts)), listing, data, size];
        let mut seeds: Vec<Vec<u8>> = answers.iter().map(|body| smb(8, 0, body)).collect();
        seeds.push([smb(5, 64, &[]), smb(6, 0, &[0; 60])].concat());
        seeds.extend([challenge, entry]);
        drive("smb_answer", &seeds, super::smb_answer);
    }

    #[test]
    fn fuzz_smb_rpc() {
        let ndr =
            [0x04, 0x5d, 0x88, 0x8a, 0xeb, 0x1c, 0xc9, 0x11, 0x9f, 0xe8, 8, 0, 0x2b, 0x10, 0x48, 0x60, 2, 0, 0, 0];
        let srvsvc =
            [0xc8, 0x4f, 0x32, 0x4b, 0x70, 0x16, 0xd3, 1, 0x12, 0x78, 0x5a, 0x47, 0xbf, 0x6e, 0xe1, 0x88, 3, 0, 0, 0];
        let pdu = |kind: u64, rest: &[u8]| {
            let length = 16 + rest.len() as u64;
            body(&[(5, 1), (0, 1), (kind, 1), (3, 1), (0x10, 4), (length, 2), (0, 2), (1, 4)], rest)
        };
        let bind = body(&[(4280, 2), (4280, 2), (0, 4), (1, 4), (0, 2), (1, 2)], &[&srvsvc[..], &ndr].concat());
        // NetrShareEnum of level 1 on no server.
        let stub = packed(&[(0, 4), (1, 4), (1, 4), (1, 4), (0, 4), (0, 4), (0xffff_ffff, 4), (0, 4)]);
        let request = body(&[(stub.len() as u64, 4), (0, 2), (15, 2)], &stub);
        let session = [&[200][..], &pdu(11, &bind), &pdu(0, &request)].concat();
        drive("smb_rpc", &[pdu(11, &bind), session, [&[0][..], &stub].concat()], super::smb_rpc);
    }

    #[test]
    fn fuzz_smb_name() {
        let seeds = ["plain.txt", "a:b*c?", "ends in a dot.", "\u{f022}\u{f080}", "\u{1f}\u{fc}"];
        drive("smb_name", &seeds.map(|name| name.as_bytes().to_vec()), super::smb_name);
    }
}
