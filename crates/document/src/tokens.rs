//! App tokens: in a file of mode 0600 beside the secrets, each as a keyed hash.
//!
//! - `tokens.file_of_their_own`: an older larder does not look at the file, so that it lets nobody
//!   in by a token. It would call the file of passwords damaged if tokens were in it.
//! - `tokens.go_with_their_user`: removing a user removes the user's tokens, and a new user of that
//!   name begins without any. A token is of a name and a number; where the two are not one user's, it lets nobody in.
//! - `tokens.bounded`: there are at most [`TOKENS_MAX`]. Those whose time has been over for
//!   [`FORGET_AFTER_SECS`] are dropped.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use larder_api::{ApiScope, Failure, TokenCreate, TokenCreated, TokenStatus};
use larder_base::{hex, passed};
use larder_people::token::{self, TokenKey, new_token};
use serde::{Deserialize, Serialize};

use crate::Secrets;
use crate::entitled::{Entitled, may_have};
use crate::known::no_such_user;
use larder_config::Config;
use larder_config::edit::replace_file;

const TOKENS_MAX: usize = 4096;
const FORGET_AFTER_SECS: u64 = 30 * 86_400;
const NAME_CHARS_MAX: usize = 64;
const FILE: &str = "tokens";
/// The purpose of the key that hashes tokens.
const HASHES: &str = "app tokens";
/// Without the numbers of users.
const VERSION_BEFORE: u32 = 1;
const VERSION: u32 = 2;

/// One token, without itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    id: String,
    name: String,
    user: String,
    /// The number of the user (`tokens.go_with_their_user`). `None`: an older program made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<String>,
    #[serde(default)]
    read_only: bool,
    /// It is for the API over HTTPS, and for no door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<ApiScope>,
    created_secs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_secs: Option<u64>,
    hmac_sha256: String,
}

/// What a field that this larder does not know would narrow is not known either: it refuses the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokensFile {
    version: u32,
    tokens: Vec<Token>,
}

pub struct Tokens {
    file: PathBuf,
    key: TokenKey,
    all: Vec<Token>,
}

/// A file that decodes is encoded and decoded again; each token in it can be shown, and is one for the doors or damaged.
#[cfg(test)]
pub fn fuzz_file(data: &[u8]) {
    let Ok(file) = serde_json::from_slice::<TokensFile>(data) else { return };
    for token in &file.tokens {
        let _ = (token.status(), token.for_door());
    }
    let once = serde_json::to_value(&file).ok();
    assert!(once.is_some_and(|once| serde_json::from_value::<TokensFile>(once).is_ok()));
}

/// Refuses a token of the API that would let nobody do anything (`entitled.bounded_by_role`).
fn check_scope(config: &Config, request: &TokenCreate) -> Result<(), Failure> {
    let Some(scope) = request.scope else { return Ok(()) };
    if request.share.is_some() || request.read_only {
        return Err(Failure::invalid("a token of the API opens no share").action("leave the share out, or the scope"));
    }
    let user = &request.user;
    let role = config.users.iter().find(|one| one.name == *user).map(|one| one.role).unwrap_or_default();
    if may_have(role, scope) {
        return Ok(());
    }
    let (needed, scope) = (if scope == ApiScope::Admin { "an owner" } else { "an owner or a looker" }, scope.word());
    let failure =
        Failure::invalid(format!("'{user}' is a {}, and a token of scope {scope} is for {needed}", role.word()));
    let role = if scope == "admin" { "owner" } else { "looker" };
    Err(failure.action(format!("larder user set {user} --role {role}")))
}

