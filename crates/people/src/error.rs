//! What can be wrong with the text of a network, a key or a hash, and how it is mended.

/// Text that does not say what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeopleError {
    /// Not a network.
    #[error("{0:?} is no network: write an address or address/prefix, such as 192.168.1.0/24 or fd00::/8")]
    Network(String),
    /// Not a public key, or a weak one.
    #[error("not a public key: {0}; it is one line such as ssh-ed25519 AAAA... ann@laptop")]
    Key(String),
    /// The text is no hash of ours.
    #[error("the stored hash of the password is damaged: set the password again")]
    DamagedHash,
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
}
