//! Each procedure: its effects and its refusals.

use larder_people::{Share, Squash};

use super::super::proto::{Proc, Status};
use super::super::xdr::Writer;
use super::client::*;

fn status(status: Status) -> u32 {
    status as u32
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_procedure_once() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    assert_eq!(c.nfs(Proc::Null, b"").await.body.len(), 0);
    let dir = c.make(Proc::MkDir, &root, b"dir", 0o755).await.unwrap();
    let file = c.make(Proc::Create, &dir, b"file", 0o640).await.unwrap();
    assert_eq!(c.lookup(&dir, b"file").await.unwrap(), file);
    assert_eq!(c.write(&file, 3, b"hello", 2).await.unwrap().0, 5);
    assert_eq!(c.read(&file, 0, 100).await.unwrap(), (b"\0\0\0hello".to_vec(), true));
    assert_eq!(c.read(&file, 0, 3).await.unwrap(), (b"\0\0\0".to_vec(), false));
    let attr = c.getattr(&file).await.unwrap();
    assert_eq!((attr.kind, attr.mode, attr.nlink, attr.size), (1, 0o640, 1, 8));

    let commit = c.nfs(Proc::Commit, &read_args(&file, 0, 0)).await;
    assert_eq!(commit.status(), 0);
    let truncated = c.nfs(
        Proc::SetAttr,
        args(|w| {
            w.opaque(&file);
            sattr(w, Some(0o600), Some(4));
            w.u32(0);
        }),
    );
    let truncated = truncated.await;
    let mut r = truncated.reader();
    assert_eq!(r.u32().unwrap(), 0);
    let (before, after) = wcc(&mut r);
    assert_eq!((before.unwrap().0, after.unwrap().size, after.unwrap().mode), (8, 4, 0o600));

    let access = c.nfs(
        Proc::Access,
        args(|w| {
            w.opaque(&file);
            w.u32(0x3f);
        }),
    );
    let access = access.await;
    let mut r = access.reader();
    assert_eq!(r.u32().unwrap(), 0);
    post_attr(&mut r).unwrap();
    assert_eq!(r.u32().unwrap(), 0x01 | 0x04 | 0x08, "root reads and writes, but nobody executes");

    let link = c.nfs(
        Proc::SymLink,
        args(|w| {
            w.opaque(&dir);
            w.opaque(b"link");
            sattr(w, None, None);
            w.opaque(b"../else");
        }),
    );
    assert_eq!(link.await.status(), 0);
    let link = c.lookup(&dir, b"link").await.unwrap();
    let target = c.nfs(Proc::ReadLink, args(|w| w.opaque(&link))).await;
    let mut r = target.reader();
    assert_eq!(r.u32().unwrap(), 0);
    post_attr(&mut r).unwrap();
    assert_eq!(r.opaque(100).unwrap(), b"../else");

    let fifo = c.nfs(
        Proc::MkNod,
        args(|w| {
            w.opaque(&dir);
            w.opaque(b"fifo");
            w.u32(7);
            sattr(w, Some(0o600), None);
        }),
    );
    assert_eq!(fifo.await.status(), 0);
    let device = c.nfs(
        Proc::MkNod,
        args(|w| {
            w.opaque(&dir);
            w.opaque(b"null");
            w.u32(4);
            sattr(w, Some(0o666), None);
            w.u32(1);
            w.u32(3);
        }),
    );
    assert_eq!(device.await.status(), 0);
    let regular = c.nfs(
        Proc::MkNod,
        args(|w| {
            w.opaque(&dir);
            w.opaque(b"regular");
            w.u32(1);
        }),
    );
    assert_eq!(regular.await.status(), status(Status::BadType));

    let hard = c.nfs(
        Proc::Link,
        args(|w| {
            w.opaque(&file);
            w.opaque(&root);
            w.opaque(b"hard");
        }),
    );
    let hard = hard.await;
    let mut r = hard.reader();
    assert_eq!((r.u32().unwrap(), post_attr(&mut r).unwrap().nlink), (0, 2));
    assert!(wcc(&mut r).1.is_some());
    let moved = c.nfs(
        Proc::Rename,
        args(|w| {
            w.opaque(&root);
            w.opaque(b"hard");
            w.opaque(&dir);
            w.opaque(b"moved");
        }),
    );
    assert_eq!(moved.await.status(), 0);
    assert_eq!(c.nfs(Proc::RmDir, &name_args(&root, b"dir")).await.status(), status(Status::NotEmpty));
    for name in [&b"moved"[..], b"file", b"link", b"fifo", b"null"] {
        assert_eq!(c.nfs(Proc::Remove, &name_args(&dir, name)).await.status(), 0);
    }
    assert_eq!(c.nfs(Proc::RmDir, &name_args(&root, b"dir")).await.status(), 0);
    assert_eq!(c.getattr(&file).await, Err(status(Status::Stale)));

    for (proc, bytes) in [(Proc::FsStat, 52), (Proc::FsInfo, 48), (Proc::PathConf, 24)] {
        let answer = c.nfs(proc, args(|w| w.opaque(&root))).await;
        assert_eq!((answer.status(), answer.body.len()), (0, 4 + 88 + bytes), "{proc:?}");
    }
    let stats = server.handle.stats();
    assert_eq!(stats.procedures.iter().find(|p| p.name == "mknod").unwrap().failed, 1);
    assert_eq!(stats.written_bytes, 5);
}

