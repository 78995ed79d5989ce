#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use larder_base::SystemClock;
use larder_fs::{CreateMode, FsError, FsResult, Ino, RenameMode, SetAttr, Stability};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space};
use object_store::memory::InMemory;

use super::*;
use crate::Files;

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

/// A share with its guard, and what the guard told.
struct Share {
    files: Files,
    guard: Arc<Guard>,
    told: Arc<Mutex<Vec<Alarm>>>,
    _registry: Registry,
}

const PAGE: &str = "Dear Ann, here are the words of a letter that somebody can read. ";

impl Share {
    async fn new(mode: GuardMode) -> Share {
        let clock = Arc::new(SystemClock::default());
        let backing =
            Backing { store: Arc::new(InMemory::new()), log: None, space: Arc::new(Plenty), clock: clock.clone() };
        let registry = Registry::open(backing, MemoryBudget { total_bytes: 64 << 20 }).await.unwrap();
        registry.create("v", Properties::default()).await.unwrap();
        let told: Arc<Mutex<Vec<Alarm>>> = Arc::default();
        let teller = Arc::clone(&told);
        let guard = Guard::new(clock, move |alarm| teller.lock().push(alarm));
        guard.set_mode(mode);
        let files = Files::alone(registry.volume("v").await.unwrap()).guarded(Arc::clone(&guard));
        Share { files, guard, told, _registry: registry }
    }

    async fn write(&self, who: &Cred, ino: Ino, data: &[u8]) -> FsResult<()> {
        let data = vec![Bytes::copy_from_slice(data)];
        self.files.write(who, ino, 0, data, Stability::Unstable).await.map(drop)
    }

    async fn file(&self, who: &Cred, name: &str, data: &[u8]) -> FsResult<Ino> {
        let made = self.files.create(who, Ino::ROOT, name.as_bytes(), CreateMode::Guarded, SetAttr::default()).await?;
        self.write(who, made.0.id.ino, data).await?;
        Ok(made.0.id.ino)
    }

    /// Files that somebody else has made.
    async fn letters(&self, count: usize) -> Vec<Ino> {
        let (owner, mut made) = (client("owner", 1), Vec::new());
        for n in 0..count {
            made.push(self.file(&owner, &format!("letter{n}"), PAGE.repeat(30).as_bytes()).await.unwrap());
        }
        made
    }

    fn suspects(&self) -> Vec<String> {
        self.told.lock().iter().map(|alarm| alarm.suspect.to_string()).collect()
    }
}

fn client(user: &str, host: u8) -> Cred {
    Cred::root().of_client(Some(IpAddr::from([192, 168, 1, host])), Some(user))
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    use std::hash::{DefaultHasher, Hasher};
    let word = |n: u64| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(seed << 32 | n);
        hasher.finish().to_le_bytes()
    };
    (0..len as u64 / 8).flat_map(word).collect()
}

#[tokio::test]
async fn encrypting_in_place_is_told_once_and_blocks_that_client_alone() {
    let share = Share::new(GuardMode::Block).await;
    let letters = share.letters(120).await;
    let (eve, same_user, ann) = (client("eve", 6), client("eve", 7), client("ann", 6));
    let mut ruined = 0;
    for (n, ino) in letters.iter().enumerate() {
        match share.write(&eve, *ino, &noise(n as u64, 4096)).await {
            Ok(()) => ruined += 1,
            Err(error) => assert!(matches!(error, FsError::Access), "{error}"),
        }
    }
    assert!((40..60).contains(&ruined), "{ruined} files are lost before it is noticed");
    assert_eq!(share.suspects(), ["eve at 192.168.1.6"]);
    assert!(matches!(share.told.lock()[0].harm, Harm::Rewritten(n) if n >= 40));
    let rename = |who: Cred| {
        let files = share.files.clone();
        async move { files.rename(&who, Ino::ROOT, b"letter0", Ino::ROOT, b"x", RenameMode::Replace).await }
    };
    assert!(matches!(rename(eve.clone()).await, Err(FsError::Access)));
    assert!(share.files.getattr(letters[0]).await.is_ok(), "it may read");
    for other in [same_user, ann] {
        share.file(&other, &format!("{:?}", other.client), b"x").await.unwrap();
    }
    share.guard.release(share.told.lock()[0].suspect.clone());
    rename(eve).await.unwrap();
    assert_eq!(share.suspects().len(), 1);
}

