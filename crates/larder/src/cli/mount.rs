//! `larder mount` and `larder umount`: the daemon hosts the mount.

use larder_api::endpoints::{MountVolume, UnmountVolume};
use larder_api::{Done, Failure, MountRequest, UnmountRequest};
use larder_fuse::clear_remains;

use super::args::{Global, MountArgs, UmountArgs};
use super::reach::{absolute, daemon};

pub(super) async fn mount(global: &Global, args: MountArgs) -> Result<(), Failure> {
    let client = daemon(global).await?;
    let request = MountRequest {
        dir: absolute(&args.dir)?,
        volume: args.volume.clone(),
        options: words(&args),
        at_start: args.at_start,
        snapshot: args.snapshot.clone(),
    };
    let status = client.call(MountVolume, (), &request).await?;
    global.out().answer(&status, |s| {
        let how = if s.read_only { " (read-only)" } else { "" };
        let when = if s.at_start { ", now and at every start" } else { "" };
        let of = s.snapshot.as_ref().map(|name| format!("@{name}")).unwrap_or_default();
        format!("{}{of} is mounted on {}{how}{when}", s.volume, s.dir.display())
    })
}

/// The options, those with a flag of their own first.
fn words(args: &MountArgs) -> Vec<String> {
    let flags = [(args.read_only, "ro"), (args.private, "private")];
    let flags = flags.iter().filter(|(given, _)| *given).map(|(_, word)| (*word).to_owned());
    flags.chain(args.options.iter().cloned()).collect()
}

pub(super) async fn umount(global: &Global, args: &UmountArgs) -> Result<(), Failure> {
    let dir = absolute(&args.dir)?;
    let show = dir.display();
    // A mount whose daemon is gone is known to no other.
    let had_ended = clear_remains(&dir).map_err(|e| Failure::io(format_args!("cannot unmount {show}"), &e))?;
    if had_ended && !args.at_start {
        return global.out().answer(&Done {}, |_| format!("{show} is no longer mounted: its larder had ended"));
    }
    let client = daemon(global).await?;
    // A mount is known by its real path; one whose server hangs cannot be resolved, and goes by the name given.
    let dir = dir.canonicalize().unwrap_or(dir);
    let request = UnmountRequest { dir: dir.clone(), at_start: args.at_start };
    let done = client.call(UnmountVolume, (), &request).await?;
    global.out().answer(&done, |_| {
        let when = if args.at_start { ", nor will it be at the next start" } else { "" };
        format!("{} is no longer mounted{when}", dir.display())
    })
}
