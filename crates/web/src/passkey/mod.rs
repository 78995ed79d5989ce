//! Passkeys: what a browser answers when it is asked to make a credential or to sign with one (Web Authentication Level 2, "WebAuthn").
//!
//! - `passkeys.party_is_the_name`: the relying party is the name by which the page was opened. Browsers know none for an address.
//! - `passkeys.no_attestation`: the page asks for no attestation and believes none. Formats are `none`, and `packed` by the credential's own
//!   key, whose signature is checked.
//! - `passkeys.pure`: this reads bytes and decides; challenges, users and counters are the caller's.

mod cbor;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use base64ct::{Base64UrlUnpadded, Encoding};
use serde::Deserialize;

use self::cbor::Value;

/// Of what a browser sends: more is no credential's.
const BYTES_MAX: usize = 16 << 10;
/// WebAuthn 4: a credential's id has 1,023 bytes at most.
const ID_BYTES_MAX: usize = 1023;

/// COSE algorithms (RFC 9053, RFC 8812), in the order of preference.
pub const ALGORITHMS: [i64; 3] = [EDDSA, ES256, RS256];
const ES256: i64 = -7;
const EDDSA: i64 = -8;
const RS256: i64 = -257;

/// Flags of authenticator data (WebAuthn 6.1).
const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const HAS_CREDENTIAL: u8 = 1 << 6;

/// The page, as a browser knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// A name, never an address.
    pub id: String,
    /// Scheme, name and port.
    pub origin: String,
}

impl Party {
    /// `host`: the header Host. `None`: it is an address (`passkeys.party_is_the_name`).
    pub fn of(host: &str, is_secure: bool) -> Option<Self> {
        let host = host.to_ascii_lowercase();
        let (name, port) = host.split_once(':').unwrap_or((&host, ""));
        let name = name.trim_end_matches('.');
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        // A last label of digits makes an address (WHATWG URL 3.5).
        let ends_in_digits = name.rsplit('.').next().is_none_or(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
        if name.is_empty() || !is_name || ends_in_digits || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (scheme, usual) = if is_secure { ("https", "443") } else { ("http", "80") };
        let port = if port.is_empty() || port == usual { String::new() } else { format!(":{port}") };
        Some(Self { id: name.to_owned(), origin: format!("{scheme}://{name}{port}") })
    }
}

/// A credential that was made.
#[derive(Debug, PartialEq, Eq)]
pub struct Made {
    pub id: Vec<u8>,
    /// A COSE key.
    pub key: Vec<u8>,
    pub count: u32,
}

/// A signature that is right.
#[derive(Debug, PartialEq, Eq)]
pub struct Signed {
    pub count: u32,
    /// The authenticator knows its person, by a PIN, a finger or a face.
    pub is_verified: bool,
}

/// Why an answer is refused.
pub type Refused = &'static str;

#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default, rename = "crossOrigin")]
    is_cross_origin: bool,
}

/// The challenge that an answer names, before anything of it is believed.
pub fn challenge_of(client: &[u8]) -> Option<String> {
    (client.len() <= BYTES_MAX).then(|| serde_json::from_slice::<ClientData>(client).ok())?.map(|data| data.challenge)
}

/// WebAuthn 7.1 steps 5 to 10, 7.2 steps 9 to 14.
fn check_client(client: &[u8], kind: &str, challenge: &str, party: &Party) -> Result<(), Refused> {
    if client.len() > BYTES_MAX {
        return Err("the answer is too long");
    }
    let data: ClientData = serde_json::from_slice(client).map_err(|_| "the answer is damaged")?;
    match () {
        () if data.kind != kind => Err("the answer is to another question"),
        () if data.challenge != challenge => Err("the answer is to another challenge"),
        () if data.origin != party.origin || data.is_cross_origin => Err("the answer is for another site"),
        () => Ok(()),
    }
}

struct Authenticator<'a> {
    count: u32,
    is_verified: bool,
    /// Id, key and its bytes.
    credential: Option<(&'a [u8], Value<'a>, &'a [u8])>,
}

/// WebAuthn 6.1, 6.5.1; 7.1 steps 13 to 15, 7.2 steps 15 to 17.
fn authenticator<'a>(bytes: &'a [u8], party: &Party, verified: bool) -> Result<Authenticator<'a>, Refused> {
    const DAMAGED: Refused = "the authenticator's data is damaged";
    let (party_hash, rest) = bytes.split_first_chunk::<32>().ok_or(DAMAGED)?;
    let ([flags], rest) = rest.split_first_chunk::<1>().ok_or(DAMAGED)?;
    let (count, rest) = rest.split_first_chunk::<4>().ok_or(DAMAGED)?;
    if party_hash != digest::digest(&digest::SHA256, party.id.as_bytes()).as_ref() {
        return Err("the passkey is for another name");
    }
    if flags & USER_PRESENT == 0 {
        return Err("nobody touched the authenticator");
    }
    let is_verified = flags & USER_VERIFIED != 0;
    if verified && !is_verified {
        return Err("the authenticator did not check who you are");
    }
    let mut credential = None;
    if flags & HAS_CREDENTIAL != 0 {
        let (_aaguid, rest) = rest.split_first_chunk::<16>().ok_or(DAMAGED)?;
        let (length, rest) = rest.split_first_chunk::<2>().ok_or(DAMAGED)?;
        let (id, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(DAMAGED)?;
        let (key, behind) = Value::read(rest).ok_or(DAMAGED)?;
        let key_bytes = rest.get(..rest.len() - behind.len()).ok_or(DAMAGED)?;
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(DAMAGED);
        }
        credential = Some((id, key, key_bytes));
    }
    Ok(Authenticator { count: u32::from_be_bytes(*count), is_verified, credential })
}

