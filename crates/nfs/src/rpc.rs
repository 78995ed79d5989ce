//! ONC RPC version 2 (RFC 5531): call headers in, reply headers out. Pure, like [`super::xdr`].
//!
//! - `rpc.undecodable_ends`: a message whose header does not decode gets no answer. The stream can
//!   no longer be trusted, so the connection ends. Everything else is answered as RFC 5531 section
//!   9 says.
//! - `rpc.room_for_mark`: a reply begins with room for its record mark (section 11), which is set
//!   when the length is known.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::panic)]

use super::xdr::{Garbage, Reader, Writer};

/// RFC 5531 section 9: `msg_type`.
const CALL: u32 = 0;
const REPLY: u32 = 1;
/// `reply_stat`.
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
/// `reject_stat`.
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
const RPC_VERSION: u32 = 2;
/// Section 8.2: the body of a credential or verifier is at most this long.
const AUTH_BYTES_MAX: usize = 400;
/// Appendix A: `authsys_parms`.
const MACHINE_NAME_BYTES_MAX: usize = 255;
const GIDS_MAX: usize = 16;
/// `auth_flavor`.
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// `auth_stat`: why a call was denied (section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AuthStat {
    BadCred = 1,
    BadVerf = 3,
    TooWeak = 5,
}

/// `accept_stat`: how an accepted call fared (section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AcceptStat {
    Success = 0,
    ProgUnavail = 1,
    ProgMismatch = 2,
    ProcUnavail = 3,
    GarbageArgs = 4,
}

/// Supplementary groups, decoded as they are iterated.
#[derive(Clone, Copy, Debug)]
pub struct Gids<'a>(&'a [u8]);

impl Gids<'_> {
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.chunks_exact(4).map(|raw| raw.try_into().map_or(u32::MAX, u32::from_be_bytes))
    }
}

/// The caller, by its own word.
#[derive(Clone, Copy, Debug)]
pub enum Auth<'a> {
    None,
    /// RFC 5531 Appendix A; `raw` is the whole body without its stamp, equal for equal callers.
    Sys {
        uid: u32,
        gid: u32,
        gids: Gids<'a>,
        raw: &'a [u8],
    },
}

/// `call_body`, with the arguments behind it.
#[derive(Clone, Copy, Debug)]
pub struct CallHeader<'a> {
    pub xid: u32,
    pub prog: u32,
    pub vers: u32,
    pub proc_num: u32,
    pub auth: Auth<'a>,
    pub args: Reader<'a>,
}

/// A message that is no call to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCall {
    /// Not RPC at all (`rpc.undecodable_ends`).
    Malformed,
    /// A reply, to nothing we asked. Ignored.
    NotACall,
    /// RPC, but not version 2.
    WrongRpc {
        xid: u32,
    },
    Auth {
        xid: u32,
        why: AuthStat,
    },
}

impl From<Garbage> for BadCall {
    fn from(_: Garbage) -> Self {
        BadCall::Malformed
    }
}

/// Decodes the header of a call.
pub fn parse_call(message: &[u8]) -> Result<CallHeader<'_>, BadCall> {
    let mut r = Reader::new(message);
    let xid = r.u32()?;
    match r.u32()? {
        CALL => {}
        REPLY => return Err(BadCall::NotACall),
        _ => return Err(BadCall::Malformed),
    }
    if r.u32()? != RPC_VERSION {
        return Err(BadCall::WrongRpc { xid });
    }
    let (prog, vers, proc_num) = (r.u32()?, r.u32()?, r.u32()?);
    let bad = |why| BadCall::Auth { xid, why };
    let flavor = r.u32()?;
    let body = r.opaque(AUTH_BYTES_MAX).map_err(|_| bad(AuthStat::BadCred))?;
    // A verifier is empty with both flavors that we accept (section 8.1, Appendix A).
    let verf_flavor = r.u32()?;
    let verf = r.opaque(AUTH_BYTES_MAX).map_err(|_| bad(AuthStat::BadVerf))?;
    let auth = match flavor {
        AUTH_NONE => Auth::None,
        AUTH_SYS => parse_auth_sys(body).map_err(|_| bad(AuthStat::BadCred))?,
        _ => return Err(bad(AuthStat::BadCred)),
    };
    if verf_flavor != AUTH_NONE || !verf.is_empty() {
        return Err(bad(AuthStat::BadVerf));
    }
    Ok(CallHeader { xid, prog, vers, proc_num, auth, args: r })
}

