//! Decoders of what comes from a socket, fed with anything. Driven by the tests below, and with coverage by `fuzz/`.
#![allow(clippy::unwrap_used)]

pub use crate::certificate::ssh_certificate;
pub use crate::fuse::fuzz::*;
pub use crate::nfs::fuzz::*;
pub use crate::sftp::fuzz::*;
pub use crate::smb::fuzz::*;
pub use crate::web::fuzz::*;

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

    /// A call of NFS v3 procedure `number`, with one word of arguments.
    fn call(program: u32, version: u32, number: u32) -> Vec<u8> {
        let words = [7, 0, 2, program, version, number, 1, 24, 1, 0, 0, 0, 1, 5, 0, 0, 4, 0x6162_6364];
        words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
    }

    fn marked(message: &[u8]) -> Vec<u8> {
        [&(message.len() as u32 | 1 << 31).to_be_bytes(), message].concat()
    }

    #[test]
    fn fuzz_rpc_record() {
        let two = [marked(&call(100_003, 3, 7)), marked(&call(100_005, 3, 1))].concat();
        drive("rpc_record", &[marked(&call(100_003, 3, 1)), two], super::rpc_record);
    }

    #[test]
    fn fuzz_rpc_call() {
        drive("rpc_call", &[call(100_003, 3, 1), call(100_000, 2, 3)], super::rpc_call);
    }

    #[test]
    fn fuzz_nfs_arguments() {
        let words = [1u32, 0o644, 0, 1, 5, 1, 0, 99, 2, 3, 4, 1];
        drive(
            "nfs_arguments",
            &[words.iter().flat_map(|w| w.to_be_bytes()).collect(), b"\0\0\0\x03abc\0".to_vec()],
            super::nfs_arguments,
        );
    }

    #[test]
    fn fuzz_nfs_handle() {
        drive("nfs_handle", &[super::some_handle()], super::nfs_handle);
    }

    #[test]
    fn fuzz_nfs4_compound() {
        drive("nfs4_compound", &super::some_nfs4_requests(), super::nfs4_compound);
    }

    #[test]
    fn fuzz_nfs4_callback() {
        // CB_SEQUENCE and CB_RECALL: the answer to a recall.
        let words = [0u32, 0, 2, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 4, 0];
        drive("nfs4_callback", &[words.iter().flat_map(|word| word.to_be_bytes()).collect()], super::nfs4_callback);
    }

    #[test]
    fn fuzz_nfs4_attributes() {
        // Type and size, then an access list of one entry and an owner.
        let words: [&[u32]; 2] = [&[1, 0x12, 12, 2, 0, 7], &[2, 0x1000, 0x10, 28, 1, 0, 0, 7, 1, 0x6100_0000, 0]];
        let seeds = words.map(|words| words.iter().flat_map(|word| word.to_be_bytes()).collect());
        drive("nfs4_attributes", &seeds, super::nfs4_attributes);
    }

    #[test]
    fn fuzz_mount() {
        drive("mount", &[call(100_005, 3, 1), call(100_005, 3, 5), call(100_005, 1, 3)], super::mount);
    }

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
    fn fuzz_web_form() {
        let seeds = ["name=a+b%20c&csrf=0f", "sort=size&down&page=2", "q=%c3%a4&&=%"];
        drive("web_form", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_form);
    }

    #[test]
    fn fuzz_web_cookies() {
        let seeds = ["larder_session=00ff; a=b", "larder_session=;larder_session==x; b"];
        drive("web_cookies", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_cookies);
    }

    #[test]
    fn fuzz_web_links() {
        let hash = "07".repeat(32);
        let password = format!("argon2id$19456$2$1${}${}", "ab".repeat(16), "cd".repeat(32));
        let lines = format!("larder links 1\n{hash} 1 2 - 616e6e 73\n{hash} -1 9 {password} 61 732f61\n");
        let now = format!("larder links 2\n{hash} 1 2 - 616e6e 73 1000 -\n{hash} -1 9 {password} 61 732f61 - 5\n");
        let seeds = [lines.into_bytes(), now.into_bytes(), b"larder links 2\n".to_vec()];
        drive("web_links", &seeds, super::web_links);
    }

    #[test]
    fn fuzz_web_path() {
        let seeds = ["/files/a%20b/../c/", "/%c3%a4/./x", "//a//b", "/%2e%2e/%2f", "/a/..%00"];
        drive("web_path", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_path);
    }

    #[test]
    fn fuzz_web_headers() {
        let seeds = [
            "https://nas:10443/files/b",
            "/files/c%20d",
            "(<urn:uuid:1> [\"tag\"]) (Not <DAV:no-lock>)",
            "<http://nas/files/a> (<urn:uuid:1>)",
            "bytes=0-5, 7-, -3",
            "1048576",
        ];
        drive("web_headers", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_headers);
    }

    #[test]
    fn fuzz_web_xml() {
        let seeds = [
            "<propfind xmlns=\"DAV:\"><prop><getetag/><x xmlns=\"urn:a\" b=\"c&amp;d\">e</x></prop></propfind>",
            "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><p:q xmlns:p='urn:p' p:r='s' xml:lang='de'>t<u/></p:q></D:prop></D:set>\
             </D:propertyupdate>",
            "<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><owner><![CDATA[x]]>&#228;</owner></lockinfo>",
        ];
        drive("web_xml", &seeds.map(|seed| seed.as_bytes().to_vec()), super::web_xml);
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

    #[test]
    fn fuzz_lock_call() {
        drive("lock_call", &[], super::lock_call);
    }

    #[test]
    fn fuzz_lock_answer() {
        drive("lock_answer", &[], super::lock_answer);
    }

    #[test]
    fn fuzz_portmap() {
        drive("portmap", &[call(100_000, 2, 3), call(100_000, 2, 4), call(100_000, 3, 0)], super::portmap);
    }

    #[test]
    fn fuzz_web_zip_name() {
        let seeds = [&b"a/../b"[..], b"..\\x", b"/a//./\xff"];
        drive("web_zip_name", &seeds.map(<[u8]>::to_vec), super::web_zip_name);
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

    /// A request of the kernel: its header, then what its opcode wants.
    fn kernel(opcode: u64, rest: &[u8]) -> Vec<u8> {
        let length = 40 + rest.len() as u64;
        body(&[(length, 4), (opcode, 4), (7, 8), (1, 8), (0, 4), (0, 4), (9, 4), (0, 4)], rest)
    }

    #[test]
    fn fuzz_fuse_request() {
        let write = body(&[(3, 8), (0, 8), (5, 4), (0, 4), (0, 8), (0, 4), (0, 4)], b"bytes");
        let seeds = [
            kernel(1, b"name\0"),
            kernel(3, &[0; 16]),
            kernel(4, &[0; 88]),
            kernel(6, b"link\0target\0"),
            kernel(8, &body(&[(0o100_644, 4), (0, 4), (0, 4), (0, 4)], b"node\0")),
            kernel(16, &write),
            kernel(21, &body(&[(5, 4), (0, 4)], b"user.a\0value")),
            kernel(26, &[0; 64]),
            kernel(42, &body(&[(2, 4), (0, 4)], &[1; 32])),
            kernel(45, &body(&[(1, 8), (0, 4), (0, 4)], b"from\0to\0")),
        ];
        drive("fuse_request", &seeds, super::fuse_request);
    }

    #[test]
    fn fuzz_fuse_words() {
        let words = packed(&[(0o100_644, 4), (0x103, 4), (0x11, 4), (2, 4)]);
        drive("fuse_words", &[words, b"user.colour".to_vec()], super::fuse_words);
    }
}
