//! Shares: a URL through a client of our own, a mounted one with fio.

use std::collections::BTreeMap;
use std::net::{ToSocketAddrs, UdpSocket};
use std::path::Path;

use larder_base::units::ByteSize;

use super::super::far::is_same_host;
use super::super::ground::Ground;
use super::super::plan::{Plan, Preset};
use super::super::result::{Caches, ENCRYPTION, Layer, Note};
use super::super::runner::{Runner, Spec};
use super::{Bench, ShareTarget, client, is_root};
use larder_load::BenchError;
use larder_load::Scratch;
use larder_load::{ClientLoad, Load};
use larder_load::{LocalLoad, Place};

/// With less there is nothing to measure.
const ROOM_BYTES_MIN: u64 = 16 << 20;
/// On a server that does not tell its free space, unless a person says how much.
const BLIND_BYTES: u64 = 4 << 30;

/// Nobody's NAS is filled by a bench. What a person asks for, the client refuses where there is no room for it.
pub(super) fn room(wanted: u64, free_bytes: Option<u64>, asked_for: bool) -> Result<(u64, Option<Note>), BenchError> {
    // Whole MiB, so that block sizes divide it.
    let most = free_bytes.map_or(BLIND_BYTES, |free| free / 2) >> 20 << 20;
    if asked_for || wanted <= most {
        return Ok((wanted, None));
    }
    if most < ROOM_BYTES_MIN {
        let what = format!("{} free are too little: half of it stays", ByteSize(free_bytes.unwrap_or(0)));
        return Err(BenchError::invalid(what, "free some space there"));
    }
    let why = match free_bytes {
        Some(free) => format!("the share has {} free, and half of it stays", ByteSize(free)),
        None => "the server does not tell how much is free; --size gives more".to_owned(),
    };
    let text = format!("{} of data, not {}: {why}", ByteSize(most), ByteSize(wanted));
    Ok((most, Some(Note { code: "less-data".to_owned(), text, misleading: false })))
}

/// The properties that every run of a share has in common.
struct Share {
    subject: String,
    caches: Caches,
    variant: BTreeMap<String, String>,
    notes: Vec<Note>,
    /// Whether the far end that is watched serves it.
    far: bool,
    /// Whether this machine does.
    here: Option<bool>,
}

impl Bench<'_> {
    pub(super) fn share(&self, runner: &mut Runner, target: &ShareTarget) -> Result<(), BenchError> {
        match target {
            ShareTarget::Mount(folder) => self.mounted_share(runner, folder),
            ShareTarget::Url(url) => self.url(runner, url),
        }
    }

    fn mounted_share(&self, runner: &mut Runner, folder: &Path) -> Result<(), BenchError> {
        let plan = self.storage_plan();
        let ground = Ground::of(self.machine, folder)?;
        let (data_bytes, less) = ground.room(plan.data_bytes, self.size_given(), 1)?;
        let place = Place::Folder(Scratch::make(self.machine, &ground.folder, runner.control)?);
        let mut load = LocalLoad::new(self.machine, vec![&place], "mount")?;
        let (caches, note) = ground.caches(load.is_direct(), is_root(), data_bytes, self.memory_bytes);
        let mut notes: Vec<Note> = ground.notes().into_iter().chain(less).chain(note).collect();
        let text = format!(
            "{} is {} from {} ({})",
            folder.display(),
            ground.filesystem,
            ground.source,
            ground.options.join(",")
        );
        notes.push(Note { code: "mounted".to_owned(), text, misleading: false });
        let mut variant = self.labelled("access", &format!("mount {}", ground.filesystem));
        if plan.preset == Preset::Encryption {
            variant.entry(ENCRYPTION.to_owned()).or_insert_with(|| self.encryption_of(&ground));
        }
        let plan = Plan { data_bytes, ..plan };
        let far = self.served_by_far_end(runner, &folder.display().to_string(), server_of(&ground.source));
        let here = match server_of(&ground.source) {
            Some(server) => is_this_machine(server),
            None => (!ground.is_network()).then_some(true),
        };
        let share = Share { subject: folder.display().to_string(), caches, variant, notes, far, here };
        self.measure_share(runner, &mut load, &plan, &share)
    }

    fn url(&self, runner: &mut Runner, url: &str) -> Result<(), BenchError> {
        let opened = self.client(url)?;
        let plan = self.storage_plan();
        let (data_bytes, less) = room(plan.data_bytes, opened.free_bytes(), self.size_given())?;
        let plan = Plan { data_bytes, ..plan };
        let subject = client::shown_url(url);
        let reached = Note { code: "reached".to_owned(), text: opened.describe(), misleading: false };
        let mut variant = self.request.labels.clone();
        if plan.preset == Preset::Encryption {
            variant.entry(ENCRYPTION.to_owned()).or_insert_with(|| opened.encryption());
        }
        let mut load = ClientLoad::new(opened);
        let text = "what the server has in memory is not known here: only data of twice its memory shows its disks";
        let text = text.to_owned();
        let server = Note { code: "server-memory".to_owned(), text, misleading: false };
        let notes = [reached, server].into_iter().chain(less).collect();
        let far = self.served_by_far_end(runner, &subject, client::host_of(url).as_deref());
        let here = client::host_of(url).and_then(|server| is_this_machine(&server));
        let share = Share { subject: subject.clone(), caches: Caches::Unknown, variant, notes, far, here };
        let measured = self.measure_share(runner, &mut load, &plan, &share);
        let cleaned = load.clean_up();
        match measured {
            // A person who reads that the bench was stopped takes its files for removed.
            Err(BenchError::Stopped) => {
                if cleaned.is_err() {
                    let text =
                        format!("what was written to {subject} may still be there: the next bench of it removes it");
                    runner.note(Note { code: "left-behind".to_owned(), text, misleading: false });
                }
                cleaned.and(Err(BenchError::Stopped))
            }
            measured => measured.and(cleaned),
        }
    }

    /// A share of another machine than the one that is watched says nothing of it.
    fn served_by_far_end(&self, runner: &mut Runner, subject: &str, server: Option<&str>) -> bool {
        let Some(end) = &self.request.subjects.far else { return false };
        let served = server.is_some_and(|server| is_same_host(server, &end.name));
        if !served {
            let server = server.map_or_else(|| "nobody knows where".to_owned(), |server| format!("at {server}"));
            let text = format!(
                "{subject} is {server}, not at {}: the machine that serves it was not watched. To have it: --host with its name",
                end.name
            );
            runner.note(Note { code: "far-end-elsewhere".to_owned(), text, misleading: false });
        }
        served
    }

    fn measure_share(
        &self,
        runner: &mut Runner,
        load: &mut dyn Load,
        plan: &Plan,
        share: &Share,
    ) -> Result<(), BenchError> {
        let before = runner.runs.len();
        for shape in &plan.shapes {
            let mut workload = plan.workload(shape);
            workload.caches = super::disks::caches_of(shape.kind, share.caches);
            let spec = Spec {
                layer: Layer::Share,
                subject: share.subject.clone(),
                variant: share.variant.clone(),
                workload,
                limits: plan.limits(),
                repeats: plan.repeats,
                notes: share.notes.clone(),
                far: share.far,
            };
            let ended = runner.measure(load, spec);
            runner.runs.iter_mut().skip(before).for_each(|run| run.here = share.here);
            ended?;
        }
        Ok(())
    }
}