#[tokio::test]
async fn failures_have_the_shape_of_their_procedure() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let stale = {
        let mut h = c.root.clone();
        h[30] ^= 1;
        h
    };
    for proc in Proc::ALL.into_iter().skip(1) {
        let answer = c.nfs(
            proc,
            args(|w| {
                w.opaque(&stale);
                (0..40).for_each(|_| w.u32(0));
            }),
        );
        let answer = answer.await;
        let words = match proc {
            Proc::GetAttr => 1,
            Proc::Rename => 5,
            Proc::Link => 4,
            p if p.modifies() || p == Proc::Commit => 3,
            _ => 2,
        };
        assert_eq!((answer.status(), answer.body.len()), (status(Status::BadHandle), words * 4), "{proc:?}");
    }
    for proc in Proc::ALL.into_iter().skip(1) {
        let short = args(|w| w.length(52));
        assert_eq!(c.nfs(proc, &short).await.accept, 4, "{proc:?}: GARBAGE_ARGS");
        let long = args(|w| w.opaque(&[0; 65]));
        assert_eq!(c.nfs(proc, &long).await.accept, 4, "{proc:?}: a handle has at most 64 bytes");
    }
}

async fn create(c: &mut Client, name: &[u8], how: impl FnOnce(&mut Writer)) -> (u32, Handle) {
    let root = c.root.clone();
    let answer = c.nfs(
        Proc::Create,
        args(|w| {
            w.opaque(&root);
            w.opaque(name);
            how(w);
        }),
    );
    let answer = answer.await;
    let mut r = answer.reader();
    let status = r.u32().unwrap();
    let handle = if status == 0 && r.bool().unwrap() { r.opaque(64).unwrap().to_vec() } else { Vec::new() };
    (status, handle)
}

