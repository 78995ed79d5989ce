//! The two ways to change people: through the daemon, or on the data folder's files when it is not running.

use std::path::PathBuf;
use std::sync::Arc;

use larder_api::endpoint::{self, Param};
use larder_api::endpoints::*;
use larder_api::{Client, Failure, LinksEnded, PasswordSet, UserRole};
use larder_people::PasswordHash;
use larder_web::Which;

use super::args::Global;
use super::reach::{Target, absolute, target};
use larder_config::{Config, edit::Editor};
use larder_copies::box_record;
use larder_daemon::people::user_status;
use larder_daemon::{factors, groups, people, user_keys};
use larder_document::folder::{self, DataFolder};
use larder_document::tokens::Tokens;
use larder_document::{NtHashes, Secrets, hash_of};
use larder_servers::links;

pub(super) enum People {
    Daemon(Client),
    Files(Files),
}

/// The files of a data folder that no daemon uses: claimed until this is dropped.
pub(super) struct Files {
    file: PathBuf,
    folder: DataFolder,
}

impl People {
    pub(super) async fn of(global: &Global) -> Result<People, Failure> {
        match target(global).await? {
            Target::Daemon(client) => Ok(People::Daemon(client)),
            Target::Config(config) => {
                let file = absolute(&config.data.join(folder::CONFIG_NAME))?;
                Ok(People::Files(Files { file, folder: DataFolder::claim(&config.data)? }))
            }
        }
    }
}

/// What an endpoint does on the files of a data folder that no daemon uses.
pub(super) trait OnFiles: endpoint::Json {
    async fn on_files(files: &Files, param: Self::Param, request: Self::Request) -> Result<Self::Response, Failure>;
}

impl People {
    pub(super) async fn call<E: OnFiles>(
        &self,
        endpoint: E,
        param: <E::Param as Param>::Given<'_>,
        request: E::Request,
    ) -> Result<E::Response, Failure> {
        match self {
            People::Daemon(client) => client.call(endpoint, param, &request).await,
            People::Files(files) => E::on_files(files, E::Param::of(param), request).await,
        }
    }
}

macro_rules! on_files {
    ($endpoint:ident, |$files:ident, $param:pat_param, $request:pat_param| $answer:expr) => {
        impl OnFiles for $endpoint {
            async fn on_files(
                $files: &Files,
                $param: Self::Param,
                $request: Self::Request,
            ) -> Result<Self::Response, Failure> {
                $answer
            }
        }
    };
}

on_files!(GetUsers, |files, (), ()| {
    let (secrets, config) = (files.secrets()?, files.config()?);
    Ok(config.users.iter().map(|user| user_status(user, &config, &secrets)).collect())
});
on_files!(AddUser, |files, (), user| {
    let config = files.config()?;
    let joining = people::stage(Editor::open(&files.file)?, &config, &user)?;
    files.end_links(&user.name).await?;
    let hash = hash_of(&user.password)?;
    let is_owner = user.role == Some(UserRole::Owner);
    let said = files.expect_password(is_owner, &user.name, (&user.password, &hash))?;
    let given = (user.password.as_str(), &hash);
    let nt_hashes = NtHashes::of(&config, &files.file);
    let (mut added, _) = joining.make(&config, &mut files.secrets()?, &mut files.tokens()?, given, nt_hashes)?;
    added.notes.extend(said);
    Ok(added)
});
on_files!(SetUser, |files, name, change| {
    let (_, after) = files.edit(|editor, config| people::set(editor, config, &name, &change))?;
    people::changed(&name, &after, &files.secrets()?)
});
on_files!(SetPassword, |files, name, request| {
    people::fit_password(&request.password, request.force)?;
    let mut ended = PasswordSet::default();
    files.secrets()?.check_writable()?;
    if !request.keep_factors {
        // `factors.gone_before_the_password`
        ended = factors::password_set(factors::end_in_folder(files.folder.path(), &name)?);
    }
    let hash = hash_of(&request.password)?;
    let config = files.config()?;
    let is_owner = config.users.iter().any(|user| user.name == name && user.role == UserRole::Owner);
    ended.notes = files.expect_password(is_owner, &name, (&request.password, &hash))?;
    files.secrets()?.set_hashed(&name, (&request.password, &hash), NtHashes::of(&config, &files.file))?;
    if !request.keep_links {
        ended.links = files.end_links(&name).await?.links;
    }
    Ok(ended)
});
on_files!(RemoveUser, |files, name, ()| {
    let (before, after) = files.edit(|editor, _| {
        editor.remove_user(&name);
        Ok(())
    })?;
    let forgotten = people::forget(&name, &mut files.secrets()?, &mut files.tokens()?);
    let ended = files.end_links(&name).await.map(drop);
    // `factors.end_with_the_user`
    let factors = factors::end_in_folder(files.folder.path(), &name).map(drop);
    forgotten.and(ended).and(factors).map_err(|failure| people::gone_but_for(&name, failure))?;
    Ok(people::removed(&name, &before, &after))
});
on_files!(GetUserKeys, |files, user, ()| user_keys::list(&files.config()?, &user));
on_files!(ChangeUserKeys, |files, user, change| {
    let (_, after) = files.edit(|editor, config| user_keys::change(editor, config, &user, &change))?;
    user_keys::list(&after, &user)
});

