//! Adding and removing users: with a daemon and without one alike.

use std::sync::Arc;

use larder_api::{
    Failure, LinksEnded, PasswordSet, TokenCreate, TokenCreated, TokenStatus, UserAdd, UserAdded, UserChange,
    UserPassword, UserRemoved, UserRole, UserStatus,
};
use larder_base::task;
use larder_people::{Door, PasswordHash};

use super::factors;
use larder_config::edit::{Editor, Saved, Staged};
use larder_config::user::{Accounts, NewUser, new_user, objection, password_objection, remarks};
use larder_config::{Config, UserConfig, check_user_name};
use larder_copies::BoxRecord;
use larder_document::DataFolder;
use larder_document::Look;
use larder_document::Tokens;
use larder_document::known::no_such_user;
use larder_document::secrets::NtHashes;
use larder_document::{Document, State};
use larder_document::{Secrets, check_password, hash_of};
use larder_servers::Servers;
use larder_servers::links::HeldLinks;
use larder_servers::passwords::Held;

pub fn user_status(user: &UserConfig, config: &Config, secrets: &Secrets) -> UserStatus {
    UserStatus {
        name: user.name.clone(),
        uid: user.uid,
        gid: user.gid,
        groups: config.gids_of(user),
        has_password: secrets.has(&user.name),
        needs_password_for_smb: config.listen.smb.is_some() && secrets.lacks_nt_hash(&user.name),
        keys: user.ssh_keys.len(),
        role: user.role,
        group_names: config.groups.iter().filter(|g| Config::is_member(user, g)).map(|g| g.name.clone()).collect(),
    }
}

/// A password that is to be set from now on.
pub fn fit_password(password: &str, force: bool) -> Result<(), Failure> {
    check_password(password)?;
    refuse(password_objection(password).filter(|_| !force))
}

fn refuse(objection: Option<(String, &str)>) -> Result<(), Failure> {
    objection.map_or(Ok(()), |(message, action)| Err(Failure::invalid(message).action(action)))
}

/// Beside the threads that serve.
async fn slowly_hashed(password: &str) -> Result<PasswordHash, Failure> {
    let password = password.to_owned();
    let hashed = task::blocking(move || hash_of(&password)).await;
    hashed.unwrap_or_else(|e| Err(Failure::internal(format!("the daemon failed at this: {e}"))))
}

/// The user that is asked for, and what to say about it; nothing is changed yet.
fn plan(request: &UserAdd, config: &Config) -> Result<(UserConfig, Vec<String>), Failure> {
    let name = &request.name;
    // Before the file is touched, whose reader would name a place in it.
    check_user_name(name).map_err(Failure::invalid)?;
    if config.users.iter().any(|u| u.name.eq_ignore_ascii_case(name)) {
        return Err(Failure::exists(format!("there is a user '{name}' already"))
            .action(format!("to set the password: larder user passwd {name}")));
    }
    if ["all", "none"].contains(&name.as_str()) {
        return Err(Failure::invalid(format!(
            "'{name}' stands for other things in lists of users: choose another name"
        )));
    }
    let asked = NewUser {
        uid: request.uid,
        gid: request.gid,
        groups: request.groups.clone(),
        role: request.role.unwrap_or_default(),
    };
    let user = new_user(name, asked, config, &Accounts::of_machine());
    refuse(objection(&user).filter(|_| !request.force))?;
    fit_password(&request.password, request.force)?;
    let remarks = remarks(&user, config, &request.password);
    Ok((user, remarks))
}

/// A user that is asked for, and the file that names it, staged (`edit.staged_before_deeds`).
pub struct Joining {
    user: UserConfig,
    notes: Vec<String>,
    staged: Staged,
}

/// Nothing but the name of the file is missing afterwards. Nobody has changed.
pub fn stage(mut editor: Editor, config: &Config, request: &UserAdd) -> Result<Joining, Failure> {
    let (user, notes) = plan(request, config)?;
    editor.add_user(&user);
    Ok(Joining { user, notes, staged: editor.stage()? })
}

impl Joining {
    /// The password before the file: a user in the file can log in. Neither stays without the other.
    pub fn make(
        self,
        config: &Config,
        secrets: &mut Secrets,
        tokens: &mut Tokens,
        password: (&str, &PasswordHash),
        nt_hashes: NtHashes,
    ) -> Result<(UserAdded, Saved), Failure> {
        let Joining { user, notes, staged } = self;
        let before = secrets.kept(&user.name);
        secrets.set_hashed(&user.name, password, nt_hashes)?;
        match tokens.remove_of(&user.name).and_then(|()| staged.commit()) {
            Ok(after) => Ok((UserAdded { user: user_status(&user, config, secrets), notes }, after)),
            Err(failure) => {
                if let Err(kept) = secrets.put_back(before) {
                    tracing::error!("the password of '{}', who was not made, stays: {}", user.name, kept.message);
                }
                Err(failure)
            }
        }
    }
}

