//! Each decoder of the protocol on its own.

use larder_smb_wire::auth::{ntlm, spnego};
use larder_smb_wire::framing;
use larder_smb_wire::header::Smb2Header;

/// Decodes the start of `data` as a transport frame header.
pub fn frame(data: &[u8]) {
    if let Some(hdr) = data.first_chunk::<{ framing::FRAME_HEADER_LEN }>() {
        let _ = framing::decode_frame_header(hdr);
    }
}

/// Parses `data` as an SMB2 header.
pub fn header(data: &[u8]) {
    let _ = Smb2Header::parse(data);
}

/// Splits `data` into the requests of a frame on each state of a
/// connection, and parses the body of each as its command says.
pub fn requests(data: &[u8]) {
    use crate::conn::chain;
    use larder_smb_wire::messages::Dialect;

    for dialect in [None, Some(Dialect::Smb202), Some(Dialect::Smb311)] {
        let Ok(requests) = chain::split(data, dialect) else {
            continue;
        };
        let _ = chain::check_encrypted(&requests, 1);
        for request in requests {
            let body = &data[request.range][larder_smb_wire::header::SMB2_HEADER_LEN..];
            let _ = chain::payload_size(request.header.command, body);
            self::body(request.header.command, body);
        }
    }
}

/// Parses `data` as the body of each request, whatever its command.
pub fn bodies(data: &[u8]) {
    use larder_smb_wire::header::Command;

    for command in [
        Command::Negotiate,
        Command::SessionSetup,
        Command::Logoff,
        Command::TreeConnect,
        Command::TreeDisconnect,
        Command::Create,
        Command::Close,
        Command::Flush,
        Command::Read,
        Command::Write,
        Command::Lock,
        Command::Ioctl,
        Command::Cancel,
        Command::Echo,
        Command::QueryDirectory,
        Command::ChangeNotify,
        Command::QueryInfo,
        Command::SetInfo,
        Command::OplockBreak,
    ] {
        body(command, data);
    }
}

/// Parses the body of a request. What parses can be written again.
fn body(command: larder_smb_wire::header::Command, data: &[u8]) {
    use larder_smb_wire::header::Command;
    use larder_smb_wire::messages::*;

    macro_rules! parse {
        ($request:ty) => {
            if let Ok(request) = <$request>::parse(data) {
                request.write_to(&mut Vec::new()).expect("it was parsed");
            }
        };
    }
    match command {
        Command::Negotiate => {
            parse!(NegotiateRequest);
            for count in [1, 8, u16::MAX] {
                let _ = NegotiateContext::parse_list(data, count);
            }
        }
        Command::SessionSetup => parse!(SessionSetupRequest),
        Command::TreeConnect => parse!(TreeConnectRequest),
        Command::Create => parse!(CreateRequest),
        Command::Close => parse!(CloseRequest),
        Command::Flush => parse!(FlushRequest),
        Command::Read => parse!(ReadRequest),
        Command::Write => {
            let shared = WriteRequest::parse_shared(&bytes::Bytes::copy_from_slice(data));
            let shared = shared.ok().map(|(_, bytes)| bytes);
            let whole = WriteRequest::parse(data).ok().map(|request| request.data);
            assert_eq!(shared.as_deref(), whole.as_deref());
            parse!(WriteRequest);
        }
        Command::Logoff | Command::TreeDisconnect | Command::Cancel | Command::Echo => parse!(EmptyBody),
        Command::Lock => parse!(LockRequest),
        Command::Ioctl => parse!(IoctlRequest),
        Command::QueryDirectory => parse!(QueryDirectoryRequest),
        Command::ChangeNotify => parse!(ChangeNotifyRequest),
        Command::QueryInfo => parse!(QueryInfoRequest),
        Command::SetInfo => parse!(SetInfoRequest),
        Command::OplockBreak => {
            parse!(OplockBreakAck);
            parse!(LeaseBreakAck);
        }
    }
}