on_files!(GetGroups, |files, (), ()| {
    let config = files.config()?;
    Ok(config.groups.iter().map(|group| groups::status(group, &config)).collect())
});
on_files!(AddGroup, |files, (), group| {
    let (_, after) = files.edit(|editor, config| groups::add(editor, config, &group))?;
    groups::changed(&after, &group.name)
});
on_files!(ChangeGroup, |files, name, change| {
    let (_, after) = files.edit(|editor, config| groups::change(editor, config, &name, &change))?;
    groups::changed(&after, &name)
});
on_files!(RemoveGroup, |files, name, ()| {
    let (before, after) = files.edit(|editor, config| groups::remove(editor, config, &name))?;
    Ok(groups::removed(&name, &before, &after))
});

on_files!(GetLinks, |files, (), ()| {
    Ok(links::of_folder(files.folder.path()).all().iter().map(|link| links::status(link)).collect())
});
on_files!(RevokeLink, |files, id, ()| links::end_one(&links::of_folder(files.folder.path()), &id).await);
on_files!(RevokeLinksOf, |files, user, ()| files.end_links(&user).await);

on_files!(GetTokens, |files, (), ()| Ok(files.tokens()?.list()));
on_files!(CreateToken, |files, (), request| files.tokens()?.create(&files.config()?, &request));
on_files!(RevokeToken, |files, which, ()| files.tokens()?.revoke(&which));

impl Files {
    fn secrets(&self) -> Result<Secrets, Failure> {
        Secrets::open(self.folder.path())
    }

    fn tokens(&self) -> Result<Tokens, Failure> {
        Tokens::open(self.folder.path(), &self.secrets()?)
    }

    async fn end_links(&self, user: &str) -> Result<LinksEnded, Failure> {
        links::end(&links::of_folder(self.folder.path()), Which::Of(user)).await
    }

    /// The password of an owner opens the record of the box.
    fn expect_password(
        &self,
        is_owner: bool,
        user: &str,
        (password, hash): (&str, &PasswordHash),
    ) -> Result<Vec<String>, Failure> {
        match is_owner {
            true => box_record::expect_password_without_daemon(self.folder.path(), user, password, hash),
            false => Ok(Vec::new()),
        }
    }

    fn config(&self) -> Result<Config, Failure> {
        Config::load(&self.file)
    }

    /// Changes the file. Returns what it said before and what it says now.
    fn edit(
        &self,
        change: impl FnOnce(&mut Editor, &Config) -> Result<(), Failure>,
    ) -> Result<(Config, Config), Failure> {
        let mut editor = Editor::open(&self.file)?;
        let before = editor.read();
        change(&mut editor, &before)?;
        Ok((Arc::unwrap_or_clone(before), editor.save()?))
    }
}
