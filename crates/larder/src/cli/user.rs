//! `larder user ...`: through the daemon, or on the data folder's files when it is not running.

use std::path::{Path, PathBuf};

use larder_api::{Client, Done, Failure, UserAdd, UserAdded, UserPassword, UserRemoved, UserStatus};

use super::args::{Global, UserCommand};
use super::password;
use super::reach::{Target, absolute, target};
use crate::config::{Config, edit::Editor};
use crate::daemon::people::user_status;
use crate::daemon::{Secrets, people};
use crate::folder::{self, DataFolder};
use crate::render;

pub(super) async fn run(global: &Global, command: UserCommand) -> Result<(), Failure> {
    let users = Users::of(global).await?;
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
        UserCommand::Passwd { name, password_file, force } => {
            // Before anybody types a password for nothing.
            users.must_exist(&name).await?;
            let password = password::ask(&name, password_file.as_deref())?;
            users.passwd(&name, password, force).await?;
            out.answer(&Done {}, |_| format!("set the password of '{name}'"))
        }
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

enum Users {
    Daemon(Client),
    Files { file: PathBuf, folder: DataFolder },
}

impl Users {
    async fn of(global: &Global) -> Result<Users, Failure> {
        match target(global).await? {
            Target::Daemon(client) => Ok(Users::Daemon(client)),
            Target::Config(config) => {
                let file = absolute(&config.data.join(folder::CONFIG_NAME))?;
                Ok(Users::Files { file, folder: DataFolder::claim(&config.data)? })
            }
        }
    }

    async fn list(&self) -> Result<Vec<UserStatus>, Failure> {
        match self {
            Users::Daemon(client) => client.get("/v1/users").await,
            Users::Files { file, folder } => {
                let secrets = Secrets::open(folder.path())?;
                let users = Config::load(file)?.users;
                Ok(users.iter().map(|user| user_status(user, &secrets)).collect())
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
        match self {
            Users::Daemon(client) => client.post("/v1/users", &user).await,
            Users::Files { file, folder } => {
                let mut editor = Editor::open(file)?;
                let mut secrets = Secrets::open(folder.path())?;
                let added = people::add(&mut editor, &Config::load(file)?, &mut secrets, &user)?;
                editor.save()?;
                Ok(added)
            }
        }
    }

    async fn passwd(&self, name: &str, password: String, force: bool) -> Result<(), Failure> {
        match self {
            Users::Daemon(client) => {
                let path = format!("/v1/users/{}/password", larder_api::segment(name));
                client.post::<Done>(&path, &UserPassword { password, force }).await.map(drop)
            }
            Users::Files { folder, .. } => {
                people::fit_password(&password, force)?;
                Secrets::open(folder.path())?.set(name, &password)
            }
        }
    }

    async fn remove(&self, name: &str) -> Result<UserRemoved, Failure> {
        self.must_exist(name).await?;
        match self {
            Users::Daemon(client) => client.delete(&format!("/v1/users/{}", larder_api::segment(name)), &()).await,
            Users::Files { file, folder } => {
                let before = Config::load(file)?;
                let mut editor = Editor::open(file)?;
                editor.remove_user(name);
                let after = editor.save()?;
                Secrets::open(folder.path())?.remove(name)?;
                Ok(people::removed(name, &before, &after))
            }
        }
    }
}
