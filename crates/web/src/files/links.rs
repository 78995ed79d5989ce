//! Links that users give to others: who has one reads what it leads to, without a name.
//!
//! - `links.hashed`: the file has a hash of each token, never the token: nobody who reads the file
//!   can use a link. Its password is kept as those of users are.
//! - `links.rights_of_the_maker`: a link gives what its maker may read at the time of use. When the
//!   maker is gone, or loses the right, it gives nothing.
//! - `links.end_with_their_maker`: the maker is a name and a number. A link whose maker is no user
//!   of that number is dropped when the users are known or change, so that another user of that
//!   name never has it.
//! - `links.durable`: a link that was shown survives a crash, and one that was revoked stays so:
//!   the file is written beside the old one, flushed, and takes its name, before the answer.
//! - `links.bounded`: there are at most [`LINKS_MAX`], of one user [`OF_USER_MAX`]; each ends after
//!   [`DAYS_MAX`] days at the latest.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use base64ct::{Base64UrlUnpadded, Encoding};
use bytes::Bytes;
use hyper::StatusCode;
use larder_base::{hex, passed, task};
use larder_dav::browsers::Fail;
use larder_people::PasswordHash;
use parking_lot::{Mutex, RwLock};

use crate::session::{Hash as TokenHash, hash, secret};

const LINKS_MAX: usize = 10_000;
const OF_USER_MAX: usize = 500;
pub const DAYS_MAX: i64 = 365;
const FILE_BYTES_MAX: u64 = 64 << 20;
const FIRST_LINE: &str = "larder links 2";
/// Without the number of the maker, and the time of the last use.
const FIRST_LINE_BEFORE: &str = "larder links 1";
/// A last use is written down when it is so much later than the one in the file, in seconds.
const USE_PAUSE_SECS: i64 = 3600;
const TOKEN_BYTES: usize = 24;

/// A link that a user made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Of its token.
    pub hash: TokenHash,
    /// The name of the user who made it.
    pub maker: String,
    /// The number of the maker. `None`: an older program made it, and the users are not known yet.
    pub uid: Option<u32>,
    /// From the top: `share/folder/name`.
    pub path: Bytes,
    /// Seconds since 1970.
    pub made: i64,
    /// As `made`.
    pub until: i64,
    /// The last use, about.
    pub used: Option<i64>,
    /// What to say before it opens.
    pub password: Option<PasswordHash>,
}

/// The links that a change is about.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// One, by [`Link::id`].
    Id(&'a str),
    /// One, if this user made it.
    Own {
        /// The name of the user.
        maker: &'a str,
        /// See [`Link::id`].
        id: &'a str,
    },
    /// All of a user.
    Of(&'a str),
}

impl Which<'_> {
    fn is(self, link: &Link) -> bool {
        match self {
            Which::Id(id) => link.id() == id,
            Which::Own { maker, id } => link.maker == maker && link.id() == id,
            Which::Of(maker) => link.maker == maker,
        }
    }
}

impl Link {
    /// Whether a user made it (`links.end_with_their_maker`).
    pub fn is_of(&self, name: &str, uid: u32) -> bool {
        self.maker == name && self.uid == Some(uid)
    }

