#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_sftp::fuzz::ssh_certificate(data));
