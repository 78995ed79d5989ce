//! Who changed a keyring, as a replica tells it that cannot open it (`keyring.signed_by_its_master`).
//!
//! ```text
//! volume:  change of the slots -> changes + 1 -> signature by Ed25519 (RFC 8032), whose key HKDF derives from the master key
//! replica: first snapshot brings the keyring and the public half; a later keyring replaces it
//!          if the same half signed it, it opens the same volume keys, and its number of changes is higher
//! ```
//!
//! The signature covers the slots, their number of changes and the domain. Volume keys are compared byte for byte instead: a change of
//! slots never touches them, and a volume with other keys is sent into a new replica.
//!
//! - `keyring.unsigned_waits_for_its_master`: a replica of an older program knows no public half. What arrives is kept beside its own
//!   keyring, both open it, and the next unlocking proves the one that arrived or drops it.
//! - `keyring.nobody_is_locked_out`: slots that an own keyring without signature has and the proved one lacks stay as slots of the
//!   replica: they may have been added there.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::{FORMAT, Generation, Hex, Keyring, KeyringError, Master, Renewal, Signature, Work};
use crate::SealError;
use crate::keys::hkdf;

const PURPOSE: &[u8] = b"larder keyring signature";
/// The dearest passphrase that a larder makes ([`Work::for_memory`]). A forged slot costs whoever unlocks no more.
const WORK_MAX: Work = Work { memory_kib: 512 << 10, passes: 3, lanes: 4 };

fn key_pair(master: &Master) -> Result<Ed25519KeyPair, KeyringError> {
    let seed = hkdf(&[], &master.0[..], &[PURPOSE], 32);
    Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyringError::Seal(SealError::Forged))
}

impl Keyring {
    /// How often the slots have changed; of what arrived, where that waits for its master key. 0: an older program wrote it.
    pub fn changes(&self) -> u64 {
        self.unproved.as_ref().map_or(self.changes, |unproved| unproved.changes)
    }

    /// After a change of the slots. Slots of a replica that is a volume by now become the volume's.
    pub(super) fn sign(&mut self, master: &Master) -> Result<(), KeyringError> {
        let pair = key_pair(master)?;
        self.slots.retain(|slot| !self.without.contains(&slot.id));
        self.without.clear();
        self.slots.append(&mut self.here);
        self.format = FORMAT;
        self.changes += 1;
        self.unproved = None;
        let bytes = Hex(pair.sign(&self.signed_text()).as_ref().to_vec());
        self.signature = Some(Signature { signer: Hex(pair.public_key().as_ref().to_vec()), bytes });
        Ok(())
    }

    /// Every part has its length before it.
    fn signed_text(&self) -> Vec<u8> {
        let mut text = PURPOSE.to_vec();
        let mut put = |part: &[u8]| {
            text.extend_from_slice(&(part.len() as u32).to_le_bytes());
            text.extend_from_slice(part);
        };
        put(&self.domain.into_bytes());
        put(&self.changes.to_le_bytes());
        for slot in &self.slots {
            put(&self.slot_aad(slot));
            put(&[u8::from(slot.work.is_some())]);
            put(slot.name.as_bytes());
            put(&slot.created.to_le_bytes());
            put(&slot.salt.0);
            put(&slot.sealed.0);
        }
        text
    }

    fn is_signed_by(&self, signer: &Hex) -> bool {
        let Some(signature) = self.signature.as_ref().filter(|signature| signature.signer == *signer) else {
            return false;
        };
        UnparsedPublicKey::new(&ED25519, &signer.0).verify(&self.signed_text(), &signature.bytes.0).is_ok()
    }

    /// What the keyring `came`, from a sender that nobody trusts, makes of this one.
    pub fn renewed(&self, came: &Keyring) -> Result<Renewal, KeyringError> {
        let same_keys = self.domain == came.domain
            && self.cipher == came.cipher
            && self.generations.len() == came.generations.len()
            && self.generations.iter().zip(&came.generations).all(|(own, other)| own.is(other));
        if !same_keys {
            return Err(KeyringError::Foreign("the keyring that came has other volume keys than the replica"));
        }
        let Some(signature) = &came.signature else {
            // An older larder sent it: nothing tells that it is an honest change.
            return Ok(Renewal::Nothing);
        };
        let is_cheap = |work: &Work| {
            work.memory_kib <= WORK_MAX.memory_kib && work.passes <= WORK_MAX.passes && work.lanes <= WORK_MAX.lanes
        };
        if !came.slots.iter().filter_map(|slot| slot.work.as_ref()).all(is_cheap) {
            return Err(KeyringError::Foreign(
                "the keyring that came has a passphrase that costs more than any larder's",
            ));
        }
        let signer = self.signature.as_ref().map_or(&signature.signer, |own| &own.signer);
        if !came.is_signed_by(signer) {
            return Err(KeyringError::Foreign("the keyring that came is not signed by the volume's master key"));
        }
        let came = Keyring { here: Vec::new(), without: Vec::new(), unproved: None, ..came.clone() };
        Ok(match self.signature {
            Some(_) if came.changes <= self.changes => Renewal::Nothing,
            Some(_) => {
                let (here, without) = (self.here.clone(), self.without.clone());
                let mut renewed = Keyring { here, without, ..came };
                if renewed.slots().next().is_none() {
                    // `keyring.nobody_is_locked_out`: the volume lost the last slot that opened the replica.
                    renewed.without.clear();
                }
                Renewal::Replaced(Box::new(renewed))
            }
            None => {
                Renewal::Unproved(Box::new(Keyring { format: FORMAT, unproved: Some(Box::new(came)), ..self.clone() }))
            }
        })
    }

