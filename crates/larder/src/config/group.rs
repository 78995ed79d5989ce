//! A group: several users under one name and one number. Its members: `membership`.

pub(crate) use larder_people::GROUP_SIGN;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupConfig {
    pub(crate) name: String,
    pub(crate) gid: u32,
    /// The users that it lists; see [`Config::is_member`].
    pub(crate) members: Vec<String>,
}
