//! What users and tokens may do on the page and by the API over HTTPS, from memory.
//!
//! - `entitled.bounded_by_role`: a token of the API does what its scope says, and no more than its user may now: one for
//!   `admin` needs an owner, one for `read` an owner or a looker.
//! - `entitled.as_applied`: what is here follows each change of users and tokens before that change is answered, so a
//!   revoked token and a lost role end with the next request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use larder_api::{ApiScope, UserRole};
use larder_people::token::Tokens;
use parking_lot::RwLock;

/// Of one moment.
#[derive(Default)]
pub struct Entitled {
    pub roles: HashMap<String, UserRole>,
    /// Those for the API.
    pub tokens: Tokens,
    /// By the ids of tokens.
    pub scopes: HashMap<String, ApiScope>,
}

/// A token that may ask now.
pub struct Grant {
    pub id: String,
    pub user: String,
    pub scope: ApiScope,
}

/// Whether a user of that role may have a token of that scope.
pub fn may_have(role: UserRole, scope: ApiScope) -> bool {
    match scope {
        ApiScope::Admin => role == UserRole::Owner,
        ApiScope::Read => matches!(role, UserRole::Owner | UserRole::Looker),
    }
}

impl Entitled {
    /// `entitled.bounded_by_role`
    pub fn grant(&self, token: &str, now: SystemTime) -> Option<Grant> {
        let token = self.tokens.find(token, now)?;
        let scope = *self.scopes.get(&token.id)?;
        let role = *self.roles.get(&token.user)?;
        may_have(role, scope).then(|| Grant { id: token.id.clone(), user: token.user.clone(), scope })
    }
}

/// As it is now.
#[derive(Clone, Default)]
pub struct Entitlements(Arc<RwLock<Arc<Entitled>>>);

impl Entitlements {
    pub fn set(&self, entitled: Entitled) {
        *self.0.write() = Arc::new(entitled);
    }

    pub fn now(&self) -> Arc<Entitled> {
        Arc::clone(&self.0.read())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_people::token::{Token, TokenKey, new_token};

    use super::*;

    #[test]
    fn a_token_does_no_more_than_its_user_may_now() {
        let (key, text) = (TokenKey::new(&[7; 32]), new_token().unwrap());
        let granted = |role: Option<UserRole>, scope: Option<ApiScope>| {
            let (tag, id, user) = (key.tag(&text).unwrap(), "1".to_owned(), "ann".to_owned());
            let token = Token { tag, id, user, share: None, read_only: false, expires: None };
            let entitled = Entitled {
                roles: role.into_iter().map(|role| ("ann".to_owned(), role)).collect(),
                tokens: Tokens::new(key.clone(), [token]),
                scopes: scope.into_iter().map(|scope| ("1".to_owned(), scope)).collect(),
            };
            entitled.grant(&text, SystemTime::now()).is_some()
        };
        let (read, admin) = (Some(ApiScope::Read), Some(ApiScope::Admin));
        for (role, row) in [
            (Some(UserRole::Owner), [true, true, false]),
            (Some(UserRole::Looker), [true, false, false]),
            (Some(UserRole::User), [false, false, false]),
            (None, [false, false, false]),
        ] {
            assert_eq!([read, admin, None].map(|scope| granted(role, scope)), row, "{role:?}");
        }
    }
}
