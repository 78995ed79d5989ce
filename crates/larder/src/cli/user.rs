//! `larder user ...`: through the daemon, or on the data folder's files when it is not running.

use std::path::Path;

use larder_api::endpoints::{AddUser, GetUsers, RemoveUser, SetPassword, SetUser};
use larder_api::{Failure, PasswordSet, UserAdd, UserChange, UserPassword};

use super::args::{Global, UserCommand};
use super::people::People;
use super::{password, user_key};
use crate::render;

pub(super) async fn run(global: &Global, command: UserCommand) -> Result<(), Failure> {
    if let UserCommand::Key(command) = command {
        return user_key::run(global, command).await;
    }
    let people = People::of(global).await?;
    let out = global.out();
    match command {
        UserCommand::Add { name, uid, gid, groups, role, password_file, force } => {
            let password = password::ask(&name, password_file.as_deref())?;
            let added = people.call(AddUser, (), UserAdd { name, uid, gid, groups, role, password, force }).await?;
            out.answer(&added, |added| {
                let mut text = format!("made the user '{}' (uid {})\n", added.user.name, added.user.uid);
                added.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
                text
            })
        }
        UserCommand::Set { name, role } => {
            let user = people.call(SetUser, &name, UserChange { role }).await?;
            out.answer(&user, |user| format!("'{}' is {} on the page", user.name, user.role.word()))
        }
        UserCommand::Passwd { name, password_file, force, keep_links, keep_factors } => {
            // Before anybody types a password for nothing.
            must_exist(&people, &name).await?;
            let password = password::ask(&name, password_file.as_deref())?;
            let request = UserPassword { password, force, keep_links, keep_factors };
            let ended = people.call(SetPassword, &name, request).await?;
            out.answer(&ended, |ended| password_text(&name, ended))
        }
        UserCommand::Key(_) => Ok(()),
        UserCommand::List => out.answer(&people.call(GetUsers, (), ()).await?, |users| render::user_list(users)),
        UserCommand::Remove { name } => {
            must_exist(&people, &name).await?;
            let removed = people.call(RemoveUser, &name, ()).await?;
            out.answer(&removed, |removed| {
                let uid = removed.uid;
                let mut text =
                    format!("removed the user '{name}'; files with uid {uid} stay, and no new user gets it\n");
                for share in &removed.shares_for_nobody {
                    text.push_str(&format!(
                        "note: nobody may use the share '{share}' over SMB any more; let others in with: larder share \
                         set {} --users NAMES\n",
                        larder_base::shell::word(Path::new(share))
                    ));
                }
                text
            })
        }
    }
}

fn password_text(name: &str, ended: &PasswordSet) -> String {
    let counted = |noun: &str, count: usize| (count > 0).then(|| format!("the user's {noun}: {count}"));
    let codes = ended.codes.then(|| "the codes of the user's telephone".to_owned());
    let issued = ended.issued.then(|| "who the user is at the issuer of log-ins".to_owned());
    let all = [counted("links", ended.links.len()), counted("passkeys", ended.passkeys.len()), codes, issued];
    let all: Vec<String> = all.into_iter().flatten().collect();
    let mut text = match all.is_empty() {
        true => format!("set the password of '{name}'"),
        false => format!("set the password of '{name}', and ended {}", all.join("; ")),
    };
    ended.notes.iter().for_each(|note| text.push_str(&format!("\nnote: {note}")));
    text
}

async fn must_exist(people: &People, name: &str) -> Result<(), Failure> {
    match people.call(GetUsers, (), ()).await?.iter().any(|user| user.name == name) {
        true => Ok(()),
        false => Err(Failure::not_found(format!("there is no user '{name}'"))
            .action(format!("see who there is with: larder user list; or: larder user add {name}"))),
    }
}
