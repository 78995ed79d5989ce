//! One version of a box: the files of its data folder that make it this box, and the files of secrets that its configuration names.
//!
//! - `contents.what_is_this_box`: [`FILES`] is the whole list. State that a machine builds up by itself (sessions of browsers,
//!   alerts, clients of NFS, the lives of pools) is not in it. Keys of encrypted volumes are not either: who opens the record does
//!   not open the volumes.
//! - `contents.ways_in_stay_guarded`: second factors, and the demand for them, come with the passwords that they guard into another
//!   life. Going back to an older version within a life leaves them as they are: it opens no way that is shut now.
//! - `contents.no_nt_hashes_without_smb`: a box without a door for SMB has no NT hashes in its record: the record goes to other
//!   machines, and these hashes are quick to guess from. In the data folder they stay (`secrets.nt_hash_for_smb_alone`).
//! - `contents.uses_are_no_change`: the last use of a link, passkey or code is kept, and makes no version.
//! - `contents.whole_or_nothing`: files that are put back are first written together into [`PENDING`]. A start that finds it puts
//!   them back before it reads any. So a crash leaves the box of before, or the one that was asked for.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use larder_api::Failure;
use larder_base::hex;
use larder_web::factors_without_uses;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toml_edit::{DocumentMut, Item, TableLike, Value};
use uuid::Uuid;

use super::own::{Life, OwnerSlot};
use larder_config::edit::replace_file;
use larder_document::NtHashes;
use larder_document::folder::{CONFIG_NAME, FACTORS_NAME, LINKS_NAME};
use larder_document::secrets::without_nt_hashes;

const FORMAT: u32 = 1;
/// In the data folder, in the order in which they are put back: what lets people in comes before the file that names them.
const FILES: [&str; 11] = [
    "secrets.key",
    "secrets",
    FACTORS_NAME,
    "tokens",
    LINKS_NAME,
    "ssh_host_ed25519_key",
    "webdav_certificate.pem",
    "webdav_key.pem",
    "machine.json",
    MOVES,
    CONFIG_NAME,
];
const MOVES: &str = "moves.json";
const PEOPLE: [&str; 3] = ["secrets", "tokens", LINKS_NAME];
/// Keys of the configuration that name a file with a secret.
const SECRET_KEYS: [&str; 5] = ["url_file", "token_file", "password_file", "ping_file", "client_secret_file"];
/// Files that are being put back.
pub const PENDING: &str = "box-restore.json";
/// Where files of secrets from elsewhere on the machine of before are put.
const SECRETS_FOLDER: &str = "restored-secrets";
/// A token, a password, a certificate with its chain.
const SECRET_BYTES_MAX: u64 = 1 << 20;
const SECRETS_MAX: usize = 256;
/// All files of a version together. Ten thousand links and four thousand tokens have a tenth of it.
pub const CONTENTS_BYTES_MAX: usize = 64 << 20;

/// Whether a file of the data folder makes the box.
pub(super) fn is_kept(name: &str) -> bool {
    FILES.contains(&name)
}

/// The bytes of a file: as text where they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Bytes {
    Text(String),
    Hex(String),
}

impl Bytes {
    fn of(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|error| Self::Hex(hex::encode(error.as_bytes())), Self::Text)
    }

    fn get(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Hex(digits) => hex::decode(digits).ok_or_else(|| "a file in it has no digits".to_owned()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptFile {
    /// In the data folder; or the whole path of a file of secrets.
    name: String,
    bytes: Bytes,
}

/// What makes a box this box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    format: u32,
    pub number: u64,
    pub written_secs: u64,
    /// The name of the machine that wrote it, and how people see the box.
    pub machine: String,
    pub box_name: String,
    /// The version of the program.
    pub larder: String,
    pub box_id: Uuid,
    pub life: Life,
    pub former: Vec<Life>,
    pub owners: BTreeMap<String, OwnerSlot>,
    /// What differs from the version before, in words.
    pub changes: Vec<String>,
    /// Relative paths in the configuration were relative to it.
    config_folder: PathBuf,
    files: Vec<KeptFile>,
    secret_files: Vec<KeptFile>,
}

/// The files of a version, as they lie on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathered {
    config_folder: PathBuf,
    files: Vec<KeptFile>,
    secret_files: Vec<KeptFile>,
}

