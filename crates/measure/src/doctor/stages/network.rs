//! The wire, the window on it, and the client's own end.

use super::{Basis, Stage, StageKind};
use crate::doctor::describe::{Client, Described, Measured, Network, Path, What};
use crate::doctor::limits::Wire;

/// Two figures of one standard, one from its name and one measured, are so near to each other.
const SAME_WIRE: f64 = 0.95;

pub(super) fn network(described: &Described, measured: &Measured) -> Vec<Stage> {
    let Some(network) = described.network.as_ref().filter(|_| matches!(measured.path, Path::Share | Path::Net)) else {
        return Vec::new();
    };
    let name = match slower_rung(network) {
        Some(rung) => format!("{} (which runs at {})", network.name, rung.name),
        None => network.name.clone(),
    };
    let mut stages = vec![Stage::new(StageKind::Network, name, network.bytes_per_s, Basis::Given).per(measured)];
    if let (Some(window), Some(round_trip)) = (network.window_bytes, network.round_trip_s) {
        // RFC 7323: no more than one window is under way in a round trip.
        let connections = connections(measured);
        let capacity = connections * window as f64 / round_trip;
        let why = "TCP has at most one window of bytes under way (RFC 7323)";
        let name = match connections {
            1.0 => format!("{WINDOW} over the round trip"),
            n => format!("{WINDOW} of each of {n:.0} connections over the round trip"),
        };
        stages.push(Stage::new(StageKind::Latency, name, capacity, Basis::Derived).why(why).per(measured));
    }
    if let Some(client) = client_of(described, measured) {
        stages.extend(at_client(described, client, measured));
    }
    stages
}

/// How the stage of a TCP window begins.
pub(in crate::doctor) const WINDOW: &str = "the TCP window";

/// Of a wire alone those that were opened at once; requests over a share pass one.
fn connections(measured: &Measured) -> f64 {
    measured.how.in_flight.filter(|_| measured.path == Path::Net).unwrap_or(1.0)
}

/// So near to a standard's rate a wire alone is that standard.
const AT_RUNG: f64 = 0.92;

/// The lower standard that a network has by its figure, though it is of a higher one.
pub(in crate::doctor) fn slower_rung(network: &Network) -> Option<Wire> {
    let of = network.wire.as_ref()?;
    let at = |rung: &Wire| network.bytes_per_s >= rung.practical * AT_RUNG && network.bytes_per_s <= rung.line;
    of.rungs_below().into_iter().find(at)
}

/// The client that a measurement names; the only one there is.
pub(in crate::doctor) fn client_of<'a>(described: &'a Described, measured: &Measured) -> Option<&'a Client> {
    match (&measured.how.client, described.clients.as_slice()) {
        (Some(name), clients) => clients.iter().find(|c| c.name == *name),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
}

fn at_client(described: &Described, client: &Client, measured: &Measured) -> Vec<Stage> {
    let mut stages = Vec::new();
    // A card like the box's is the same wire.
    let narrower = |bytes: f64| described.network.as_ref().is_none_or(|n| bytes < n.bytes_per_s * SAME_WIRE);
    if let Some((name, bytes)) = client.network.as_ref().filter(|(_, bytes)| narrower(*bytes)) {
        stages.push(Stage::new(StageKind::Client, name.clone(), *bytes, Basis::Given).per(measured));
    }
    let disk = match measured.what {
        What::Read => client.disk_write,
        What::Write => client.disk_read,
        What::RandomRead | What::RandomWrite => None,
    };
    if let Some(bytes) = disk.filter(|_| measured.path == Path::Share) {
        let name = format!("the disk of {}, where the copy comes from or goes to", client.name);
        stages.push(Stage::new(StageKind::Client, name, bytes, Basis::Given));
    }
    stages
}
