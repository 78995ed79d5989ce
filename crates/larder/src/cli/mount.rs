//! `larder mount` and `larder umount`: the daemon hosts the mount.

use std::path::Path;

use larder_api::{Done, Failure, MountRequest, MountStatus, UnmountRequest};
use larder_serve::fuse::clear_remains;

use super::args::{Global, MountArgs};
use super::{absolute, daemon};

pub(super) async fn mount(global: &Global, args: MountArgs) -> Result<(), Failure> {
    let client = daemon(global).await?;
    let request = MountRequest {
        dir: absolute(&args.dir)?,
        volume: args.volume,
        read_only: args.read_only,
        private: args.private,
    };
    let status: MountStatus = client.post("/v1/mounts", &request).await?;
    global.out().answer(&status, |s| {
        let how = if s.read_only { " (read-only)" } else { "" };
        format!("{} is mounted on {}{how}", s.volume, s.dir.display())
    })
}

pub(super) async fn umount(global: &Global, dir: &Path) -> Result<(), Failure> {
    let dir = absolute(dir)?;
    let show = dir.display();
    // A mount whose daemon is gone is known to no other.
    if clear_remains(&dir).map_err(|e| Failure::io(format_args!("cannot unmount {show}"), &e))? {
        return global.out().answer(&Done {}, |_| format!("{show} is no longer mounted: its larder had ended"));
    }
    let client = daemon(global).await?;
    // A mount is known by its real path; one whose server hangs cannot be resolved, and goes by the name given.
    let dir = dir.canonicalize().unwrap_or(dir);
    let done: Done = client.post("/v1/unmount", &UnmountRequest { dir: dir.clone() }).await?;
    global.out().answer(&done, |_| format!("{} is no longer mounted", dir.display()))
}
