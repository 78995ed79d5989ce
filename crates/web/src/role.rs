//! Who may do what on the page. The table is here and nowhere else.
//!
//! - `role.decided_once`: every route names an [`Act`], and [`may`] alone decides. A route without an act does not compile.

/// What a person is on this box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sees and changes everything.
    Owner,
    /// Sees and changes what is the user's own.
    User,
    /// Sees everything and changes only what is the looker's own.
    Looker,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Owner, Self::User, Self::Looker];

    pub fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::User => "user",
            Self::Looker => "looker",
        }
    }
}

/// What a route lets a person see or do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Style, script, the form for logging in.
    Enter,
    /// The own session, password, tokens, keys and links.
    Own,
    SeeBox,
    ChangeStorage,
    ChangeSharing,
    ChangeConfiguration,
}

impl Act {
    pub const ALL: [Self; 6] =
        [Self::Enter, Self::Own, Self::SeeBox, Self::ChangeStorage, Self::ChangeSharing, Self::ChangeConfiguration];
}

/// Whether a person of this role may do that; `None`: somebody who has not logged in.
pub fn may(role: Option<Role>, act: Act) -> bool {
    match (act, role) {
        (Act::Enter, _) => true,
        (_, None) => false,
        (Act::Own, Some(_)) => true,
        (Act::SeeBox, Some(role)) => matches!(role, Role::Owner | Role::Looker),
        (Act::ChangeStorage | Act::ChangeSharing | Act::ChangeConfiguration, Some(role)) => role == Role::Owner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table() {
        let row = |role| Act::ALL.map(|act| may(role, act));
        assert_eq!(row(None), [true, false, false, false, false, false]);
        assert_eq!(row(Some(Role::User)), [true, true, false, false, false, false]);
        assert_eq!(row(Some(Role::Looker)), [true, true, true, false, false, false]);
        assert_eq!(row(Some(Role::Owner)), [true; 6]);
    }
}
