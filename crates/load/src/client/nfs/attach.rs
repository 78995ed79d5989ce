//! From a URL to a share: which ports, which export, which transfer sizes.

use std::sync::Mutex;

use super::NfsShare;
use super::proto::{self, Handle};
use super::rpc::{Answer, Connection, resolve};
use super::xdr::{Reader, Writer};
use crate::client::error::{ClientError, Outcome};
use crate::client::options::ClientOptions;
use crate::client::share::Target;
use crate::client::url::ShareUrl;
use crate::workload::Workload;

const PORTMAP_PORT: u16 = 111;
const NFS_PORT: u16 = 2049;
const TCP: u32 = 6;
/// Larger ones bring nothing, and servers are believed no further.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
const TRANSFER_BYTES_MIN: u32 = 4 << 10;

pub(in crate::client) struct NfsTarget {
    url: ShareUrl,
    path: String,
    mount_port: Option<u16>,
    uid: u32,
    gid: u32,
    found: Mutex<Option<Found>>,
}

/// Findings of the first connection, which serve all others.
#[derive(Clone)]
struct Found {
    nfs_port: u16,
    root: Handle,
    read_bytes: u32,
    write_bytes: u32,
}

impl NfsTarget {
    pub fn new(url: &ShareUrl, options: &ClientOptions) -> Outcome<Self> {
        if let Some(version) = url.option("version").or(url.option("vers"))
            && version != "3"
        {
            let reason =
                format!("NFS version {version}: larder measures version 3; mount it and give the folder instead");
            return Err(ClientError::Unsupported { access: "nfs3".into(), reason });
        }
        let port = |key: &str| {
            let bad =
                |_| ClientError::BadUrl { url: url.host.clone(), reason: format!("{key} is no number of a port") };
            url.option(key).map(str::parse).transpose().map_err(bad)
        };
        // As libnfs writes it, and as larder up prints it.
        let url = ShareUrl { port: url.port.or(port("nfsport")?), ..url.clone() };
        Ok(Self {
            path: format!("/{}", url.parts()?.join("/")),
            mount_port: port("mountport")?,
            uid: options.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            gid: options.gid.unwrap_or_else(|| rustix::process::getegid().as_raw()),
            found: Mutex::new(None),
            url,
        })
    }

    async fn connection(&self, port: u16) -> Outcome<Connection> {
        let address = resolve(&self.url.host, port).await?;
        Connection::open(address, self.uid, self.gid).await
    }

    /// Of NFS and of MOUNT. larder has both on one port and no portmapper; others have one.
    async fn ports(&self) -> Outcome<(u16, u16)> {
        if let Some(port) = self.url.port {
            return Ok((port, self.mount_port.unwrap_or(port)));
        }
        let Ok(portmap) = self.connection(PORTMAP_PORT).await else {
            return Ok((NFS_PORT, self.mount_port.unwrap_or(NFS_PORT)));
        };
        let nfs = get_port(&portmap, proto::NFS).await?.unwrap_or(NFS_PORT);
        let mount = match self.mount_port {
            Some(port) => port,
            None => get_port(&portmap, proto::MOUNT).await?.unwrap_or(nfs),
        };
        Ok((nfs, mount))
    }

    async fn find(&self) -> Outcome<Found> {
        let (nfs_port, mount_port) = self.ports().await?;
        let mount = self.connection(mount_port).await?;
        let (root, export) = self.mount(&mount).await?;
        let share = NfsShare {
            connection: self.connection(nfs_port).await?,
            root,
            folders: Default::default(),
            read_bytes_max: u64::from(TRANSFER_BYTES_MIN),
            write_bytes_max: u64::from(TRANSFER_BYTES_MIN),
            address: self.url.address(nfs_port),
        };
        let inside = self.path.strip_prefix(&export).unwrap_or_default().trim_matches('/').to_owned();
        let root = share.folder(&inside).await?;
        let arguments = |w: &mut Writer| w.opaque(&root.0);
        let (read, write) = share.results(proto::FSINFO, &self.path, arguments, proto::transfer_sizes).await?;
        // Only the list of who has mounted what is kept by it.
        let unmount = mount.call(proto::MOUNT, proto::UMNT, |w| w.opaque(export.as_bytes()), &[], None);
        unmount.await?;
        let size = |n: u32| n.clamp(TRANSFER_BYTES_MIN, TRANSFER_BYTES_MAX);
        Ok(Found { nfs_port, root, read_bytes: size(read), write_bytes: size(write) })
    }

