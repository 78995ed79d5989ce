//! `larder user ...`: through the daemon, or on the data folder's files when it is not running.

use std::path::Path;

use larder_api::{Failure, LinksEnded, UserAdd, UserAdded, UserPassword, UserRemoved, UserStatus};

use super::args::{Global, UserCommand};
use super::people::{Files, People};
use super::{password, user_key};
use crate::daemon::people::user_status;
use crate::daemon::tokens::Tokens;
use crate::daemon::{Secrets, links, people};
use crate::render;

pub(super) async fn run(global: &Global, command: UserCommand) -> Result<(), Failure> {
    if let UserCommand::Key(command) = command {
        return user_key::run(global, command).await;
    }
    let users = Users(People::of(global).await?);
    let out = global.out();
    match command {
        UserCommand::Add { name, uid, gid, groups, password_file, force } => {
            let password = password::ask(&name, password_file.as_deref())?;
            let added = users.add(UserAdd { name, uid, gid, groups, password, force }).await?;
            out.answer(&added, |added| {
                let mut text = format!("made the user '{}' (uid {})\n", added.user.name, added.user.uid);
                added.notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
                text
            })
        }
        UserCommand::Passwd { name, password_file, force, keep_links } => {
            // Before anybody types a password for nothing.
            users.must_exist(&name).await?;
            let password = password::ask(&name, password_file.as_deref())?;
            let ended = users.passwd(&name, UserPassword { password, force, keep_links }).await?;
            out.answer(&ended, |ended| match ended.links.len() {
                0 => format!("set the password of '{name}'"),
                count => format!("set the password of '{name}', and ended the user's links: {count}"),
            })
        }
        UserCommand::Key(_) => Ok(()),
        UserCommand::List => out.answer(&users.list().await?, |users| render::user_list(users)),
        UserCommand::Remove { name } => {
            let removed = users.remove(&name).await?;
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

struct Users(People);

async fn end_links(files: &Files, user: &str) -> Result<LinksEnded, Failure> {
    links::end(&links::of_folder(files.folder.path()), larder_serve::web::Which::Of(user)).await
}

impl Users {
    async fn list(&self) -> Result<Vec<UserStatus>, Failure> {
        match &self.0 {
            People::Daemon(client) => client.get("/v1/users").await,
            People::Files(files) => {
                let (secrets, config) = (Secrets::open(files.folder.path())?, files.config()?);
                Ok(config.users.iter().map(|user| user_status(user, &config, &secrets)).collect())
            }
        }
    }

    async fn must_exist(&self, name: &str) -> Result<(), Failure> {
        match self.list().await?.iter().any(|u| u.name == name) {
            true => Ok(()),
            false => Err(Failure::not_found(format!("there is no user '{name}'"))
                .action(format!("see who there is with: larder user list; or: larder user add {name}"))),
        }
    }

    async fn add(&self, user: UserAdd) -> Result<UserAdded, Failure> {
        match &self.0 {
            People::Daemon(client) => client.post("/v1/users", &user).await,
            People::Files(files) => {
                let mut secrets = Secrets::open(files.folder.path())?;
                Tokens::open(files.folder.path(), &secrets)?.remove_of(&user.name)?;
                end_links(files, &user.name).await?;
                let mut added = None;
                files.edit(|editor, config| {
                    added = Some(people::add(editor, config, &mut secrets, &user)?);
                    Ok(())
                })?;
                added.ok_or_else(|| Failure::internal("the user was not made"))
            }
        }
    }

    async fn passwd(&self, name: &str, request: UserPassword) -> Result<LinksEnded, Failure> {
        match &self.0 {
            People::Daemon(client) => {
                let path = format!("/v1/users/{}/password", larder_api::segment(name));
                client.post(&path, &request).await
            }
            People::Files(files) => {
                people::fit_password(&request.password, request.force)?;
                Secrets::open(files.folder.path())?.set(name, &request.password)?;
                match request.keep_links {
                    true => Ok(LinksEnded::default()),
                    false => end_links(files, name).await,
                }
            }
        }
    }

    async fn remove(&self, name: &str) -> Result<UserRemoved, Failure> {
        self.must_exist(name).await?;
        match &self.0 {
            People::Daemon(client) => client.delete(&format!("/v1/users/{}", larder_api::segment(name)), &()).await,
            People::Files(files) => {
                let (before, after) = files.edit(|editor, _| {
                    editor.remove_user(name);
                    Ok(())
                })?;
                let mut secrets = Secrets::open(files.folder.path())?;
                secrets.remove(name)?;
                Tokens::open(files.folder.path(), &secrets)?.remove_of(name)?;
                end_links(files, name).await?;
                Ok(people::removed(name, &before, &after))
            }
        }
    }
}
