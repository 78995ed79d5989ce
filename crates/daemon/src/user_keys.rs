//! Public keys of users, for SFTP: with a daemon and without one alike.

use std::sync::Arc;

use larder_api::{Failure, UserKey, UserKeysChange};
use larder_people::AuthorizedKey;

use super::people::UserAdmin;
use larder_config::edit::Editor;
use larder_config::{Config, UserConfig};
use larder_document::known::no_such_user;

/// Keys of one user.
const KEYS_MAX: usize = 256;

fn key(line: &str) -> Result<UserKey, Failure> {
    let parsed: AuthorizedKey = line.parse().map_err(|e| {
        Failure::invalid(format!("{e}")).action("give the file that ends in .pub, such as ~/.ssh/id_ed25519.pub")
    })?;
    let comment = line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
    Ok(UserKey { kind: parsed.kind(), fingerprint: parsed.fingerprint(), comment })
}

fn lines(config: &Config, user: &str) -> Result<Vec<String>, Failure> {
    no_such_user(config, user)?;
    Ok(config.user(user).map(|user: &UserConfig| user.ssh_keys.clone()).unwrap_or_default())
}

pub fn list(config: &Config, user: &str) -> Result<Vec<UserKey>, Failure> {
    lines(config, user)?.iter().map(|line| key(line)).collect()
}

pub fn change(editor: &mut Editor, config: &Config, user: &str, what: &UserKeysChange) -> Result<(), Failure> {
    let mut lines = lines(config, user)?;
    match what {
        UserKeysChange::Add(new) => add(&mut lines, new, user)?,
        UserKeysChange::Remove(which) => remove(&mut lines, which, user)?,
    }
    editor.set_ssh_keys(user, &lines);
    Ok(())
}

fn add(lines: &mut Vec<String>, new: &[String], user: &str) -> Result<(), Failure> {
    let mut added = 0;
    for line in new.iter().map(|line| line.trim()).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let print = key(line)?.fingerprint;
        if !lines.iter().any(|known| key(known).is_ok_and(|known| known.fingerprint == print)) {
            lines.push(line.to_owned());
            added += 1;
        }
    }
    if lines.len() > KEYS_MAX {
        return Err(Failure::invalid(format!("a user has at most {KEYS_MAX} keys"))
            .action("sign them with one authority instead: ssh_ca_keys under [sftp], see docs/people.md"));
    }
    match added {
        0 => Err(Failure::exists(format!("'{user}' has this key already"))
            .action(format!("see them with: larder user key list {user}"))),
        _ => Ok(()),
    }
}

fn remove(lines: &mut Vec<String>, which: &str, user: &str) -> Result<(), Failure> {
    let wanted = key(which).map(|key| key.fingerprint).unwrap_or_else(|_| which.trim().to_owned());
    let is_it = |line: &String| key(line).is_ok_and(|key| key.fingerprint == wanted || key.comment == wanted);
    match lines.iter().filter(|line| is_it(line)).count() {
        0 => Err(Failure::not_found(format!("'{user}' has no key '{wanted}'"))
            .action(format!("see them with: larder user key list {user}"))),
        1 => {
            lines.retain(|line| !is_it(line));
            Ok(())
        }
        n => Err(Failure::invalid(format!("{n} keys of '{user}' have the comment '{wanted}'"))
            .action("name one by its fingerprint, SHA256:...")),
    }
}

impl UserAdmin {
    pub fn user_keys(&self, user: &str) -> Result<Vec<UserKey>, Failure> {
        list(&self.document.config(), user)
    }

    pub async fn user_keys_change(&self, user: &str, what: UserKeysChange) -> Result<Vec<UserKey>, Failure> {
        let mut state = self.document.lock().await;
        let config = Arc::clone(&state.config);
        self.document.try_edit(&mut state, |editor| change(editor, &config, user, &what)).await?;
        list(&state.config, user)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_api::FailureKind;

    use super::*;

    const ONE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop";

    #[test]
    fn keys_come_once_and_go_by_fingerprint_or_comment() {
        let mut lines = Vec::new();
        add(&mut lines, &["# mine".into(), String::new(), format!(" {ONE} ")], "ann").unwrap();
        assert_eq!(lines, [ONE]);
        let again = add(&mut lines, &[ONE.replace("ann@laptop", "x")], "ann").unwrap_err();
        assert_eq!(again.kind, FailureKind::Exists);
        let private = add(&mut lines, &["-----BEGIN OPENSSH PRIVATE KEY-----".into()], "ann").unwrap_err();
        assert!(private.action.unwrap().contains(".pub"));
        let print = key(ONE).unwrap().fingerprint;
        assert!(print.starts_with("SHA256:"));
        for which in [print.as_str(), "ann@laptop", ONE] {
            let mut lines = lines.clone();
            remove(&mut lines, which, "ann").unwrap();
            assert!(lines.is_empty());
        }
        assert_eq!(remove(&mut lines, "bob", "ann").unwrap_err().kind, FailureKind::NotFound);
    }
}