/// Changes a user in the file.
pub fn set(editor: &mut Editor, config: &Config, name: &str, change: &UserChange) -> Result<(), Failure> {
    no_such_user(config, name)?;
    if let Some(role) = change.role {
        editor.set_role(name, role);
    }
    Ok(())
}

/// The user as the configuration has it now.
pub fn changed(name: &str, config: &Config, secrets: &Secrets) -> Result<UserStatus, Failure> {
    let user = config.users.iter().find(|user| user.name == name);
    user.map(|user| user_status(user, config, secrets)).ok_or_else(|| Failure::not_found("the user is gone"))
}

/// Takes away what a user had who is in the file no more: all of it, as far as it can be.
pub fn forget(name: &str, secrets: &mut Secrets, tokens: &mut Tokens) -> Result<(), Failure> {
    let (password, tokens) = (secrets.remove(name), tokens.remove_of(name));
    password.and(tokens)
}

/// The user is removed, and something that opens nothing any more could not be.
pub fn gone_but_for(name: &str, failure: Failure) -> Failure {
    let message =
        format!("the user '{name}' is removed, and lets nobody in; some of it stays on disk: {}", failure.message);
    Failure { message, ..failure }
}

/// The effect of removing `name`, by the configurations before and after it.
pub fn removed(name: &str, before: &Config, after: &Config) -> UserRemoved {
    let had = |share: &str| before.shares.iter().any(|s| s.name == share && !s.is_for_nobody());
    let lost = after.shares.iter().filter(|share| share.offers(Door::SMB) && share.is_for_nobody() && had(&share.name));
    UserRemoved {
        uid: before.users.iter().find(|user| user.name == name).map_or(0, |user| user.uid),
        shares_for_nobody: lost.map(|share| share.name.clone()).collect(),
    }
}

/// Users, groups, keys and tokens, changed while a daemon serves them.
pub struct UserAdmin {
    pub document: Arc<Document>,
    pub record: Arc<BoxRecord>,
    pub links: Arc<HeldLinks>,
    pub servers: Arc<Servers>,
    pub folder: Arc<DataFolder>,
}

impl UserAdmin {
    pub async fn users(&self) -> Vec<UserStatus> {
        let state = self.document.lock().await;
        state.config.users.iter().map(|user| user_status(user, &state.config, &state.secrets)).collect()
    }

    pub async fn user_add(&self, request: UserAdd) -> Result<UserAdded, Failure> {
        // What cannot be made is refused before anything is.
        plan(&request, &self.document.config())?;
        let is_owner = request.role == Some(UserRole::Owner);
        let hash = slowly_hashed(&request.password).await?;
        let (held, said) = self.expect_password_of(is_owner, &request.name, (&request.password, &hash)).await?;
        let mut state = self.document.lock().await;
        let config = Arc::clone(&state.config);
        let joining = stage(self.document.editor()?, &config, &request)?;
        // `links.gone_before_the_answer`
        self.links.revoke_of(&request.name).await?;
        let nt_hashes = NtHashes::of(&config, &self.document.file);
        let State { secrets, tokens, .. } = &mut *state;
        let (mut added, after) = joining.make(&config, secrets, tokens, (&request.password, &hash), nt_hashes)?;
        self.document.take(&mut state, after).await;
        drop((state, held));
        added.notes.extend(said);
        if is_owner {
            added.notes.extend(self.record.keep_before_answer().await);
        }
        Ok(added)
    }

    /// `own.slot_before_password`, where the password is an owner's.
    async fn expect_password_of(
        &self,
        is_owner: bool,
        user: &str,
        (password, hash): (&str, &PasswordHash),
    ) -> Result<(Option<Held>, Vec<String>), Failure> {
        match is_owner {
            true => self.record.expect_password(user, password, hash).await.map(|(held, said)| (Some(held), said)),
            false => Ok((None, Vec::new())),
        }
    }

    pub async fn user_set(&self, name: &str, change: UserChange) -> Result<UserStatus, Failure> {
        let mut state = self.document.lock().await;
        let config = Arc::clone(&state.config);
        self.document.try_edit(&mut state, |editor| set(editor, &config, name, &change)).await?;
        changed(name, &state.config, &state.secrets)
    }

