//! Whether a store has what larder needs of it: each thing is tried, and named where it is missing.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

use crate::names::probe_folder;
use larder_base::boxed;

/// Parts of an upload, but for the last, have this length at least.
const PART_BYTES: usize = 5 << 20;
const ROUNDS: usize = 8;
/// A condition that is looked at first and acted on later lets two of so many writers pass, at least once in so many races.
const WRITERS: usize = 16;
const RACES: usize = 4;
/// Slower than this a write that is waited for is a nuisance.
const SLOW: Duration = Duration::from_millis(200);
/// Signatures are refused beyond a quarter of an hour; long before, times of files look odd.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);

/// How a probe went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeState {
    /// As it has to be.
    Ok,
    /// It works, and a person should know.
    Warn,
    /// Larder does not work on this store.
    Missing,
}

/// One thing that was tried.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What larder needs.
    pub name: &'static str,
    /// How it went.
    pub state: ProbeState,
    /// What was seen.
    pub seen: String,
}

type Outcome = Result<(ProbeState, String), String>;

struct Checker {
    store: Arc<dyn ObjectStore>,
    folder: Path,
    probes: Vec<Probe>,
}

/// Tries everything in a folder of its own, which is removed afterwards. Ends early if the store cannot be written to.
#[boxed]
pub async fn check(store: Arc<dyn ObjectStore>) -> Vec<Probe> {
    let folder = probe_folder(&uuid::Uuid::new_v4().simple().to_string());
    let mut checker = Checker { store, folder, probes: Vec::new() };
    // First: a server that refuses for the clock refuses all else, and keys and rights are then looked at in vain.
    let outcome = checker.clock().await;
    if !checker.add("clock", outcome) {
        return checker.probes;
    }
    let outcome = checker.read_after_write().await;
    if !checker.add("read after write", outcome) {
        return checker.probes;
    }
    let outcome = checker.create().await;
    checker.add("conditional create", outcome);
    let outcome = checker.update().await;
    checker.add("conditional update", outcome);
    let outcome = checker.ranges().await;
    checker.add("ranges", outcome);
    let outcome = checker.order().await;
    checker.add("listing order", outcome);
    let outcome = checker.attributes().await;
    checker.add("object metadata", outcome);
    let outcome = checker.multipart().await;
    checker.add("multipart upload", outcome);
    let outcome = checker.delete().await;
    checker.add("bulk delete", outcome);
    let outcome = checker.old_versions().await;
    checker.add("old versions", outcome);
    let outcome = checker.latency().await;
    checker.add("latency", outcome);
    checker.clean().await;
    checker.probes
}

fn said(error: Error) -> String {
    error.to_string()
}

/// What S3 and its likes answer where the time of a request is too far from theirs.
fn is_for_clock(said: &str) -> bool {
    ["RequestTimeTooSkewed", "RequestExpired"].iter().any(|code| said.contains(code))
}

/// With the server's time, where it says so.
fn refused_for_clock(said: &str, here: SystemTime) -> String {
    let server = said.split("<ServerTime>").nth(1).and_then(|rest| rest.split('<').next());
    let there = server.and_then(|text| chrono::DateTime::parse_from_rfc3339(text.trim()).ok()).map(SystemTime::from);
    let apart = there.map(|there| match here.duration_since(there) {
        Ok(ahead) => format!("{} ahead of", words(ahead)),
        Err(behind) => format!("{} behind", words(behind.duration())),
    });
    let apart = apart.unwrap_or_else(|| "far from".to_owned());
    format!("this machine's clock is {apart} the store's, which refuses every request for that: set the clock")
}

fn words(span: Duration) -> String {
    match span.as_secs() {
        secs @ 0..7200 => format!("{} min", secs / 60),
        secs @ 7200..172_800 => format!("{} hours", secs / 3600),
        secs => format!("{} days", secs / 86_400),
    }
}

fn ok(seen: impl Into<String>) -> Outcome {
    Ok((ProbeState::Ok, seen.into()))
}

impl Checker {
    /// Whether it is there.
    fn add(&mut self, name: &'static str, outcome: Outcome) -> bool {
        let (state, seen) = outcome.unwrap_or_else(|why| (ProbeState::Missing, why));
        self.probes.push(Probe { name, state, seen });
        state != ProbeState::Missing
    }

