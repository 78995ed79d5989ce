//! Attributes of the host's files that Samba and others keep there.

/// `user.DOSATTRIB`: one that is read is written and read again without change.
pub fn dos_attribute(data: &[u8]) {
    super::dos::fuzz_attribute(data);
}

/// The name of a stream, and of the attribute that has it.
pub fn stream_name(data: &[u8]) {
    super::streams::fuzz_name(data);
}
