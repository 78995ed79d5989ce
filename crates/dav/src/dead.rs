//! Properties that clients make up (RFC 4918 4.2): each an extended attribute of its file or folder.
//!
//! - `dead.bounded`: a property has at most [`VALUE_BYTES_MAX`], and a file [`PROPERTIES_MAX`] of them.
//! - `dead.checked_when_read`: other doors can write extended attributes too. What is no element of the
//!   right name is not passed on.

use bytes::Bytes;
use hyper::StatusCode;
use larder_fs::{FsError, Ino, NAME_BYTES_MAX, XattrMode};

use super::fail::Fail;
use super::xml::{self, Name};
use larder_doors::tree::Room;

const PREFIX: &str = "user.dav.";
const VALUE_BYTES_MAX: usize = 32 << 10;
const PROPERTIES_MAX: usize = 200;

/// `user.dav.{NAMESPACE}NAME`.
fn key(name: &Name) -> Option<String> {
    let key = format!("{PREFIX}{{{}}}{}", name.space, name.local);
    (key.len() <= NAME_BYTES_MAX).then_some(key)
}

fn name_of(key: &[u8]) -> Option<Name> {
    let (space, local) = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?.strip_prefix('{')?.rsplit_once('}')?;
    Some(Name { space: space.to_owned(), local: local.to_owned() })
}

/// The element, to be put into an answer.
pub async fn read(room: &Room, ino: Ino, name: &Name) -> Result<Option<String>, Fail> {
    let Some(key) = key(name) else { return Ok(None) };
    match room.files().getxattr(&room.cred, ino, key.as_bytes()).await {
        Ok(value) => Ok(checked(&value, name)),
        Err(FsError::NoAttribute | FsError::Access | FsError::NotPermitted | FsError::NotSupported) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `dead.checked_when_read`.
fn checked(value: &[u8], name: &Name) -> Option<String> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= VALUE_BYTES_MAX)?;
    let around = format!("<r xmlns:D=\"DAV:\">{text}</r>");
    let document = xml::parse(&around).ok()?;
    let mut children = document.root_element().children();
    let (first, second) = (children.next()?, children.next());
    // Its own text again: nothing that only looks like one element.
    (first.is_element() && second.is_none() && Name::of(first) == *name).then(|| text.to_owned())
}

pub async fn names(room: &Room, ino: Ino) -> Result<Vec<Name>, Fail> {
    match room.files().listxattr(&room.cred, ino).await {
        Ok(all) => Ok(all.iter().filter_map(|key| name_of(key)).take(PROPERTIES_MAX).collect()),
        Err(FsError::NotSupported | FsError::Access) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// What undoes a change: the value from before.
pub struct Before {
    key: String,
    value: Option<Bytes>,
}

/// Sets the property to the text of an element, or removes it without one.
pub async fn change(room: &Room, ino: Ino, name: &Name, element: Option<&String>) -> Result<Before, Fail> {
    const TOO_LARGE: Fail = Fail::new(StatusCode::INSUFFICIENT_STORAGE, "the property is too large");
    let files = room.to_change()?;
    let key = key(name).ok_or(TOO_LARGE)?;
    let value = match files.getxattr(&room.cred, ino, key.as_bytes()).await {
        Ok(value) => Some(value),
        Err(FsError::NoAttribute) => None,
        Err(error) => return Err(error.into()),
    };
    match element {
        Some(text) => {
            if text.len() > VALUE_BYTES_MAX {
                return Err(TOO_LARGE);
            }
            if value.is_none() && names(room, ino).await?.len() >= PROPERTIES_MAX {
                return Err(Fail::new(StatusCode::INSUFFICIENT_STORAGE, "it has as many properties as it may have"));
            }
            files.setxattr(&room.cred, ino, key.as_bytes(), text.as_bytes(), XattrMode::Set).await?;
        }
        // What is not there can be removed (RFC 4918 14.23).
        None if value.is_some() => files.removexattr(&room.cred, ino, key.as_bytes()).await?,
        None => {}
    }
    Ok(Before { key, value })
}

/// As well as it can be.
pub async fn undo(room: &Room, ino: Ino, before: Before) {
    let Ok(files) = room.to_change() else { return };
    let done = match &before.value {
        Some(value) => files.setxattr(&room.cred, ino, before.key.as_bytes(), value, XattrMode::Set).await,
        None => files.removexattr(&room.cred, ino, before.key.as_bytes()).await,
    };
    if let Err(error) = done
        && !matches!(error, FsError::NoAttribute)
    {
        tracing::warn!(%error, "WebDAV: a property could not be set back");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn keys_are_names_and_values_are_checked() {
        for (space, local) in [("", "a"), ("urn:x", "b"), ("http://e/{1}", "ö")] {
            let name = Name { space: space.into(), local: local.into() };
            assert_eq!(name_of(key(&name).unwrap().as_bytes()), Some(name));
        }
        assert!(key(&Name { space: "x".repeat(300), local: "a".into() }).is_none());
        let name = Name { space: "urn:x".into(), local: "a".into() };
        for (value, good) in [
            ("<p:a xmlns:p=\"urn:x\">t</p:a>", true),
            ("<p:a xmlns:p=\"urn:y\">t</p:a>", false),
            ("<p:a xmlns:p=\"urn:x\"/></D:prop>", false),
            ("<p:a xmlns:p=\"urn:x\"/><b/>", false),
            ("</r><r>", false),
            ("", false),
        ] {
            assert_eq!(checked(value.as_bytes(), &name).is_some(), good, "{value}");
        }
    }
}