/// Who writes a version.
pub struct Writer {
    pub machine: String,
    pub box_name: String,
    pub box_id: Uuid,
    pub life: Life,
    pub former: Vec<Life>,
    pub owners: BTreeMap<String, OwnerSlot>,
}

impl Gathered {
    /// Reads them. `config` is the daemon's file, in its data folder or elsewhere. A file of secrets that cannot be read is left
    /// out, with a word about it.
    pub fn read(data: &Path, config: &Path, nt_hashes: NtHashes) -> Result<(Self, Vec<String>), Failure> {
        let mut files = Vec::new();
        for name in FILES {
            let path = if name == CONFIG_NAME { config.to_owned() } else { data.join(name) };
            let failed = |e: &std::io::Error| Failure::io(format_args!("cannot read {}", path.display()), e);
            match read_bounded(&path, CONTENTS_BYTES_MAX as u64) {
                Ok(bytes) if name == "secrets" && nt_hashes == NtHashes::LeftOut => {
                    let bytes = without_nt_hashes(&bytes).map_err(|error| failed(&error.into()))?;
                    files.push(KeptFile { name: name.to_owned(), bytes: Bytes::of(bytes) });
                }
                Ok(bytes) => files.push(KeptFile { name: name.to_owned(), bytes: Bytes::of(bytes) }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && name != CONFIG_NAME => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        let config_folder = config.parent().unwrap_or(Path::new("/")).to_owned();
        let mut gathered = Self { config_folder, files, secret_files: Vec::new() };
        let mut notes = Vec::new();
        for path in secrets_of(gathered.config()?, &gathered.config_folder)? {
            match read_bounded(&path, SECRET_BYTES_MAX) {
                Ok(bytes) => gathered
                    .secret_files
                    .push(KeptFile { name: path.to_string_lossy().into_owned(), bytes: Bytes::of(bytes) }),
                Err(error) => notes.push(format!("the file {} is not kept: {error}", path.display())),
            }
        }
        Ok((gathered, notes))
    }

    pub(super) fn config(&self) -> Result<&str, Failure> {
        config_of(&self.files)
    }

    /// Of what the box is. Uses of links and factors do not count (`contents.uses_are_no_change`).
    pub fn digest(&self, owners: &BTreeMap<String, OwnerSlot>) -> String {
        let counted = |file: &KeptFile| match &file.bytes {
            Bytes::Text(text) if file.name == LINKS_NAME => {
                KeptFile { bytes: Bytes::Text(without_uses(text)), ..file.clone() }
            }
            Bytes::Text(text) if file.name == FACTORS_NAME => {
                KeptFile { bytes: Bytes::of(factors_without_uses(text.as_bytes())), ..file.clone() }
            }
            _ => file.clone(),
        };
        let files: Vec<KeptFile> = self.files.iter().map(counted).collect();
        let text = serde_json::to_vec(&(files, &self.secret_files, owners)).unwrap_or_default();
        hex::encode(&Sha256::digest(&text))
    }

    pub fn into_version(self, number: u64, now: u64, by: Writer, changes: Vec<String>) -> Contents {
        let Writer { machine, box_name, box_id, life, former, owners } = by;
        Contents {
            format: FORMAT,
            number,
            written_secs: now,
            machine,
            box_name,
            larder: env!("CARGO_PKG_VERSION").to_owned(),
            box_id,
            life,
            former,
            owners,
            changes,
            config_folder: self.config_folder,
            files: self.files,
            secret_files: self.secret_files,
        }
    }
}

impl Contents {
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if format != FORMAT {
            return Err(format!("it has format {format}: a newer larder is needed"));
        }
        let contents: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let is_known = |file: &KeptFile| FILES.contains(&file.name.as_str());
        if !contents.files.iter().all(is_known) || contents.secret_files.len() > SECRETS_MAX {
            return Err("it has files that no larder keeps".to_owned());
        }
        contents.files.iter().chain(&contents.secret_files).try_for_each(|file| file.bytes.get().map(drop))?;
        Ok(contents)
    }

    pub fn encode(&self) -> Result<Vec<u8>, Failure> {
        let bytes = serde_json::to_vec(self).map_err(|error| Failure::internal(error.to_string()))?;
        if bytes.len() > CONTENTS_BYTES_MAX {
            let message =
                format!("the record of this box has {} bytes, and {CONTENTS_BYTES_MAX} is the most", bytes.len());
            return Err(Failure::unavailable(message)
                .action("end links and tokens that nobody needs: larder link list; larder token list"));
        }
        Ok(bytes)
    }

    /// Its larder.toml.
    pub fn config(&self) -> Result<&str, Failure> {
        config_of(&self.files)
    }

    pub fn with_config(mut self, text: String) -> Self {
        self.files
            .iter_mut()
            .filter(|file| file.name == CONFIG_NAME)
            .for_each(|file| file.bytes = Bytes::Text(text.clone()));
        self
    }

    /// The names of its files beside the configuration.
    pub fn names(&self) -> Vec<String> {
        let own = self.files.iter().filter(|file| file.name != CONFIG_NAME);
        own.chain(&self.secret_files).map(|file| file.name.clone()).collect()
    }

    /// What differs from the version before, in words: `differs` compares the configurations.
    pub fn changes_since(before: Option<&Contents>, now: &Gathered, differs: Vec<String>) -> Vec<String> {
        let Some(before) = before else { return vec!["the first version".to_owned()] };
        let word = |name: &str| match name {
            "secrets" | "secrets.key" => "passwords".to_owned(),
            FACTORS_NAME => "second factors".to_owned(),
            "tokens" => "app tokens".to_owned(),
            LINKS_NAME => "links".to_owned(),
            "ssh_host_ed25519_key" => "the SSH host key".to_owned(),
            "webdav_certificate.pem" | "webdav_key.pem" => "the certificate".to_owned(),
            "machine.json" => "the identity for replication".to_owned(),
            MOVES => "moves of volumes".to_owned(),
            other => format!("the file {other}"),
        };
        let differing = |old: &[KeptFile], new: &[KeptFile]| -> Vec<String> {
            let names = old.iter().chain(new).map(|file| file.name.as_str()).filter(|name| *name != CONFIG_NAME);
            let of = |files: &[KeptFile], name: &str| files.iter().find(|file| file.name == name).cloned();
            names.filter(|name| of(old, name) != of(new, name)).map(word).collect()
        };
        let mut all = differs;
        all.extend(differing(&before.files, &now.files));
        all.extend(differing(&before.secret_files, &now.secret_files));
        if all.is_empty() && config_of(&before.files).ok() != now.config().ok() {
            all.push("comments of larder.toml".to_owned());
        }
        let mut seen = Vec::<String>::new();
        all.into_iter().for_each(|one| {
            if !seen.contains(&one) {
                seen.push(one);
            }
        });
        seen
    }

    /// Puts the files back into the data folder (`contents.whole_or_nothing`). `config` is the daemon's file; `own` is the new
    /// `box.json`, where the box begins another life.
    pub fn put_back(self, data: &Path, config: &Path, own: Option<Vec<u8>>) -> Result<(), Failure> {
        self.stage(data, config, own)?.finish(data)
    }

    /// The next start puts the files back.
    pub fn stage(self, data: &Path, config: &Path, own: Option<Vec<u8>>) -> Result<Pending, Failure> {
        let contents = self.with_secrets_here(data, config)?;
        let own = own.map(|own| String::from_utf8_lossy(&own).into_owned());
        let pending = Pending { config: config.to_owned(), own, contents };
        let text = serde_json::to_vec(&pending).map_err(|error| Failure::internal(error.to_string()))?;
        replace_file(&data.join(PENDING), &text, 0o600)?;
        Ok(pending)
    }

    /// Files of secrets that lay elsewhere than in the data folder come to one place there, and the configuration names them.
    fn with_secrets_here(mut self, data: &Path, config: &Path) -> Result<Self, Failure> {
        let mut moved = BTreeMap::new();
        for (at, file) in self.secret_files.iter_mut().enumerate() {
            let base = Path::new(&file.name).file_name().unwrap_or_default().to_string_lossy().into_owned();
            let now = data.join(SECRETS_FOLDER).join(format!("{at}-{base}"));
            let is_there = |path: &Path| {
                let same = std::fs::read(path).ok().zip(file.bytes.get().ok());
                same.is_some_and(|(there, kept)| there == kept)
            };
            if is_there(Path::new(&file.name)) {
                continue;
            }
            moved.insert(file.name.clone(), now.to_string_lossy().into_owned());
            file.name = now.to_string_lossy().into_owned();
        }
        // What is where it was stays as it is.
        self.secret_files.retain(|file| Path::new(&file.name).starts_with(data.join(SECRETS_FOLDER)));
        let folder = config.parent().unwrap_or(Path::new("/")).to_owned();
        if moved.is_empty() && folder == self.config_folder {
            return Ok(self);
        }
        let mut document = document_of(self.config()?)?;
        each_secret(&mut document, &mut |value| {
            let before = self.config_folder.join(value.as_str().unwrap_or_default()).to_string_lossy().into_owned();
            let now = moved.get(&before).unwrap_or(&before);
            if folder.join(value.as_str().unwrap_or_default()) != Path::new(now) {
                replace_value(value, now);
            }
        });
        Ok(self.with_config(document.to_string()))
    }
}

/// Keeps the comment behind it.
fn replace_value(value: &mut Value, text: &str) {
    let decor = value.decor().clone();
    *value = Value::from(text);
    *value.decor_mut() = decor;
}

/// A version that decodes is encoded and decoded again without change, and its secrets are found.
#[cfg(test)]
pub fn fuzz_version(data: &[u8]) {
    let Ok(version) = Contents::decode(data) else { return };
    if let Ok(text) = version.config() {
        let _ = secrets_of(text, Path::new("/"));
    }
    let again = version.encode().ok().and_then(|bytes| Contents::decode(&bytes).ok());
    assert_eq!(again, Some(version));
}

/// Files that are being put back.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    config: PathBuf,
    own: Option<String>,
    contents: Contents,
}

impl Pending {
    fn finish(&self, data: &Path) -> Result<(), Failure> {
        let of = |file: &KeptFile| file.bytes.get().map_err(Failure::internal);
        if !self.contents.secret_files.is_empty() {
            let folder = data.join(SECRETS_FOLDER);
            use std::os::unix::fs::DirBuilderExt;
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .map_err(|e| Failure::io(folder.display(), &e))?;
        }
        for file in &self.contents.secret_files {
            replace_file(Path::new(&file.name), &of(file)?, 0o600)?;
        }
        let is_another_life = self.own.is_some();
        for name in FILES.iter().filter(|name| **name != CONFIG_NAME) {
            match self.contents.files.iter().find(|file| file.name == **name) {
                // How far moves of volumes are is no wish of anybody.
                // `contents.ways_in_stay_guarded`
                _ if [MOVES, FACTORS_NAME].contains(name) && !is_another_life => {}
                Some(file) => replace_file(&data.join(name), &of(file)?, 0o600)?,
                // People go back to what they were; a key that was made since stays.
                None if is_another_life || PEOPLE.contains(name) => remove(&data.join(name))?,
                None => {}
            }
        }
        if let Some(own) = &self.own {
            replace_file(&data.join(super::own::FILE), own.as_bytes(), 0o600)?;
        }
        replace_file(&self.config, self.contents.config()?.as_bytes(), 0o600)?;
        remove(&data.join(PENDING))?;
        std::fs::File::open(data).and_then(|folder| folder.sync_all()).map_err(|e| Failure::io(data.display(), &e))
    }
}

fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::io(path.display(), &error)),
        _ => Ok(()),
    }
}

