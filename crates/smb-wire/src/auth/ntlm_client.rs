//! The client's half of NTLMv2 (MS-NLMP 3.1.5.1): the NEGOTIATE_MESSAGE, and the
//! AUTHENTICATE_MESSAGE that answers a CHALLENGE_MESSAGE.

use super::ntlm::{
    AvId, AvPair, MIC_OFFSET, MSG_CHALLENGE, MSG_NEGOTIATE, MSV_AV_FLAG_MIC, NTLMSSP_SIGNATURE, build_authenticate,
    check_signature, decode_av_pairs, encode_av_pairs, flags, md5_mac, nt_hash, ntowf_v2, rc4k, read_field,
    slice_field,
};
use crate::error::{ProtoError, ProtoResult};
use crate::text::utf16le;

const OFFERED: u32 = flags::NTLMSSP_NEGOTIATE_UNICODE
    | flags::NTLMSSP_REQUEST_TARGET
    | flags::NTLMSSP_NEGOTIATE_SIGN
    | flags::NTLMSSP_NEGOTIATE_SEAL
    | flags::NTLMSSP_NEGOTIATE_NTLM
    | flags::NTLMSSP_NEGOTIATE_ALWAYS_SIGN
    | flags::NTLMSSP_NEGOTIATE_EXTENDED_SESSIONSECURITY
    | flags::NTLMSSP_NEGOTIATE_TARGET_INFO
    | flags::NTLMSSP_NEGOTIATE_128
    | flags::NTLMSSP_NEGOTIATE_KEY_EXCH
    | flags::NTLMSSP_NEGOTIATE_56;

pub struct Logon<'a> {
    pub user: &'a str,
    pub password: &'a str,
    pub domain: &'a str,
}

/// Random numbers of one logon, and the time (FILETIME) for a server that does not tell it.
pub struct Fresh {
    pub challenge: [u8; 8],
    pub session_key: [u8; 16],
    pub time: u64,
}

/// The AUTHENTICATE_MESSAGE, its NegotiateFlags, and the ExportedSessionKey.
pub struct Authenticate {
    pub message: Vec<u8>,
    pub flags: u32,
    pub session_key: [u8; 16],
}

/// The NEGOTIATE_MESSAGE (MS-NLMP 2.2.1.1), without a domain and a workstation.
pub fn negotiate_message() -> Vec<u8> {
    [&NTLMSSP_SIGNATURE[..], &MSG_NEGOTIATE.to_le_bytes(), &OFFERED.to_le_bytes(), &[0; 16]].concat()
}

