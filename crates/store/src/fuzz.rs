//! Objects of a bucket that anybody with a key to it can write, fed with anything. Driven by the tests below, and with coverage by
//! `fuzz/`.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;

use crate::log;
use crate::owner_record::OwnerRecord;

/// `owner.json`: a record that decodes is encoded and decoded again without change.
pub fn owner_record(data: &[u8]) {
    let Ok(record) = serde_json::from_slice::<OwnerRecord>(data) else { return };
    let once = serde_json::to_vec(&record).unwrap();
    assert_eq!(serde_json::from_slice::<OwnerRecord>(&once).unwrap(), record);
}

/// An entry of the log: as it is, and with the checksum put right.
pub fn bucket_entry(data: &[u8]) {
    log::fuzz_entry(&Bytes::copy_from_slice(data));
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    #[test]
    fn fuzz_owner_record() {
        let good = br#"{"format":1,"epoch":3,"machine":{"name":"nas","id":"7"},"taken_ms":5,"released":false,"beat":2,"journal":
            {"pool":"tank","pool_id":"9","drained_ms":4,"renewed":1,"at_rest":true},"waits":true,"asked":"other"}"#;
        drive("owner_record", &[good.to_vec()], super::owner_record);
    }

    #[test]
    fn fuzz_bucket_entry() {
        drive("bucket_entry", &[crate::log::fuzz_seed(false), crate::log::fuzz_seed(true)], super::bucket_entry);
    }
}