/// Puts back what a crash left (`contents.whole_or_nothing`). Whether there was anything.
pub fn finish_pending(data: &Path) -> Result<bool, Failure> {
    let file = data.join(PENDING);
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Failure::io(format_args!("cannot read {}", file.display()), &error)),
    };
    let pending: Pending = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::unavailable(format!("{} is damaged: {error}", file.display()))
            .action(format!("remove it, and import or restore again: rm {}", larder_base::shell::word(&file)))
    })?;
    pending.finish(data)?;
    Ok(true)
}

fn config_of(files: &[KeptFile]) -> Result<&str, Failure> {
    let text = files.iter().find(|file| file.name == CONFIG_NAME).and_then(|file| match &file.bytes {
        Bytes::Text(text) => Some(text.as_str()),
        Bytes::Hex(_) => None,
    });
    text.ok_or_else(|| Failure::unavailable(format!("the record of the box has no {CONFIG_NAME}")))
}

fn read_bounded(path: &Path, max: u64) -> std::io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no ordinary file"));
    }
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(std::io::Error::other("it is too large")),
        false => Ok(bytes),
    }
}

/// The last column of each line is the last use.
fn without_uses(links: &str) -> String {
    let lines = links.lines().map(|line| line.rsplit_once(' ').map_or(line, |(rest, _)| rest));
    lines.collect::<Vec<_>>().join("\n")
}

