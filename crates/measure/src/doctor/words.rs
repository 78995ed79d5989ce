//! Figures and ways in words.

use super::describe::{Measured, Path, What};

pub(super) fn path_words(measured: &Measured) -> String {
    let what = match measured.what {
        What::Read => "reading",
        What::Write => "writing",
        What::RandomRead => "random reading",
        What::RandomWrite => "random writing",
    };
    let disks: Vec<String> = measured.disks.iter().map(|(name, n)| format!("{n} x {name}")).collect();
    let disks = if disks.is_empty() { "all disks".to_owned() } else { disks.join(" and ") };
    match (measured.path, measured.what) {
        (Path::Disks, _) => format!("{what} {disks} side by side").replace(" 1 x ", " ").replace(
            " side by side",
            if measured.disks.len() == 1 && measured.disks.first().is_some_and(|(_, n)| *n == 1) {
                " by itself"
            } else {
                " side by side"
            },
        ),
        (Path::Local, _) => format!("{what} on the machine itself"),
        (Path::Net, w) if w.writes() => "the wire alone, from the client".to_owned(),
        (Path::Net, _) => "the wire alone, to the client".to_owned(),
        (Path::Share, _) => match &measured.how.client {
            Some(client) => format!("{what} over the network with {client}"),
            None => format!("{what} over the network"),
        },
    }
}

/// With the server's name, where both ends have one.
pub(super) fn processor(measured: &Measured) -> String {
    measured.how.ends.as_ref().map_or("the processor".to_owned(), |ends| format!("the processor of {}", ends.server))
}

pub(super) fn client_processor(measured: &Measured) -> String {
    let name = measured.how.ends.as_ref().map_or(String::new(), |ends| format!(" ({})", ends.client));
    format!("the client's processor{name}")
}

/// MB/s as bench tools write them, or operations.
pub fn rate_words(rate: f64, what: What) -> String {
    match what.is_random() {
        true if rate >= 1e3 => format!("{:.1}k operations/s", rate / 1e3),
        true => format!("{rate:.0} operations/s"),
        false => bytes_words(rate),
    }
}

pub fn bytes_words(rate: f64) -> String {
    match rate {
        r if r >= 1e9 => format!("{:.2} GB/s", r / 1e9),
        r if r >= 9.95e6 => format!("{:.0} MB/s", r / 1e6),
        r if r >= 0.95e6 => format!("{:.1} MB/s", r / 1e6),
        r => format!("{:.0} kB/s", r / 1e3),
    }
}
