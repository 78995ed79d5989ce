//! Groups, keys of users, and app tokens.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupStatus {
    pub name: String,
    pub gid: u32,
    /// Its users, those included who have its number.
    pub members: Vec<String>,
    /// The shares that list it.
    pub shares: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupAdd {
    pub name: String,
    pub gid: Option<u32>,
    pub members: Vec<String>,
    /// Even with root's number.
    #[serde(default)]
    pub force: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct GroupChange {
    pub add: Vec<String>,
    pub remove: Vec<String>,
}

/// A group was removed; files stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupRemoved {
    pub gid: u32,
    /// Shares that no list opens to anybody any more.
    pub shares_for_nobody: Vec<String>,
}

/// A public key that lets a user in over SFTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserKey {
    /// Such as ssh-ed25519.
    pub kind: String,
    /// `SHA256:...`.
    pub fingerprint: String,
    pub comment: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UserKeysChange {
    /// Lines as in authorized_keys.
    Add(Vec<String>),
    /// A fingerprint, a comment that one key alone has, or the line itself.
    Remove(String),
}

/// How much of the API a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ApiScope {
    /// Endpoints that change nothing.
    Read,
    /// All that is served over HTTPS.
    Admin,
}

impl ApiScope {
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl std::str::FromStr for ApiScope {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = [Self::Read, Self::Admin].into_iter().find(|scope| scope.word() == word);
        found.ok_or_else(|| format!("'{word}' is not a scope: write read or admin"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokenCreate {
    pub user: String,
    /// What people know it by.
    pub name: Option<String>,
    /// The only share that it opens.
    pub share: Option<String>,
    pub read_only: bool,
    /// It is for the API over HTTPS, and opens no share.
    #[serde(default)]
    pub scope: Option<ApiScope>,
    /// In seconds since 1970.
    pub expires_secs: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokenStatus {
    pub id: String,
    pub name: String,
    pub user: String,
    /// The only share that it opens; absent: all of the user's.
    pub share: Option<String>,
    pub read_only: bool,
    /// It is for the API over HTTPS, and opens no share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ApiScope>,
    pub created_secs: u64,
    pub expires_secs: Option<u64>,
    /// Its time is over.
    pub expired: bool,
}

/// A link to a file or folder that a user made in the browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkStatus {
    /// Its name; it does not open it.
    pub id: String,
    /// The user who made it.
    pub user: String,
    pub share: String,
    /// From the top: `share/folder/name`.
    pub path: String,
    pub has_password: bool,
    pub created_secs: u64,
    pub expires_secs: u64,
    /// About; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_secs: Option<u64>,
}

/// Ends with a new password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PasswordSet {
    #[serde(default)]
    pub links: Vec<LinkStatus>,
    /// Names of passkeys.
    #[serde(default)]
    pub passkeys: Vec<String>,
    /// Whether codes of a telephone ended.
    #[serde(default)]
    pub codes: bool,
    /// Whether the user was bound to a person at the issuer of log-ins.
    #[serde(default)]
    pub issued: bool,
    /// Sentences about what the password does not open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Links that open nothing any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinksEnded {
    #[serde(default)]
    pub links: Vec<LinkStatus>,
}

/// Carries a token: the only time that anybody sees it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TokenCreated {
    pub token: String,
    pub status: TokenStatus,
}
