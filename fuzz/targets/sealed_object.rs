#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_crypt::fuzz::sealed_object(data));
