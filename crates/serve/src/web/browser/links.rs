//! Links that users give to others: who has one reads what it leads to, without a name.
//!
//! - `links.hashed`: the file has a hash of each token, never the token: nobody who reads the file can
//!   use a link. Its password is kept as those of users are.
//! - `links.rights_of_the_maker`: a link gives what its maker may read at the time of use. When the maker
//!   is gone, or loses the right, it gives nothing.
//! - `links.durable`: a link that was shown survives a crash, and one that was revoked stays so: the file
//!   is written beside the old one, flushed, and takes its name, before the answer.
//! - `links.bounded`: there are at most [`LINKS_MAX`], of one user [`OF_USER_MAX`]; each ends after
//!   [`DAYS_MAX`] days at the latest.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64ct::{Base64UrlUnpadded, Encoding};
use bytes::Bytes;
use hyper::StatusCode;
use larder_base::hex;
use parking_lot::RwLock;

use super::super::fail::Fail;
use super::sessions::{TokenHash, hash, secret};
use crate::password::PasswordHash;

const LINKS_MAX: usize = 10_000;
const OF_USER_MAX: usize = 500;
pub const DAYS_MAX: i64 = 365;
const FILE_BYTES_MAX: u64 = 64 << 20;
const FIRST_LINE: &str = "larder links 1";
const TOKEN_BYTES: usize = 24;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub hash: TokenHash,
    pub maker: String,
    /// From the top: `share/folder/name`.
    pub path: Bytes,
    /// Seconds since 1970.
    pub made: i64,
    pub until: i64,
    pub password: Option<PasswordHash>,
}

impl Link {
    /// A name for it that does not open it.
    pub fn id(&self) -> String {
        hex::encode(&self.hash).get(..16).unwrap_or_default().to_owned()
    }
}

#[derive(Default)]
pub struct Links {
    file: Option<PathBuf>,
    all: RwLock<Arc<Vec<Arc<Link>>>>,
    /// Changes one after the other.
    changing: tokio::sync::Mutex<()>,
    /// Why nothing can be changed.
    broken: Option<String>,
}

pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

impl Links {
    /// The links of `file`; without a file they end with the server.
    pub fn load(file: Option<PathBuf>) -> Self {
        let Some(path) = file else { return Self::default() };
        match read(&path).and_then(|text| parse(&text).map_err(io::Error::other)) {
            Ok(links) => Self { file: Some(path), all: RwLock::new(Arc::new(links)), ..Self::default() },
            Err(error) => {
                let broken = format!("{}: {error}", path.display());
                tracing::error!(
                    "links to files are not served: {broken}; mend the file, or remove it and with it all links, and restart"
                );
                Self { broken: Some(broken), ..Self::default() }
            }
        }
    }

    /// The link that this token opens, while it lasts.
    pub fn find(&self, token: &str) -> Option<Arc<Link>> {
        let (hash, now) = (hash(token), now());
        self.all.read().iter().find(|link| link.hash == hash && now < link.until).cloned()
    }

    /// Those of a user, the newest first.
    pub fn of_user(&self, name: &str) -> Vec<Arc<Link>> {
        let now = now();
        self.all.read().iter().rev().filter(|link| link.maker == name && now < link.until).cloned().collect()
    }

    /// Makes a link and returns its token, which is kept nowhere.
    pub async fn make(
        &self,
        maker: &str,
        path: &Bytes,
        until: i64,
        password: Option<PasswordHash>,
    ) -> Result<String, Fail> {
        let token = Base64UrlUnpadded::encode_string(&secret::<TOKEN_BYTES>());
        let link =
            Link { hash: hash(&token), maker: maker.to_owned(), path: path.clone(), made: now(), until, password };
        self.change(|all| {
            let of_user = all.iter().filter(|link| link.maker == maker).count();
            if all.len() >= LINKS_MAX || of_user >= OF_USER_MAX {
                return Err(Fail::new(
                    StatusCode::INSUFFICIENT_STORAGE,
                    "there are as many links as there may be: revoke some first",
                ));
            }
            all.push(Arc::new(link));
            Ok(())
        })
        .await?;
        Ok(token)
    }

    /// Ends a link of `maker`.
    pub async fn revoke(&self, maker: &str, id: &str) -> Result<(), Fail> {
        self.change(|all| {
            all.retain(|link| link.maker != maker || link.id() != id);
            Ok(())
        })
        .await
    }

