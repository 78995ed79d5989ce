#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_store::fuzz::owner_record(data));
