//! `larder config check` and `larder reload`.

use larder_api::{ConfigRead, Failure};

use super::args::{ConfigCommand, Global};
use super::{Target, absolute, maybe_target};
use crate::config::Config;
use crate::folder;

pub(super) fn check(global: &Global, command: ConfigCommand) -> Result<(), Failure> {
    let ConfigCommand::Check { file } = command;
    let usual = || global.data_named().unwrap_or_else(|| folder::DEFAULT.into()).join(folder::CONFIG_NAME);
    let file = absolute(&file.unwrap_or_else(usual))?;
    let config = Config::load(&file)?;
    let read = ConfigRead { file, notes: config.notes(), at_next_start: Vec::new() };
    global.out().answer(&read, |read| format!("{} is valid\n{}", read.file.display(), notes(read)))
}

pub(super) async fn reload(global: &Global) -> Result<(), Failure> {
    match maybe_target(global).await? {
        Some(Target::Daemon(client)) => {
            let read: ConfigRead = client.post("/v1/reload", &()).await?;
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
