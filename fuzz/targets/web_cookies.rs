#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_web::fuzz::web_cookies(data));
