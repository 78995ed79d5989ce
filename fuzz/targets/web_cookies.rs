#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_dav::fuzz::web_cookies(data));
