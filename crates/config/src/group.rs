//! A group: several users under one name and one number. Its members: `membership`.

pub use larder_people::GROUP_SIGN;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    pub name: String,
    pub gid: u32,
    /// The users that it lists; see [`Config::is_member`].
    pub members: Vec<String>,
}