    /// The share that it leads into.
    pub fn share(&self) -> &[u8] {
        self.path.split(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// As [`Link::id`], and no other link's.
    pub fn whole_id(&self) -> String {
        hex::encode(&self.hash)
    }

    /// A name for it that does not open it.
    pub fn id(&self) -> String {
        hex::encode(&self.hash).get(..16).unwrap_or_default().to_owned()
    }
}

/// The links of a server, and their file.
#[derive(Default)]
pub struct Links {
    file: Option<PathBuf>,
    all: RwLock<Arc<Vec<Arc<Link>>>>,
    /// Uses that the file does not have yet.
    uses: Mutex<HashMap<TokenHash, i64>>,
    /// Changes one after the other.
    changing: tokio::sync::Mutex<()>,
    /// Why nothing can be changed.
    broken: Option<String>,
}

pub fn now() -> i64 {
    passed::latest().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
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

    /// Takes what the file says by now.
    pub async fn read_again(&self) -> io::Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let _one = self.changing.lock().await;
        let links = read(path).and_then(|text| parse(&text).map_err(io::Error::other))?;
        self.uses.lock().clear();
        *self.all.write() = Arc::new(links);
        Ok(())
    }

    /// All that last, the oldest first.
    pub fn all(&self) -> Vec<Arc<Link>> {
        let (now, uses) = (now(), self.uses.lock());
        let living = self.all.read().iter().filter(|link| now < link.until).cloned().collect::<Vec<_>>();
        living.into_iter().map(|link| with_use(link, &uses)).collect()
    }

    /// A link was used. Whether that should be written down ([`Links::store_uses`]).
    pub fn note_use(&self, link: &Link) -> bool {
        let now = now();
        let mut uses = self.uses.lock();
        uses.insert(link.hash, now);
        now.saturating_sub(link.used.unwrap_or(link.made)) >= USE_PAUSE_SECS
    }

    /// Writes down the last uses.
    pub async fn store_uses(&self) {
        // What cannot be written now is with the next change.
        let _ = self.change(|_| Ok(())).await;
    }

    /// Ends links, and returns those that were.
    pub async fn end(&self, which: Which<'_>) -> Result<Vec<Arc<Link>>, Fail> {
        let mut ended = Vec::new();
        if !self.all.read().iter().any(|link| which.is(link)) && self.broken.is_none() {
            return Ok(ended);
        }
        self.change(|all| {
            let (gone, kept) = std::mem::take(all).into_iter().partition(|link| which.is(link));
            (ended, *all) = (gone, kept);
            Ok(())
        })
        .await?;
        Ok(ended)
    }

    /// Drops links whose makers are none of these users (`links.end_with_their_maker`).
    pub async fn keep_makers(&self, uids: &HashMap<String, u32>) -> Result<(), Fail> {
        let is_known = |link: &Arc<Link>| uids.get(&link.maker).is_some_and(|uid| link.uid == Some(*uid));
        if self.broken.is_some() || self.all.read().iter().all(is_known) {
            return Ok(());
        }
        self.change(|all| {
            for link in all.iter_mut().filter(|link| link.uid.is_none()) {
                let uid = uids.get(&link.maker).copied();
                *link = Arc::new(Link { uid, ..(**link).clone() });
            }
            all.retain(is_known);
            Ok(())
        })
        .await
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
        (maker, uid): (&str, u32),
        path: &Bytes,
        until: i64,
        password: Option<PasswordHash>,
    ) -> Result<String, Fail> {
        let token = Base64UrlUnpadded::encode_string(&secret::<TOKEN_BYTES>());
        let link = Link {
            hash: hash(&token),
            maker: maker.to_owned(),
            uid: Some(uid),
            path: path.clone(),
            made: now(),
            until,
            used: None,
            password,
        };
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

    /// `links.durable`.
    async fn change(&self, change: impl FnOnce(&mut Vec<Arc<Link>>) -> Result<(), Fail>) -> Result<(), Fail> {
        if self.broken.is_some() {
            return Err(Fail::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the file of links is damaged: the server's log says more",
            ));
        }
        let _one = self.changing.lock().await;
        // A clock that is ahead closes links; it does not strike them out.
        let now = passed::now_secs();
        let mut links: Vec<Arc<Link>> = self.all.read().iter().filter(|link| now < link.until).cloned().collect();
        {
            let uses = self.uses.lock();
            links.iter_mut().for_each(|link| *link = with_use(Arc::clone(link), &uses));
        }
        change(&mut links)?;
        if let Some(path) = self.file.clone() {
            let text = print(&links);
            let written = task::blocking(move || write(&path, &text).map_err(|e| (path, e))).await;
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
        self.uses.lock().retain(|hash, _| links.iter().any(|link| link.hash == *hash));
        *self.all.write() = Arc::new(links);
        Ok(())
    }
}

/// The link with the last use that is known.
fn with_use(link: Arc<Link>, uses: &HashMap<TokenHash, i64>) -> Arc<Link> {
    match uses.get(&link.hash) {
        Some(used) if link.used.is_none_or(|before| before < *used) => {
            Arc::new(Link { used: Some(*used), ..(*link).clone() })
        }
        _ => link,
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

/// A line a link: hash, times, password, maker and path as hexadecimal digits, number of the maker,
/// last use (FORMAT.md).
pub fn print(links: &[Arc<Link>]) -> String {
    let mut out = format!("{FIRST_LINE}\n");
    for link in links {
        let password = link.password.as_ref().map_or("-".to_owned(), PasswordHash::to_text);
        let number = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        out.push_str(&format!(
            "{} {} {} {password} {} {} {} {}\n",
            hex::encode(&link.hash),
            link.made,
            link.until,
            hex::encode(link.maker.as_bytes()),
            hex::encode(&link.path),
            number(link.uid.map(|uid| uid.to_string())),
            number(link.used.map(|used| used.to_string()))
        ));
    }
    out
}

pub fn parse(bytes: &[u8]) -> Result<Vec<Arc<Link>>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let mut lines = text.lines();
    let has_uids = match lines.next() {
        None => return Ok(Vec::new()),
        Some(FIRST_LINE) => true,
        Some(FIRST_LINE_BEFORE) => false,
        Some(_) => return Err(format!("it does not begin with '{FIRST_LINE}'")),
    };
    let mut links = Vec::new();
    for (at, line) in lines.enumerate() {
        let link = parse_line(line, has_uids).ok_or_else(|| format!("line {} is damaged", at + 2))?;
        if links.len() >= LINKS_MAX {
            return Err("it has too many links".to_owned());
        }
        links.push(Arc::new(link));
    }
    Ok(links)
}

fn parse_line(line: &str, has_uids: bool) -> Option<Link> {
    fn optional<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
        if text == "-" { Some(None) } else { text.parse().ok().map(Some) }
    }
    let fields: Vec<&str> = line.split(' ').collect();
    let (uid, used) = match fields.get(6..)? {
        [] if !has_uids => (None, None),
        [uid, used] if has_uids => (optional(uid)?, optional(used)?),
        _ => return None,
    };
    let [hash, made, until, password, maker, path] = fields.get(..6)? else { return None };
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
        uid,
        used,
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
        let token = links.make(("ann", 5), &path, now() + 60, Some(PasswordHash::new("x").unwrap())).await.unwrap();
        let over = links.make(("ann", 5), &path, now(), None).await.unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains(&token) && file.metadata().unwrap().mode() & 0o777 == 0o600);
        let again = Links::load(Some(file.clone()));
        let found = again.find(&token).unwrap();
        assert_eq!((&found.path, found.maker.as_str()), (&path, "ann"));
        assert!(again.find(&over).is_none() && again.find("").is_none());
        again.end(Which::Own { maker: "bob", id: &found.id() }).await.unwrap();
        assert!(again.find(&token).is_some(), "it is not bob's");
        again.end(Which::Own { maker: "ann", id: &found.id() }).await.unwrap();
        assert!(again.find(&token).is_none() && Links::load(Some(file.clone())).find(&token).is_none());
        std::fs::write(&file, "larder links 3\n").unwrap();
        let damaged = Links::load(Some(file.clone()));
        assert!(damaged.make(("ann", 5), &path, now() + 60, None).await.is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "larder links 3\n", "what is not understood is left alone");
    }

