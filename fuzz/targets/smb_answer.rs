#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_smb::fuzz::smb_answer(data));
