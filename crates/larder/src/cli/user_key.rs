//! `larder user key ...`: the public keys that let a user in over SFTP.

use std::path::Path;

use clap::Subcommand;
use larder_api::endpoints::{ChangeUserKeys, GetUserKeys};
use larder_api::{Failure, UserKeysChange};

use super::args::Global;
use super::people::People;
use crate::render;

/// More than this is no file of public keys.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Subcommand)]
pub(crate) enum UserKeyCommand {
    /// Let a user in with a key
    Add {
        user: String,
        /// A file of public keys, such as ~/.ssh/id_ed25519.pub, or the key itself in quotes
        #[arg(value_name = "FILE|KEY")]
        key: String,
    },
    /// Keys of a user
    List { user: String },
    /// Take a key away
    Remove {
        user: String,
        /// Its fingerprint (SHA256:...), its comment, the key itself, or its file
        #[arg(value_name = "FINGERPRINT|COMMENT|FILE|KEY")]
        key: String,
    },
}

pub(super) async fn run(global: &Global, command: UserKeyCommand) -> Result<(), Failure> {
    let (people, out) = (People::of(global).await?, global.out());
    match command {
        UserKeyCommand::Add { user, key } => {
            let keys = people.call(ChangeUserKeys, &user, UserKeysChange::Add(lines(&key)?)).await?;
            out.answer(&keys, |keys| format!("'{user}' may log in over SFTP with:\n{}", render::user_keys(keys)))
        }
        UserKeyCommand::List { user } => {
            let keys = people.call(GetUserKeys, &user, ()).await?;
            out.answer(&keys, |keys| render::user_keys(keys))
        }
        UserKeyCommand::Remove { user, key } => {
            let which = match Path::new(&key).is_file() {
                true => lines(&key)?.into_iter().find(|line| !line.trim().is_empty()).unwrap_or_default(),
                false => key,
            };
            let keys = people.call(ChangeUserKeys, &user, UserKeysChange::Remove(which)).await?;
            out.answer(&keys, |keys| format!("the key is taken away; '{user}' has now:\n{}", render::user_keys(keys)))
        }
    }
}

/// The lines of a file, or the key that was typed.
fn lines(text: &str) -> Result<Vec<String>, Failure> {
    if text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-") {
        return Ok(vec![text.to_owned()]);
    }
    let failed = |e: &std::io::Error| Failure::io(format_args!("cannot read the key {text}"), e);
    let bytes = std::fs::metadata(text).map_err(|e| failed(&e))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(Failure::invalid(format!("{text} is too long for a file of keys")));
    }
    let read = std::fs::read_to_string(text).map_err(|e| failed(&e))?;
    if read.contains("PRIVATE KEY-----") {
        return Err(Failure::invalid(format!("{text} is a private key, which stays where it is"))
            .action("give the public one: the file beside it that ends in .pub"));
    }
    Ok(read.lines().map(str::to_owned).collect())
}