    /// Proves or drops what waits for the master key (`keyring.unsigned_waits_for_its_master`). Whether anything changed.
    pub fn settle(&mut self, master: &Master) -> Result<bool, KeyringError> {
        let Some(unproved) = self.unproved.take() else { return Ok(false) };
        let signer = Hex(key_pair(master)?.public_key().as_ref().to_vec());
        if !unproved.is_signed_by(&signer) {
            return Ok(true);
        }
        // `keyring.nobody_is_locked_out`
        let lacks = |id| !unproved.slots.iter().any(|slot| slot.id == id);
        let (own, here) = (std::mem::take(&mut self.slots), std::mem::take(&mut self.here));
        let without = std::mem::take(&mut self.without);
        let own = own.into_iter().filter(|slot| !without.contains(&slot.id));
        let here = own.chain(here).filter(|slot| lacks(slot.id)).collect();
        *self = Keyring { here, without, ..*unproved };
        Ok(true)
    }
}

impl Generation {
    fn is(&self, other: &Self) -> bool {
        self.number == other.number && self.salt == other.salt && self.sealed == other.sealed
    }
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::super::Secret;
    use super::*;
    use crate::Cipher;

    const CHEAP: Work = Work { memory_kib: 64, passes: 1, lanes: 1 };

    fn key(byte: u8) -> Secret {
        Secret::KeyFile(Zeroizing::new(vec![byte; 64]))
    }

    fn ring() -> (Keyring, Master) {
        Keyring::create(Cipher::Aes256Gcm, "first", &key(1), CHEAP, 7).expect("a keyring")
    }

    fn replaced(own: &Keyring, came: &Keyring) -> Keyring {
        match own.renewed(came).expect("it fits") {
            Renewal::Replaced(ring) => Keyring::decode(&ring.encode()).expect("decodes"),
            other => panic!("{other:?}"),
        }
    }

    fn opens(ring: &Keyring, byte: u8) -> bool {
        ring.unlock(&key(byte)).is_ok_and(|master| ring.keys(&master).is_ok())
    }

    fn signer_of(ring: &Keyring) -> Hex {
        ring.signature.as_ref().expect("signed").signer.clone()
    }

    /// As a program before signatures wrote it.
    fn unsigned(ring: &Keyring) -> Keyring {
        Keyring { format: super::super::FORMAT_UNSIGNED, changes: 0, signature: None, ..ring.clone() }
    }

    #[test]
    fn a_change_replaces_what_a_locked_replica_has_and_leaves_its_own_slots() {
        let (mut volume, master) = ring();
        let mut replica = volume.clone();
        replica.add_slot_here(&master, "there", &key(9), CHEAP, 8).expect("a slot");
        volume.add_slot(&master, "new", &key(2), CHEAP, 8).expect("a slot");
        volume.remove_slot(&master, "first").expect("removed");
        let replica = replaced(&replica, &volume);
        assert_eq!([1, 2, 9].map(|byte| opens(&replica, byte)), [false, true, true]);
        assert!(matches!(replica.renewed(&volume), Ok(Renewal::Nothing)), "once");
        assert_eq!(replica.changes(), volume.changes());
    }

    #[test]
    fn an_older_keyring_that_comes_later_changes_nothing() {
        let (mut volume, master) = ring();
        let first = volume.clone();
        volume.add_slot(&master, "new", &key(2), CHEAP, 8).expect("a slot");
        let second = volume.clone();
        volume.remove_slot(&master, "first").expect("removed");
        let replica = replaced(&first, &volume);
        for old in [&first, &second, &unsigned(&first)] {
            assert!(matches!(replica.renewed(old), Ok(Renewal::Nothing)));
        }
    }