    /// `links.durable`.
    async fn change(&self, change: impl FnOnce(&mut Vec<Arc<Link>>) -> Result<(), Fail>) -> Result<(), Fail> {
        if self.broken.is_some() {
            return Err(Fail::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the file of links is damaged: the server's log says more",
            ));
        }
        let _one = self.changing.lock().await;
        let now = now();
        let mut links: Vec<Arc<Link>> = self.all.read().iter().filter(|link| now < link.until).cloned().collect();
        change(&mut links)?;
        if let Some(path) = self.file.clone() {
            let text = print(&links);
            let written = tokio::task::spawn_blocking(move || write(&path, &text).map_err(|e| (path, e))).await;
            let failed = match written {
                Ok(Ok(())) => None,
                Ok(Err((path, error))) => Some(format!("{}: {error}", path.display())),
                Err(error) => Some(error.to_string()),
            };
            if let Some(why) = failed {
                tracing::error!("the links to files could not be written: {why}");
                return Err(Fail::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the links could not be written: the server's log says more",
                ));
            }
        }
        *self.all.write() = Arc::new(links);
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match std::fs::File::open(path) {
        Ok(file) => file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::other("it is far too large")),
        false => Ok(bytes),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    match path.parent() {
        Some(folder) => std::fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// A line a link: hash, times, password, and maker and path as hexadecimal digits (FORMAT.md).
pub fn print(links: &[Arc<Link>]) -> String {
    let mut out = format!("{FIRST_LINE}\n");
    for link in links {
        let password = link.password.as_ref().map_or("-".to_owned(), PasswordHash::to_text);
        out.push_str(&format!(
            "{} {} {} {password} {} {}\n",
            hex::encode(&link.hash),
            link.made,
            link.until,
            hex::encode(link.maker.as_bytes()),
            hex::encode(&link.path)
        ));
    }
    out
}

pub fn parse(bytes: &[u8]) -> Result<Vec<Arc<Link>>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let mut lines = text.lines();
    match lines.next() {
        None => return Ok(Vec::new()),
        Some(FIRST_LINE) => {}
        Some(_) => return Err(format!("it does not begin with '{FIRST_LINE}'")),
    }
    let mut links = Vec::new();
    for (at, line) in lines.enumerate() {
        let link = parse_line(line).ok_or_else(|| format!("line {} is damaged", at + 2))?;
        if links.len() >= LINKS_MAX {
            return Err("it has too many links".to_owned());
        }
        links.push(Arc::new(link));
    }
    Ok(links)
}

fn parse_line(line: &str) -> Option<Link> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [hash, made, until, password, maker, path] = fields.as_slice() else { return None };
    Some(Link {
        hash: hex::decode(hash)?.try_into().ok()?,
        made: made.parse().ok()?,
        until: until.parse().ok()?,
        password: match *password {
            "-" => None,
            text => Some(PasswordHash::parse(text).ok()?),
        },
        maker: String::from_utf8(hex::decode(maker)?).ok()?,
        path: Bytes::from(hex::decode(path)?),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[tokio::test]
    async fn links_survive_and_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("links");
        let links = Links::load(Some(file.clone()));
        let path = Bytes::from_static(b"share/a b\n\xff");
        let token = links.make("ann", &path, now() + 60, Some(PasswordHash::new("x").unwrap())).await.unwrap();
        let over = links.make("ann", &path, now(), None).await.unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains(&token) && file.metadata().unwrap().mode() & 0o777 == 0o600);
        let again = Links::load(Some(file.clone()));
        let found = again.find(&token).unwrap();
        assert_eq!((&found.path, found.maker.as_str()), (&path, "ann"));
        assert!(again.find(&over).is_none() && again.find("").is_none());
        again.revoke("bob", &found.id()).await.unwrap();
        assert!(again.find(&token).is_some(), "it is not bob's");
        again.revoke("ann", &found.id()).await.unwrap();
        assert!(again.find(&token).is_none() && Links::load(Some(file.clone())).find(&token).is_none());
        std::fs::write(&file, "larder links 2\n").unwrap();
        let damaged = Links::load(Some(file.clone()));
        assert!(damaged.make("ann", &path, now() + 60, None).await.is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "larder links 2\n", "what is not understood is left alone");
    }

    #[test]
    fn lines_go_through_and_damage_is_named() {
        let link = Link {
            hash: [7; 32],
            maker: "ä".into(),
            path: Bytes::from_static(b"s"),
            made: 1,
            until: 2,
            password: None,
        };
        let text = print(&[Arc::new(link.clone())]);
        assert_eq!(*parse(text.as_bytes()).unwrap()[0], link);
        assert!(parse(b"").unwrap().is_empty());
        for bad in
            ["x", "larder links 1\nx", &text.replace(" - ", " x "), &text.replace("07", "zz"), &(text.clone() + "\n")]
        {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
