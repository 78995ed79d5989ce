//! The formats, held by bytes that another program made from FORMAT.md: HKDF and the ciphers of Python's `cryptography`.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_base::log::{LogEntry, LogStore, MemLog};
use object_store::PutPayload;
use uuid::Uuid;

use crate::frames::{HEADER_BYTES, content_len};
use crate::log::open_entries;
use crate::object::{Header, ObjectKey, seal};
use crate::{Cipher, Keyring, Keys, Random, RecoveryKey, Renewal, SealError, SealedLog, Secret, VolumeKey};

/// The salt of the golden bytes.
struct Counting;

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), SealError> {
        bytes.iter_mut().zip(0..).for_each(|(byte, number)| *byte = number);
        Ok(())
    }
}

fn keys(cipher: Cipher) -> Keys {
    let domain = Uuid::from_bytes(std::array::from_fn(|at| 0x40 + at as u8));
    Keys::new(domain, cipher, BTreeMap::from([(7, VolumeKey::new([0x11; 32]))])).with_random(Arc::new(Counting))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

fn sealed(cipher: Cipher, place: &str, content: &[u8]) -> Vec<u8> {
    let sealed = seal(&keys(cipher), place, &PutPayload::from(content.to_vec())).expect("seals");
    sealed.iter().flat_map(|piece| piece.to_vec()).collect()
}

#[test]
fn objects() {
    let head = |cipher: u8| {
        format!("4c52445345414c0001{cipher:02x}000007000000{}", hex(&std::array::from_fn::<u8, 32, _>(|at| at as u8)))
    };
    for (cipher, code, body) in [
        (Cipher::Aes256Gcm, 1, "12a227c78631572ed7d4d487c298577cc73c3f2f2613"),
        (Cipher::Aes128Gcm, 2, "ff302c900b699fb3e6dfb0382eca37572bff5abbf151"),
        (Cipher::ChaCha20Poly1305, 3, "ab0ec9a3d2055a8d24e8f387f32aaaa6fe857ee6f7c5"),
    ] {
        let golden = format!("{}{body}", head(code));
        assert_eq!(hex(&sealed(cipher, "meta/manifest/1", b"larder")), golden, "{cipher}");
        let golden = bytes(&golden);
        let header = Header::decode(&golden).expect("a header");
        let key = ObjectKey::derive(&keys(Cipher::Aes256Gcm), &header, "meta/manifest/1").expect("a key");
        let len = content_len(golden.len() as u64).expect("a length");
        assert_eq!(&key.open(0, len, &golden[HEADER_BYTES..]).expect("opens")[..], b"larder", "{cipher}");
    }
    let several: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &sealed(Cipher::Aes256Gcm, "seg/a", &several));
    assert_eq!(hex(hash.as_ref()), "8770cae31cded390e8c4fe3f7c3051f866bc6e13201c56d0ad20f28bc7d5c3d4");
}

#[tokio::test]
async fn log_entries() {
    let golden = "0101000007000000000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f00000000000000006d2bfade3ec5775ade10f9b2ee5969d0d22ceb1921";
    let inner = MemLog::default();
    let log = SealedLog::new(Arc::new(inner.clone()), Arc::new(keys(Cipher::Aes256Gcm))).expect("a log");
    log.append("volume-x", 9, vec!["entry".into()]).await.expect("appends");
    assert_eq!(hex(&inner.replay("volume-x", 0).await.expect("replays")[0].payload), golden);
    let (opened, faults) =
        open_entries(&keys(Cipher::Aes256Gcm), "volume-x", &[LogEntry { id: 9, payload: bytes(golden).into() }]);
    assert_eq!((&opened[0].payload[..], faults.len()), (&b"entry"[..], 0));
}

#[test]
fn keyrings() {
    let ring = Keyring::decode(include_bytes!("golden/keyring.json")).expect("decodes");
    let file = Secret::KeyFile((0..64).collect::<Vec<u8>>().into());
    let paper =
        RecoveryKey::parse("B9D5M-PJTB9-D5MPJ-TB9D5-MPJTB-9D5MP-JTB9D-5MPJT-B9D5M-PJTB9-D0C2Z").expect("parses");
    for secret in [file, Secret::Recovery(paper)] {
        let opened = ring.keys(&ring.unlock(&secret).expect("opens")).expect("keys");
        let opened = opened.with_random(Arc::new(Counting));
        let sealed = seal(&opened, "meta/manifest/1", &PutPayload::from_static(b"larder")).expect("seals");
        let sealed: Vec<u8> = sealed.iter().flat_map(|piece| piece.to_vec()).collect();
        assert_eq!(hex(&sealed[HEADER_BYTES..]), "12a227c78631572ed7d4d487c298577cc73c3f2f2613");
    }
}

/// A keyring as older programs wrote it, and the same one with the signature of its master key.
#[test]
fn signed_keyrings() {
    let unsigned = Keyring::decode(include_bytes!("golden/keyring.json")).expect("decodes");
    let signed = Keyring::decode(include_bytes!("golden/keyring-signed.json")).expect("decodes");
    let Ok(Renewal::Unproved(mut ring)) = unsigned.renewed(&signed) else { panic!("its master key proves it") };
    let master = ring.unlock(&Secret::KeyFile((0..64).collect::<Vec<u8>>().into())).expect("opens");
    assert!(ring.settle(&master).expect("settles"));
    assert_eq!((ring.changes(), ring.encode()), (3, signed.encode()));
}