    fn at(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    async fn bytes(&self, at: &Path) -> Result<Bytes, String> {
        self.store.get(at).await.map_err(said)?.bytes().await.map_err(said)
    }

    async fn read_after_write(&self) -> Outcome {
        let at = self.at("write");
        for round in 0..ROUNDS {
            let text = format!("round {round}");
            self.store.put(&at, text.clone().into()).await.map_err(said)?;
            let read = self.bytes(&at).await?;
            if read != text {
                return Err(format!("write {round} of an object was not what was read right after it"));
            }
        }
        self.store.delete(&at).await.map_err(said)?;
        match self.store.head(&at).await {
            Err(Error::NotFound { .. }) => ok("seen at once, also overwritten and deleted"),
            Ok(_) => Err("an object was still there right after it was deleted".into()),
            Err(error) => Err(said(error)),
        }
    }

    async fn create(&self) -> Outcome {
        for round in 0..RACES {
            self.race(&self.at(&format!("create{round}")), &PutMode::Create, "If-None-Match").await?;
        }
        ok(format!("one of {WRITERS} writers at once won, {RACES} times, and the others were told"))
    }

    async fn update(&self) -> Outcome {
        let at = self.at("update");
        let first = self.store.put(&at, "first".into()).await.map_err(said)?;
        let first = UpdateVersion { e_tag: first.e_tag, version: first.version };
        if first.e_tag.is_none() {
            return Err("a write is answered without an ETag".into());
        }
        let mut version = first.clone();
        for _ in 0..RACES {
            version = self.race(&at, &PutMode::Update(version), "If-Match").await?;
        }
        match self.store.put_opts(&at, "stale".into(), PutMode::Update(first).into()).await {
            Err(Error::Precondition { .. }) => {}
            Ok(_) => return Err("a write under an old ETag succeeded: If-Match is ignored".into()),
            Err(error) => return Err(said(error)),
        }
        let put = self.store.put_opts(&at, "last".into(), PutMode::Update(version).into()).await;
        put.map_err(said)?;
        match self.bytes(&at).await? == "last" {
            true => ok(format!("one of {WRITERS} writers at once won, {RACES} times; a stale writer is told")),
            false => Err("the object is not what was written last".into()),
        }
    }

    /// Writers that all may replace the same thing, at once: one does, and the object is its own. Its version.
    async fn race(&self, at: &Path, mode: &PutMode, header: &str) -> Result<UpdateVersion, String> {
        // No race writes what another one wrote: equal content has an equal ETag, and then a second writer is right to succeed.
        let race = uuid::Uuid::new_v4().simple().to_string();
        let put = |n: usize| self.store.put_opts(at, format!("race {race}, writer {n}").into(), mode.clone().into());
        let all = futures::future::join_all((0..WRITERS).map(put)).await;
        let mut won = None;
        for (n, outcome) in all.into_iter().enumerate() {
            match outcome {
                Ok(_) if won.is_some() => {
                    return Err(format!("two writers at once both succeeded: {header} is ignored, or not atomic"));
                }
                Ok(put) => won = Some((n, UpdateVersion { e_tag: put.e_tag, version: put.version })),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                Err(error) => return Err(said(error)),
            }
        }
        let Some((won, version)) = won else { return Err("no writer of several succeeded".into()) };
        match self.bytes(at).await? == format!("race {race}, writer {won}") {
            true => Ok(version),
            false => Err("the object is not that of the writer who was told that it succeeded".into()),
        }
    }

    async fn ranges(&self) -> Outcome {
        let at = self.at("ranges");
        let data: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        self.store.put(&at, data.clone().into()).await.map_err(said)?;
        for (range, want) in [
            (GetRange::Bounded(70_000..70_100), &data[70_000..70_100]),
            (GetRange::Offset(99_990), &data[99_990..]),
            (GetRange::Suffix(7), &data[99_993..]),
            (GetRange::Bounded(99_990..200_000), &data[99_990..]),
        ] {
            let options = GetOptions { range: Some(range.clone()), ..GetOptions::default() };
            let read = self.store.get_opts(&at, options).await.map_err(said)?.bytes().await.map_err(said)?;
            if read != want {
                return Err(format!("the range {range} of an object was answered with other bytes"));
            }
        }
        ok("bounded, from an offset, the end")
    }

    async fn order(&self) -> Outcome {
        let folder = self.at("order");
        let names = ["b", "a", "c-1", "c", "c0", "B"];
        for name in names {
            self.store.put(&folder.clone().join(name), "x".into()).await.map_err(said)?;
        }
        let list = async |after: Option<Path>| -> Result<Vec<String>, String> {
            let found = match after {
                Some(after) => self.store.list_with_offset(Some(&folder), &after),
                None => self.store.list(Some(&folder)),
            };
            let found: Vec<_> = found.try_collect().await.map_err(said)?;
            Ok(found.iter().filter_map(|object| Some(object.location.filename()?.to_owned())).collect())
        };
        let mut want: Vec<String> = names.map(str::to_owned).to_vec();
        want.sort();
        let all = list(None).await?;
        if all != want {
            return Err(format!("listed {} where {} is in order", all.join(" "), want.join(" ")));
        }
        let after = list(Some(folder.clone().join("b"))).await?;
        match after == want[want.len() - 3..] {
            true => ok("by bytes, complete right after writing, also from a name on"),
            false => Err(format!("listed {} after 'b'", after.join(" "))),
        }
    }

    async fn attributes(&self) -> Outcome {
        let at = self.at("metadata");
        let name = Attribute::Metadata("larder-check".into());
        let attributes = Attributes::from_iter([(name.clone(), "kept")]);
        let options = PutOptions { attributes, mode: PutMode::Create, ..PutOptions::default() };
        self.store.put_opts(&at, "x".into(), options).await.map_err(said)?;
        let head = GetOptions { head: true, ..GetOptions::default() };
        let there = self.store.get_opts(&at, head).await.map_err(said)?;
        match there.attributes.get(&name).map(|value| &**value) {
            Some("kept") => ok("kept"),
            _ => Err("what was said beside an object (x-amz-meta-) is not kept".into()),
        }
    }

    async fn multipart(&self) -> Outcome {
        let at = self.at("multipart");
        let mut upload = self.store.put_multipart(&at).await.map_err(said)?;
        let first = upload.put_part(PutPayload::from(vec![1; PART_BYTES]));
        let last = upload.put_part(PutPayload::from(vec![2; 1000]));
        let (first, last) = futures::join!(first, last);
        first.and(last).map_err(said)?;
        upload.complete().await.map_err(said)?;
        let meta = self.store.head(&at).await.map_err(said)?;
        let end = self.store.get_range(&at, PART_BYTES as u64 - 1..PART_BYTES as u64 + 1).await.map_err(said)?;
        match meta.size == PART_BYTES as u64 + 1000 && end[..] == [1, 2] {
            true => ok("two parts, 5 MiB and the rest"),
            false => Err("an object that was uploaded in parts is not what was sent".into()),
        }
    }

    async fn delete(&self) -> Outcome {
        let folder = self.at("order");
        let paths: Vec<_> = self.store.list(Some(&folder)).map_ok(|object| object.location).collect().await;
        let count = paths.len();
        let gone: Vec<_> =
            self.store.delete_stream(futures::stream::iter(paths).boxed()).try_collect().await.map_err(said)?;
        let left = self.store.list(Some(&folder)).count().await;
        match gone.len() == count && left == 0 {
            true => ok(format!("{count} objects")),
            false => Err(format!("{left} of {count} objects were still listed after they were deleted")),
        }
    }

    /// A bucket with versions, or with object lock, works; but nothing that is deleted goes away.
    async fn old_versions(&self) -> Outcome {
        let put = self.store.put(&self.at("versions"), "x".into()).await.map_err(said)?;
        match put.version {
            None => ok("none are kept"),
            Some(_) => Ok((
                ProbeState::Warn,
                "kept: what larder deletes stays in the bucket, and on the bill, until a lifecycle rule expires noncurrent versions"
                    .into(),
            )),
        }
    }

    async fn latency(&self) -> Outcome {
        let at = self.at("latency");
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let begun = Instant::now();
            self.store.put(&at, vec![round as u8; 4096].into()).await.map_err(said)?;
            writes.push(begun.elapsed());
            let begun = Instant::now();
            self.bytes(&at).await?;
            reads.push(begun.elapsed());
        }
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or_default()
        };
        let (write, read) = (median(&mut writes), median(&mut reads));
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let seen = format!("4 KiB written in {:.1} ms, read in {:.1} ms (median of {ROUNDS})", ms(write), ms(read));
        match write > SLOW {
            true => Ok((ProbeState::Warn, format!("{seen}: each change that a client waits for takes that long"))),
            false => ok(seen),
        }
    }

    async fn clock(&self) -> Outcome {
        let at = self.at("clock");
        let before = SystemTime::now();
        if let Err(error) = self.store.put(&at, "x".into()).await {
            let said = said(error);
            return match is_for_clock(&said) {
                true => Err(refused_for_clock(&said, before)),
                // Another probe says why.
                false => Ok((ProbeState::Warn, "it is not known: the store cannot be written to".to_owned())),
            };
        }
        let meta = self.store.head(&at).await.map_err(said)?;
        let there: SystemTime = meta.last_modified.into();
        let apart = there.duration_since(before).unwrap_or_else(|error| error.duration());
        // Times of objects come in whole seconds.
        if apart > CLOCK_SKEW_MAX {
            let seen = format!("{} s apart: set the clock of this machine, or of the store", apart.as_secs());
            return Ok((ProbeState::Warn, seen));
        }
        ok(format!("within {} s", apart.as_secs() + 1))
    }

    /// What is left costs next to nothing and harms nobody.
    async fn clean(&self) {
        let paths = self.store.list(Some(&self.folder)).map_ok(|object| object.location).boxed();
        let _ = self.store.delete_stream(paths).collect::<Vec<_>>().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_refusal_for_the_clock_says_how_far() {
        let said = "Error: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code><RequestTime>20271128T100000Z</RequestTime>\
                    <ServerTime>2026-11-28T10:00:00Z</ServerTime></Error>";
        assert!(is_for_clock(said) && !is_for_clock("403 Forbidden: AccessDenied"));
        let at = |text: &str| SystemTime::from(chrono::DateTime::parse_from_rfc3339(text).unwrap());
        let told = |here| refused_for_clock(said, at(here));
        assert!(told("2027-11-28T10:00:00Z").starts_with("this machine's clock is 365 days ahead of the store's"));
        assert!(told("2026-11-28T08:00:00Z").starts_with("this machine's clock is 2 hours behind the store's"));
        assert!(refused_for_clock("RequestTimeTooSkewed", at("2026-11-28T08:00:00Z")).contains("far from the store's"));
    }
}
