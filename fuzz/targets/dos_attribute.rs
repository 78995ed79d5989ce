#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_folder::fuzz::dos_attribute(data));
