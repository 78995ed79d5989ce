//! Shards as files of one disk: listing them, naming and unlinking them.

use std::io;

use uuid::Uuid;

use crate::disk::{DiskIo, read_file};
use crate::object::shard::{self, Found, HEADER_BYTES_MAX, Header, PathName, ShardName};

/// The folder of a disk in which all shards lie.
pub const OBJECTS: &str = "objects";

/// How often a header is read for facts that its file's name does not hold.
const HEADER_TRIES: usize = 3;

/// The suffix of anything but a file in a shard's place. With it the name is no shard's name.
const ASIDE: &str = ".old";

/// One shard file found on a disk.
pub struct Sighting {
    pub path: String,
    pub shard: ShardName,
    /// As it is named on that disk.
    pub file: String,
}

/// All that a disk holds.
#[derive(Default)]
pub struct Inventory {
    pub shards: Vec<Sighting>,
    pub temps: Vec<Temp>,
}

/// A shard that was being written, or rebuilt (`repair.temporary_name_of_its_own`).
pub struct Temp {
    pub version: u64,
    pub index: u8,
    pub is_rebuilt: bool,
    pub file: String,
}

/// Lists the shards of one disk.
pub fn take_inventory(pool: Uuid, disk: &dyn DiskIo) -> io::Result<Inventory> {
    let mut inventory = Inventory::default();
    for directory in disk.list(OBJECTS)? {
        let directory = format!("{OBJECTS}/{directory}");
        let names = match disk.list(&directory) {
            Ok(names) => names,
            // A file beside the directories is not ours.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
            // A file that is not seen now is not unlinked with the rest of its object, and comes
            // back later.
            Err(error) => return Err(error),
        };
        for name in names {
            let file = format!("{directory}/{name}");
            match shard::parse_name(&name) {
                Found::Temp => {
                    let temp = shard::parse_temp(&name);
                    let temp = temp.map(|(version, index, is_rebuilt)| Temp { version, index, is_rebuilt, file });
                    inventory.temps.extend(temp);
                }
                Found::Shard(shard) => {
                    if let Some(path) = path_of(pool, disk, &file, &shard) {
                        inventory.shards.push(Sighting { path, shard, file });
                    }
                }
                Found::Unknown => {}
            }
        }
    }
    Ok(inventory)
}

/// The object that a shard file is of, where it lies in the right directory.
pub fn path_of(pool: Uuid, disk: &dyn DiskIo, file: &str, shard: &ShardName) -> Option<String> {
    let path = match &shard.path {
        PathName::Plain(path) => path.clone(),
        PathName::Hashed(_) => {
            let bytes_max = u64::from(shard.header_bytes).min(HEADER_BYTES_MAX as u64);
            // A disk that fails now and then must not hide a shard. A shard that is never readable
            // is made anew elsewhere.
            let bytes = (0..HEADER_TRIES).find_map(|_| read_file(disk, file, bytes_max).ok())?;
            let header = Header::decode(&bytes).filter(|header| header.pool == pool)?;
            header.path
        }
    };
    // A file in the wrong directory would not be found again by its name.
    file.starts_with(&shard::directory(&path)).then_some(path)
}

/// Gives a shard its name (`misplaced.obstacle_makes_way`).
pub fn rename_shard(io: &dyn DiskIo, from: &str, to: &str) -> io::Result<()> {
    match io.rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            set_aside(io, to)?;
            io.rename(from, to)
        }
        other => other,
    }
}

/// Removes anything that has the name of a shard (`misplaced.obstacle_makes_way`).
pub fn remove_shard(io: &dyn DiskIo, file: &str) -> io::Result<()> {
    match io.remove(file) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => set_aside(io, file),
        other => other,
    }
}

fn set_aside(io: &dyn DiskIo, file: &str) -> io::Result<()> {
    io.remove_directory(file).or_else(|_| io.rename(file, &format!("{file}{ASIDE}")))
}
