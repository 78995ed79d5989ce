//! The facts about this machine that a local network is told.

use std::net::SocketAddr;
use std::sync::Arc;

use larder_discovery::{Announced, Discovery, Service};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

use super::shares::export_path;
use larder_config::{Config, DiscoveryConfig, Network, ShareConfig, reach_others};
use larder_document::DataFolder;
use larder_document::{Kind, Standings};
use larder_servers::Servers;

/// The port of SMB that Windows knows, and the only one that Explorer opens.
const WINDOWS_PORT: u16 = 445;
/// Of an entry that nobody connects to: what is in its text counts.
const DISCARD_PORT: u16 = 9;
/// Text of one DNS record stays small: a machine has few shares for backups.
const BACKUPS_MAX: usize = 16;
/// A label of DNS.
const NAME_BYTES_MAX: usize = 63;

pub struct Announcer {
    id: uuid::Uuid,
    servers: Arc<Servers>,
    discovery: Mutex<Discovery>,
}

impl Announcer {
    pub(super) fn new(folder: &DataFolder, servers: &Arc<Servers>) -> Self {
        Self { id: uuid_of(folder), servers: Arc::clone(servers), discovery: Mutex::default() }
    }

    /// Announces the doors that other machines reach, with the shares that are served, and nothing
    /// else.
    pub(super) async fn set(&self, config: &Config, standings: &Standings) {
        let doors = Doors {
            nfs: self.servers.nfs_addr(),
            smb: self.servers.smb_addr(),
            sftp: self.servers.sftp_addr(),
            webdav: self.servers.webdav_addr(),
            webdavs: self.servers.webdavs_addr(),
        };
        let announced = config.discovery.enabled.then(|| {
            let name = config.discovery.name.clone().unwrap_or_else(own_name);
            let served = || config.shares.iter().filter(|share| standings.of(Kind::Share, &share.name).is_ok());
            // Nobody else may mount what is for this machine alone, or needs to hear its name.
            let networks = |share: &ShareConfig| -> Vec<String> {
                share.nfs_networks().iter().flatten().map(Network::to_string).collect()
            };
            let exports = served().filter(|share| reach_others(&networks(share)));
            let exports: Vec<_> = exports.map(|share| share.name.as_str()).collect();
            let backups = served().filter(|share| share.takes_backups());
            let backups: Vec<_> = backups.map(|share| share.name.as_str()).collect();
            announced(&config.discovery, name, self.id, &doors, &exports, &backups)
        });
        for fault in self.discovery.lock().await.set(announced.flatten()).await {
            tracing::warn!("{fault}");
        }
    }

    pub(super) async fn stop(&self) {
        self.discovery.lock().await.stop().await;
    }
}

/// Where each door listens.
#[derive(Default)]
struct Doors {
    nfs: Option<SocketAddr>,
    smb: Option<SocketAddr>,
    sftp: Option<SocketAddr>,
    webdav: Option<SocketAddr>,
    webdavs: Option<SocketAddr>,
}

/// The port of a door that other machines reach.
fn outward(addr: Option<SocketAddr>) -> Option<u16> {
    addr.filter(|addr| !addr.ip().is_loopback()).map(|addr| addr.port())
}