fn parse_auth_sys(body: &[u8]) -> Result<Auth<'_>, Garbage> {
    let mut r = Reader::new(body);
    let _stamp = r.u32()?;
    let raw = body.get(4..).ok_or(Garbage)?;
    r.opaque(MACHINE_NAME_BYTES_MAX)?;
    let (uid, gid) = (r.u32()?, r.u32()?);
    let count = r.length(GIDS_MAX)?;
    let at = body.len().checked_sub(r.remaining()).ok_or(Garbage)?;
    let gids = body.get(at..at.saturating_add(count.saturating_mul(4))).ok_or(Garbage)?;
    Ok(Auth::Sys { uid, gid, gids: Gids(gids), raw })
}

/// Bytes of a reply before its results: record mark, xid, REPLY, MSG_ACCEPTED, verifier (8), accept_stat.
pub const ACCEPTED_BYTES: usize = 28;

/// Starts an accepted reply in `w`, which is empty.
pub fn begin_accepted(w: &mut Writer, xid: u32, stat: AcceptStat) {
    let mut head = [0u8; ACCEPTED_BYTES];
    let words = [0, xid, REPLY, MSG_ACCEPTED, AUTH_NONE, 0, stat as u32];
    for (place, word) in head.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    w.fixed(&head);
}

/// PROG_MISMATCH with the versions that we speak.
pub fn prog_mismatch(w: &mut Writer, xid: u32, low: u32, high: u32) {
    begin_accepted(w, xid, AcceptStat::ProgMismatch);
    w.u32(low);
    w.u32(high);
}

/// A call of ours with its record mark: program, version and procedure, and the body of AUTH_SYS or nobody's name.
pub fn call_with(xid: u32, (prog, vers, proc_num): (u32, u32, u32), cred: Option<&[u8]>, args: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    for word in [0, xid, CALL, RPC_VERSION, prog, vers, proc_num] {
        w.u32(word);
    }
    w.u32(if cred.is_some() { AUTH_SYS } else { AUTH_NONE });
    w.opaque(cred.unwrap_or_default());
    w.u32(AUTH_NONE);
    w.opaque(&[]);
    w.fixed(args);
    set_record_mark(&mut w, 0);
    w.into_inner()
}

/// The results of a call of ours that was carried out.
pub fn reply_results(reply: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(reply);
    let _xid = r.u32().ok()?;
    if (r.u32().ok()?, r.u32().ok()?) != (REPLY, MSG_ACCEPTED) {
        return None;
    }
    let _verifier = (r.u32().ok()?, r.opaque(AUTH_BYTES_MAX).ok()?);
    if r.u32().ok()? != AcceptStat::Success as u32 {
        return None;
    }
    let rest = r.remaining();
    reply.get(reply.len().checked_sub(rest)?..)
}

/// A call of somebody who may not call at all.
pub fn too_weak(w: &mut Writer, xid: u32) {
    w.truncate(0);
    deny(w, BadCall::Auth { xid, why: AuthStat::TooWeak });
}

/// The answer to a call that was not accepted; `None` where there is nothing to say.
pub fn deny(w: &mut Writer, bad: BadCall) -> Option<()> {
    let (xid, words) = match bad {
        BadCall::Malformed | BadCall::NotACall => return None,
        BadCall::WrongRpc { xid } => (xid, [RPC_MISMATCH, RPC_VERSION, RPC_VERSION].as_slice().to_owned()),
        BadCall::Auth { xid, why } => (xid, vec![AUTH_ERROR, why as u32]),
    };
    for word in [0, xid, REPLY, MSG_DENIED].into_iter().chain(words) {
        w.u32(word);
    }
    Some(())
}

/// Sets the record mark: the message is one last fragment (RFC 5531 section 11) with `extra` bytes
/// of data behind what is in `w`.
pub fn set_record_mark(w: &mut Writer, extra: usize) {
    let len = w.position().saturating_sub(4).saturating_add(extra);
    w.set_u32(0, LAST_FRAGMENT | u32::try_from(len).unwrap_or(0));
}

