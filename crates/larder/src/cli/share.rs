//! `larder share ...`: through the daemon; what needs no volume also on the file, when none runs.

use larder_api::endpoints::{AddShare, ExplainAccess, GetShares, RemoveShare, SetShare};
use larder_api::{Done, ExplainRequest, Failure, ShareAdd, ShareChange, ShareChanged};

use super::args::{Global, ShareCommand};
use super::reach::{Target, absolute, daemon, target};
use crate::{out, render, render_explain};
use larder_config::Config;
use larder_config::edit::Editor;
use larder_daemon::sharing::{remove_in_file, set_in_file};
use larder_document::folder;

pub(super) async fn run(global: &Global, command: ShareCommand) -> Result<(), Failure> {
    match command {
        ShareCommand::List => {
            let shares = daemon(global).await?.ask(GetShares).await?;
            global.out().answer(&shares, |shares| render::share_list(shares))
        }
        ShareCommand::Add { name, volume, folder, options } => {
            let request = ShareAdd { name, volume, folder, change: options.change };
            let made = daemon(global).await?.call(AddShare, (), &request).await?;
            global.out().answer(&made, |made| changed_text("made", made))
        }
        ShareCommand::Set { name, add_users, remove_users, folder, volume, options } => {
            let change = ShareChange { add_users, remove_users, folder, volume, ..options.change };
            if change == ShareChange::default() {
                return Err(Failure::invalid("nothing to set").action("name an option: see larder share set --help"));
            }
            set(global, &name, change).await
        }
        ShareCommand::Explain { user, path, from } => {
            let request = ExplainRequest { user, path, from };
            let explanation = daemon(global).await?.call(ExplainAccess, (), &request).await?;
            global.out().answer(&explanation, |explanation| render_explain::text(explanation, out::style()))
        }
        ShareCommand::Remove { name } => {
            match target(global).await? {
                Target::Daemon(client) => {
                    client.call(RemoveShare, &name, &()).await?;
                }
                Target::Config(config) => {
                    edit(&config, |editor, _| remove_in_file(editor, &name)).map(drop)?;
                }
            }
            global.out().answer(&Done {}, |_| format!("'{name}' is not shared any more; its files stay"))
        }
    }
}

async fn set(global: &Global, name: &str, change: ShareChange) -> Result<(), Failure> {
    match target(global).await? {
        Target::Daemon(client) => {
            let changed = client.call(SetShare, name, &change).await?;
            global.out().answer(&changed, |changed| changed_text("changed", changed))
        }
        Target::Config(config) => {
            let after = edit(&config, |editor, config| set_in_file(editor, config, name, &change))?;
            let changed = after.shares.iter().filter(|share| share.name == name);
            let notes = changed.flat_map(|share| share.notes(&after));
            let notes = notes.map(|note| format!("note: {note}\n")).collect::<String>();
            global
                .out()
                .answer(&Done {}, |_| format!("changed the share '{name}': it holds when larder is started\n{notes}"))
        }
    }
}

fn edit(config: &Config, change: impl FnOnce(&mut Editor, &Config) -> Result<(), Failure>) -> Result<Config, Failure> {
    let mut editor = Editor::open(&absolute(&config.data.join(folder::CONFIG_NAME))?)?;
    change(&mut editor, config)?;
    editor.save()
}

fn changed_text(did: &str, changed: &ShareChanged) -> String {
    let share = &changed.share;
    let mut text = format!(
        "{did} the share '{}' of {}\n  NFS from: {}\n  SMB for:  {}\n",
        share.name,
        match (share.volume.as_str(), share.folder.as_str()) {
            ("", folder) => format!("the host's folder {folder}"),
            (volume, "") => volume.to_owned(),
            (volume, folder) => format!("{volume}, folder {folder}"),
        },
        share.nfs_rule,
        share.smb_rule
    );
    if !share.machines().is_empty() {
        let ports = if share.takes_any_port() { ", from any port" } else { "; root's ports alone" };
        text.push_str(&format!("            anybody on these machines is whoever he says{ports}\n"));
    }
    share.sentences().for_each(|said| text.push_str(&format!("  {said}\n")));
    if let Some(fault) = &share.fault {
        text.push_str(&format!("but it is not served: {fault}\n"));
    }
    changed.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    text
}
