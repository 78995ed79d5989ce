//! A server on a volume in memory, and a client whose every byte a test can choose.

use std::net::SocketAddr;
use std::sync::Arc;

use larder_base::{MemLog, SystemClock};
use larder_files::Files;
use larder_fs::{Cred, Ino, SetAttr};
use larder_people::{Share, Squash};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space, Volume};
use object_store::memory::InMemory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::mount::MOUNT_PROGRAM;
use super::super::proto::{NFS_PROGRAM, Proc};
use super::super::rpc::tests::call as encode_call;
use super::super::xdr::{Reader, Writer};
use super::super::{Export, NfsConfig, NfsHandle, NfsServer};

struct Plenty;

impl Space for Plenty {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

pub struct Server {
    pub addr: SocketAddr,
    pub portmapper: Option<SocketAddr>,
    pub handle: NfsHandle,
    pub volume: Volume,
    pub shutdown: CancellationToken,
    pub serving: JoinHandle<()>,
    _registry: Registry,
}

pub fn everybody(squash: Squash) -> Share {
    Share { squash, secure: false, ..Share::new("tank") }
}

impl Server {
    pub async fn start() -> Self {
        Self::with(NfsConfig::default()).await
    }

    pub async fn with(config: NfsConfig) -> Self {
        let backing = Backing {
            store: Arc::new(InMemory::new()),
            log: Some(Arc::new(MemLog::default())),
            space: Arc::new(Plenty),
            clock: Arc::new(SystemClock::default()),
        };
        let registry = Registry::open(backing, MemoryBudget { total_bytes: 256 << 20 }).await.unwrap();
        registry.create("tank", Properties::default()).await.unwrap();
        let volume = registry.volume("tank").await.unwrap();
        let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        volume.setattr(&Cred::root(), Ino::ROOT, open).await.unwrap();
        let server = NfsServer::bind("127.0.0.1:0".parse().unwrap(), config).await.unwrap();
        server.set_exports(vec![export(&volume, "/tank", 1, everybody(Squash::None))]);
        let (addr, portmapper, handle) = (server.local_addr(), server.portmapper_addr(), server.handle());
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(server.serve(shutdown.clone()));
        Self { addr, portmapper, handle, volume, shutdown, serving, _registry: registry }
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.addr).await
    }

    /// A client that has mounted "/tank".
    pub async fn mounted(&self) -> Client {
        let mut client = self.client().await;
        client.root = client.mount("/tank").await.unwrap();
        client
    }
}

pub fn export(volume: &Volume, path: &str, fsid: u64, share: Share) -> Export {
    Export {
        path: path.to_owned(),
        files: Files::alone(volume.clone()),
        share: Arc::new(share),
        fsid,
        root: larder_fs::Ino::ROOT,
        key: None,
        former_key: None,
        older_handles: crate::Older::Taken,
    }
}

pub type Handle = Vec<u8>;

pub struct Client {
    pub stream: TcpStream,
    pub xid: u32,
    pub cred: Option<(u32, u32, Vec<u32>)>,
    pub root: Handle,
}

/// An answer: its accept_stat (u32::MAX for a denied call), and the words behind it.
pub struct Answer {
    pub accept: u32,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn reader(&self) -> Reader<'_> {
        assert_eq!(self.accept, 0, "accepted");
        Reader::new(&self.body)
    }

    pub fn status(&self) -> u32 {
        self.reader().u32().unwrap()
    }
}

/// Attributes as a client reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FAttr {
    pub kind: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub fileid: u64,
    pub mtime: u64,
    pub ctime: u64,
}

pub fn fattr(r: &mut Reader<'_>) -> FAttr {
    let words: [u32; 5] = std::array::from_fn(|_| r.u32().unwrap());
    let size = r.u64().unwrap();
    r.skip(8 + 8 + 8).unwrap();
    let fileid = r.u64().unwrap();
    r.skip(8).unwrap();
    let [kind, mode, nlink, uid, gid] = words;
    FAttr { kind, mode, nlink, uid, gid, size, fileid, mtime: r.u64().unwrap(), ctime: r.u64().unwrap() }
}