fn document_of(text: &str) -> Result<DocumentMut, Failure> {
    text.parse().map_err(|error: toml_edit::TomlError| Failure::invalid(error.to_string()))
}

/// Calls `change` with each value that names a file of secrets.
fn each_secret(document: &mut DocumentMut, change: &mut dyn FnMut(&mut Value)) {
    fn walk(table: &mut dyn TableLike, place: &str, change: &mut dyn FnMut(&mut Value)) {
        for (key, item) in table.iter_mut() {
            let key = key.get().to_owned();
            let is_secret = SECRET_KEYS.contains(&key.as_str())
                || place == "webdav" && ["certificate", "key"].contains(&key.as_str());
            match item {
                Item::Value(Value::InlineTable(inner)) => walk(inner, &key, change),
                Item::Value(Value::Array(all)) => {
                    all.iter_mut().filter_map(Value::as_inline_table_mut).for_each(|inner| walk(inner, &key, change));
                }
                Item::Value(value) if is_secret && value.is_str() => change(value),
                Item::Table(inner) => walk(inner, &key, change),
                Item::ArrayOfTables(all) => all.iter_mut().for_each(|inner| walk(inner, &key, change)),
                _ => {}
            }
        }
    }
    walk(document.as_table_mut(), "", change);
}

/// The files of secrets that a configuration names. Relative ones are relative to its folder.
fn secrets_of(text: &str, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    each_secret(&mut document_of(text)?, &mut |value| {
        let path = folder.join(value.as_str().unwrap_or_default());
        if found.len() < SECRETS_MAX && !found.contains(&path) {
            found.push(path);
        }
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const CONFIG: &str = "# mine\n[[pool]]\nname = \"t\"\ndisks = [\"a\"]\n[[alert]]\nkind = \"ntfy\"\nurl = \"https://ntfy.sh/x\"\n\
                          token_file = \"ntfy\"   # said once\n[webdav]\ncertificate = \"/etc/c.pem\"\nkey = \"/etc/k.pem\"\n";

    fn writer() -> Writer {
        let life = Life { number: 1, id: Uuid::from_u128(2), began_secs: 3 };
        Writer {
            machine: "nas".to_owned(),
            box_name: "The Pantry".to_owned(),
            box_id: Uuid::from_u128(1),
            life,
            former: Vec::new(),
            owners: BTreeMap::new(),
        }
    }

    fn gathered(data: &Path) -> Gathered {
        Gathered::read(data, &data.join(CONFIG_NAME), NtHashes::Kept).unwrap().0
    }

    fn of(data: &Path) -> Contents {
        gathered(data).into_version(4, 5, writer(), Vec::new())
    }

    #[test]
    fn a_version_comes_back_as_it_was_on_another_machine() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(old.path().join(CONFIG_NAME), CONFIG).unwrap();
        std::fs::write(old.path().join("secrets"), "{}").unwrap();
        std::fs::write(old.path().join("ntfy"), b"t\xff").unwrap();
        std::fs::write(old.path().join("page_sessions"), "not of the box").unwrap();
        let (found, notes) = Gathered::read(old.path(), &old.path().join(CONFIG_NAME), NtHashes::Kept).unwrap();
        assert_eq!(found.files.len(), 2);
        assert_eq!(notes.len(), 2, "the certificate and its key are not there: {notes:?}");
        let version = found.into_version(4, 5, writer(), Vec::new());
        let read = Contents::decode(&version.encode().unwrap()).unwrap();
        assert_eq!(read, version);
        // Another machine has a file of that name, of another box.
        std::fs::write(new.path().join("tokens"), "of another box").unwrap();
        let config = new.path().join(CONFIG_NAME);
        std::fs::remove_file(old.path().join("ntfy")).unwrap();
        read.put_back(new.path(), &config, Some(b"{}".to_vec())).unwrap();
        let text = std::fs::read_to_string(&config).unwrap();
        let secret = new.path().join(SECRETS_FOLDER).join("0-ntfy");
        assert!(text.starts_with("# mine\n") && text.contains("# said once"), "{text}");
        assert!(text.contains(secret.to_str().unwrap()), "{text}");
        assert_eq!(std::fs::read(secret).unwrap(), b"t\xff");
        assert_eq!(std::fs::read_to_string(new.path().join("secrets")).unwrap(), "{}");
        assert!(!new.path().join("tokens").exists() && !new.path().join(PENDING).exists());
    }

    /// `contents.no_nt_hashes_without_smb`
    #[test]
    fn nt_hashes_stay_out_where_smb_is_not_served() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let mut secrets = larder_document::Secrets::open(data).unwrap();
        secrets.set("ann", "Pantry-Shelf-42", NtHashes::Kept).unwrap();
        let check = |listen: &str, nt_hashes: NtHashes| {
            let file = data.join(CONFIG_NAME);
            std::fs::write(&file, listen).unwrap();
            let config = larder_config::Config::load(&file).unwrap();
            assert_eq!(NtHashes::of(&config, &file), nt_hashes, "{listen}");
            let version = Gathered::read(data, &file, nt_hashes).unwrap().0.into_version(4, 5, writer(), Vec::new());
            let text = String::from_utf8(version.encode().unwrap()).unwrap();
            assert!(text.contains("argon2id$"), "{text}");
            assert_eq!(text.contains("nt_hash"), nt_hashes == NtHashes::Kept, "{text}");
        };
        check("[listen]\nsmb = \":14445\"\n", NtHashes::Kept);
        check("[listen]\nsmb = \"off\"\n", NtHashes::LeftOut);
        assert!(secrets.nt_hash("ann").unwrap().is_some());
        // For this run alone: the file has the door.
        std::fs::write(data.join(CONFIG_NAME), "[listen]\nsmb = \":14445\"\n").unwrap();
        let closed = larder_config::Config::parse("[listen]\nsmb = \"off\"\n", Path::new("/larder.toml")).unwrap();
        assert_eq!(NtHashes::of(&closed, &data.join(CONFIG_NAME)), NtHashes::Kept);
    }

    /// `contents.whole_or_nothing`
    #[test]
    fn what_a_crash_left_is_put_back_by_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        std::fs::write(data.join(CONFIG_NAME), "# the version\n").unwrap();
        std::fs::write(data.join("tokens"), "old").unwrap();
        let contents = of(data);
        assert!(!finish_pending(data).unwrap());
        std::fs::write(data.join(CONFIG_NAME), "# now\n").unwrap();
        std::fs::write(data.join("tokens"), "new").unwrap();
        let pending = Pending { config: data.join(CONFIG_NAME), own: None, contents };
        std::fs::write(data.join(PENDING), serde_json::to_vec(&pending).unwrap()).unwrap();
        assert!(finish_pending(data).unwrap());
        assert_eq!(std::fs::read_to_string(data.join("tokens")).unwrap(), "old");
        assert_eq!(std::fs::read_to_string(data.join(CONFIG_NAME)).unwrap(), "# the version\n");
        assert!(!finish_pending(data).unwrap());
    }

    /// `contents.ways_in_stay_guarded`
    #[test]
    fn second_factors_come_into_another_life_and_stay_within_one() {
        let factors = r#"{"is_demanded":true,"of":{}}"#;
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let none = BTreeMap::new();
        let (file, there) = (old.path().join(FACTORS_NAME), new.path().join(FACTORS_NAME));
        std::fs::write(old.path().join(CONFIG_NAME), CONFIG).unwrap();
        let (before, without) = (gathered(old.path()).digest(&none), of(old.path()));
        std::fs::write(&file, factors).unwrap();
        assert_ne!(gathered(old.path()).digest(&none), before);
        of(old.path()).put_back(new.path(), &new.path().join(CONFIG_NAME), Some(b"{}".to_vec())).unwrap();
        assert_eq!(std::fs::read_to_string(&there).unwrap(), factors);
        // Going back to a version that had none, or others, opens nothing.
        std::fs::write(&there, "now").unwrap();
        without.put_back(new.path(), &new.path().join(CONFIG_NAME), None).unwrap();
        of(old.path()).put_back(new.path(), &new.path().join(CONFIG_NAME), None).unwrap();
        assert_eq!(std::fs::read_to_string(&there).unwrap(), "now");
    }

    /// `contents.uses_are_no_change`
    #[test]
    fn a_change_is_a_change_of_the_box() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        std::fs::write(data.join(CONFIG_NAME), CONFIG).unwrap();
        let none = BTreeMap::new();
        let links =
            |used: &str| std::fs::write(data.join(LINKS_NAME), format!("larder links 2\nhash 1 2 - ab cd 7 {used}\n"));
        links("-").unwrap();
        let first = gathered(data).digest(&none);
        links("99").unwrap();
        assert_eq!(gathered(data).digest(&none), first);
        let before = of(data);
        std::fs::write(data.join("tokens"), "one").unwrap();
        assert_ne!(gathered(data).digest(&none), first);
        let changes = |differs| Contents::changes_since(Some(&before), &gathered(data), differs);
        assert_eq!(changes(vec!["[[share]] photos".to_owned()]), ["[[share]] photos", "app tokens"]);
        assert_eq!(Contents::changes_since(None, &gathered(data), Vec::new()), ["the first version"]);
    }

    #[test]
    fn strange_versions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(CONFIG_NAME), CONFIG).unwrap();
        let mut version = of(folder.path());
        version.files.push(KeptFile { name: "../../etc/passwd".to_owned(), bytes: Bytes::Text(String::new()) });
        assert!(Contents::decode(&serde_json::to_vec(&version).unwrap()).is_err());
        assert!(Contents::decode(b"{\"format\":2}").unwrap_err().contains("newer"));
        assert!(Contents::decode(b"{").is_err());
    }
}
