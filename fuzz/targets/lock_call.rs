#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_nfs::fuzz::lock_call(data));
