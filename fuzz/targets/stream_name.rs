#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_folder::fuzz::stream_name(data));
