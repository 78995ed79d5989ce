//! The body without fields: the requests LOGOFF, TREE_DISCONNECT, ECHO and CANCEL, and the responses to
//! these, FLUSH and LOCK (MS-SMB2 2.2.7, 2.2.8, 2.2.11, 2.2.12, 2.2.18, 2.2.27 to 2.2.30).

use binrw::binrw;

#[binrw]
#[brw(little)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmptyBody {
    pub structure_size: u16,
    pub reserved: u16,
}

impl Default for EmptyBody {
    fn default() -> Self {
        Self { structure_size: 4, reserved: 0 }
    }
}

codec!(EmptyBody);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let mut buf = Vec::new();
        EmptyBody::default().write_to(&mut buf).unwrap();
        assert_eq!(buf, [4, 0, 0, 0]);
        assert_eq!(EmptyBody::parse(&buf).unwrap(), EmptyBody::default());
    }
}
