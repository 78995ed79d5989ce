#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_measure::fuzz::far_samples(data));
