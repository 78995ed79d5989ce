//! The secrets of codes that machines are paired by (`machines.code_once`). They are in memory alone: after a restart none is good.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use larder_config::VolumeName;

pub(super) const SECRET_BYTES: usize = 16;
const CODE_LIFE: Duration = Duration::from_secs(3600);
/// Codes that nobody has used yet.
const CODES_MAX: usize = 64;

/// Codes that were given out and not used yet.
#[derive(Default)]
pub struct Invitations(Mutex<Vec<Invitation>>);

pub(super) struct Invitation {
    secret: [u8; SECRET_BYTES],
    pub(super) replica: VolumeName,
    until: Instant,
}

impl Invitations {
    pub(super) fn add(&self, replica: VolumeName) -> [u8; SECRET_BYTES] {
        let secret = rand::random();
        let mut all = self.0.lock();
        all.retain(|one| one.until > Instant::now());
        if all.len() >= CODES_MAX {
            all.remove(0);
        }
        all.push(Invitation { secret, replica, until: Instant::now() + CODE_LIFE });
        secret
    }

    /// The replica that a secret is good for.
    pub(super) fn find(&self, secret: &[u8]) -> Option<VolumeName> {
        let all = self.0.lock();
        let good = all.iter().find(|one| one.until > Instant::now() && one.secret[..] == *secret);
        good.map(|one| one.replica.clone())
    }

    /// `machines.code_once`
    pub(super) fn take(&self, secret: &[u8]) -> Option<Invitation> {
        let mut all = self.0.lock();
        all.retain(|one| one.until > Instant::now());
        let place = all.iter().position(|one| one.secret[..] == *secret)?;
        Some(all.remove(place))
    }

    /// Its right could not be written down: it is good for what is left of its hour.
    pub(super) fn give_back(&self, invitation: Invitation) {
        self.0.lock().push(invitation);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_code_is_good_once() {
        let invitations = Invitations::default();
        let replica = VolumeName::parse("cold/photos").unwrap();
        let secret = invitations.add(replica.clone());
        let take = |secret: &[u8]| invitations.take(secret).map(|one| one.replica);
        assert_eq!(take(&[0; SECRET_BYTES]), None);
        let taken = invitations.take(&secret).unwrap();
        assert_eq!((&taken.replica, take(&secret)), (&replica, None));
        invitations.give_back(taken);
        assert_eq!((take(&secret), take(&secret)), (Some(replica.clone()), None));
        // An endless number of codes is not kept.
        let first = invitations.add(replica.clone());
        for _ in 0..CODES_MAX {
            invitations.add(replica.clone());
        }
        assert_eq!(take(&first), None);
    }
}
