//! LOCK Request (MS-SMB2 2.2.26).

use binrw::binrw;

use super::create::FileId;

/// SMB2_LOCK_ELEMENT (MS-SMB2 §2.2.26.1) - exactly 24 bytes.
#[binrw]
#[brw(little)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockElement {
    pub offset: u64,
    pub length: u64,
    pub flags: u32,
    pub reserved: u32,
}

impl LockElement {
    pub const FLAG_SHARED_LOCK: u32 = 0x0000_0001;
    pub const FLAG_EXCLUSIVE_LOCK: u32 = 0x0000_0002;
    pub const FLAG_UNLOCK: u32 = 0x0000_0004;
    pub const FLAG_FAIL_IMMEDIATELY: u32 = 0x0000_0010;
}

#[binrw]
#[brw(little)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRequest {
    pub structure_size: u16,
    pub lock_count: u16,
    pub lock_sequence: u32,
    pub file_id: FileId,
    #[br(count = lock_count as usize)]
    pub locks: Vec<LockElement>,
}

codec!(LockRequest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_round_trips() {
        let r = LockRequest {
            structure_size: 48,
            lock_count: 2,
            lock_sequence: 0,
            file_id: FileId::new(1, 2),
            locks: vec![
                LockElement { offset: 0, length: 16, flags: LockElement::FLAG_EXCLUSIVE_LOCK, reserved: 0 },
                LockElement { offset: 0, length: 16, flags: LockElement::FLAG_UNLOCK, reserved: 0 },
            ],
        };
        let mut buf = Vec::new();
        r.write_to(&mut buf).unwrap();
        assert_eq!(LockRequest::parse(&buf).unwrap(), r);
    }
}