/// Answers `challenge`, which the server sent for `negotiate`. It has a MIC if the server told its
/// time (MS-NLMP 3.1.5.1.2).
pub fn authenticate(logon: &Logon<'_>, negotiate: &[u8], challenge: &[u8], fresh: &Fresh) -> ProtoResult<Authenticate> {
    check_signature(challenge, MSG_CHALLENGE)?;
    let (Some(server_flags), Some(server_challenge)) = (challenge.get(20..24), challenge.get(24..32)) else {
        return Err(ProtoError::Auth("CHALLENGE_MESSAGE too short"));
    };
    let flags = u32::from_le_bytes([server_flags[0], server_flags[1], server_flags[2], server_flags[3]]) & OFFERED;
    let target = slice_field(challenge, read_field(challenge, 40)?)?;
    let mut pairs = if target.is_empty() { Vec::new() } else { decode_av_pairs(target)? };
    let value = |id: AvId| pairs.iter().find(|pair| pair.id == id as u16).map(|pair| &pair.value[..]);
    let server_time = value(AvId::Timestamp).and_then(|time| time.try_into().ok()).map(u64::from_le_bytes);
    if server_time.is_some() {
        let told = value(AvId::Flags).and_then(|told| told.try_into().ok()).map_or(0, u32::from_le_bytes);
        pairs.retain(|pair| pair.id != AvId::Flags as u16);
        pairs.push(AvPair::new(AvId::Flags, (told | MSV_AV_FLAG_MIC).to_le_bytes().to_vec()));
    }

    // MS-NLMP 3.3.2.
    let key = ntowf_v2(&nt_hash(logon.password), logon.user, logon.domain);
    let time = server_time.unwrap_or(fresh.time).to_le_bytes();
    let temp = [&[1, 1, 0, 0, 0, 0, 0, 0], &time, &fresh.challenge, &[0; 4][..], &encode_av_pairs(&pairs), &[0; 4]];
    let temp = temp.concat();
    let proof = md5_mac(&key, &[server_challenge, &temp]);
    let base_key = md5_mac(&key, &[&proof]);
    let lm = match server_time {
        Some(_) => vec![0; 24],
        None => [&md5_mac(&key, &[server_challenge, &fresh.challenge])[..], &fresh.challenge].concat(),
    };
    let is_exchanged = flags & flags::NTLMSSP_NEGOTIATE_KEY_EXCH != 0
        && flags & (flags::NTLMSSP_NEGOTIATE_SIGN | flags::NTLMSSP_NEGOTIATE_SEAL) != 0;
    let (session_key, encrypted) = match is_exchanged {
        true => (fresh.session_key, rc4k(&base_key, &fresh.session_key).to_vec()),
        false => (base_key, Vec::new()),
    };

    let nt = [&proof[..], &temp].concat();
    let fields = [&lm[..], &nt, &utf16le(logon.domain), &utf16le(logon.user), &[], &encrypted];
    let mut message = build_authenticate(fields, flags, true);
    if server_time.is_some() {
        let mic = md5_mac(&session_key, &[negotiate, challenge, &message]);
        message[MIC_OFFSET..MIC_OFFSET + 16].copy_from_slice(&mic);
    }
    Ok(Authenticate { message, flags, session_key })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::ntlm::{Identity, NtlmAuthenticate, NtlmServer, NtlmTargetInfo, UserCreds};

    const FRESH: Fresh = Fresh { challenge: [0xaa; 8], session_key: [0x55; 16], time: 0 };

    /// MS-NLMP 4.2.4: the CHALLENGE_MESSAGE of 4.2.4.3, and what 4.2.4.1 and 4.2.4.2 derive.
    #[test]
    fn ntlmv2_known_answer() {
        let challenge = hex::decode(
            "4e544c4d53535000020000000c000c003800000033828ae20123456789abcdef0000000000000000240024004400\
             00000600701700\
             00000f53006500720076006500720002000c0044006f006d00610069006e0001000c0053006500720076006500720000000000",
        )
        .unwrap();
        let logon = Logon { user: "User", password: "Password", domain: "Domain" };
        let answer = authenticate(&logon, &negotiate_message(), &challenge, &FRESH).unwrap();
        assert_eq!(answer.session_key, [0x55; 16]);
        let sent = NtlmAuthenticate::parse(&answer.message).unwrap();
        assert_eq!(hex::encode(&sent.nt_response[..16]), "68cd0ab851e51c96aabc927bebef6a1c");
        assert_eq!(hex::encode(&sent.lm_response), "86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa");
        assert_eq!(hex::encode(&sent.encrypted_random_session_key), "c5dad2544fc9799094ce1ce90bc9d03e");
        assert_eq!((&sent.user[..], &sent.domain[..], sent.mic), ("User", "Domain", None));
        for cut in 0..challenge.len() {
            assert!(authenticate(&logon, &[], &challenge[..cut], &FRESH).is_err(), "{cut}");
        }
    }

    /// With a time in the challenge, so with a MIC.
    #[test]
    fn our_server_derives_the_same_key() {
        let negotiate = negotiate_message();
        let mut server = NtlmServer::new([7; 8], NtlmTargetInfo::new("S", "D", "S", "d", "s"), 1 << 57);
        server.step1_negotiate(&negotiate).unwrap();
        let challenge = server.challenge();
        let logon = |user, password| Logon { user, password, domain: "" };
        let answer = authenticate(&logon("ann", "pässword"), &negotiate, &challenge, &FRESH).unwrap();
        let creds = |_: &str, _: &str| Some(UserCreds::from_password("pässword"));
        let outcome = server.authenticate(&answer.message, creds).unwrap();
        assert_eq!(outcome.identity, Identity::User { user: "ann".into(), domain: String::new() });
        assert!(outcome.mic_present && outcome.session_key == answer.session_key && outcome.flags == answer.flags);
        let wrong = authenticate(&logon("ann", "password"), &negotiate, &challenge, &FRESH).unwrap();
        assert!(server.authenticate(&wrong.message, creds).is_err());
    }
}
