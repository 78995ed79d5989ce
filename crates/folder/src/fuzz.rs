//! Attributes of the host's files that Samba and others keep there, fed with anything. Driven by the tests below, and with coverage
//! by `fuzz/`.

/// `user.DOSATTRIB`: one that is read is written and read again without change.
pub fn dos_attribute(data: &[u8]) {
    crate::dos::fuzz_attribute(data);
}

/// The name of a stream, and of the attribute that has it.
pub fn stream_name(data: &[u8]) {
    crate::streams::fuzz_name(data);
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    #[test]
    fn fuzz_dos_attribute() {
        let four = b"\0\0\x04\0\x04\0\0\0\x11\0\0\0\x22\0\0\0\x01\0\0\0\0\0\0\0\x80\xd5\xde\xb1\x9d\x01\0\0";
        let three = [&b"0x22\0\0\x03\0\x03\0\x11\0\0\0"[..], &[7; 40]].concat();
        drive("dos_attribute", &[four.to_vec(), three, b"0x22".to_vec()], super::dos_attribute);
    }

    #[test]
    fn fuzz_stream_name() {
        let seeds = [&b"user.DosStream.Zone.Identifier:$DATA"[..], b"user.DosStream.:$DATA", b"a:b/c"];
        drive("stream_name", &seeds.map(<[u8]>::to_vec), super::stream_name);
    }
}
