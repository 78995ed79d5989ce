//! FLUSH Request (MS-SMB2 2.2.17).

use binrw::binrw;

#[binrw]
#[brw(little)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushRequest {
    pub structure_size: u16,
    pub reserved1: u16,
    pub reserved2: u32,
    /// Persistent portion of the FileId.
    pub file_id_persistent: u64,
    /// Volatile portion of the FileId.
    pub file_id_volatile: u64,
}

codec!(FlushRequest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let r = FlushRequest {
            structure_size: 24,
            reserved1: 0,
            reserved2: 0,
            file_id_persistent: 0x1122_3344_5566_7788,
            file_id_volatile: 0xAABB_CCDD_EEFF_0011,
        };
        let mut buf = Vec::new();
        r.write_to(&mut buf).unwrap();
        assert_eq!(buf.len(), 24);
        assert_eq!(FlushRequest::parse(&buf).unwrap(), r);
    }
}