/// `None` where no door listens beyond loopback. `exports` are shares of NFS; `backups` are for
/// Time Machine.
fn announced(
    config: &DiscoveryConfig,
    name: String,
    uuid: uuid::Uuid,
    doors: &Doors,
    exports: &[&str],
    backups: &[&str],
) -> Option<Announced> {
    let service = |kind, name: &str, port, text: &[(&str, &str)]| {
        let text = text.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Service { kind, name: name.to_owned(), port, text }
    };
    let mut services = Vec::new();
    let smb = outward(doors.smb);
    if let Some(port) = smb {
        services.push(service("_smb._tcp", &name, port, &[]));
    }
    if let Some(port) = outward(doors.nfs) {
        for share in exports {
            let shown = shortened(format!("{share} on {name}"));
            services.push(service("_nfs._tcp", &shown, port, &[("path", &export_path(share))]));
        }
    }
    if let Some(port) = outward(doors.sftp) {
        services.push(service("_sftp-ssh._tcp", &name, port, &[]));
    }
    let web = [(doors.webdavs, "_webdavs._tcp", "_https._tcp"), (doors.webdav, "_webdav._tcp", "_http._tcp")];
    for (addr, webdav, pages) in web {
        if let Some(port) = outward(addr) {
            services.push(service(webdav, &name, port, &[("path", "/")]));
            services.push(service(pages, &name, port, &[("path", "/")]));
        }
    }
    if services.is_empty() {
        return None;
    }
    if smb.is_some() {
        // The picture that Finder draws.
        services.push(service("_device-info._tcp", &name, 0, &[("model", "RackMac")]));
    }
    if smb.is_some() && !backups.is_empty() {
        services.push(Service {
            kind: "_adisk._tcp",
            name: name.clone(),
            port: DISCARD_PORT,
            text: disks(uuid, backups),
        });
    }
    let windows = smb == Some(WINDOWS_PORT);
    Some(Announced { name, uuid, services, windows, interfaces: config.interfaces.clone() })
}

/// The disks of a Mac's picker (Apple, Time Machine over SMB): 0x100 is SMB, and 0x82 a disk for backups by it.
fn disks(uuid: uuid::Uuid, backups: &[&str]) -> Vec<(String, String)> {
    let disk = |(at, share): (usize, &&str)| {
        let mut hash = Sha256::new();
        hash.update(uuid.as_bytes());
        hash.update(share.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
        // A comma would end the name.
        let shown = share.replace(',', " ");
        (format!("dk{at}"), format!("adVN={shown},adVF=0x82,adVU={}", id.hyphenated().to_string().to_uppercase()))
    };
    let all = [("sys".to_owned(), "waMa=0,adVF=0x100".to_owned())].into_iter();
    all.chain(backups.iter().take(BACKUPS_MAX).enumerate().map(disk)).collect()
}

fn shortened(mut name: String) -> String {
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    name
}

/// The first label of the machine's name, as far as DNS knows its letters.
fn own_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let label = host.split('.').next().unwrap_or_default();
    let kept: String = label.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
    let kept = shortened(kept.trim_matches('-').to_owned());
    if kept.is_empty() { "larder".to_owned() } else { kept }
}

/// The same for this data folder on this machine at every start, and telling nothing of either.
fn uuid_of(folder: &DataFolder) -> uuid::Uuid {
    let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
    let mut hash = Sha256::new();
    hash.update(b"larder discovery");
    hash.update(machine);
    hash.update(folder.path().as_os_str().as_encoded_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn kinds(doors: &Doors) -> Option<(Vec<(&'static str, u16)>, bool)> {
        let config = DiscoveryConfig::default();
        let all = announced(&config, "box".into(), uuid::Uuid::nil(), doors, &["files"], &["backup"])?;
        Some((all.services.iter().map(|service| (service.kind, service.port)).collect(), all.windows))
    }

    #[test]
    fn only_doors_that_others_reach_are_announced() {
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(kinds(&Doors { smb: at("127.0.0.1:445"), nfs: at("[::1]:2049"), ..Doors::default() }), None);
        let some = Doors { smb: at("127.0.0.1:445"), nfs: at("0.0.0.0:12049"), ..Doors::default() };
        assert_eq!(kinds(&some), Some((vec![("_nfs._tcp", 12049)], false)));
        let all = Doors {
            smb: at("0.0.0.0:445"),
            nfs: at("192.168.1.2:2049"),
            sftp: at("0.0.0.0:10022"),
            webdavs: at("0.0.0.0:10443"),
            webdav: at("127.0.0.1:10080"),
        };
        let wanted = vec![
            ("_smb._tcp", 445),
            ("_nfs._tcp", 2049),
            ("_sftp-ssh._tcp", 10022),
            ("_webdavs._tcp", 10443),
            ("_https._tcp", 10443),
            ("_device-info._tcp", 0),
            ("_adisk._tcp", 9),
        ];
        assert_eq!(kinds(&all), Some((wanted, true)));
        assert_eq!(shortened("ä".repeat(40)).len(), 62);
    }
}
