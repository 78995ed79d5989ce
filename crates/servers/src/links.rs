//! Links of the file view, for administrators: those of all users.
//!
//! - `links.gone_before_the_answer`: a user's links are gone, durably, before the answer to the removal of the user, and before a new
//!   user of that name is made; before the answer to a new password, too, unless they are to stay.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_api::{Failure, LinkStatus, LinksEnded};
use larder_web::{Link, Links, Which};

use crate::servers::Servers;
use larder_config::Config;
use larder_document::folder::LINKS_NAME;

/// The links of a data folder whose daemon does not run, or whose daemon serves no browsers.
pub fn of_folder(folder: &Path) -> Links {
    Links::load(Some(folder.join(LINKS_NAME)))
}

pub fn status(link: &Link) -> LinkStatus {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let secs = |at: i64| u64::try_from(at).unwrap_or(0);
    LinkStatus {
        id: link.id(),
        user: link.maker.clone(),
        share: text(link.share()),
        path: text(&link.path),
        has_password: link.password.is_some(),
        created_secs: secs(link.made),
        expires_secs: secs(link.until),
        used_secs: link.used.map(secs),
    }
}

fn failed(text: &str) -> Failure {
    Failure::unavailable(format!("the links of the file view are as before: {text}"))
        .action("see the daemon's log; mend the file 'links' in the data folder, or remove it and with it all links")
}

/// Ends links (`links.gone_before_the_answer`).
pub async fn end(links: &Links, which: Which<'_>) -> Result<LinksEnded, Failure> {
    let ended = links.end(which).await.map_err(|fail| failed(&fail.text))?;
    Ok(LinksEnded { links: ended.iter().map(|link| status(link)).collect() })
}

/// As [`end`], of one, which has to be there.
pub async fn end_one(links: &Links, id: &str) -> Result<LinksEnded, Failure> {
    let ended = end(links, Which::Id(id)).await?;
    if ended.links.is_empty() {
        return Err(
            Failure::not_found(format!("there is no link '{id}'")).action("see which there are with: larder link list")
        );
    }
    Ok(ended)
}

/// The numbers of users by their names.
pub fn uids(config: &Config) -> HashMap<String, u32> {
    config.users.iter().map(|user| (user.name.clone(), user.uid)).collect()
}

/// The links, wherever they are.
enum Held<'a> {
    OfServer(&'a Links),
    OfFile(Links),
}

impl std::ops::Deref for Held<'_> {
    type Target = Links;

    fn deref(&self) -> &Links {
        match self {
            Held::OfServer(links) => links,
            Held::OfFile(links) => links,
        }
    }
}

/// The links of a daemon.
pub struct HeldLinks {
    pub servers: Arc<Servers>,
    pub folder: PathBuf,
}

impl HeldLinks {
    fn held(&self) -> Held<'_> {
        let of_server = self.servers.links().map(Held::OfServer);
        of_server.unwrap_or_else(|| Held::OfFile(of_folder(&self.folder)))
    }

    pub fn list(&self) -> Vec<LinkStatus> {
        self.held().all().iter().map(|link| status(link)).collect()
    }

    pub async fn revoke(&self, id: &str) -> Result<LinksEnded, Failure> {
        end_one(&self.held(), id).await
    }

    pub async fn revoke_of(&self, user: &str) -> Result<LinksEnded, Failure> {
        end(&self.held(), Which::Of(user)).await
    }

    /// Another file of links has taken the place of the one before.
    pub async fn read_again(&self) -> Result<(), Failure> {
        self.held().read_again().await.map_err(|error| failed(&error.to_string()))
    }

    /// Drops the links of those who are no users any more.
    pub async fn keep_makers(&self, config: &Config) {
        if let Err(fail) = self.held().keep_makers(&uids(config)).await {
            tracing::error!("links of users who are gone stay in the file, and open nothing: {}", fail.text);
        }
    }
}
