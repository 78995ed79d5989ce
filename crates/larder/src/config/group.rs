//! A group: several users under one name and one number. Its members: `membership`.

/// Written before the name of a group in lists of users.
pub(crate) const GROUP_SIGN: char = '@';

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupConfig {
    pub(crate) name: String,
    pub(crate) gid: u32,
    /// The users that it lists; see [`Config::is_member`].
    pub(crate) members: Vec<String>,
}