/// Parses `data` as what requests carry: a security descriptor, the inputs of
/// IOCTL, the target of a rename, paths and patterns.
pub fn inputs(data: &[u8]) {
    descriptor(data);
    crate::handlers::copychunk::fuzz(data);
    crate::handlers::ioctl::fuzz(data);
    crate::handlers::set_info::fuzz(data);
    let Some(units) = larder_smb_wire::text::utf16le_to_units(data) else {
        return;
    };
    let _ = larder_smb_wire::path::SmbPath::from_utf16(&units);
    let name = String::from_utf16_lossy(&units);
    let (pattern, name) = name.split_once('|').unwrap_or((&name, &name));
    let _ = larder_smb_wire::wildcard::Pattern::new(pattern, true).matches(name);
}

/// Takes `data` for an encrypted frame, under each cipher.
pub fn transform(data: &[u8]) {
    use larder_smb_wire::crypto::encrypt::{self, Cipher};

    if !encrypt::is_transform(data) {
        return;
    }
    let _ = encrypt::transform_session_id(data);
    for cipher in (1..=4).filter_map(Cipher::from_id) {
        let key = vec![7; cipher.key_len()];
        let session = encrypt::SessionCipher::new(cipher, &key, &key);
        let _ = session.decrypt(bytes::Bytes::copy_from_slice(data));
    }
}

/// Decodes `data` as a SPNEGO NegTokenInit and as a NegTokenResp.
pub fn spnego(data: &[u8]) {
    let _ = spnego::decode_init_token(data);
    let _ = spnego::decode_resp_token(data);
}

/// Parses `data` as each NTLM message the server receives.
pub fn ntlm(data: &[u8]) {
    let _ = ntlm::NtlmNegotiate::parse(data);
    let _ = ntlm::NtlmAuthenticate::parse(data);
}

/// Parses `data` as each answer that the bench's client takes, and as a server's challenge.
pub fn answer(data: &[u8]) {
    use larder_smb_wire::answers;
    use larder_smb_wire::auth::ntlm_client::{Fresh, Logon, authenticate};

    let message = bytes::Bytes::copy_from_slice(data);
    for (_, message) in answers::split(message.clone()).unwrap_or_default() {
        assert!(data.len() >= message.len());
    }
    let _ = answers::negotiated(data);
    let _ = answers::session_setup(data);
    let _ = answers::written(data);
    let read = answers::read_data(&message);
    assert!(read.is_err() || read.is_ok_and(|read| read.len() < data.len()));
    let _ = answers::output(data).map(|output| (answers::entries(output).map(drop), answers::free_bytes(output)));
    let _ = answers::entries(data);
    let fresh = Fresh { challenge: [0; 8], session_key: [0; 16], time: 0 };
    let _ = authenticate(&Logon { user: "u", password: "p", domain: "" }, &[], data, &fresh);
}

/// Parses `data` as the data of a lease create context.
pub fn lease_context(data: &[u8]) {
    let _ = larder_smb_wire::messages::LeaseContext::parse(data);
}

/// Parses `data` as a lease break acknowledgment.
pub fn lease_ack(data: &[u8]) {
    let _ = larder_smb_wire::messages::LeaseBreakAck::parse(data);
}

/// Parses `data` as the data of each durable handle create context.
pub fn durable_context(data: &[u8]) {
    use larder_smb_wire::messages::{DurableReconnect, DurableReconnectV2, DurableRequest, DurableRequestV2};
    let _ = DurableRequest::parse(data);
    let _ = DurableReconnect::parse(data);
    let _ = DurableRequestV2::parse(data);
    let _ = DurableReconnectV2::parse(data);
}

/// Parses `data` as a create context chain and reads its durable handle
/// contexts on each dialect.
pub fn durable_ask(data: &[u8]) {
    use larder_smb_wire::messages::{CreateContext, Dialect};
    let Ok(contexts) = CreateContext::parse_chain(data) else {
        return;
    };
    for dialect in [
        None,
        Some(Dialect::Smb202),
        Some(Dialect::Smb210),
        Some(Dialect::Smb300),
        Some(Dialect::Smb302),
        Some(Dialect::Smb311),
        Some(Dialect::Smb2Wildcard),
    ] {
        let _ = crate::handlers::create_contexts::durable_ask(&contexts, dialect);
    }
}

/// Parses `data` as a DCE/RPC PDU a client sends.
pub fn rpc_pdu(data: &[u8]) {
    let _ = larder_smb_wire::rpc::pdu::parse(data);
}