/// The highest bit of a record mark.
pub const LAST_FRAGMENT: u32 = 1 << 31;

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::cast_possible_truncation)]
    use super::*;
    use proptest::prelude::*;

    /// A call with AUTH_SYS credentials, without record mark.
    pub fn call(
        xid: u32,
        prog: u32,
        vers: u32,
        proc_num: u32,
        cred: Option<(u32, u32, &[u32])>,
        args: &[u8],
    ) -> Vec<u8> {
        let mut w = Writer::default();
        for word in [xid, CALL, RPC_VERSION, prog, vers, proc_num] {
            w.u32(word);
        }
        match cred {
            None => {
                w.u32(AUTH_NONE);
                w.u32(0);
            }
            Some((uid, gid, gids)) => {
                let mut body = Writer::default();
                body.u32(99);
                body.opaque(b"client");
                body.u32(uid);
                body.u32(gid);
                body.length(gids.len());
                gids.iter().for_each(|&gid| body.u32(gid));
                w.u32(AUTH_SYS);
                w.opaque(&body.into_inner());
            }
        }
        w.u32(AUTH_NONE);
        w.u32(0);
        w.fixed(args);
        w.into_inner()
    }

    #[test]
    fn golden_call_and_reply() {
        let bytes = call(0x11, 100_003, 3, 1, Some((1000, 100, &[4, 5])), &[9, 9, 9, 9]);
        assert_eq!(bytes[..8], [0, 0, 0, 0x11, 0, 0, 0, 0]);
        let header = parse_call(&bytes).unwrap();
        assert_eq!((header.xid, header.prog, header.vers, header.proc_num), (0x11, 100_003, 3, 1));
        let Auth::Sys { uid, gid, gids, .. } = header.auth else { panic!("flavor") };
        assert_eq!((uid, gid, gids.iter().collect::<Vec<_>>()), (1000, 100, vec![4, 5]));
        assert_eq!(header.args.remaining(), 4);

        let mut w = Writer::default();
        begin_accepted(&mut w, 0x11, AcceptStat::Success);
        w.u32(0);
        set_record_mark(&mut w, 8);
        let golden =
            [0x80, 0, 0, 36, 0, 0, 0, 0x11, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(w.into_inner(), golden);
    }

    #[test]
    fn bad_calls_are_told_apart() {
        let good = call(5, 100_003, 3, 0, None, &[]);
        let with = |at: usize, value: u32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
            bytes
        };
        let check = |bytes: &[u8], want: BadCall| assert_eq!(parse_call(bytes).err(), Some(want));
        check(&with(4, 1), BadCall::NotACall);
        check(&with(4, 2), BadCall::Malformed);
        check(&with(8, 3), BadCall::WrongRpc { xid: 5 });
        check(&with(24, 6), BadCall::Auth { xid: 5, why: AuthStat::BadCred });
        check(&with(24, 1), BadCall::Auth { xid: 5, why: AuthStat::BadCred });
        check(&with(28, 401), BadCall::Auth { xid: 5, why: AuthStat::BadCred });
        check(&with(32, 1), BadCall::Auth { xid: 5, why: AuthStat::BadVerf });
        for len in 0..good.len() - 12 {
            check(&good[..len], BadCall::Malformed);
        }
        let gids: Vec<u32> = (0..17).collect();
        check(&call(5, 1, 1, 1, Some((0, 0, &gids)), &[]), BadCall::Auth { xid: 5, why: AuthStat::BadCred });
        assert!(parse_call(&call(5, 1, 1, 1, Some((0, 0, &gids[..16])), &[])).is_ok());
    }

    #[test]
    fn golden_denials() {
        let deny_bytes = |bad| {
            let mut w = Writer::default();
            deny(&mut w, bad).map(|()| w.into_inner()).unwrap_or_default()
        };
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        assert_eq!(deny_bytes(BadCall::WrongRpc { xid: 7 }), words(&[0, 7, 1, 1, 0, 2, 2]));
        assert_eq!(deny_bytes(BadCall::Auth { xid: 7, why: AuthStat::BadCred }), words(&[0, 7, 1, 1, 1, 1]));
        assert_eq!(deny_bytes(BadCall::Malformed), words(&[]));
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse_call(&bytes);
        }

        #[test]
        fn damaged_calls_do_not_panic(at in 0usize..90, value: u32, cut in 0usize..100) {
            let mut bytes = call(1, 100_003, 3, 7, Some((1, 2, &[3, 4, 5])), &[0; 40]);
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(place) = bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&value.to_be_bytes());
            }
            if let Ok(CallHeader { auth: Auth::Sys { gids, .. }, .. }) = parse_call(&bytes) {
                prop_assert!(gids.iter().count() <= 16);
            }
        }
    }
}
