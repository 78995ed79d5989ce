//! `larder pool destroy`: says what goes, wants the pool's name typed, and erases its disks.

use std::io::{IsTerminal, Write};

use larder_api::endpoints::{DestroyPool, GetPools, GetVolumes};
use larder_api::{Failure, PoolDestroyed, PoolStatus, TakeAway, VolumeStatus};
use larder_base::units::ByteSize;

use super::args::Global;
use super::reach::{Target, absolute, direct, target};
use crate::out;
use larder_config::edit::Editor;
use larder_daemon::erase;
use larder_document::folder;

pub(super) async fn run(global: &Global, name: &str, yes: bool, how: TakeAway) -> Result<(), Failure> {
    larder_config::check_name(name).map_err(Failure::invalid)?;
    let done = match target(global).await? {
        Target::Daemon(client) => {
            let pools = client.ask(GetPools).await?;
            let volumes = client.ask(GetVolumes).await?;
            let pool = pools.iter().find(|pool| pool.name == name).ok_or_else(|| no_such_pool(name))?;
            confirm(pool, &volumes, yes)?;
            client.call(DestroyPool, name, &how).await?
        }
        Target::Config(config) => {
            let known = config.pool(name).ok_or_else(|| no_such_pool(name))?;
            let mut editor = Editor::open(&absolute(&config.data.join(folder::CONFIG_NAME))?)?;
            editor.remove_pool(name);
            let staged = editor.stage()?;
            let storage = direct(&known.disks).await?;
            let open = storage.pool(Some(name))?;
            let asked = match open.volumes().await {
                Ok(volumes) => confirm(&open.status(), &volumes, yes),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = asked {
                storage.close().await?;
                return Err(failure);
            }
            let done = erase::destroy(&open).await?;
            staged.commit()?;
            done
        }
    };
    global.out().answer(&done, |done| text(name, done))
}

fn no_such_pool(name: &str) -> Failure {
    Failure::not_found(format!("there is no pool '{name}' here")).action("see which there are with: larder pool list")
}

fn text(name: &str, done: &PoolDestroyed) -> String {
    let mut text = format!("destroyed the pool '{name}'; these folders are empty and may be used again:\n");
    done.erased.iter().for_each(|disk| text.push_str(&format!("  {}\n", disk.display())));
    done.kept.iter().for_each(|kept| text.push_str(&format!("note: {kept}\n")));
    text
}

/// Everything that goes, by name; a person types the pool's, a script says --yes.
fn confirm(pool: &PoolStatus, volumes: &[VolumeStatus], yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let name = &pool.name;
    let mut what = format!("This deletes the pool '{name}' and everything in it for ever:\n");
    for volume in volumes.iter().filter(|volume| volume.pool == *name) {
        let used = volume.used_bytes.map_or_else(String::new, |bytes| format!(", {}", ByteSize(bytes)));
        what.push_str(&format!("  volume {name}/{}{used}\n", volume.name));
    }
    for disk in &pool.disks {
        what.push_str(&format!("  disk   {} ({} used)\n", disk.path.display(), ByteSize(disk.used_bytes)));
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::invalid(format!("{what}nothing was changed")).action("if you mean it, add --yes"));
    }
    out::ask(&format!("{what}Type its name to go on: "));
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| Failure::io("cannot read the answer", &e))?;
    match line.trim() == name {
        true => Ok(()),
        false => Err(Failure::invalid(format!("the pool '{name}' was left as it is"))),
    }
}
