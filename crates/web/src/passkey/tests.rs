use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

use super::*;

/// An authenticator in memory, with one key.
pub struct Soft {
    pair: EcdsaKeyPair,
    pub id: Vec<u8>,
    pub count: u32,
    pub flags: u8,
}

impl Default for Soft {
    fn default() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        Self { pair, id: vec![7; 16], count: 0, flags: USER_PRESENT | USER_VERIFIED }
    }
}

fn head(kind: u8, length: usize) -> Vec<u8> {
    match length {
        0..24 => vec![kind << 5 | length as u8],
        24..256 => vec![kind << 5 | 24, length as u8],
        _ => vec![kind << 5 | 25, (length >> 8) as u8, length as u8],
    }
}

fn bytes(value: &[u8]) -> Vec<u8> {
    [head(2, value.len()), value.to_vec()].concat()
}

fn text(value: &str) -> Vec<u8> {
    [head(3, value.len()), value.as_bytes().to_vec()].concat()
}

pub fn client(kind: &str, challenge: &str, origin: &str) -> Vec<u8> {
    serde_json::json!({"type": kind, "challenge": challenge, "origin": origin, "crossOrigin": false})
        .to_string()
        .into_bytes()
}

impl Soft {
    fn key(&self) -> Vec<u8> {
        let point = self.pair.public_key().as_ref();
        [&[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21][..], &bytes(&point[1..33]), &[0x22], &bytes(&point[33..65])].concat()
    }

    fn data(&self, party: &str, more: u8) -> Vec<u8> {
        let hash = digest::digest(&digest::SHA256, party.as_bytes());
        [hash.as_ref(), &[self.flags | more], &self.count.to_be_bytes()].concat()
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
    }

    pub fn attestation(&self, party: &str, format: &str, client: &[u8]) -> Vec<u8> {
        let length = u16::try_from(self.id.len()).unwrap().to_be_bytes();
        let data =
            [self.data(party, HAS_CREDENTIAL), vec![0; 16], length.to_vec(), self.id.clone(), self.key()].concat();
        let hash = digest::digest(&digest::SHA256, client);
        let signature = self.sign(&[&data, hash.as_ref()].concat());
        let statement = match format {
            "packed" => [vec![0xa2], text("alg"), vec![0x26], text("sig"), bytes(&signature)].concat(),
            _ => vec![0xa0],
        };
        [vec![0xa3], text("fmt"), text(format), text("attStmt"), statement, text("authData"), bytes(&data)].concat()
    }

    /// Data and signature.
    pub fn assertion(&self, party: &str, client: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let data = self.data(party, 0);
        let hash = digest::digest(&digest::SHA256, client);
        let signature = self.sign(&[&data, hash.as_ref()].concat());
        (data, signature)
    }
}

const ORIGIN: &str = "https://nas.local:10443";

fn party() -> Party {
    Party::of("nas.local:10443", true).unwrap()
}

#[test]
fn the_party_is_a_name() {
    assert_eq!(party(), Party { id: "nas.local".to_owned(), origin: ORIGIN.to_owned() });
    assert_eq!(Party::of("NAS:443", true).unwrap().origin, "https://nas");
    assert_eq!(Party::of("localhost", false).unwrap().origin, "http://localhost");
    for address in ["192.168.1.2", "192.168.1.2:10443", "[::1]:10443", "::1", "", "1", "nas.1", "a/b", "a:b"] {
        assert_eq!(Party::of(address, true), None, "{address}");
    }
}

#[test]
fn a_passkey_is_made_and_signs() {
    for format in ["none", "packed"] {
        let soft = Soft::default();
        let about = client("webauthn.create", "abc", ORIGIN);
        let found = made(&about, &soft.attestation("nas.local", format, &about), "abc", &party()).unwrap();
        assert_eq!((&found.id, &found.key, found.count), (&soft.id, &soft.key(), 0));
        let about = client("webauthn.get", "def", ORIGIN);
        let (data, signature) = soft.assertion("nas.local", &about);
        let signed = signed((&about, &data, &signature), &found.key, "def", &party(), true).unwrap();
        assert_eq!(signed, Signed { count: 0, is_verified: true });
    }
}

#[test]
fn answers_that_were_not_asked_for_are_refused() {
    let soft = Soft::default();
    let fine = client("webauthn.get", "abc", ORIGIN);
    let (data, signature) = soft.assertion("nas.local", &fine);
    let check = |client: &[u8], data: &[u8], signature: &[u8], verified: bool| {
        signed((client, data, signature), &soft.key(), "abc", &party(), verified).unwrap_err()
    };
    for (about, why) in [
        (client("webauthn.create", "abc", ORIGIN), "another question"),
        (client("webauthn.get", "abd", ORIGIN), "another challenge"),
        (client("webauthn.get", "abc", "https://nas.local"), "another site"),
        (client("webauthn.get", "abc", "https://evil.test"), "another site"),
        (b"{}".to_vec(), "damaged"),
        (vec![b' '; BYTES_MAX + 1], "too long"),
    ] {
        let (data, signature) = soft.assertion("nas.local", &about);
        assert!(check(&about, &data, &signature, false).contains(why), "{why}");
    }
    let framed = String::from_utf8(fine.clone()).unwrap().replace("false", "true").into_bytes();
    assert!(check(&framed, &data, &signature, false).contains("another site"));
    let (other, by_other) = soft.assertion("evil.test", &fine);
    assert!(check(&fine, &other, &by_other, false).contains("another name"));
    assert!(check(&fine, &data, &Soft::default().assertion("nas.local", &fine).1, false).contains("signature"));
    assert!(check(&fine, &data[..36], &signature, false).contains("damaged"));
    for (flags, verified, why) in [(0, false, "touched"), (USER_PRESENT, true, "who you are")] {
        let soft = Soft { flags, ..Soft::default() };
        let (data, signature) = soft.assertion("nas.local", &fine);
        let found = signed((&fine, &data, &signature), &soft.key(), "abc", &party(), verified);
        assert!(found.unwrap_err().contains(why));
    }
}

#[test]
fn attestations_that_are_not_what_they_say_are_refused() {
    let (soft, about) = (Soft::default(), client("webauthn.create", "abc", ORIGIN));
    let check = |attestation: &[u8]| made(&about, attestation, "abc", &party()).unwrap_err();
    let fine = soft.attestation("nas.local", "packed", &about);
    assert!(check(&soft.attestation("nas.local", "fido-u2f", &about)).contains("more of the authenticator"));
    let other = client("webauthn.create", "xyz", ORIGIN);
    assert!(check(&soft.attestation("nas.local", "packed", &other)).contains("signature"));
    for at in 0..fine.len() {
        // Cut anywhere it is damaged.
        assert!(!check(&fine[..at]).is_empty());
    }
    let mut more = fine.clone();
    more.push(0);
    assert!(check(&more).contains("damaged"));
}

#[test]
fn counters_tell_copies() {
    for (kept, given, is) in [(0, 0, false), (0, 1, false), (5, 6, false), (5, 5, true), (5, 0, true), (1, 0, true)] {
        assert_eq!(is_copy(kept, given), is);
    }
}