/// Writes `data` to an association in chunks whose size the first
/// byte picks, answering every call with a fault and with its stub as
/// a response. Every PDU sent back parses, a response fits in the size
/// the bind negotiated, and what the association holds stays bounded.
pub fn rpc_association(data: &[u8]) {
    use larder_smb_wire::rpc::association::{Association, Fault, Step};
    use larder_smb_wire::rpc::pdu::{
        self, MAX_FRAG, NCA_OP_RNG_ERROR, PTYPE_ALTER_CONTEXT_RESP, PTYPE_BIND_ACK, PTYPE_RESPONSE,
    };

    let Some((&chunk, data)) = data.split_first() else {
        return;
    };
    let chunk = usize::from(chunk).max(1);
    let mut assoc = Association::default();
    let mut max_frag = MAX_FRAG;
    for mut piece in data.chunks(chunk) {
        while let Some(step) = assoc.next_step(&mut piece) {
            let sent = match step {
                Step::Send(pdu) => vec![pdu],
                Step::Call(call) => {
                    let fault = Fault { status: NCA_OP_RNG_ERROR, did_not_execute: true };
                    let mut replies = assoc.reply(&call, Err(fault));
                    replies.extend(assoc.reply(&call, Ok(call.stub.clone())));
                    replies
                }
            };
            for pdu in sent {
                assert!(pdu::parse(&pdu).is_some());
                match pdu[2] {
                    PTYPE_BIND_ACK => max_frag = u16::from_le_bytes([pdu[16], pdu[17]]),
                    PTYPE_RESPONSE => assert!(pdu.len() <= usize::from(max_frag)),
                    PTYPE_ALTER_CONTEXT_RESP => {}
                    _ => assert!(pdu.len() <= usize::from(MAX_FRAG)),
                }
            }
            assert!(assoc.held() <= (64 << 10) + usize::from(u16::MAX));
        }
    }
}

/// Runs `data` as a srvsvc request stub. The first byte picks the
/// operation: NetrShareEnum, NetrShareGetInfo, NetrServerGetInfo or,
/// with the second byte, any opnum. The caller sees three shares.
pub fn srvsvc_request(data: &[u8]) {
    use larder_smb_wire::rpc::srvsvc::{self, ListedShare, Request};

    let Some((&pick, stub)) = data.split_first() else {
        return;
    };
    let (opnum, stub) = match pick % 4 {
        0 => (srvsvc::OPNUM_SHARE_ENUM, stub),
        1 => (srvsvc::OPNUM_SHARE_GET_INFO, stub),
        2 => (srvsvc::OPNUM_SERVER_GET_INFO, stub),
        _ => match stub.split_first() {
            Some((&opnum, stub)) => (u16::from(opnum), stub),
            None => return,
        },
    };
    let share =
        |name: &str, kind, remark: &str| ListedShare { name: name.to_string(), kind, remark: remark.to_string() };
    let shares =
        [share("public", 0, ""), share("d\u{f6}cs$", 0, "\u{1F9A4} remark"), share("IPC$", 0x8000_0003, "Remote IPC")];
    let _ = match srvsvc::decode(opnum, stub) {
        Ok(Request::ShareEnum(request)) => request.answer(&shares),
        Ok(Request::ShareGetInfo(request)) => {
            let named = |name: &str| shares.iter().find(|share| share.name.eq_ignore_ascii_case(name));
            request.answer(request.lookup().and_then(named))
        }
        Ok(Request::ServerGetInfo(request)) => request.answer("FUZZ"),
        Err(_) => return,
    };
}

/// Parses `data` as a descriptor. What parses is written to the same.
fn descriptor(data: &[u8]) {
    use larder_smb_wire::security::{Parts, SecurityDescriptor};

    for parts in [Parts::OWNER, Parts::GROUP, Parts::DACL, 7].map(Parts) {
        if let Some(parsed) = SecurityDescriptor::parse(data, parts) {
            // What was asked for is not what is told.
            let parsed = SecurityDescriptor { marks_inherited: false, ..parsed };
            let written = parsed.encode(parts);
            assert_eq!(SecurityDescriptor::parse(&written, parts), Some(parsed));
        }
    }
}