    /// The handle of the path or of the export that it lies in, and which of the two.
    async fn mount(&self, mount: &Connection) -> Outcome<(Handle, String)> {
        let first = match mnt(mount, &self.path).await? {
            Ok(handle) => return Ok((handle, self.path.clone())),
            Err(status) => status,
        };
        let exports = exports(mount).await.unwrap_or_default();
        let holds = |export: &&String| {
            let rest = self.path.strip_prefix(export.trim_end_matches('/'));
            export.len() < self.path.len() && rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let mut holders: Vec<&String> = exports.iter().filter(holds).collect();
        holders.sort_by_key(|export| std::cmp::Reverse(export.len()));
        for export in holders {
            if let Ok(handle) = mnt(mount, export).await? {
                return Ok((handle, export.trim_end_matches('/').to_owned()));
            }
        }
        Err(self.no_export(first, &exports))
    }

    fn no_export(&self, status: u32, exports: &[String]) -> ClientError {
        let what = format!("the export {} of {}", self.path, self.url.host);
        match status {
            proto::NOENT | proto::NOTDIR | proto::ACCES if !exports.contains(&self.path) => {
                let reason = match exports.is_empty() {
                    true => "the server names no exports".to_owned(),
                    false => format!("the server has {}", exports.join(", ")),
                };
                ClientError::not_found(what, reason)
            }
            proto::ACCES => ClientError::Denied {
                what,
                reason: "this address may not mount it, or only from a privileged port: measure as root, or export it with 'insecure'".into(),
            },
            status => proto::failure(status, &what),
        }
    }
}

fn nonsense(what: &str) -> ClientError {
    ClientError::protocol(what, "a reply that is cut short or makes no sense")
}

async fn body(
    connection: &Connection,
    program: (u32, u32),
    procedure: u32,
    arguments: impl FnOnce(&mut Writer),
) -> Outcome<Vec<u8>> {
    match connection.call(program, procedure, arguments, &[], None).await? {
        Answer::Body(body) => Ok(body),
        Answer::Data { .. } => Err(nonsense("RPC")),
    }
}

/// RFC 1833 3.2: 0 is "not here".
async fn get_port(portmap: &Connection, program: (u32, u32)) -> Outcome<Option<u16>> {
    let arguments = |w: &mut Writer| [program.0, program.1, TCP, 0].into_iter().for_each(|word| w.u32(word));
    let body = body(portmap, proto::PORTMAP, proto::GETPORT, arguments).await?;
    let port = Reader(&body).u32().map_err(|_| nonsense("the portmapper"))?;
    Ok(u16::try_from(port).ok().filter(|port| *port > 0))
}

/// The handle or the server's status.
async fn mnt(mount: &Connection, path: &str) -> Outcome<Result<Handle, u32>> {
    let body = body(mount, proto::MOUNT, proto::MNT, |w| w.opaque(path.as_bytes())).await?;
    let mut r = Reader(&body);
    match r.u32().map_err(|_| nonsense("MOUNT"))? {
        proto::OK => proto::handle(&mut r).map(Ok).map_err(|_| nonsense("MOUNT")),
        status => Ok(Err(status)),
    }
}

async fn exports(mount: &Connection) -> Outcome<Vec<String>> {
    let body = body(mount, proto::MOUNT, proto::EXPORT, |_| ()).await?;
    proto::exports(&mut Reader(&body)).map_err(|_| nonsense("MOUNT"))
}

impl Target for NfsTarget {
    type Share = NfsShare;
    const ACCESS: &'static str = "nfs3";

    async fn connect(&self, _: Option<&Workload>) -> Outcome<NfsShare> {
        let known = self.found.lock().ok().and_then(|found| found.clone());
        let found = match known {
            Some(found) => found,
            None => {
                let found = self.find().await?;
                if let Ok(mut known) = self.found.lock() {
                    *known = Some(found.clone());
                }
                found
            }
        };
        Ok(NfsShare {
            connection: self.connection(found.nfs_port).await?,
            root: found.root,
            folders: Default::default(),
            read_bytes_max: u64::from(found.read_bytes),
            write_bytes_max: u64::from(found.write_bytes),
            address: self.url.address(found.nfs_port),
        })
    }

    fn describe(&self) -> String {
        let found = self.found.lock().ok().and_then(|found| found.clone());
        match found {
            Some(f) => format!(
                "NFS version 3 over TCP to {}, export {}, reads of up to {} KiB, writes of up to {} KiB, as user {}",
                self.url.address(f.nfs_port),
                self.path,
                f.read_bytes >> 10,
                f.write_bytes >> 10,
                self.uid
            ),
            None => format!("NFS version 3 over TCP to {}", self.url.host),
        }
    }
}
