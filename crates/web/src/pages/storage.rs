//! Pools with their disks, and volumes.

use askama::Template;
use larder_api::endpoints::{ClearPool, CreateVolume, GetPools, GetPoolsKnown, GetVolumes, ScrubPool};
use larder_api::{Failure, PoolStatus, ScrubRequest, VolumeChange, VolumeCreate, VolumeStatus};
use larder_base::units::ByteSize;

use super::keys;
use super::pools::{PoolView, PoolWatch};
use crate::live;
use crate::note::Note;
use crate::role::Act;
use crate::text::size;
use crate::visit::{Answer, Frame, Local, Visit, page as show, rendered};

#[derive(Template)]
#[template(path = "parts/pools.html")]
struct Pools {
    pools: Vec<PoolView>,
    csrf: String,
    changes: bool,
}

pub struct VolumeView {
    pub name: String,
    pub href: String,
    pub used: String,
    pub stored: String,
    pub ratio: String,
    pub quota: String,
    pub traits: Vec<String>,
}

impl VolumeView {
    fn of(volume: &VolumeStatus) -> Self {
        let name = format!("{}/{}", volume.pool, volume.name);
        let or_dash = |bytes: Option<u64>| bytes.map_or_else(|| "\u{2013}".to_owned(), size);
        Self {
            href: Local::with("/volume", "name", &name).path().to_owned(),
            name,
            used: or_dash(volume.used_bytes),
            stored: or_dash(volume.stored_bytes),
            ratio: volume.compression_ratio.map_or_else(|| "\u{2013}".to_owned(), |ratio| format!("{ratio:.2}")),
            quota: or_dash(volume.quota_bytes),
            traits: traits(volume),
        }
    }
}

/// What is particular about a volume, in words.
pub fn traits(volume: &VolumeStatus) -> Vec<String> {
    let encrypted = volume.encryption.as_ref().map(|_| if volume.locked { "locked" } else { "encrypted" });
    let replica = (volume.replica).then_some("replica");
    let copy = volume.copy.then_some("copy");
    let origin = volume.origin.as_ref().map(|origin| format!("clone of {origin}"));
    [encrypted, replica, copy].into_iter().flatten().map(str::to_owned).chain(origin).collect()
}

#[derive(Template)]
#[template(path = "storage.html")]
struct StoragePage {
    frame: Frame,
    pools: String,
    pool_names: Vec<String>,
    volumes: Vec<VolumeView>,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let pools = visit.ask(GetPoolsKnown).await?;
    let volumes = visit.ask(GetVolumes).await?;
    let frame = visit.frame("storage", "Storage");
    show(&StoragePage {
        pools: drawn(&pools, &frame.csrf, frame.changes_storage())?,
        frame,
        pool_names: pools.iter().map(|pool| pool.name.clone()).collect(),
        volumes: volumes.iter().map(VolumeView::of).collect(),
    })
}

fn drawn(pools: &[PoolStatus], csrf: &str, changes: bool) -> Result<String, Failure> {
    rendered(&Pools { pools: pools.iter().map(PoolView::of).collect(), csrf: csrf.to_owned(), changes })
}

pub async fn live(visit: &Visit<'_>) -> Answer {
    let csrf = visit.session.as_ref().map(|session| session.csrf.clone()).unwrap_or_default();
    let changes = visit.may(Act::ChangeStorage);
    live::stream(visit, PoolWatch::new(move |pools| drawn(pools, &csrf, changes)))
}

/// What is shown is known from memory; this looks at the disks, and wakes those that sleep.
pub async fn look(visit: &Visit<'_>) -> Answer {
    let looked = visit.ask(GetPools).await.map(|_| Note::done("The disks were looked at."));
    visit.back(Local::of("/storage"), looked)
}

pub async fn scrub(visit: &Visit<'_>) -> Answer {
    let change = async {
        let pool = visit.required("pool", "the pool")?;
        let action = visit.form.text("action").to_owned();
        let done = match action.as_str() {
            "start" => "The scrub runs.",
            "pause" => "The scrub is paused.",
            "stop" => "The scrub was stopped.",
            _ => return Err(Failure::invalid("a scrub is started, paused or stopped")),
        };
        visit.call(ScrubPool, &pool, &ScrubRequest { action }).await?;
        Ok(Note::done(done))
    };
    visit.back(Local::of("/storage"), change.await)
}

pub async fn clear(visit: &Visit<'_>) -> Answer {
    let change = async {
        let pool = visit.required("pool", "the pool")?;
        visit.about(ClearPool, &pool).await?;
        Ok(Note::done(format!("The error counters of {pool} are zero again.")))
    };
    visit.back(Local::of("/storage"), change.await)
}

/// A size that a person wrote; nothing: none. A number alone would be bytes, and hardly anybody means those.
pub fn size_of(text: &str) -> Result<Option<u64>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let is_bare = |c: char| c.is_ascii_digit() || matches!(c, '.' | ' ');
    if text.chars().all(is_bare) && text.contains(|c| matches!(c, '1'..='9')) {
        let number = text.trim();
        return Err(Failure::invalid(format!("'{number}' has no unit"))
            .action(format!("Write {number}G, {number}T, or {number}B for bytes")));
    }
    text.parse::<ByteSize>().map(|bytes| Some(bytes.0)).map_err(|e| Failure::invalid(e.to_string()))
}

/// A size as a form shows it: exactly, and with its unit.
pub fn size_text(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| format!("{bytes}B"), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

pub async fn create_volume(visit: &Visit<'_>) -> Answer {
    let change = async {
        let name = visit.required("name", "the name of the volume")?;
        let properties = VolumeChange {
            quota_bytes: size_of(visit.form.text("quota"))?,
            compression: visit.form.filled("compression"),
            ..VolumeChange::default()
        };
        let share = visit.form.is_checked("share");
        let encrypt = visit.form.is_checked("encrypt").then(|| keys::encrypt_of(visit)).transpose()?;
        let request = VolumeCreate { pool: visit.form.filled("pool"), name, properties, share, encrypt };
        visit.call(CreateVolume, (), &request).await
    };
    match change.await {
        Ok(VolumeStatus { pool, name, recovery_key: Some(key), .. }) => {
            keys::show_recovery(visit, format!("{pool}/{name}"), key)
        }
        Ok(volume) => {
            let note = Note::done(format!("The volume {}/{} is there.", volume.pool, volume.name));
            visit.back(Local::of("/storage"), Ok(note))
        }
        Err(failure) => visit.back(Local::of("/storage"), Err(failure)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_size_has_a_unit() {
        let check = |text: &str, bytes: Option<u64>| assert_eq!(size_of(text).unwrap(), bytes, "{text}");
        check("", None);
        check("0", Some(0));
        check("500G", Some(500 << 30));
        check("1.5 TB", Some(1_500_000_000_000));
        check("500B", Some(500));
        for bare in ["500", "1.5", " 7 "] {
            let refused = size_of(bare).unwrap_err();
            assert!(refused.message.contains("no unit") && refused.action.unwrap().contains("G, "), "{bare}");
        }
        assert!(size_of("many").is_err());
        for bytes in [0, 1, 500, 1023, 1 << 10, 5 << 30, (5 << 30) + 1, 3 << 40, u64::MAX] {
            assert_eq!(size_of(&size_text(bytes)).unwrap(), Some(bytes));
        }
    }
}
