#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_discovery::fuzz::wsd_message(data));
