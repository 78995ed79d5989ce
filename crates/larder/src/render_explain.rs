//! `share explain` as text. Pure: values in, text out.

use larder_api::{ExplainedDoor, Explanation, ReasonEffect};
use larder_measure::bench::show::Style;

use crate::render::{shown, table};

pub(crate) fn text(explanation: &Explanation, style: Style) -> String {
    let mut text = head(explanation);
    text.push('\n');
    text.push_str(&verdicts(&explanation.doors));
    for door in &explanation.doors {
        text.push('\n');
        text.push_str(&reasons(door, style));
    }
    text
}

fn head(explanation: &Explanation) -> String {
    let Explanation { user, uid, gid, groups, volume, path, .. } = explanation;
    let groups = if groups.is_empty() { String::new() } else { format!(", groups {}", groups.join(" ")) };
    let mut text = format!("{user}: uid {uid}, gid {gid}{groups}\n");
    let place = if path.is_empty() { volume.clone() } else { format!("{volume}/{path}") };
    let place = shown(&place);
    match (&explanation.object, &explanation.fault) {
        (Some(object), _) => {
            let owner = named(object.owner.as_deref(), object.uid);
            let group = named(object.group.as_deref(), object.gid);
            let list = if object.has_list { ", with an access control list" } else { "" };
            let set = match object.attributes.as_slice() {
                [] => String::new(),
                set => format!(", {}", set.join(" ")),
            };
            let (kind, mode) = (&object.kind, object.mode);
            text.push_str(&format!("{place}: a {kind}, mode {mode:04o}, owner {owner}, group {group}{list}{set}\n"));
        }
        (None, Some(fault)) => text.push_str(&format!("{place}: {fault}\n")),
        (None, None) => text.push_str(&format!("{place}\n")),
    }
    text
}

fn named(name: Option<&str>, id: u32) -> String {
    name.map_or_else(|| id.to_string(), |name| format!("{name} ({id})"))
}

fn title(door: &ExplainedDoor) -> [String; 2] {
    [door.door.clone(), door.share.clone().unwrap_or("-".to_owned())]
}

/// One row for each door, one column for each operation.
fn verdicts(doors: &[ExplainedDoor]) -> String {
    let Some(first) = doors.first() else { return "no share shows it\n".to_owned() };
    let names = first.operations.iter().map(|operation| operation.name.to_uppercase());
    let mut rows: Vec<Vec<String>> = vec![["DOOR", "SHARE"].map(str::to_owned).into_iter().chain(names).collect()];
    for door in doors {
        let word = |allowed: Option<bool>| match allowed {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        let words = door.operations.iter().map(|operation| word(operation.allowed).to_owned());
        rows.push(title(door).into_iter().chain(words).collect());
    }
    let mut text = table(&rows, &[]);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn reasons(door: &ExplainedDoor, style: Style) -> String {
    let mut text = match &door.share {
        Some(share) => format!("{} of {}", door.door, shown(share)),
        None => door.door.clone(),
    };
    if !door.operations.iter().any(|operation| operation.allowed == Some(true)) {
        text.push_str(": nothing");
    }
    text.push('\n');
    for reason in &door.reasons {
        let (sign, colour) = match (reason.effect, style.unicode) {
            (ReasonEffect::Opens, true) => ("\u{2713}", "\x1b[32m"),
            (ReasonEffect::Opens, false) => ("+", "\x1b[32m"),
            (ReasonEffect::Bounds, true) => ("\u{00b7}", ""),
            (ReasonEffect::Bounds, false) => ("o", ""),
            (ReasonEffect::Closes, true) => ("\u{2717}", "\x1b[31m"),
            (ReasonEffect::Closes, false) => ("-", "\x1b[31m"),
        };
        let plain = if colour.is_empty() || !style.colour { "" } else { "\x1b[0m" };
        let colour = if style.colour { colour } else { "" };
        text.push_str(&format!("  {colour}{sign}{plain} {}\n", shown(&reason.text)));
    }
    text
}

#[cfg(test)]
mod tests {
    use larder_api::{ExplainedObject, ExplainedOperation, ExplainedReason};

    use super::*;

    #[test]
    fn verdicts_stand_under_their_operations() {
        let operation = |name: &str, allowed| ExplainedOperation { name: name.to_owned(), allowed };
        let door = |door: &str, share: Option<&str>, write, effect, text: &str| ExplainedDoor {
            door: door.to_owned(),
            share: share.map(str::to_owned),
            acts_as: None,
            operations: vec![operation("read", Some(true)), operation("write", write)],
            reasons: vec![ExplainedReason { effect, text: text.to_owned() }],
        };
        let explanation = Explanation {
            user: "ann".into(),
            uid: 1001,
            gid: 1001,
            gids: vec![1500],
            groups: vec!["family".into()],
            volume: "tank/files".into(),
            path: "album".into(),
            object: Some(ExplainedObject {
                kind: "folder".into(),
                mode: 0o750,
                uid: 1001,
                gid: 7,
                owner: Some("ann".into()),
                group: None,
                has_list: false,
                attributes: Vec::new(),
            }),
            fault: None,
            doors: vec![
                door("WebDAV", Some("album"), None, ReasonEffect::Opens, "users names ann"),
                door("mount", None, Some(false), ReasonEffect::Closes, "the mount is read-only"),
            ],
        };
        let style = Style { unicode: false, colour: false, ..Style::default() };
        let expected = "ann: uid 1001, gid 1001, groups family\n\
                        tank/files/album: a folder, mode 0750, owner ann (1001), group 7\n\n\
                        DOOR    SHARE  READ  WRITE\n\
                        WebDAV  album  yes   -\n\
                        mount   -      yes   no\n\n\
                        WebDAV of album\n  + users names ann\n\n\
                        mount\n  - the mount is read-only\n";
        assert_eq!(text(&explanation, style), expected);
    }
}
