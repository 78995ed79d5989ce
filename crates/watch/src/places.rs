//! Networks that users were seen at.
//!
//! - `places.known_by_network`: a place is a network: a /24 of IPv4, a /48 of IPv6, and all of the private networks together. The first
//!   place of a user is where it lives, and no news.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_doors::door::Passage;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

const USERS_MAX: usize = 1000;
/// Places of a user; the one that was first used goes first.
const PLACES_MAX: usize = 64;

/// Networks that each user was seen at, in the order of the first time.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Places(BTreeMap<String, Vec<String>>);

/// What a login tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Known,
    /// The user's first place.
    First,
    New,
}

impl Places {
    pub(crate) fn see(&mut self, user: &str, address: IpAddr) -> Seen {
        let place = place(address);
        if !self.0.contains_key(user) && self.0.len() >= USERS_MAX {
            return Seen::Known;
        }
        let places = self.0.entry(user.to_owned()).or_default();
        if places.contains(&place) {
            return Seen::Known;
        }
        if places.len() >= PLACES_MAX {
            places.remove(0);
        }
        places.push(place);
        if places.len() == 1 { Seen::First } else { Seen::New }
    }
}

fn place(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(ip) if ip.is_private() || ip.is_loopback() || ip.is_link_local() => "private".to_owned(),
        IpAddr::V6(ip) if ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local() => {
            "private".to_owned()
        }
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(ip) => {
            let [a, b, c, ..] = ip.segments();
            format!("{a:x}:{b:x}:{c:x}::/48")
        }
    }
}

/// Passages that found the queue full.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// How many, since the last question.
pub(crate) fn left_out() -> u64 {
    LEFT_OUT.swap(0, Relaxed)
}

/// From a door. Waits for nothing.
pub(crate) fn pass_on(sender: &mpsc::Sender<Passage>, passage: Passage) {
    if sender.try_send(passage).is_err() {
        LEFT_OUT.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_laptop_at_home_is_no_news_and_a_stranger_is() {
        let mut places = Places::default();
        let mut see = |user: &str, address: &str| places.see(user, address.parse().unwrap());
        assert_eq!(see("ann", "192.168.1.7"), Seen::First);
        assert_eq!(see("ann", "10.0.0.9"), Seen::Known);
        assert_eq!(see("ann", "fd00::1"), Seen::Known);
        assert_eq!(see("ann", "203.0.113.5"), Seen::New);
        assert_eq!(see("ann", "203.0.113.200"), Seen::Known);
        assert_eq!(see("ann", "2001:db8:1::5"), Seen::New);
        assert_eq!(see("ann", "2001:db8:1:7::9"), Seen::Known);
        assert_eq!(see("bob", "203.0.113.5"), Seen::First);
        for n in 0..=255u8 {
            see("eve", &format!("198.51.{n}.1"));
        }
        assert!(places.0["eve"].len() <= PLACES_MAX);
    }
}