/// A signature by a COSE key (RFC 9053 2 and 7, RFC 8230 4).
fn verify(key: &Value<'_>, message: &[u8], signature: &[u8]) -> Result<(), Refused> {
    const UNKNOWN: Refused = "the passkey is of a kind that is not known here";
    const WRONG: Refused = "the signature is wrong";
    let part = |label: i64| key.at(label).and_then(Value::bytes).ok_or(UNKNOWN);
    let int = |label: i64| key.at(label).and_then(Value::int);
    match (int(1), int(3), int(-1)) {
        (Some(2), Some(ES256), Some(1)) => {
            let (x, y) = (part(-2)?, part(-3)?);
            if x.len() != 32 || y.len() != 32 {
                return Err(UNKNOWN);
            }
            let point = [&[4][..], x, y].concat();
            UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_ASN1, point).verify(message, signature)
        }
        (Some(1), Some(EDDSA), Some(6)) => {
            UnparsedPublicKey::new(&signature::ED25519, part(-2)?).verify(message, signature)
        }
        (Some(3), Some(RS256), None) => {
            let key = RsaPublicKeyComponents { n: part(-1)?, e: part(-2)? };
            key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
        }
        _ => return Err(UNKNOWN),
    }
    .map_err(|_| WRONG)
}

/// WebAuthn 7.1: a credential that was made on request.
pub fn made(client: &[u8], attestation: &[u8], challenge: &str, party: &Party) -> Result<Made, Refused> {
    const DAMAGED: Refused = "the new passkey is damaged";
    check_client(client, "webauthn.create", challenge, party)?;
    if attestation.len() > BYTES_MAX {
        return Err(DAMAGED);
    }
    let (object, behind) = Value::read(attestation).ok_or(DAMAGED)?;
    let bytes = object.named("authData").and_then(Value::bytes).filter(|_| behind.is_empty()).ok_or(DAMAGED)?;
    let data = authenticator(bytes, party, false)?;
    let (id, key, key_bytes) = data.credential.ok_or(DAMAGED)?;
    // Step 16: of the algorithms that were asked for.
    let algorithm = key.at(3).and_then(Value::int).filter(|algorithm| ALGORITHMS.contains(algorithm));
    let algorithm = algorithm.ok_or("the passkey is of a kind that is not known here")?;
    let statement = object.named("attStmt").ok_or(DAMAGED)?;
    // Steps 18 to 21 (`passkeys.no_attestation`).
    match object.named("fmt").and_then(Value::text) {
        Some("none") if *statement == Value::Map(Vec::new()) => {}
        // 8.2, by the credential's own key.
        Some("packed") if statement.named("x5c").is_none() => {
            if statement.named("alg").and_then(Value::int) != Some(algorithm) {
                return Err(DAMAGED);
            }
            let signature = statement.named("sig").and_then(Value::bytes).ok_or(DAMAGED)?;
            let hash = digest::digest(&digest::SHA256, client);
            verify(&key, &[bytes, hash.as_ref()].concat(), signature)?;
        }
        _ => return Err("the browser told more of the authenticator than it was asked for"),
    }
    Ok(Made { id: id.to_vec(), key: key_bytes.to_vec(), count: data.count })
}

/// WebAuthn 7.2: a signature by a known credential. `verified`: it has to know its person.
pub fn signed(
    (client, data, signature): (&[u8], &[u8], &[u8]),
    key: &[u8],
    challenge: &str,
    party: &Party,
    verified: bool,
) -> Result<Signed, Refused> {
    check_client(client, "webauthn.get", challenge, party)?;
    if data.len() > BYTES_MAX {
        return Err("the answer is too long");
    }
    let found = authenticator(data, party, verified)?;
    let (key, _) = Value::read(key).ok_or("the kept passkey is damaged")?;
    let hash = digest::digest(&digest::SHA256, client);
    verify(&key, &[data, hash.as_ref()].concat(), signature)?;
    Ok(Signed { count: found.count, is_verified: found.is_verified })
}

/// WebAuthn 7.2 step 21: whether a counter tells that the key was copied. Keys that are synchronized have none.
pub fn is_copy(kept: u32, given: u32) -> bool {
    (kept, given) != (0, 0) && given <= kept
}

/// Bytes of a field of a form.
pub fn field(text: &str) -> Option<Vec<u8>> {
    (text.len() <= 2 * BYTES_MAX).then(|| Base64UrlUnpadded::decode_vec(text).ok())?
}

pub fn base64(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

#[cfg(test)]
pub mod tests;
