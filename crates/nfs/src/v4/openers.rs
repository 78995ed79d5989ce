//! The users of an open. A client chooses the names of its owners freely, so several users may open a file as one owner.
//!
//! - `openers.each_their_own`: a user has by an open what that user's own OPENs were granted. What the owner's other users
//!   opened the file for is judged by the file's mode or list, as without an open.

use super::file_key::ShareBits;

/// Users of one open that are remembered. Clients have an owner for each user or process; further users are judged anew
/// with each request.
const OPENERS_MAX: usize = 4;

/// The users who opened a file by one state, each with the access that was granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Openers([Option<(u32, ShareBits)>; OPENERS_MAX]);

impl Openers {
    /// An OPEN by this user was granted.
    pub fn add(&mut self, uid: u32, access: ShareBits) {
        let is_users = |opener: &&mut Option<(u32, ShareBits)>| matches!(opener, Some((user, _)) if *user == uid);
        if let Some(Some((_, has))) = self.0.iter_mut().find(is_users) {
            *has = has.and(access);
        } else if let Some(free) = self.0.iter_mut().find(|opener| opener.is_none()) {
            *free = Some((uid, access));
        }
    }

    /// The open was downgraded: an access that it gave up comes back by an OPEN alone.
    pub fn keep(&mut self, access: ShareBits) {
        for opener in &mut self.0 {
            let kept = opener.map(|(uid, has)| (uid, has.common(access)));
            *opener = kept.filter(|(_, has)| *has != ShareBits::NONE);
        }
    }

    /// Whether this user opened the file for this access.
    pub fn may(&self, uid: u32, access: ShareBits) -> bool {
        self.0.iter().flatten().any(|(user, has)| *user == uid && has.has(access))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_what_that_user_opened() {
        let (read, write, both) = (ShareBits::READ, ShareBits::WRITE, ShareBits::BOTH);
        let mut openers = Openers::default();
        assert!(!openers.may(0, read));
        openers.add(1, read);
        openers.add(2, both);
        assert!(openers.may(1, read) && !openers.may(1, write) && openers.may(2, write) && !openers.may(3, read));
        openers.add(1, write);
        assert!(openers.may(1, both));
        openers.keep(read);
        assert!(openers.may(1, read) && !openers.may(1, write) && !openers.may(2, write));
        openers.add(2, write);
        assert!(openers.may(2, both) && !openers.may(1, write), "its own OPEN alone brings it back");
        openers.keep(write);
        (10..20).for_each(|uid| openers.add(uid, read));
        assert_eq!((10..20).filter(|uid| openers.may(*uid, read)).count(), OPENERS_MAX - 1, "bounded");
        assert!(openers.may(2, write));
    }
}