pub fn post_attr(r: &mut Reader<'_>) -> Option<FAttr> {
    r.bool().unwrap().then(|| fattr(r))
}

/// (size, mtime, ctime) before, attributes after.
pub fn wcc(r: &mut Reader<'_>) -> (Option<(u64, u64, u64)>, Option<FAttr>) {
    let before = r.bool().unwrap().then(|| (r.u64().unwrap(), r.u64().unwrap(), r.u64().unwrap()));
    (before, post_attr(r))
}

/// Arguments, spelled out.
pub fn args(build: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::default();
    build(&mut w);
    w.into_inner()
}

/// `sattr3` with a mode and perhaps a size.
pub fn sattr(w: &mut Writer, mode: Option<u32>, size: Option<u64>) {
    w.bool(mode.is_some());
    mode.into_iter().for_each(|mode| w.u32(mode));
    w.u32(0);
    w.u32(0);
    w.bool(size.is_some());
    size.into_iter().for_each(|size| w.u64(size));
    w.u32(0);
    w.u32(0);
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        // Every client numbers its calls from somewhere else, as real ones do.
        let xid = u32::from(stream.local_addr().unwrap().port()) << 16;
        Self { stream, xid, cred: Some((0, 0, vec![])), root: Vec::new() }
    }

    /// The same client after it lost its connection: it keeps its port, as kernels do.
    pub async fn reconnected(self, addr: SocketAddr) -> Self {
        let Self { stream, xid, cred, root } = self;
        let local = stream.local_addr().unwrap();
        // Reset rather than closed, so that the port is free again at once.
        rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
        drop(stream);
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(local).unwrap();
        Self { stream: socket.connect(addr).await.unwrap(), xid, cred, root }
    }

    pub fn user(mut self, uid: u32, gid: u32, gids: &[u32]) -> Self {
        self.cred = Some((uid, gid, gids.to_vec()));
        self
    }

    pub fn encode(&self, xid: u32, prog: u32, vers: u32, proc_num: u32, args: &[u8]) -> Vec<u8> {
        let cred = self.cred.as_ref().map(|(uid, gid, gids)| (*uid, *gid, gids.as_slice()));
        let message = encode_call(xid, prog, vers, proc_num, cred, args);
        [&(message.len() as u32 | 1 << 31).to_be_bytes()[..], &message].concat()
    }

    /// Reads one reply: its xid, and what it says.
    pub async fn receive(&mut self) -> std::io::Result<(u32, Answer)> {
        let mark = self.stream.read_u32().await?;
        let mut message = vec![0; (mark & !(1 << 31)) as usize];
        self.stream.read_exact(&mut message).await?;
        let mut r = Reader::new(&message);
        let (xid, _reply, denied) = (r.u32().unwrap(), r.u32().unwrap(), r.u32().unwrap());
        if denied == 1 {
            return Ok((xid, Answer { accept: u32::MAX, body: message[12..].to_vec() }));
        }
        r.skip(8).unwrap();
        let accept = r.u32().unwrap();
        Ok((xid, Answer { accept, body: message[24..].to_vec() }))
    }

    pub async fn send(&mut self, proc: Proc, args: &[u8]) -> u32 {
        self.xid += 1;
        let bytes = self.encode(self.xid, NFS_PROGRAM, 3, proc as u32, args);
        self.stream.write_all(&bytes).await.unwrap();
        self.xid
    }

    pub async fn rpc(&mut self, prog: u32, vers: u32, proc_num: u32, args: impl AsRef<[u8]>) -> Answer {
        self.xid += 1;
        let bytes = self.encode(self.xid, prog, vers, proc_num, args.as_ref());
        self.stream.write_all(&bytes).await.unwrap();
        let (xid, answer) = self.receive().await.unwrap();
        assert_eq!(xid, self.xid);
        answer
    }

    pub async fn nfs(&mut self, proc: Proc, args: impl AsRef<[u8]>) -> Answer {
        self.rpc(NFS_PROGRAM, 3, proc as u32, args).await
    }

    pub async fn mount(&mut self, path: &str) -> Result<Handle, u32> {
        let answer = self.rpc(MOUNT_PROGRAM, 3, 1, &args(|w| w.opaque(path.as_bytes()))).await;
        let mut r = answer.reader();
        match r.u32().unwrap() {
            0 => Ok(r.opaque(64).unwrap().to_vec()),
            status => Err(status),
        }
    }

    pub async fn getattr(&mut self, handle: &[u8]) -> Result<FAttr, u32> {
        let answer = self.nfs(Proc::GetAttr, &args(|w| w.opaque(handle))).await;
        let mut r = answer.reader();
        match r.u32().unwrap() {
            0 => Ok(fattr(&mut r)),
            status => Err(status),
        }
    }

    /// CREATE (UNCHECKED) or MKDIR.
    pub async fn make(&mut self, proc: Proc, dir: &[u8], name: &[u8], mode: u32) -> Result<Handle, u32> {
        let answer = self
            .nfs(
                proc,
                &args(|w| {
                    w.opaque(dir);
                    w.opaque(name);
                    if proc == Proc::Create {
                        w.u32(0);
                    }
                    sattr(w, Some(mode), None);
                }),
            )
            .await;
        let mut r = answer.reader();
        match r.u32().unwrap() {
            0 => {
                assert!(r.bool().unwrap());
                Ok(r.opaque(64).unwrap().to_vec())
            }
            status => Err(status),
        }
    }

    pub async fn lookup(&mut self, dir: &[u8], name: &[u8]) -> Result<Handle, u32> {
        let answer = self.nfs(Proc::Lookup, &name_args(dir, name)).await;
        let mut r = answer.reader();
        match r.u32().unwrap() {
            0 => Ok(r.opaque(64).unwrap().to_vec()),
            status => Err(status),
        }
    }

    /// Count and verifier.
    pub async fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: u32) -> Result<(u32, u64), u32> {
        let answer = self.nfs(Proc::Write, &write_args(file, offset, data, stable)).await;
        let mut r = answer.reader();
        match r.u32().unwrap() {
            0 => {
                wcc(&mut r);
                let (count, committed) = (r.u32().unwrap(), r.u32().unwrap());
                assert!(committed >= stable);
                Ok((count, r.u64().unwrap()))
            }
            status => Err(status),
        }
    }

    /// Data and eof.
    pub async fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), u32> {
        let answer = self.nfs(Proc::Read, &read_args(file, offset, count)).await;
        read_result(&answer)
    }
}