    #[tokio::test]
    async fn links_end_with_their_maker() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("links");
        let links = Links::load(Some(file.clone()));
        let path = Bytes::from_static(b"share/a");
        let mut tokens = Vec::new();
        for maker in [("ann", 5), ("carl", 6), ("dora", 7)] {
            tokens.push(links.make(maker, &path, now() + 60, None).await.unwrap());
        }
        let users = |users: &[(&str, u32)]| users.iter().map(|(name, uid)| ((*name).to_owned(), *uid)).collect();
        // Carl is gone, and another dora has come.
        links.keep_makers(&users(&[("ann", 5), ("dora", 8)])).await.unwrap();
        for links in [&links, &Links::load(Some(file.clone()))] {
            assert!(links.find(&tokens[0]).is_some_and(|link| link.is_of("ann", 5) && !link.is_of("ann", 6)));
            assert!(links.find(&tokens[1]).is_none() && links.find(&tokens[2]).is_none());
        }
        // A file of before has names alone: those of now are who made them.
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("links 2", "links 1").replace(" 5 -", "")).unwrap();
        let before = Links::load(Some(file.clone()));
        assert!(before.find(&tokens[0]).is_some_and(|link| !link.is_of("ann", 5)), "nobody's yet");
        before.keep_makers(&users(&[("ann", 5)])).await.unwrap();
        assert!(before.find(&tokens[0]).is_some_and(|link| link.is_of("ann", 5)));
        let link = before.find(&tokens[0]).unwrap();
        assert!(!before.note_use(&link) && before.all()[0].used.is_some() && before.all()[0].share() == b"share");
        before.store_uses().await;
        assert!(Links::load(Some(file.clone())).all()[0].used.is_some());
        assert_eq!(before.end(Which::Of("ann")).await.unwrap().len(), 1);
        assert!(Links::load(Some(file)).all().is_empty());
    }

    #[test]
    fn lines_go_through_and_damage_is_named() {
        let link = Link {
            hash: [7; 32],
            maker: "ä".into(),
            path: Bytes::from_static(b"s"),
            made: 1,
            until: 2,
            uid: Some(1000),
            used: None,
            password: None,
        };
        let text = print(&[Arc::new(link.clone())]);
        assert_eq!(*parse(text.as_bytes()).unwrap()[0], link);
        assert!(parse(b"").unwrap().is_empty());
        let before = text.replace("links 2", "links 1").replace(" 1000 -", "");
        assert_eq!(*parse(before.as_bytes()).unwrap()[0], Link { uid: None, ..link.clone() });
        assert!(parse(text.replace("links 2", "links 1").as_bytes()).is_err());
        for bad in [
            "x",
            "larder links 2\nx",
            &text.replace(" 1000 -", " 1000"),
            &text.replace(" 1000", " -1"),
            &text.replace(" - ", " x "),
            &text.replace("07", "zz"),
            &(text.clone() + "\n"),
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