    #[test]
    fn nothing_that_another_made_replaces_a_keyring() {
        let (volume, master) = ring();
        let (other, other_master) = ring();
        let mut newer = volume.clone();
        newer.add_slot(&master, "new", &key(2), CHEAP, 8).expect("a slot");
        // Slots of another master key, or none that opens, under the volume's own keys.
        let mut forged = Keyring { slots: other.slots.clone(), ..volume.clone() };
        forged.sign(&other_master).expect("signs");
        let stolen = Keyring { slots: other.slots.clone(), ..newer.clone() };
        let counted = Keyring { changes: 1 << 40, ..newer.clone() };
        let mut renamed = newer.clone();
        renamed.slots[0].name = "mine".into();
        let fewer = Keyring { slots: newer.slots[..1].to_vec(), ..newer.clone() };
        let mut rekeyed = newer.clone();
        rekeyed.add_key(&master, 9).expect("a key");
        let mut dear = volume.clone();
        let work = Work { memory_kib: 1 << 20, passes: 1, lanes: 1 };
        dear.slots[0].work = Some(work);
        dear.sign(&master).expect("signs");
        for (at, came) in [&other, &forged, &stolen, &counted, &renamed, &fewer, &rekeyed, &dear].iter().enumerate() {
            assert!(matches!(volume.renewed(came), Err(KeyringError::Foreign(_))), "{at}");
        }
        let text = newer.encode();
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1;
            let Ok(came) = Keyring::decode(&changed) else { continue };
            if let Ok(Renewal::Replaced(ring)) = volume.renewed(&came) {
                assert!(opens(&ring, 1) && opens(&ring, 2), "byte {at}");
            }
        }
    }

    #[test]
    fn a_replica_without_signature_opens_with_both_until_one_is_proved() {
        let (mut volume, master) = ring();
        let (other, other_master) = ring();
        let replica = unsigned(&volume);
        volume.add_slot(&master, "new", &key(2), CHEAP, 8).expect("a slot");
        volume.remove_slot(&master, "first").expect("removed");
        let Ok(Renewal::Unproved(kept)) = replica.renewed(&volume) else { panic!("kept beside") };
        let mut kept = Keyring::decode(&kept.encode()).expect("decodes");
        assert_eq!([1, 2].map(|byte| opens(&kept, byte)), [true, true]);
        assert_eq!(kept.changes(), volume.changes());
        let (opened, id) = kept.unlock_slot(&key(2)).expect("opens");
        assert!(kept.settle(&opened).expect("settles") && !kept.is_here_only(id));
        let first = kept.unlock_slot(&key(1)).expect("it may have been added here").1;
        assert!(kept.is_here_only(first));
        assert!(matches!(kept.renewed(&volume), Ok(Renewal::Nothing)));
        // A forged one opens nothing, and goes when somebody opens the replica.
        let mut forged = Keyring { slots: other.slots.clone(), ..unsigned(&volume) };
        forged.generations.clone_from(&replica.generations);
        forged.sign(&other_master).expect("signs");
        let Ok(Renewal::Unproved(mut kept)) = replica.renewed(&forged) else { panic!("kept beside") };
        assert!(opens(&kept, 1));
        let opened = kept.unlock(&key(1)).expect("opens");
        assert!(kept.settle(&opened).expect("settles"));
        assert_eq!((kept.changes(), kept.slots().count()), (0, 1));
    }

    #[test]
    fn a_replica_changes_its_own_slots_alone_until_it_is_a_volume() {
        let (mut ring, master) = ring();
        ring.add_slot_here(&master, "there", &key(9), CHEAP, 8).expect("a slot");
        let before = ring.changes();
        ring.remove_slot_here("there").expect("removed");
        ring.add_slot_here(&master, "again", &key(8), CHEAP, 8).expect("a slot");
        ring.remove_slot_here("first").expect("removed");
        assert_eq!(ring.remove_slot_here("again").err(), Some(KeyringError::LastSlot));
        assert_eq!((ring.changes(), [1, 8, 9].map(|byte| opens(&ring, byte))), (before, [false, true, false]));
        // What was removed there does not come back with the volume's next change.
        let (mut volume, third) = (Keyring { here: Vec::new(), without: Vec::new(), ..ring.clone() }, ring.clone());
        volume.add_slot(&master, "more", &key(6), CHEAP, 8).expect("a slot");
        let mut ring = replaced(&ring, &volume);
        assert_eq!([1, 6, 8].map(|byte| opens(&ring, byte)), [false, true, true]);
        // It is passed on as it came.
        assert!(opens(&replaced(&third, &ring), 6));
        // Promoted, it signs for itself.
        ring.add_slot(&master, "next", &key(7), CHEAP, 9).expect("a slot");
        assert_eq!([1, 6, 7, 8].map(|byte| opens(&ring, byte)), [false, true, true, true]);
        assert!(ring.here.is_empty() && ring.without.is_empty() && ring.is_signed_by(&signer_of(&ring)));
    }

    #[test]
    fn a_replica_whose_last_slot_the_volume_lost_opens_with_the_volumes_own() {
        let (mut volume, master) = ring();
        volume.add_slot(&master, "second", &key(2), CHEAP, 8).expect("a slot");
        let mut replica = volume.clone();
        replica.remove_slot_here("first").expect("removed");
        volume.remove_slot(&master, "second").expect("removed");
        assert!(opens(&replaced(&replica, &volume), 1));
    }
}
