//! The rig: the resources that bytes cross, by id.
//!
//! An id points into the description and carries no name. So a verdict does not change when something is renamed.

use serde::Serialize;

use super::table::Setup;
use crate::describe::limits::{Duplex, Wire};
use crate::describe::{Client, Described, Disk, Link, Network, Side, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    Server,
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "at")]
pub enum ResourceId {
    /// The disks of a measurement, put together as their layout does.
    Disks,
    /// A disk's own wire: the index of the disk.
    Port(usize),
    Link(usize),
    /// Something on the way that nobody described: it is shared by the disks, or between two faster things.
    UnknownLink,
    Network,
    /// One TCP connection: its window, and one core at each end.
    Connection,
    /// Requests that wait for one another.
    Requests,
    Processor(End),
    BothProcessors,
    /// Work of a processor for each byte: a cipher, a compressor.
    Work(usize),
    /// The client's network card, or its radio.
    ClientCard(usize),
    ClientDisk(usize),
    /// The client's program, settings or protocol.
    ClientSide,
    /// The cipher on the way or below: nobody knows at which end it is slow.
    Cipher,
}

/// The class that answers are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceKind {
    Disks,
    Link,
    Network,
    Waiting,
    Processor,
    Client,
    BothEnds,
}

/// A description seen as resources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rig<'a> {
    pub described: &'a Described,
}

impl<'a> Rig<'a> {
    pub(crate) fn new(described: &'a Described) -> Self {
        Self { described }
    }

    pub(crate) fn kind(&self, id: ResourceId) -> ResourceKind {
        match id {
            ResourceId::Disks => ResourceKind::Disks,
            ResourceId::Port(_) | ResourceId::Link(_) | ResourceId::UnknownLink => ResourceKind::Link,
            ResourceId::Network => ResourceKind::Network,
            ResourceId::Connection | ResourceId::Requests => ResourceKind::Waiting,
            ResourceId::Processor(End::Server) => ResourceKind::Processor,
            ResourceId::BothProcessors | ResourceId::Cipher => ResourceKind::BothEnds,
            ResourceId::Work(at) => match self.work(at).map(|work| work.at) {
                Some(Side::Client) => ResourceKind::Client,
                _ => ResourceKind::Processor,
            },
            ResourceId::Processor(End::Client)
            | ResourceId::ClientCard(_)
            | ResourceId::ClientDisk(_)
            | ResourceId::ClientSide => ResourceKind::Client,
        }
    }

    pub(crate) fn disk(&self, at: usize) -> Option<&'a Disk> {
        self.described.disks.get(at)
    }

    /// The disks of a setup, with their numbers.
    pub(crate) fn disks(&self, used: &[(usize, u32)]) -> Vec<(&'a Disk, u32)> {
        used.iter().filter_map(|(at, count)| Some((self.disk(*at)?, *count))).collect()
    }

    pub(crate) fn link(&self, at: usize) -> Option<&'a Link> {
        self.described.links.get(at)
    }

    pub(crate) fn work(&self, at: usize) -> Option<&'a Work> {
        self.described.work.get(at)
    }

    pub(crate) fn client(&self, at: Option<usize>) -> Option<&'a Client> {
        self.described.clients.get(at?)
    }

    pub(crate) fn network(&self) -> Option<&'a Network> {
        self.described.network.as_ref()
    }

    /// Whether several cables carry the network as one.
    pub(crate) fn is_bonded(&self) -> bool {
        self.network().is_some_and(|network| network.bonded)
    }

    pub(crate) fn is_half_duplex(&self) -> bool {
        self.network().and_then(|n| n.wire.as_ref()).is_some_and(|wire| wire.duplex == Duplex::Half)
    }

    /// Whether the network, or this client's way into it, is radio.
    pub(crate) fn is_radio(&self, client: Option<usize>) -> bool {
        let network = self.network().and_then(|n| n.wire.as_ref());
        let client = self.client(client).and_then(|client| client.wire.as_ref());
        [network, client].into_iter().flatten().any(Wire::is_air)
    }

    /// The client or program of one setup, named by what sets it apart from another.
    pub(crate) fn differing_side(&self, setup: &Setup, from: &Setup) -> Option<String> {
        let client = self.client(setup.client).filter(|_| setup.client != from.client).map(|c| c.name.clone());
        let program = setup.program.clone().filter(|_| setup.program != from.program);
        match (client, program) {
            (Some(client), Some(program)) => Some(format!("{client} ({program})")),
            (client, program) => client.or(program),
        }
    }

    /// The name that a person gave, for what is shown.
    pub(crate) fn name(&self, id: ResourceId) -> String {
        let client = |at: usize| self.client(Some(at)).map_or("the client", |client| client.name.as_str());
        match id {
            ResourceId::Disks => "the disks".to_owned(),
            ResourceId::Port(at) => {
                let disk = self.disk(at);
                let wire = disk.and_then(|disk| disk.connection.as_ref()).map_or("own", |wire| wire.name.as_str());
                format!("the {wire} port of {}", disk.map_or("the disk", |disk| disk.name.as_str()))
            }
            ResourceId::Link(at) => self.link(at).map_or("a link", |link| link.name.as_str()).to_owned(),
            ResourceId::UnknownLink => "an adapter, dock or port that is not described".to_owned(),
            ResourceId::Network => self.network().map_or("the network", |n| n.name.as_str()).to_owned(),
            ResourceId::Connection => "a single TCP connection".to_owned(),
            ResourceId::Requests => "requests that wait for one another".to_owned(),
            ResourceId::Processor(End::Server) => "the server's processor".to_owned(),
            ResourceId::Processor(End::Client) => "the client's processor".to_owned(),
            ResourceId::BothProcessors => "the processors of both ends".to_owned(),
            ResourceId::Work(at) => self.work(at).map_or("a processor's work", |work| work.name.as_str()).to_owned(),
            ResourceId::ClientCard(at) => format!("the network card of {}", client(at)),
            ResourceId::ClientDisk(at) => format!("the disk of {}", client(at)),
            ResourceId::ClientSide => "the client's program or settings".to_owned(),
            ResourceId::Cipher => "the encryption".to_owned(),
        }
    }
}