    /// Sessions of browsers end with the password; links, passkeys and codes, too, unless they are to stay. Returns
    /// those that ended.
    pub async fn user_passwd(&self, name: &str, request: &UserPassword) -> Result<PasswordSet, Failure> {
        fit_password(&request.password, request.force)?;
        let is_owner = {
            let config = self.document.config();
            no_such_user(&config, name)?;
            config.users.iter().any(|user| user.name == name && user.role == UserRole::Owner)
        };
        let hash = slowly_hashed(&request.password).await?;
        let (held, said) = self.expect_password_of(is_owner, name, (&request.password, &hash)).await?;
        let mut state = self.document.lock().await;
        no_such_user(&state.config, name)?;
        let mut ended = PasswordSet::default();
        state.secrets.check_writable()?;
        if !request.keep_factors {
            // `factors.gone_before_the_password`
            ended = factors::password_set(self.end_factors_of(name).await?);
        }
        let nt_hashes = NtHashes::of(&state.config, &self.document.file);
        state.secrets.set_hashed(name, (&request.password, &hash), nt_hashes)?;
        state.reconcile(Look::Changes).await;
        drop((state, held));
        if !request.keep_links {
            ended.links = self.links.revoke_of(name).await?.links;
        }
        ended.notes = said;
        if is_owner {
            ended.notes.extend(self.record.keep_before_answer().await);
        }
        Ok(ended)
    }

    pub async fn user_remove(&self, name: &str) -> Result<UserRemoved, Failure> {
        let mut state = self.document.lock().await;
        no_such_user(&state.config, name)?;
        let before = Arc::clone(&state.config);
        self.document.edit(&mut state, |editor| editor.remove_user(name)).await?;
        let State { secrets, tokens, .. } = &mut *state;
        let forgotten = forget(name, secrets, tokens);
        let ended = self.links.revoke_of(name).await.map(drop);
        // `factors.end_with_the_user`
        let factors = self.end_factors_of(name).await.map(drop);
        forgotten.and(ended).and(factors).map_err(|failure| gone_but_for(name, failure))?;
        Ok(removed(name, &before, &state.config))
    }

    pub async fn links_revoke_of(&self, user: &str) -> Result<LinksEnded, Failure> {
        no_such_user(&self.document.config(), user)?;
        self.links.revoke_of(user).await
    }

    pub async fn tokens(&self) -> Vec<TokenStatus> {
        self.document.lock().await.tokens.list()
    }

    pub async fn token_create(&self, request: TokenCreate) -> Result<TokenCreated, Failure> {
        let mut state = self.document.lock().await;
        let config = Arc::clone(&state.config);
        let created = state.tokens.create(&config, &request)?;
        state.reconcile(Look::Changes).await;
        Ok(created)
    }

    pub async fn token_revoke(&self, which: &str) -> Result<TokenStatus, Failure> {
        let mut state = self.document.lock().await;
        let revoked = state.tokens.revoke(which)?;
        state.reconcile(Look::Changes).await;
        Ok(revoked)
    }

    /// Makes sure that `name` can log in. Returns the password if it may be told: given, or generated by us.
    pub async fn ensure_password(&self, name: &str, given: Option<&str>) -> Result<Option<String>, Failure> {
        let mut state = self.document.lock().await;
        let nt_hashes = NtHashes::of(&state.config, &self.document.file);
        let known = match given {
            Some(password) => {
                if !state.secrets.matches(name, password)? {
                    fit_password(password, false).map_err(|failure| Failure { action: None, ..failure })?;
                    state.secrets.set(name, password, nt_hashes)?;
                }
                state.secrets.complete(name, password, nt_hashes)?;
                Some(password.to_owned())
            }
            None if state.secrets.has(name) => state.secrets.generated(name)?,
            None => Some(state.secrets.generate(name, nt_hashes)?),
        };
        // Its slot is made with the recovery key's, once the file names the user.
        if let Some(password) = &known {
            self.record.note_password(name, password);
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_is_refused_in_plain_words() {
        let config = Config::parse("", std::path::Path::new("/larder.toml")).unwrap();
        let wished = |name: &str| UserAdd {
            name: name.to_owned(),
            uid: None,
            gid: None,
            groups: Vec::new(),
            role: None,
            password: "Pantry-Shelf-43".to_owned(),
            force: false,
        };
        let refused = plan(&wished("Anna Maria"), &config).map(|_| ()).unwrap_err();
        assert!(refused.message.starts_with("'Anna Maria' is not a user name: write "), "{}", refused.message);
        assert!(!refused.message.contains("larder.toml"), "{}", refused.message);
        plan(&wished("O'Brien"), &config).unwrap();
    }
}