pub fn name_args(dir: &[u8], name: &[u8]) -> Vec<u8> {
    args(|w| {
        w.opaque(dir);
        w.opaque(name);
    })
}

/// CREATE, GUARDED.
pub fn guarded_args(dir: &[u8], name: &[u8]) -> Vec<u8> {
    args(|w| {
        w.opaque(dir);
        w.opaque(name);
        w.u32(1);
        sattr(w, Some(0o644), None);
    })
}

pub fn write_args(file: &[u8], offset: u64, data: &[u8], stable: u32) -> Vec<u8> {
    args(|w| {
        w.opaque(file);
        w.u64(offset);
        w.length(data.len());
        w.u32(stable);
        w.opaque(data);
    })
}

pub fn read_args(file: &[u8], offset: u64, count: u32) -> Vec<u8> {
    args(|w| {
        w.opaque(file);
        w.u64(offset);
        w.u32(count);
    })
}

pub fn read_result(answer: &Answer) -> Result<(Vec<u8>, bool), u32> {
    let mut r = answer.reader();
    let status = r.u32().unwrap();
    post_attr(&mut r);
    if status != 0 {
        return Err(status);
    }
    let (count, eof) = (r.u32().unwrap(), r.bool().unwrap());
    let data = r.opaque(usize::MAX).unwrap().to_vec();
    assert_eq!(data.len(), count as usize);
    assert_eq!(r.remaining(), 0);
    Ok((data, eof))
}
