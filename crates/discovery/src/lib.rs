//! Being found on a local network: DNS-SD over multicast DNS (RFC 6762, 6763), which Finder, GNOME and Kodi ask, and
//! WS-Discovery (with the Devices Profile), which Explorer asks.
//!
//! - `discovery.private_only`: nothing is sent from or to an address outside private networks, of which link-local ones are none.
//! - `discovery.goodbye`: what was announced is taken back when it ends, so that nobody shows it any longer.
//! - `discovery.idle`: nothing is sent, and next to nothing woken, while nobody asks. Addresses are looked at once a minute.
//! - `discovery.answers_bounded`: requests are answered at a bounded rate and with bounded answers, and only those that are
//!   about this machine.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod announced;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod interfaces;
mod mdns;
mod wsd;

pub use announced::{Announced, Service};
pub use interfaces::{is_private, likely_address};

/// Announcements under way. Dropping it ends them without a goodbye; [`Discovery::stop`] says it.
#[derive(Default)]
pub struct Discovery {
    announced: Option<Announced>,
    mdns: Option<mdns::Mdns>,
    wsd: Option<wsd::Wsd>,
}

impl Discovery {
    /// Announces this from now on, and nothing else. The answer names what does not work.
    pub async fn set(&mut self, announced: Option<Announced>) -> Vec<String> {
        if self.announced == announced {
            return Vec::new();
        }
        let same_machine = |other: &Announced| {
            announced.as_ref().is_some_and(|new| (&new.name, &new.interfaces) == (&other.name, &other.interfaces))
        };
        if !self.announced.as_ref().is_some_and(same_machine) {
            self.stop().await;
        }
        let mut faults = Vec::new();
        if let Some(new) = announced.as_ref().filter(|new| !new.services.is_empty()) {
            if self.mdns.is_none() {
                match mdns::Mdns::start(&new.name, &new.interfaces) {
                    Ok(started) => self.mdns = Some(started),
                    Err(why) => faults.push(format!("nothing is announced by multicast DNS: {why}")),
                }
            }
            if let Some(mdns) = &mut self.mdns {
                faults.extend(mdns.set(&new.services).await);
            }
        } else if let Some(mdns) = self.mdns.take() {
            mdns.stop().await;
        }
        match announced.as_ref().filter(|new| new.windows) {
            Some(new) if self.wsd.is_none() => match wsd::Wsd::start(&new.name, new.uuid, &new.interfaces).await {
                Ok(started) => self.wsd = Some(started),
                Err(error) => faults.push(format!("nothing is announced to Explorer (WS-Discovery): {error}")),
            },
            Some(_) => {}
            None => {
                if let Some(wsd) = self.wsd.take() {
                    wsd.stop().await;
                }
            }
        }
        self.announced = announced;
        faults
    }

    /// Takes everything back (`discovery.goodbye`).
    pub async fn stop(&mut self) {
        self.announced = None;
        if let Some(mdns) = self.mdns.take() {
            mdns.stop().await;
        }
        if let Some(wsd) = self.wsd.take() {
            wsd.stop().await;
        }
    }
}