/// Whether a server's name or address is one of ours: only those can be bound to. `None`: nobody knows the name.
fn is_this_machine(server: &str) -> Option<bool> {
    let host = server.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<_> = (host, 0).to_socket_addrs().ok()?.collect();
    Some(addresses.iter().any(|address| UdpSocket::bind((address.ip(), 0)).is_ok()))
}

/// Of `nas:/export`, `//nas/share`, `me@nas:/folder` and `[::1]:/export`, as they stand in mountinfo.
fn server_of(source: &str) -> Option<&str> {
    let place = match source.strip_prefix("//") {
        Some(rest) => rest.split('/').next()?,
        None => source.split_once(":/")?.0,
    };
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let place = place.strip_prefix('[').and_then(|p| p.strip_suffix(']')).unwrap_or(place);
    (!place.is_empty()).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_names_its_server() {
        for (source, server) in [
            ("nas:/export/data", Some("nas")),
            ("//nas.lan/share", Some("nas.lan")),
            ("me@10.0.0.2:/srv", Some("10.0.0.2")),
            ("[fd00::2]:/", Some("fd00::2")),
            ("/dev/sda1", None),
            ("rclone", None),
            ("//", None),
        ] {
            assert_eq!(server_of(source), server, "{source}");
        }
    }

    #[test]
    fn own_addresses_are_known() {
        for (server, here) in [
            ("127.0.0.1", true),
            ("localhost", true),
            ("[::ffff:127.0.0.1]", true),
            ("192.0.2.7", false),
            ("2001:db8::7", false),
        ] {
            assert_eq!(is_this_machine(server), Some(here), "{server}");
        }
        assert_eq!(is_this_machine("no such name"), None);
    }

    #[test]
    fn a_share_is_not_filled() {
        const GIB: u64 = 1 << 30;
        for (wanted, free, asked_for, data) in [
            (32 * GIB, None, false, 4 * GIB),
            (32 * GIB, None, true, 32 * GIB),
            (GIB, None, false, GIB),
            (32 * GIB, Some(100 * GIB), false, 32 * GIB),
            (32 * GIB, Some(10 * GIB), false, 5 * GIB),
            (32 * GIB, Some(10 * GIB), true, 32 * GIB),
        ] {
            let (found, note) = room(wanted, free, asked_for).unwrap();
            assert_eq!((found, note.is_some()), (data, found != wanted), "{wanted} {free:?} {asked_for}");
        }
        let full = room(GIB, Some(4096), false).unwrap_err();
        assert!(full.to_string().contains("4.00 KiB free are too little"), "{full}");
    }
}
