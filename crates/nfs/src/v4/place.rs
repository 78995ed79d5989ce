//! File handles of version 4: those of version 3 for whatever lies in an export, and handles of the pseudo file system
//! above all exports (RFC 7530 7, RFC 8881 7).
//!
//! ```text
//!   "/"  pseudo          fsid of its own, read-only
//!    +-- files           the root of an export: a file system of its own
//!    +-- media (pseudo)  where an export is called "/media/films"
//!         +-- films
//! ```
//!
//! - `place.shown_by_network`: a machine sees the exports that are open to its network, and the pseudo directories
//!   above them. Names of others do not exist for it.
//! - `place.every_handle_judged`: each handle in a request is checked and its export's rule is applied, as in version 3
//!   (`export.every_call`).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use larder_base::checksum::checksum;
use larder_files::{Files, HeldInode};
use larder_fs::acl::Acl;
use larder_fs::{Attr, Cred, FileId, FileKind};

use super::super::export::{ExportState, cred_of, refusal_words};
use super::super::handle;
use super::super::rpc::Auth;
use super::super::shared::Shared;
use super::bitmap::Bitmap;
use super::convert::stat_of;
use super::shown::needs_list;
use super::types::NfsStat;
use larder_doors::door::shown;

const PSEUDO_MAGIC: [u8; 4] = *b"LN4P";
pub const PSEUDO_HANDLE_BYTES: usize = 12;
const PSEUDO_SEED: u64 = 0x7073_6575_646f_6673;

/// The caller of a request.
pub struct Caller<'m> {
    pub shared: &'m Arc<Shared>,
    pub peer: SocketAddr,
    pub auth: Auth<'m>,
}

/// A directory above the exports, by its path: "" is the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PseudoDir {
    path: String,
}

/// A file or directory of an export, as the caller may use it.
#[derive(Clone)]
pub struct Object {
    pub export: Arc<ExportState>,
    pub id: FileId,
    pub cred: Cred,
    pub read_only: bool,
    /// `ops.inode_held`
    _held: Option<Arc<HeldInode>>,
}

/// What a file handle leads to.
#[derive(Clone)]
pub enum Place {
    Pseudo(PseudoDir),
    Object(Object),
}

/// An entry of a pseudo directory.
pub enum PseudoEntry {
    Dir(PseudoDir),
    Export(Arc<ExportState>),
}

impl PseudoDir {
    pub fn root() -> Self {
        Self { path: String::new() }
    }

    pub fn at(path: &str) -> Self {
        Self { path: path.to_owned() }
    }

    fn child(&self, name: &str) -> Self {
        Self { path: format!("{}/{name}", self.path) }
    }

    /// `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        self.path.rsplit_once('/').map(|(above, _)| Self { path: above.to_owned() })
    }

    pub fn number(&self) -> u64 {
        checksum(PSEUDO_SEED, self.path.as_bytes())
    }

    pub fn handle(&self) -> [u8; PSEUDO_HANDLE_BYTES] {
        let mut handle = [0; PSEUDO_HANDLE_BYTES];
        let bytes = PSEUDO_MAGIC.into_iter().chain(self.number().to_be_bytes());
        handle.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        handle
    }
}

/// The number of an export's root in the pseudo directory that it is mounted on.
pub fn mounted_on(export: &ExportState) -> u64 {
    checksum(PSEUDO_SEED, export.path.as_bytes())
}

impl Object {
    pub fn files(&self) -> &Files {
        &self.export.stateful
    }

    pub fn handle(&self, id: FileId) -> [u8; handle::HANDLE_BYTES] {
        handle::encode(&self.export.key, &self.export.seal, id)
    }

    pub fn is_root(&self) -> bool {
        self.id.ino == self.export.export.root
    }

    pub async fn resolve(&self) -> Result<Attr, NfsStat> {
        self.files().resolve(self.id).await.map_err(|error| stat_of(&error))
    }

    /// Its attributes with its list, where something wanted needs that.
    pub async fn with_list(
        &self,
        attr: Result<Attr, NfsStat>,
        wanted: &Bitmap,
    ) -> Result<(Attr, Option<Arc<Acl>>), NfsStat> {
        let attr = attr?;
        if !needs_list(wanted) {
            return Ok((attr, None));
        }
        let (with_dos, acl) = Box::pin(self.files().acl(attr.id.ino)).await.map_err(|error| stat_of(&error))?;
        Ok((Attr { dos: with_dos.dos, ..attr }, acl))
    }

    /// The object as a directory.
    pub async fn dir(&self) -> Result<Attr, NfsStat> {
        let attr = self.resolve().await?;
        match attr.kind {
            FileKind::Directory => Ok(attr),
            FileKind::Symlink => Err(NfsStat::Symlink),
            _ => Err(NfsStat::NotDir),
        }
    }

    /// Another object of the same export, with the same rights.
    pub async fn beside(&self, id: FileId) -> Result<Object, NfsStat> {
        Object { id, _held: None, ..self.clone() }.held().await
    }

