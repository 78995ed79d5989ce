//! `larder user ...`: through the daemon, or on the data folder's files when it is not running.

use std::path::{Path, PathBuf};

use larder_api::{Client, Done, Failure, FailureKind, UserAdd, UserPassword, UserStatus};

use super::args::{Global, UserCommand};
use super::{Target, absolute, password, target};
use crate::config::{Config, UserConfig, edit::Editor};
use crate::daemon::{Secrets, new_user};
use crate::folder::{self, DataFolder};
use crate::render;

pub(super) async fn run(global: &Global, command: UserCommand) -> Result<(), Failure> {
    let users = Users::of(global).await?;
    let out = global.out();
    match command {
        UserCommand::Add { name, uid, gid, groups, password_file } => {
            let password = password::ask(&name, password_file.as_deref())?;
            users.add(UserAdd { name: name.clone(), uid, gid, groups, password }).await?;
            out.answer(&Done {}, |_| format!("made the user '{name}'"))
        }
        UserCommand::Passwd { name, password_file } => {
            // Before anybody types a password for nothing.
            users.must_exist(&name).await?;
            let password = password::ask(&name, password_file.as_deref())?;
            users.passwd(&name, password).await?;
            out.answer(&Done {}, |_| format!("set the password of '{name}'"))
        }
        UserCommand::List => out.answer(&users.list().await?, |users| render::user_list(users)),
        UserCommand::Remove { name } => {
            users.remove(&name).await?;
            out.answer(&Done {}, |_| format!("removed the user '{name}'"))
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
                Ok(users.into_iter().map(|user| status(user, &secrets)).collect())
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

    async fn add(&self, user: UserAdd) -> Result<(), Failure> {
        match self {
            Users::Daemon(client) => client.post::<Done>("/v1/users", &user).await.map(drop),
            Users::Files { file, folder } => {
                if self.list().await?.iter().any(|u| u.name.eq_ignore_ascii_case(&user.name)) {
                    return Err(Failure::new(FailureKind::Exists, format!("there is a user '{}' already", user.name)));
                }
                Secrets::open(folder.path())?.set(&user.name, &user.password)?;
                edit(file, |editor| editor.add_user(&new_user(&user.name, user.uid, user.gid, user.groups)))
            }
        }
    }

    async fn passwd(&self, name: &str, password: String) -> Result<(), Failure> {
        match self {
            Users::Daemon(client) => {
                let path = format!("/v1/users/{name}/password");
                client.post::<Done>(&path, &UserPassword { password }).await.map(drop)
            }
            Users::Files { folder, .. } => Secrets::open(folder.path())?.set(name, &password),
        }
    }

    async fn remove(&self, name: &str) -> Result<(), Failure> {
        self.must_exist(name).await?;
        match self {
            Users::Daemon(client) => client.delete::<Done>(&format!("/v1/users/{name}"), &()).await.map(drop),
            Users::Files { file, folder } => {
                edit(file, |editor| editor.remove_user(name))?;
                Secrets::open(folder.path())?.remove(name)
            }
        }
    }
}

fn edit(file: &Path, change: impl FnOnce(&mut Editor)) -> Result<(), Failure> {
    let mut editor = Editor::open(file)?;
    change(&mut editor);
    editor.save().map(drop)
}

fn status(user: UserConfig, secrets: &Secrets) -> UserStatus {
    let has_password = secrets.has(&user.name);
    UserStatus { name: user.name, uid: user.uid, gid: user.gid, groups: user.groups, has_password }
}
