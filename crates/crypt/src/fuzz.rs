//! Decoders of sealed bytes and of the keyring, fed with anything. Driven by the tests below, and with coverage by `fuzz/`.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_base::log::LogEntry;
use uuid::Uuid;

use crate::object::{Header, ObjectKey};
use crate::{Cipher, Keyring, Keys, Renewal, VolumeKey, frames, log};

fn keys() -> Keys {
    Keys::new(Uuid::from_u128(7), Cipher::for_this_machine(), BTreeMap::from([(1, VolumeKey::new([9; 32]))]))
}

/// `keyring.json`: one that decodes is encoded and decoded again without change, and none that nobody signed replaces a replica's.
pub fn keyring(data: &[u8]) {
    let Ok(keyring) = Keyring::decode(data) else { return };
    let once = keyring.encode();
    assert_eq!(Keyring::decode(&once).unwrap().encode(), once);
    let own = Keyring::decode(include_bytes!("golden/keyring-signed.json")).unwrap();
    assert!(!matches!(own.renewed(&keyring), Ok(Renewal::Replaced(_))));
}

/// An object of an encrypted volume: its header, and frames that nobody sealed.
pub fn sealed_object(data: &[u8]) {
    let keys = keys();
    if let Some(content) = frames::content_len(data.len() as u64) {
        assert_eq!(frames::sealed_len(content), data.len() as u64);
    }
    let Ok(header) = Header::decode(data) else { return };
    assert_eq!(header.encode()[..], data[..header.encode().len()]);
    let Ok(key) = ObjectKey::derive(&keys, &header, "seg/0000000000000001") else { return };
    let sealed = &data[header.encode().len()..];
    for (first, content) in [(0, sealed.len() as u64), (1, 1), (u64::from(u32::MAX), 1 << 40)] {
        let _ = key.open(first, content, sealed);
    }
}

/// Entries of the log of an encrypted volume: two, so that the second meets the session of the first.
pub fn sealed_log(data: &[u8]) {
    let (one, two) = data.split_at(data.len() / 2);
    let entries = [one, two, data].map(|part| LogEntry { id: 7, payload: Bytes::copy_from_slice(part) });
    let (opened, faults) = log::open_entries(&keys(), "volume-fuzz", &entries);
    assert_eq!(opened.len() + faults.len(), entries.len());
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;
    use super::*;

    #[test]
    fn fuzz_keyring() {
        let goldens = [&include_bytes!("golden/keyring.json")[..], include_bytes!("golden/keyring-signed.json")];
        drive("keyring", &goldens.map(<[u8]>::to_vec), keyring);
    }

    #[test]
    fn fuzz_sealed_object() {
        let keys = keys();
        let header = Header { cipher: keys.cipher(), generation: 1, salt: [5; 32] }.encode();
        drive("sealed_object", &[[&header[..], &[3; 80]].concat(), header.to_vec()], sealed_object);
    }

    #[test]
    fn fuzz_sealed_log() {
        let header = |generation: u8| [&[1, 1, 0, 0, generation, 0, 0, 0][..], &[5; 32], &[0; 8], &[3; 40]].concat();
        drive("sealed_log", &[header(1), [header(1), header(2)].concat()], sealed_log);
    }
}
