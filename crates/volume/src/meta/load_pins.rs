//! The pins that the rows of snapshots tell.

use larder_fs::FsResult;
use slatedb::Db;

use super::engine::{engine_error, next_pair};
use super::pins::Pins;
use crate::keys;
use crate::snapshots::row;

/// The tables that the snapshots of the last life read (`pins.before_collection`).
pub(super) async fn load_pins(db: &Db, pins: &Pins) -> FsResult<()> {
    let (from, to) = keys::table_range(keys::tag::SNAPSHOT);
    let mut rows = db.scan(from..to).await.map_err(engine_error)?;
    while let Some((key, value)) = next_pair(&mut rows).await? {
        let Some(epoch) = row::decode_key(&key)? else { continue };
        pins.add(epoch, row::decode(&key, &value)?.tables.iter().map(|table| (table.id, table.bytes)));
    }
    Ok(())
}
