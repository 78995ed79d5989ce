//! Files of the data folder, fed with anything: they are restored from backups and edited by hand. On the stable compiler alone, since
//! this crate builds on nearly everything.

use crate::{secrets, tokens};

#[path = "../../../fuzz/driver.rs"]
pub mod driver;

use driver::drive;

#[test]
fn fuzz_secrets() {
    let hash = "ab".repeat(16);
    let good = format!(
        "{{\"users\":{{\"ann\":{{\"nt_hash\":\"{hash}\",\"argon2id\":\"argon2id$19456$2$1${hash}${hash}{hash}\",\"generated\":\"{hash}\"}}}}}}"
    );
    drive("secrets", &[good.into_bytes()], secrets::fuzz_file);
}

#[test]
fn fuzz_tokens() {
    let good = format!(
        "{{\"version\":2,\"tokens\":[{{\"id\":\"00ff\",\"name\":\"phone\",\"user\":\"ann\",\"uid\":5,\"share\":\"files\",\"read_only\":true,\
         \"created_secs\":1,\"expires_secs\":2,\"hmac_sha256\":\"{}\"}}]}}",
        "ab".repeat(32)
    );
    drive("tokens", &[good.into_bytes()], tokens::fuzz_file);
}
