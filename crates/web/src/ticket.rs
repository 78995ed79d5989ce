//! Tickets: text that a browser carries away and brings back, and that nobody else can make.
//!
//! - `tickets.bound`: a ticket is good for one purpose, for the browser (its cookie) that it was drawn for, and for [`GOOD_FOR`].
//! - `tickets.once`: a ticket that opened something opens nothing again.
//! - `tickets.no_table`: tickets that are out are in no table, so nobody fills one by asking for them. Those that were used are, for as
//!   long as they would be good; each took a right answer, so they are used up after the proof. There are at most [`USED_MAX`]: then the
//!   oldest of the network that has most gives way.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64ct::{Base64UrlUnpadded, Encoding};
use larder_base::network::network;
use parking_lot::Mutex;

use crate::session::secret;

pub const GOOD_FOR: Duration = Duration::from_secs(10 * 60);
const USED_MAX: usize = 4096;
const NONCE_BYTES: usize = 16;
const TIME_BYTES: usize = 8;
const MAC_BYTES: usize = 32;
/// A text is a path of the page at most.
const TEXT_BYTES_MAX: usize = 4096;

pub struct Tickets {
    key: hmac::Key,
    used: Mutex<HashMap<[u8; NONCE_BYTES], Used>>,
}

struct Used {
    /// When it would have ended.
    end: Duration,
    network: IpAddr,
}

/// The oldest of the network that has most.
fn gives_way(used: &HashMap<[u8; NONCE_BYTES], Used>) -> Option<[u8; NONCE_BYTES]> {
    let mut counts = HashMap::new();
    used.values().for_each(|one| *counts.entry(one.network).or_insert(0usize) += 1);
    let most = counts.into_iter().max_by_key(|(_, count)| *count)?.0;
    let of_most = used.iter().filter(|(_, one)| one.network == most);
    of_most.min_by_key(|(_, one)| one.end).map(|(nonce, _)| *nonce)
}

/// A ticket that came back whole and in time.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    pub nonce: [u8; NONCE_BYTES],
    pub text: String,
    drawn: Duration,
}

impl Default for Tickets {
    fn default() -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &secret::<32>()), used: Mutex::default() }
    }
}

impl Tickets {
    /// Lengths come first, so that no two inputs are the same bytes.
    fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(context.sign().as_ref());
        mac
    }

    /// For the browser whose cookie is `token`. The base64url of it is what the browser gets.
    pub fn draw(&self, purpose: &str, token: &str, text: &str, now: Duration) -> String {
        let (nonce, time) = (secret::<NONCE_BYTES>(), now.as_secs().to_be_bytes());
        let mac = self.mac(&[b"ticket", purpose.as_bytes(), token.as_bytes(), &nonce, &time, text.as_bytes()]);
        Base64UrlUnpadded::encode_string(&[&nonce[..], &time, &mac, text.as_bytes()].concat())
    }

    /// `tickets.bound`
    pub fn check(&self, given: &str, purpose: &str, token: &str, now: Duration) -> Option<Ticket> {
        if given.len() > 2 * TEXT_BYTES_MAX {
            return None;
        }
        let bytes = Base64UrlUnpadded::decode_vec(given).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let (time, rest) = rest.split_first_chunk::<TIME_BYTES>()?;
        let (mac, text) = rest.split_first_chunk::<MAC_BYTES>()?;
        let right = self.mac(&[b"ticket", purpose.as_bytes(), token.as_bytes(), nonce, time, text]);
        aws_lc_rs::constant_time::verify_slices_are_equal(mac, &right).ok()?;
        let drawn = Duration::from_secs(u64::from_be_bytes(*time));
        let is_good = now.saturating_sub(drawn) < GOOD_FOR && !self.used.lock().contains_key(nonce);
        is_good.then_some(())?;
        Some(Ticket { nonce: *nonce, text: String::from_utf8(text.to_vec()).ok()?, drawn })
    }

    /// `tickets.once`: whether this use is the first. Asked once all else about the answer is right.
    pub fn use_up(&self, ticket: &Ticket, from: IpAddr, now: Duration) -> bool {
        let mut used = self.used.lock();
        used.retain(|_, one| one.end > now);
        if used.contains_key(&ticket.nonce) {
            return false;
        }
        if used.len() >= USED_MAX {
            gives_way(&used).map(|nonce| used.remove(&nonce));
        }
        used.insert(ticket.nonce, Used { end: ticket.drawn + GOOD_FOR, network: network(from) });
        true
    }

    /// Random bytes that go with a ticket and are not in it.
    pub fn derived(&self, label: &str, ticket: &[u8; NONCE_BYTES]) -> String {
        Base64UrlUnpadded::encode_string(&self.mac(&[b"derived", label.as_bytes(), ticket]))
    }

    /// The nonce of a ticket that was drawn here.
    pub fn nonce_of(drawn: &str) -> [u8; NONCE_BYTES] {
        let bytes = Base64UrlUnpadded::decode_vec(drawn).unwrap_or_default();
        bytes.first_chunk().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn tickets_are_for_one_purpose_one_browser_one_time() {
        let tickets = Tickets::default();
        let (now, secs) = (Duration::from_secs(1000), Duration::from_secs);
        let drawn = tickets.draw("in", "cookie", "/+/me?a=\u{e4}", now);
        let ticket = tickets.check(&drawn, "in", "cookie", now).unwrap();
        assert_eq!((ticket.text.as_str(), ticket.nonce), ("/+/me?a=\u{e4}", Tickets::nonce_of(&drawn)));
        let good = |purpose, token, at| tickets.check(&drawn, purpose, token, at).is_some();
        assert!(good("in", "cookie", now + GOOD_FOR - secs(1)) && !good("in", "cookie", now + GOOD_FOR));
        assert!(!good("add", "cookie", now) && !good("in", "another", now) && !good("inc", "ookie", now));
        let mut cut = drawn.clone();
        cut.pop();
        for strange in [cut.as_str(), "", "AA", "=", &"A".repeat(100), &"A".repeat(9000), &format!("{drawn}A")] {
            assert_eq!(tickets.check(strange, "in", "cookie", now), None, "{strange}");
        }
        assert!(Tickets::default().check(&drawn, "in", "cookie", now).is_none(), "another run's");
        let use_up = || tickets.use_up(&ticket, HERE, now);
        assert!(use_up() && !use_up() && !good("in", "cookie", now));
        assert_ne!(tickets.derived("nonce", &ticket.nonce), tickets.derived("proof", &ticket.nonce));
    }

    /// A network that uses up many is the one that others do not feel.
    #[test]
    fn used_tickets_are_bounded_and_forgotten() {
        let tickets = Tickets::default();
        let at = |at: Duration| tickets.check(&tickets.draw("in", "c", "", at), "in", "c", at).unwrap();
        let (secs, many) = (Duration::from_secs, "2001:db8::7".parse().unwrap());
        let own = at(Duration::ZERO);
        assert!(tickets.use_up(&own, HERE, Duration::ZERO));
        for n in 0..2 * USED_MAX {
            let from = if n % 2 == 0 { many } else { "2001:db8::8".parse().unwrap() };
            assert!(tickets.use_up(&at(secs(1)), from, secs(1)));
        }
        assert_eq!(tickets.used.lock().len(), USED_MAX);
        assert!(!tickets.use_up(&own, HERE, secs(1)), "of another network, and older");
        assert!(tickets.use_up(&at(secs(1)), HERE, secs(1)));
        assert!(tickets.use_up(&at(GOOD_FOR + secs(1)), HERE, GOOD_FOR + secs(1)));
        assert_eq!(tickets.used.lock().len(), 1);
    }
}
