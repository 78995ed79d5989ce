//! Files that clients have open or locked, and the end of one open. Asks no disk for opens of SMB; the folders of those of
//! NFS are found by their metadata, which is in memory while they are in use.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use larder_api::{Failure, OpenFile, OpenFiles, OpenUse};
use larder_files::Files;
use larder_fs::Ino;
use larder_keep::Storage;
use larder_nfs::NfsOpen;
use larder_smb::door::SmbOpen;

use larder_config::VolumeName;
use larder_config::user::Accounts;
use larder_document::Document;
use larder_servers::Servers;

/// Opens of each door that are listed.
const LISTED_MAX: usize = 500;
/// Folders of one volume whose paths are looked for.
const FOLDERS_MAX: usize = 200;

const OF_SMB: &str = "smb-";
const OF_NFS: &str = "nfs-";

fn uses(all: [(bool, OpenUse); 3]) -> Vec<OpenUse> {
    all.into_iter().filter(|(has, _)| *has).map(|(_, one)| one).collect()
}

fn of_smb(open: SmbOpen) -> OpenFile {
    let is = open.standing;
    OpenFile {
        id: format!("{OF_SMB}{}", open.id),
        door: "smb".to_owned(),
        user: open.user,
        address: open.address.map(|address| address.to_string()),
        client: None,
        share: Some(open.share),
        volume: None,
        path: Some(format!("/{}", open.path.replace('\\', "/"))),
        directory: open.is_directory,
        does: uses([(is.reads, OpenUse::Read), (is.writes, OpenUse::Write), (is.deletes, OpenUse::Delete)]),
        denies: uses([
            (is.denies_reads, OpenUse::Read),
            (is.denies_writes, OpenUse::Write),
            (is.denies_deletes, OpenUse::Delete),
        ]),
        locks: is.locks as u64,
        caches: is.caches,
    }
}

fn of_nfs(open: &NfsOpen, user: Option<String>, volume: Option<String>, folder: Option<&String>) -> OpenFile {
    let file = open.name.as_ref().map(|(_, name)| String::from_utf8_lossy(name).into_owned());
    OpenFile {
        id: format!("{OF_NFS}{}", open.number),
        door: "nfs".to_owned(),
        user,
        address: Some(open.address.to_string()),
        client: Some(open.client.clone()),
        share: None,
        volume,
        path: file.map(|file| format!("{}/{file}", folder.map_or("...", String::as_str))),
        directory: false,
        does: uses([(open.reads, OpenUse::Read), (open.writes, OpenUse::Write), (false, OpenUse::Delete)]),
        denies: uses([
            (open.denies_reads, OpenUse::Read),
            (open.denies_writes, OpenUse::Write),
            (false, OpenUse::Delete),
        ]),
        locks: open.lock_owners as u64,
        caches: open.is_delegated,
    }
}

/// Paths of the folders in which these files were opened, by volume and folder.
async fn folders(opens: &[NfsOpen]) -> HashMap<(uuid::Uuid, Ino), String> {
    let mut wanted: HashMap<uuid::Uuid, (&Files, BTreeSet<Ino>)> = HashMap::new();
    for open in opens {
        let Some((folder, _)) = &open.name else { continue };
        let (_, folders) = wanted.entry(open.files.id()).or_insert_with(|| (&open.files, BTreeSet::new()));
        if folders.len() < FOLDERS_MAX {
            folders.insert(*folder);
        }
    }
    let mut paths = HashMap::new();
    for (volume, (files, folders)) in wanted {
        paths.extend(files.folder_paths(folders).await.into_iter().map(|(folder, path)| ((volume, folder), path)));
    }
    paths
}

/// The files that clients have open.
pub struct OpenList {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub servers: Arc<Servers>,
}

impl OpenList {
    pub async fn list(&self) -> OpenFiles {
        let (smb, smb_more) = self.servers.smb_opens(LISTED_MAX).await;
        let (nfs, nfs_more) = self.servers.nfs_opens(LISTED_MAX);
        let (host, names, volumes) = (Accounts::of_machine(), self.document.owners(), self.volume_names().await);
        let folders = folders(&nfs).await;
        let mut opens: Vec<OpenFile> = smb.into_iter().map(of_smb).collect();
        opens.extend(nfs.iter().map(|open| {
            let user = names.users.get(&open.uid).cloned().or_else(|| host.name_of_user(open.uid));
            let folder = open.name.as_ref().and_then(|(folder, _)| folders.get(&(open.files.id(), *folder)));
            of_nfs(open, user, volumes.get(&open.files.id()).cloned(), folder)
        }));
        OpenFiles { opens, more: (smb_more + nfs_more) as u64 }
    }

    /// The names of the volumes that are shared, by their ids.
    async fn volume_names(&self) -> HashMap<uuid::Uuid, String> {
        let config = self.document.config();
        let shared: BTreeSet<&VolumeName> = config.shares.iter().filter_map(|share| share.volume.as_ref()).collect();
        let mut names = HashMap::new();
        for name in shared {
            if let Ok(files) = self.storage.files(name).await {
                names.insert(files.id(), name.to_string());
            }
        }
        names
    }

    pub async fn end(&self, id: &str) -> Result<(), Failure> {
        let number = |prefix| id.strip_prefix(prefix).and_then(|number: &str| number.parse::<u64>().ok());
        let has_ended = match (number(OF_SMB), number(OF_NFS)) {
            (Some(number), _) => self.servers.end_smb_open(number).await,
            (None, Some(number)) => self.servers.end_nfs_open(number),
            (None, None) => false,
        };
        match has_ended {
            true => Ok(()),
            false => Err(Failure::not_found(format!("no client has an open '{id}': it may have closed it"))
                .action("see which there are with: larder opens")),
        }
    }
}
