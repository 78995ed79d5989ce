//! What a user may do with a file through each door, and why.

use askama::Template;
use larder_api::endpoints::{ExplainAccess, GetUsers};
use larder_api::{ExplainRequest, Explanation, Failure, ReasonEffect};

use super::pools::Level;
use crate::note::Note;
use crate::shell_words::on_page;
use crate::visit::{Answer, Frame, Visit, page as show};

pub struct DoorView {
    pub door: String,
    pub share: String,
    pub acts_as: String,
    pub operations: Vec<(String, Option<bool>)>,
    pub reasons: Vec<(Level, &'static str, String)>,
}

pub struct Found {
    pub about: String,
    pub object: String,
    pub fault: Option<String>,
    pub doors: Vec<DoorView>,
}

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    frame: Frame,
    users: Vec<String>,
    user: String,
    path: String,
    from: String,
    found: Option<Found>,
    failure: Option<Note>,
}

pub async fn page(visit: &Visit<'_>) -> Answer {
    let users = visit.ask(GetUsers).await?.into_iter().map(|user| user.name).collect();
    let (user, path, from) = (visit.query.text("user"), visit.query.text("path"), visit.query.text("from"));
    let answer = if user.is_empty() || path.is_empty() { None } else { Some(ask(visit, user, path, from).await) };
    let (found, failure) = match answer {
        None => (None, None),
        Some(Ok(found)) => (Some(found), None),
        Some(Err(failure)) => (None, Some(Note::from(failure))),
    };
    show(&ExplainPage {
        frame: visit.frame("explain", "Explain"),
        users,
        user: user.to_owned(),
        path: path.to_owned(),
        from: from.to_owned(),
        found,
        failure,
    })
}

async fn ask(visit: &Visit<'_>, user: &str, path: &str, from: &str) -> Result<Found, Failure> {
    let from = match from {
        "" => None,
        from => Some(
            from.parse().map_err(|_| Failure::invalid(format!("'{from}' is not an address, such as 192.168.1.20")))?,
        ),
    };
    let request = ExplainRequest { user: user.to_owned(), path: path.to_owned(), from };
    Ok(found(visit.call(ExplainAccess, (), &request).await?))
}

fn found(explanation: Explanation) -> Found {
    let object = explanation.object.as_ref().map_or_else(String::new, |object| {
        let name = |name: &Option<String>, number: u32| name.clone().unwrap_or_else(|| number.to_string());
        let owner = name(&object.owner, object.uid);
        let group = name(&object.group, object.gid);
        let rule = if object.has_list {
            "an access list decides".to_owned()
        } else {
            format!("mode {:04o}", object.mode & 0o7777)
        };
        format!("{} of {owner}, group {group}, {rule}", object.kind)
    });
    let doors = explanation.doors.into_iter().map(|door| DoorView {
        door: door.door,
        share: door.share.unwrap_or_default(),
        acts_as: door.acts_as.map_or_else(|| "has no way in".to_owned(), |(uid, gid)| format!("acts as {uid}:{gid}")),
        operations: door.operations.into_iter().map(|one| (one.name, one.allowed)).collect(),
        reasons: door
            .reasons
            .into_iter()
            .map(|reason| {
                let (level, word) = match reason.effect {
                    ReasonEffect::Opens => (Level::Fine, "opens"),
                    ReasonEffect::Bounds => (Level::Warn, "bounds"),
                    ReasonEffect::Closes => (Level::Bad, "closes"),
                };
                (level, word, on_page(&reason.text))
            })
            .collect(),
    });
    let groups =
        if explanation.groups.is_empty() { String::new() } else { format!(", in {}", explanation.groups.join(", ")) };
    let place = if explanation.path.is_empty() { "the top".to_owned() } else { explanation.path };
    Found {
        about: format!(
            "{} (number {}{groups}) and {place} of {}",
            explanation.user, explanation.uid, explanation.volume
        ),
        object,
        fault: explanation.fault,
        doors: doors.collect(),
    }
}
