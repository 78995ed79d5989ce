//! Decoders of what comes from a socket, fed with anything. Driven by the tests below, and with coverage by `fuzz/`.
#![allow(clippy::unwrap_used)]

pub use crate::nfs::fuzz::*;

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;

    /// A call of NFS v3 procedure `number`, with one word of arguments.
    fn call(program: u32, version: u32, number: u32) -> Vec<u8> {
        let words = [7, 0, 2, program, version, number, 1, 24, 1, 0, 0, 0, 1, 5, 0, 0, 4, 0x6162_6364];
        words.iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
    }

    fn marked(message: &[u8]) -> Vec<u8> {
        [&(message.len() as u32 | 1 << 31).to_be_bytes(), message].concat()
    }

    #[test]
    fn fuzz_rpc_record() {
        let two = [marked(&call(100_003, 3, 7)), marked(&call(100_005, 3, 1))].concat();
        drive("rpc_record", &[marked(&call(100_003, 3, 1)), two], super::rpc_record);
    }

    #[test]
    fn fuzz_rpc_call() {
        drive("rpc_call", &[call(100_003, 3, 1), call(100_000, 2, 3)], super::rpc_call);
    }

    #[test]
    fn fuzz_nfs_arguments() {
        let words = [1u32, 0o644, 0, 1, 5, 1, 0, 99, 2, 3, 4, 1];
        drive(
            "nfs_arguments",
            &[words.iter().flat_map(|w| w.to_be_bytes()).collect(), b"\0\0\0\x03abc\0".to_vec()],
            super::nfs_arguments,
        );
    }

    #[test]
    fn fuzz_nfs_handle() {
        drive("nfs_handle", &[super::some_handle()], super::nfs_handle);
    }

    #[test]
    fn fuzz_mount() {
        drive("mount", &[call(100_005, 3, 1), call(100_005, 3, 5), call(100_005, 1, 3)], super::mount);
    }
}
