#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_files::fuzz::dos_attribute(data));