    async fn held(mut self) -> Result<Object, NfsStat> {
        if self.files().reuses_numbers() {
            let held = Box::pin(self.files().hold(self.id)).await.map_err(|error| stat_of(&error))?;
            self._held = Some(Arc::new(held));
        }
        Ok(self)
    }

    pub fn may_change(&self) -> Result<(), NfsStat> {
        if self.read_only { Err(NfsStat::RoFs) } else { Ok(()) }
    }
}

impl Caller<'_> {
    /// Exports that the caller's machine may know of, by their paths (`place.shown_by_network`).
    fn visible(&self) -> Vec<Arc<ExportState>> {
        let exports = self.shared.exports();
        exports.list.iter().filter(|export| export.shows_to(self.peer.ip())).cloned().collect()
    }

    fn pseudo_at(&self, path: &str) -> Option<PseudoEntry> {
        let visible = self.visible();
        if let Some(export) = visible.iter().find(|export| export.path == path) {
            return Some(PseudoEntry::Export(Arc::clone(export)));
        }
        let is_above =
            |export: &Arc<ExportState>| export.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        visible.iter().any(is_above).then(|| PseudoEntry::Dir(PseudoDir { path: path.to_owned() }))
    }

    pub fn pseudo_lookup(&self, dir: &PseudoDir, name: &[u8]) -> Result<PseudoEntry, NfsStat> {
        let name = std::str::from_utf8(name).map_err(|_| NfsStat::NoEnt)?;
        self.pseudo_at(&dir.child(name).path).ok_or(NfsStat::NoEnt)
    }

    /// Names in a pseudo directory, in their order.
    pub fn pseudo_names(&self, dir: &PseudoDir) -> BTreeSet<String> {
        let name = |export: &Arc<ExportState>| {
            let rest = export.path.strip_prefix(&dir.path)?.strip_prefix('/')?;
            rest.split('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
        };
        self.visible().iter().filter_map(name).collect()
    }

    /// The directory that PUTROOTFH leads to: an export may be called "/".
    pub async fn root(&self) -> Result<Place, NfsStat> {
        match self.visible().iter().find(|export| export.path == "/") {
            Some(export) => self.enter(export).await.map(Place::Object),
            None => Ok(Place::Pseudo(PseudoDir::root())),
        }
    }

    /// The root of an export.
    pub async fn enter(&self, export: &Arc<ExportState>) -> Result<Object, NfsStat> {
        let (cred, read_only) = self.judged(export)?;
        let attr = export.stateful.getattr(export.export.root).await.map_err(|error| stat_of(&error))?;
        let object = Object { export: Arc::clone(export), id: attr.id, cred, read_only, _held: None };
        object.held().await
    }

    /// Who the caller is in an export, and whether it may change nothing (`place.every_handle_judged`).
    fn judged(&self, export: &ExportState) -> Result<(Cred, bool), NfsStat> {
        match export.entrance(self.peer) {
            Ok(rights) => Ok((cred_of(&rights, &self.auth).of_client(Some(self.peer.ip()), None), !rights.may_write)),
            Err(refusal) => {
                let (client, path) = (self.peer.ip(), shown(&export.path));
                let why = || format!("NFS: {client} may not use {path}: {}", refusal_words(refusal, &export.path));
                self.shared.door.refused(client, why);
                Err(NfsStat::Access)
            }
        }
    }

    /// PUTFH.
    pub async fn place(&self, raw: &[u8]) -> Result<Place, NfsStat> {
        if raw.len() == PSEUDO_HANDLE_BYTES && raw.starts_with(&PSEUDO_MAGIC) {
            return self.pseudo_by_handle(raw).map(Place::Pseudo);
        }
        let (key, id) = handle::decode(raw).ok_or(NfsStat::BadHandle)?;
        let exports = self.shared.exports();
        let missing = || if self.shared.is_paused(&key.volume) { NfsStat::Delay } else { NfsStat::Stale };
        let export = exports.by_key(&key).ok_or_else(missing)?;
        let (cred, read_only) = self.judged(export)?;
        if !handle::is_of(raw, id.ino, &export.seal) {
            return Err(NfsStat::BadHandle);
        }
        let object = Object { export: Arc::clone(export), id, cred, read_only, _held: None };
        object.held().await.map(Place::Object)
    }

    fn pseudo_by_handle(&self, raw: &[u8]) -> Result<PseudoDir, NfsStat> {
        let root = PseudoDir::root();
        if raw == root.handle() {
            return Ok(root);
        }
        let visible = self.visible();
        let above = visible
            .iter()
            .flat_map(|export| export.path.match_indices('/').skip(1).filter_map(|(at, _)| export.path.get(..at)));
        let mut dirs = above.map(|path| PseudoDir { path: path.to_owned() });
        dirs.find(|dir| raw == dir.handle()).ok_or(NfsStat::Stale)
    }
}