#[tokio::test]
async fn emptying_first_and_writing_beside_are_noticed() {
    let share = Share::new(GuardMode::Alert).await;
    let letters = share.letters(120).await;
    let (eve, empty) = (client("eve", 6), SetAttr { size: Some(0), ..SetAttr::default() });
    for (n, ino) in letters[..60].iter().enumerate() {
        share.files.setattr(&eve, *ino, empty).await.unwrap();
        share.write(&eve, *ino, &noise(n as u64, 4096)).await.unwrap();
    }
    assert_eq!(share.suspects(), ["eve at 192.168.1.6"]);
    let mallory = client("mallory", 8);
    for n in 60..119 {
        share.file(&mallory, &format!("letter{n}.locked"), &noise(n, 4096)).await.unwrap();
        share.files.unlink(&mallory, Ino::ROOT, format!("letter{n}").as_bytes()).await.unwrap();
    }
    assert_eq!(share.suspects(), ["eve at 192.168.1.6", "mallory at 192.168.1.8"]);
}

#[tokio::test]
async fn putting_formless_files_in_their_place_is_noticed() {
    let share = Share::new(GuardMode::Alert).await;
    share.letters(120).await;
    let eve = client("eve", 6);
    for n in 0..60 {
        share.file(&eve, "new", &noise(n, 4096)).await.unwrap();
        let to = format!("letter{n}");
        share.files.rename(&eve, Ino::ROOT, b"new", Ino::ROOT, to.as_bytes(), RenameMode::Replace).await.unwrap();
    }
    assert_eq!(share.suspects(), ["eve at 192.168.1.6"]);
}

/// As a door does that takes a file as a whole: WebDAV's PUT over a file.
#[tokio::test]
async fn files_that_are_whole_before_they_have_the_name_are_noticed() {
    let share = Share::new(GuardMode::Block).await;
    let letters = share.letters(120).await;
    let (eve, mut replaced) = (client("eve", 6), 0);
    for (n, old) in letters.iter().enumerate() {
        let done = async {
            let (new, _open) = share.files.create_unnamed(&eve.as_root(), Ino::ROOT, SetAttr::default()).await?;
            share.write(&eve, new.id.ino, &noise(n as u64, 4096)).await?;
            let name = format!("letter{n}");
            share.files.relink_over(&eve.as_root(), new.id.ino, Ino::ROOT, name.as_bytes(), *old).await
        };
        replaced += usize::from(done.await.is_ok());
    }
    assert_eq!(share.suspects(), ["eve at 192.168.1.6"]);
    assert!((40..60).contains(&replaced), "{replaced} files are lost before it is noticed");
}

#[tokio::test]
async fn sharing_formless_bytes_with_them_is_noticed_and_refused() {
    let share = Share::new(GuardMode::Block).await;
    let letters = share.letters(120).await;
    let eve = client("eve", 6);
    let source = share.file(&eve, "noise", &noise(7, 128 << 10)).await.unwrap();
    let mut shared = 0;
    for ino in &letters {
        let done = share.files.clone_range(&eve, (source, 0), (*ino, 0), 128 << 10).await;
        shared += usize::from(done.is_ok());
    }
    assert_eq!(share.suspects(), ["eve at 192.168.1.6"]);
    assert!((40..60).contains(&shared), "{shared} files are lost before it is noticed");
    let refused = share.files.copy_range(&eve, (source, 0), (letters[0], 0), 4 << 20).await;
    assert!(matches!(refused, Err(FsError::Access)));
}

#[tokio::test]
async fn backups_editors_and_those_vouched_for_are_no_alarm() {
    let share = Share::new(GuardMode::Block).await;
    let letters = share.letters(200).await;
    let ann = client("ann", 5);
    for (n, ino) in letters.iter().enumerate() {
        share.write(&ann, *ino, PAGE.to_uppercase().repeat(30).as_bytes()).await.unwrap();
        share.file(&ann, &format!("pack{n}"), &noise(n as u64, 8192)).await.unwrap();
    }
    for n in 0..200 {
        share.files.unlink(&ann, Ino::ROOT, format!("pack{n}").as_bytes()).await.unwrap();
    }
    assert!(share.suspects().is_empty(), "{:?}", share.suspects());
    share.guard.release(Suspect { user: "ann".to_owned(), address: ann.client.address });
    for (n, ino) in letters.iter().enumerate() {
        share.write(&ann, *ino, &noise(n as u64, 4096)).await.unwrap();
    }
    assert!(share.suspects().is_empty());
}

#[tokio::test]
async fn many_clients_need_no_more_memory_and_blocked_ones_are_not_forgotten() {
    let share = Share::new(GuardMode::Block).await;
    let eve = Suspect { user: "eve".to_owned(), address: Some(IpAddr::from([192, 168, 1, 6])) };
    share.guard.restore(eve, true);
    for n in 0..3000 {
        let who = Cred::root().of_client(None, Some(&format!("user{n}")));
        share.file(&who, &format!("f{n}"), b"x").await.unwrap();
    }
    assert!(share.guard.clients.lock().len() <= CLIENTS_MAX);
    assert!(matches!(share.file(&client("eve", 6), "e", b"x").await, Err(FsError::Access)));
    share.guard.set_mode(GuardMode::Off);
    share.file(&client("eve", 6), "e", b"x").await.unwrap();
}