fn now_secs() -> u64 {
    passed::latest().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Token {
    fn status(&self) -> TokenStatus {
        TokenStatus {
            id: self.id.clone(),
            name: self.name.clone(),
            user: self.user.clone(),
            share: self.share.clone(),
            read_only: self.read_only,
            scope: self.scope,
            created_secs: self.created_secs,
            expires_secs: self.expires_secs,
            expired: self.expires_secs.is_some_and(|end| end <= now_secs()),
        }
    }

    fn for_door(&self) -> Option<token::Token> {
        Some(token::Token {
            tag: hex::decode(&self.hmac_sha256)?.try_into().ok()?,
            id: self.id.clone(),
            user: self.user.clone(),
            share: self.share.clone(),
            read_only: self.read_only,
            expires: self.expires_secs.map(Duration::from_secs),
        })
    }
}

impl Tokens {
    pub fn open(folder: &Path, secrets: &Secrets) -> Result<Tokens, Failure> {
        let file = folder.join(FILE);
        let damaged = |why: &str| {
            Failure::unavailable(format!("{} is damaged: {why}", file.display())).action(format!(
                "restore it from a backup, or: rm {}; programs then need new tokens",
                larder_base::shell::word(&file)
            ))
        };
        let all = match std::fs::read(&file) {
            Ok(bytes) => {
                let read: TokensFile = serde_json::from_slice(&bytes).map_err(|e| damaged(&e.to_string()))?;
                if read.version != VERSION && read.version != VERSION_BEFORE {
                    return Err(damaged("it is of another version of larder"));
                }
                if read.tokens.iter().any(|token| token.for_door().is_none()) {
                    return Err(damaged("a hash in it is no hash"));
                }
                read.tokens
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Failure::io(format_args!("cannot read {}", file.display()), &e)),
        };
        Ok(Tokens { key: TokenKey::new(&secrets.derive(HASHES)), file, all })
    }

    /// Those of users who are the ones they were made for.
    fn live<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = &'a Token> {
        self.all.iter().filter(|token| {
            let user = config.users.iter().find(|user| user.name == token.user);
            user.is_some_and(|user| token.uid.is_none_or(|uid| uid == user.uid))
        })
    }

    /// A token of the API is for no door.
    pub fn for_doors(&self, config: &Config) -> larder_people::token::Tokens {
        let tokens = self.live(config).filter(|token| token.scope.is_none());
        larder_people::token::Tokens::new(self.key.clone(), tokens.filter_map(Token::for_door))
    }

    /// What users and tokens may do on the page and by the API.
    pub fn entitled(&self, config: &Config) -> Entitled {
        let of_api = || self.live(config).filter(|token| token.scope.is_some());
        Entitled {
            roles: config.users.iter().map(|user| (user.name.clone(), user.role)).collect(),
            tokens: larder_people::token::Tokens::new(self.key.clone(), of_api().filter_map(Token::for_door)),
            scopes: of_api().filter_map(|token| Some((token.id.clone(), token.scope?))).collect(),
        }
    }

    pub fn list(&self) -> Vec<TokenStatus> {
        self.all.iter().map(Token::status).collect()
    }

    pub fn create(&mut self, config: &Config, request: &TokenCreate) -> Result<TokenCreated, Failure> {
        no_such_user(config, &request.user)?;
        if let Some(share) = request.share.as_ref().filter(|name| !config.shares.iter().any(|s| s.name == **name)) {
            return Err(Failure::not_found(format!("there is no share '{share}'"))
                .action("see which there are with: larder share list"));
        }
        check_scope(config, request)?;
        let name = request.name.clone().unwrap_or_default();
        if name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
            return Err(Failure::invalid(format!(
                "the name of a token is one line of at most {NAME_CHARS_MAX} letters"
            )));
        }
        let now = now_secs();
        if request.expires_secs.is_some_and(|end| end <= now) {
            return Err(
                Failure::invalid("a token whose time is over would let nobody in").action("give a later --expires")
            );
        }
        let mut all = self.all.clone();
        all.retain(|token| token.expires_secs.is_none_or(|end| end.saturating_add(FORGET_AFTER_SECS) > now));
        if all.len() >= TOKENS_MAX {
            return Err(Failure::invalid(format!("there are {TOKENS_MAX} tokens already"))
                .action("revoke some: larder token list; larder token revoke ID"));
        }
        let none = || Failure::unavailable("the system gives no random numbers");
        let text = new_token().ok_or_else(none)?;
        let tag = self.key.tag(&text).ok_or_else(none)?;
        let id = loop {
            let id = hex::encode(&rand::random::<[u8; 4]>());
            if !all.iter().any(|token| token.id == id) {
                break id;
            }
        };
        let TokenCreate { user, share, read_only, scope, expires_secs, .. } = request.clone();
        let hmac_sha256 = hex::encode(&tag);
        let uid = config.users.iter().find(|one| one.name == user).map(|one| one.uid);
        let token =
            Token { id, name, user, uid, share, read_only, scope, created_secs: now, expires_secs, hmac_sha256 };
        let status = token.status();
        all.push(token);
        self.replace(all)?;
        Ok(TokenCreated { token: text, status })
    }

    /// By id, or by a name that one token alone has.
    pub fn revoke(&mut self, which: &str) -> Result<TokenStatus, Failure> {
        let by_id = self.all.iter().find(|token| token.id == which);
        let named: Vec<&Token> = self.all.iter().filter(|token| token.name == which && !which.is_empty()).collect();
        let token = match (by_id, named.as_slice()) {
            (Some(token), _) => token.status(),
            (None, [token]) => token.status(),
            (None, []) => {
                return Err(Failure::not_found(format!("there is no token '{which}'"))
                    .action("see which there are with: larder token list"));
            }
            (None, many) => {
                let ids: Vec<&str> = many.iter().map(|token| token.id.as_str()).collect();
                return Err(Failure::invalid(format!("{} tokens are named '{which}': {}", many.len(), ids.join(", ")))
                    .action("revoke one by its id"));
            }
        };
        let rest = self.all.iter().filter(|other| other.id != token.id).cloned().collect();
        self.replace(rest)?;
        Ok(token)
    }

    /// `tokens.go_with_their_user`.
    pub fn remove_of(&mut self, user: &str) -> Result<(), Failure> {
        let rest: Vec<Token> = self.all.iter().filter(|token| token.user != user).cloned().collect();
        if rest.len() == self.all.len() { Ok(()) } else { self.replace(rest) }
    }

    /// The file first: what is in memory is never ahead of what a restart finds.
    fn replace(&mut self, all: Vec<Token>) -> Result<(), Failure> {
        let file = TokensFile { version: VERSION, tokens: all };
        let bytes = serde_json::to_vec_pretty(&file).map_err(|e| Failure::internal(e.to_string()))?;
        replace_file(&self.file, &bytes, 0o600)?;
        self.all = file.tokens;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn request(user: &str, name: &str) -> TokenCreate {
        let name = Some(name.to_owned()).filter(|name| !name.is_empty());
        TokenCreate { user: user.to_owned(), name, share: None, read_only: false, scope: None, expires_secs: None }
    }

    #[test]
    fn tokens_are_kept_hashed_and_go_with_their_user() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[[user]]\nname = \"ann\"\nuid = 1\n[[user]]\nname = \"bob\"\nuid = 2\n";
        let config = Config::parse(text, Path::new("/larder.toml")).unwrap();
        let secrets = Secrets::open(folder.path()).unwrap();
        let mut tokens = Tokens::open(folder.path(), &secrets).unwrap();
        let made = tokens.create(&config, &request("ann", "phone")).unwrap();
        let other = tokens.create(&config, &request("bob", "phone")).unwrap();
        let file = folder.path().join(FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!std::fs::read_to_string(&file).unwrap().contains(&made.token["larder_".len()..]));
        let mut again = Tokens::open(folder.path(), &secrets).unwrap();
        assert_eq!(again.list(), [made.status.clone(), other.status.clone()]);
        assert!(again.revoke("phone").unwrap_err().message.contains("2 tokens"));
        assert_eq!(again.revoke(&made.status.id).unwrap(), made.status);
        again.remove_of("bob").unwrap();
        assert!(Tokens::open(folder.path(), &secrets).unwrap().list().is_empty());
        let text = "[[user]]\nname = \"ann\"\nuid = 7\n";
        let other_ann = Config::parse(text, Path::new("/larder.toml")).unwrap();
        let ann = again.create(&config, &request("ann", "")).unwrap();
        let lets_in = |config| again.for_doors(config).find(&ann.token, SystemTime::now()).is_some();
        assert!(lets_in(&config) && !lets_in(&other_ann), "of another ann");
        again.revoke(&ann.status.id).unwrap();
        assert!(again.revoke("").is_err() && again.create(&config, &request("eve", "")).is_err());
        let over = TokenCreate { expires_secs: Some(5), ..request("ann", "") };
        assert!(again.create(&config, &over).is_err());
        std::fs::write(&file, "{\"version\":1,\"tokens\":[{\"only_at_night\":true}]}").unwrap();
        assert!(Tokens::open(folder.path(), &secrets).err().unwrap().message.contains("damaged"));
    }
}
