#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| larder_nfs::fuzz::rpc_call(data));
