//! Files of the data folder, fed with anything: they are restored from backups and edited by hand. On the stable compiler alone, since
//! this crate builds on nearly everything.

use crate::box_record::contents::fuzz_version;
use crate::replication::fuzz_moves;
use crate::{fuzz_secrets as secrets_file, tokens};

#[path = "../../../fuzz/driver.rs"]
pub mod driver;

use driver::drive;

#[test]
fn fuzz_secrets() {
    let hash = "ab".repeat(16);
    let good = format!(
        "{{\"users\":{{\"ann\":{{\"nt_hash\":\"{hash}\",\"argon2id\":\"argon2id$19456$2$1${hash}${hash}{hash}\",\"generated\":\"{hash}\"}}}}}}"
    );
    drive("secrets", &[good.into_bytes()], secrets_file);
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

#[test]
fn fuzz_move_records() {
    let good =
        r#"[{"from":"a/v","to":"b/v","to_id":"00000000-0000-0000-0000-000000000001","last":"s","stage":"moved"}]"#;
    drive("move_records", &[good.into()], fuzz_moves);
}

#[test]
fn fuzz_box_versions() {
    let good = include_str!("box_record/golden/version.json");
    drive("box_versions", &[good.into()], fuzz_version);
}