#[tokio::test]
async fn create_has_three_ways() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let exclusive = |verifier: u64| {
        move |w: &mut Writer| {
            w.u32(2);
            w.u64(verifier);
        }
    };
    let (_, first) = create(&mut c, b"x", exclusive(7)).await;
    assert_eq!(create(&mut c, b"x", exclusive(7)).await, (0, first.clone()));
    assert_eq!(create(&mut c, b"x", exclusive(8)).await.0, status(Status::Exist));
    let guarded = |w: &mut Writer| {
        w.u32(1);
        sattr(w, Some(0o644), None);
    };
    assert_eq!(create(&mut c, b"x", guarded).await.0, status(Status::Exist));
    c.write(&first, 0, b"12345", 2).await.unwrap();
    let truncating = |w: &mut Writer| {
        w.u32(0);
        sattr(w, None, Some(0));
    };
    assert_eq!(create(&mut c, b"x", truncating).await, (0, first.clone()));
    assert_eq!(c.getattr(&first).await.unwrap().size, 0);
    assert_eq!(create(&mut c, b"..", guarded).await.0, status(Status::Exist));
    assert_eq!(create(&mut c, b"", guarded).await.0, status(Status::Acces));
    assert_eq!(create(&mut c, b"a/b", guarded).await.0, status(Status::Acces));
    assert_eq!(create(&mut c, &[b'n'; 256], guarded).await.0, status(Status::NameTooLong));
    assert_eq!(create(&mut c, &[b'n'; 255], guarded).await.0, 0);
}

#[tokio::test]
async fn setattr_is_guarded() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    let file = c.make(Proc::Create, &root, b"f", 0o644).await.unwrap();
    let ctime = c.getattr(&file).await.unwrap().ctime;
    let chmod = |guard: u64| {
        args(|w| {
            w.opaque(&file);
            sattr(w, Some(0o600), None);
            w.bool(true);
            w.u64(guard);
        })
    };
    assert_eq!(c.nfs(Proc::SetAttr, &chmod(ctime ^ 1)).await.status(), status(Status::NotSync));
    assert_eq!(c.nfs(Proc::SetAttr, &chmod(ctime)).await.status(), 0);
}

#[tokio::test]
async fn owners_write_what_their_mode_forbids() {
    let server = Server::start().await;
    let mut owner = server.mounted().await.user(1000, 1000, &[]);
    let mut other = server.mounted().await.user(1001, 1001, &[50]);
    let root = owner.root.clone();
    let file = owner.make(Proc::Create, &root, b"f", 0o400).await.unwrap();
    owner.write(&file, 0, b"data", 0).await.unwrap();
    assert_eq!(other.read(&file, 0, 4).await, Err(status(Status::Acces)));
    assert_eq!(other.write(&file, 0, b"x", 0).await, Err(status(Status::Acces)));
    let truncate = args(|w| {
        w.opaque(&file);
        sattr(w, None, Some(2));
        w.u32(0);
    });
    assert_eq!(owner.nfs(Proc::SetAttr, &truncate).await.status(), 0);
    assert_eq!(other.nfs(Proc::SetAttr, &truncate).await.status(), status(Status::Acces));
    let program = owner.make(Proc::Create, &root, b"p", 0o711).await.unwrap();
    assert!(other.read(&program, 0, 4).await.is_ok(), "who may execute may read");
    assert_eq!(owner.read(&root, 0, 4).await, Err(status(Status::IsDir)));
}

#[tokio::test]
async fn rules_hold_for_every_call() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    let squashed = || everybody(Squash::Root);
    let read_only = Share { read_only: true, ..squashed() };
    server.handle.set_exports(vec![export(&server.volume, "/tank", 1, read_only)]);
    assert_eq!(c.make(Proc::MkDir, &root, b"d", 0o755).await, Err(status(Status::RoFs)));
    assert!(c.getattr(&root).await.is_ok());
    server.handle.set_exports(vec![export(&server.volume, "/tank", 1, squashed())]);
    let made = c.make(Proc::MkDir, &root, b"d", 0o755).await.unwrap();
    assert_eq!(c.getattr(&made).await.unwrap().uid, larder_people::NOBODY);
    let elsewhere = Share { networks: Some(vec!["10.0.0.0/8".parse().unwrap()]), ..squashed() };
    server.handle.set_exports(vec![export(&server.volume, "/tank", 1, elsewhere)]);
    assert_eq!(c.getattr(&root).await, Err(status(Status::Acces)));
    assert_eq!(c.mount("/tank").await, Err(13));
    assert_eq!(c.mount("/none").await, Err(13), "a machine that may use nothing learns no paths");
    let secure = Share { secure: true, ..squashed() };
    server.handle.set_exports(vec![export(&server.volume, "/tank", 1, secure)]);
    assert_eq!(c.getattr(&root).await, Err(status(Status::Acces)), "a port that any program may use");
    assert_eq!(c.mount("/tank").await, Err(13));
    assert_eq!(c.mount("/none").await, Err(2));
    server.handle.set_exports(vec![export(&server.volume, "/tank", 2, squashed())]);
    assert_eq!(c.getattr(&root).await, Err(status(Status::Stale)), "that export is gone");
}

