//! Files of the data folder, fed with anything: they are restored from backups and edited by hand. On the stable compiler alone, since
//! this crate builds on nearly everything.

use crate::box_record::contents::fuzz_version;
use crate::replication::moving::fuzz_file as fuzz_moves;

#[path = "../../../fuzz/driver.rs"]
pub mod driver;

use driver::drive;

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
