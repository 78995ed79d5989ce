//! `larder config check` and `larder reload`.

use std::path::PathBuf;

use larder_api::endpoints::{GetInfo, ReloadConfig};
use larder_api::{ConfigRead, Failure};

use super::args::{ConfigCommand, Global};
use super::reach::{Target, absolute, maybe_target};
use crate::config::Config;
use crate::folder;

pub(super) async fn check(global: &Global, command: ConfigCommand) -> Result<(), Failure> {
    let ConfigCommand::Check { file } = command;
    let file = match file {
        Some(file) => absolute(&file)?,
        None => usual_file(global).await?,
    };
    let config = Config::load(&file)?;
    let read = ConfigRead { file, notes: config.notes(), at_next_start: Vec::new() };
    global.out().answer(&read, |read| format!("{} is valid\n{}", read.file.display(), notes(read)))
}

/// That of the data folder named or beside us; else of the larder that runs, which may be asked about a file that is wrong.
async fn usual_file(global: &Global) -> Result<PathBuf, Failure> {
    let folder = global.data_named().unwrap_or_else(|| folder::DEFAULT.into());
    let beside = absolute(&folder.join(folder::CONFIG_NAME))?;
    if beside.exists() || global.data_named().is_some() {
        return Ok(beside);
    }
    match maybe_target(global).await? {
        Some(Target::Daemon(client)) => {
            let info = client.ask(GetInfo).await?;
            Ok(info.data.join(folder::CONFIG_NAME))
        }
        _ => Ok(beside),
    }
}

pub(super) async fn reload(global: &Global) -> Result<(), Failure> {
    match maybe_target(global).await? {
        Some(Target::Daemon(client)) => {
            let read = client.ask(ReloadConfig).await?;
            global.out().answer(&read, |read| {
                let mut text = format!("read {} again\n{}", read.file.display(), notes(read));
                if !read.at_next_start.is_empty() {
                    text.push_str(&format!("note: at the next start only: {}\n", read.at_next_start.join(", ")));
                }
                text
            })
        }
        _ => Err(Failure::not_found("no larder is running here: the configuration is read when it starts")
            .action("look at it with: larder config check; start with: larder up")),
    }
}

fn notes(read: &ConfigRead) -> String {
    read.notes.iter().map(|note| format!("note: {note}\n")).collect()
}