/// One page: status, entries (name, cookie), eof, bytes of the result without its status.
async fn page(
    c: &mut Client,
    dir: &[u8],
    cookie: u64,
    verf: u64,
    plus: Option<u32>,
    count: u32,
) -> (u32, Vec<(Vec<u8>, u64)>, bool, usize) {
    let proc = if plus.is_some() { Proc::ReadDirPlus } else { Proc::ReadDir };
    let answer = c.nfs(
        proc,
        args(|w| {
            w.opaque(dir);
            w.u64(cookie);
            w.u64(verf);
            plus.into_iter().for_each(|dircount| w.u32(dircount));
            w.u32(count);
        }),
    );
    let answer = answer.await;
    let mut r = answer.reader();
    let status = r.u32().unwrap();
    post_attr(&mut r);
    if status != 0 {
        return (status, vec![], false, 0);
    }
    r.skip(8).unwrap();
    let mut entries = Vec::new();
    while r.bool().unwrap() {
        let id = r.u64().unwrap();
        let (name, cookie) = (r.opaque(255).unwrap().to_vec(), r.u64().unwrap());
        if plus.is_some() {
            assert_eq!(post_attr(&mut r).unwrap().fileid, id);
            assert!(r.bool().unwrap());
            r.opaque(64).unwrap();
        }
        entries.push((name, cookie));
    }
    let eof = r.bool().unwrap();
    assert_eq!(r.remaining(), 0);
    (0, entries, eof, answer.body.len() - 4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_keep_to_their_counts() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    let mut want: Vec<Vec<u8>> = vec![b".".to_vec(), b"..".to_vec()];
    for i in 0..150 {
        let name = format!("{i:0width$}", width = 3 + i % 40).into_bytes();
        c.make(Proc::Create, &root, &name, 0o644).await.unwrap();
        want.push(name);
    }
    want.sort();
    for (plus, count) in
        [(None, 200), (None, 1000), (None, 1 << 20), (Some(u32::MAX), 700), (Some(100), 8192), (Some(1 << 20), 1 << 20)]
    {
        let (mut cookie, mut got, mut pages) = (0, Vec::new(), 0);
        loop {
            let (status, entries, eof, bytes) = page(&mut c, &root, cookie, 0, plus, count).await;
            assert_eq!(status, 0);
            assert!(bytes <= count as usize, "{bytes} of {count}");
            if let Some(dircount) = plus {
                let names: usize = entries.iter().map(|(name, _)| 20 + name.len().next_multiple_of(4)).sum();
                assert!(names <= dircount as usize || entries.len() == 1);
            }
            pages += 1;
            got.extend(entries.iter().map(|(name, _)| name.clone()));
            if eof {
                break;
            }
            cookie = entries.last().unwrap().1;
        }
        assert_eq!(pages == 1, count == 1 << 20);
        got.sort();
        assert_eq!(got, want);
    }
    assert_eq!(page(&mut c, &root, 0, 0, None, 110).await.0, status(Status::TooSmall));
    assert_eq!(page(&mut c, &root, 0, 0, None, 0).await.0, status(Status::TooSmall));
    assert_eq!(page(&mut c, &root, 5, 1 << 40, None, 1000).await.0, status(Status::BadCookie));
    let file = c.lookup(&root, b"000").await.unwrap();
    assert_eq!(page(&mut c, &file, 0, 0, None, 1000).await.0, status(Status::NotDir));
}
