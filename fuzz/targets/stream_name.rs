#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_files::fuzz::stream_name(data));
