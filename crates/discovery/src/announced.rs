//! What is announced: plain facts, which whoever serves knows.

/// The facts that clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The name of the machine, at most 63 bytes.
    pub name: String,
    /// The same as long as the data folder is.
    pub uuid: uuid::Uuid,
    /// Services found by DNS-SD.
    pub services: Vec<Service>,
    /// Whether Explorer shows the machine: it opens SMB at port 445 and no other.
    pub windows: bool,
    /// Interfaces to speak on; all that have a private address where none is named.
    pub interfaces: Vec<String>,
}

/// One entry of DNS-SD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Such as `_smb._tcp`.
    pub kind: &'static str,
    /// The name that people see.
    pub name: String,
    /// 0 where the entry is about the machine.
    pub port: u16,
    /// Keys and values of its TXT record.
    pub text: Vec<(String, String)>,
}
