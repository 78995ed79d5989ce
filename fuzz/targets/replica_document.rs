#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_volume::fuzz::replica_document(data));
