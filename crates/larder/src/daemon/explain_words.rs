//! The words of `share explain`: what opened the way to a file, bounded it or closed it.

use std::net::IpAddr;

use larder_api::{ExplainedDoor, ExplainedReason, ReasonEffect};
use larder_files::Files;
use larder_fs::acl::{Rule, Who};
use larder_fs::{Attr, Cred, FileKind, FsError, Grounds, ModeClass, Wish};
use larder_serve::ask::{Op, Stop};

use crate::config::{Config, Network, ShareConfig, Squash, UserConfig};

const STICKY: u32 = 0o1000;

/// The reasons of one door, in the order in which they are looked at.
#[derive(Default)]
pub(super) struct Reasons(Vec<ExplainedReason>);

/// An object on the way, as people call it.
pub(super) struct Step<'a> {
    pub(super) attr: &'a Attr,
    pub(super) name: String,
}

impl Step<'_> {
    fn words(&self) -> String {
        match self.name.starts_with('\'') {
            true => format!("{} {}", class_of(self.attr.kind), self.name),
            false => self.name.clone(),
        }
    }
}

pub(super) fn class_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "folder",
        FileKind::Symlink => "link",
        _ => "special file",
    }
}

impl Reasons {
    pub(super) fn push(&mut self, effect: ReasonEffect, text: String) {
        self.0.push(ExplainedReason { effect, text });
    }

    pub(super) fn bounds(&mut self, is_so: bool, text: &str) {
        if is_so {
            self.push(ReasonEffect::Bounds, text.to_owned());
        }
    }

    pub(super) fn into(self, door: ExplainedDoor) -> ExplainedDoor {
        ExplainedDoor { reasons: self.0, ..door }
    }

    /// Whether the door is there for the share.
    pub(super) fn offered(&mut self, name: &str, key: &str, is_offered: bool, is_served: bool) -> bool {
        if !is_served {
            let text = format!("larder does not serve {name}: name an address for it under [listen]");
            self.push(ReasonEffect::Closes, text);
        } else if !is_offered {
            self.push(ReasonEffect::Closes, format!("the share is not offered over {name} ({key} = false)"));
        }
        is_served && is_offered
    }

    /// Whether the address, if there is one, is in the networks.
    pub(super) fn within(&mut self, networks: &[Network], from: Option<IpAddr>, why: &str) -> bool {
        let behind = if why.is_empty() { String::new() } else { format!(": {why}") };
        match from {
            Some(from) if !networks.iter().any(|network| network.contains(from)) => {
                let text = format!("{from} is in none of the networks {}{behind}", places(networks));
                self.push(ReasonEffect::Closes, text);
                false
            }
            None if networks.is_empty() => {
                self.push(ReasonEffect::Closes, format!("no network may come in{behind}"));
                false
            }
            _ => {
                self.push(ReasonEffect::Bounds, format!("from {}{behind}", places(networks)));
                true
            }
        }
    }

    /// The other shares that let more people to the files of a share for certain users.
    pub(super) fn ways_around(&mut self, share: &ShareConfig, config: &Config) {
        for way in config.ways_around(share) {
            self.push(ReasonEffect::Bounds, format!("but the same files are reached {way}"));
        }
    }

    /// Whom the user is taken for.
    pub(super) fn identity(&mut self, share: &ShareConfig, user: &UserConfig, cred: &Cred) {
        let why = match share.squash {
            _ if (cred.uid, cred.gid) == (user.uid, user.gid) => return,
            _ if share.common => "common = true",
            Squash::All => "squash = \"all\"",
            _ => "squash = \"root\"",
        };
        let text = format!("acts as uid {} gid {} ({why})", cred.uid, cred.gid);
        self.push(ReasonEffect::Bounds, text);
    }
}

pub(super) fn group_name(config: &Config, gid: u32) -> Option<String> {
    let group = config.groups.iter().find(|group| group.gid == gid).map(|group| group.name.clone());
    group.or_else(|| config.users.iter().find(|user| user.gid == gid).map(|user| user.name.clone()))
}

fn user_words(config: &Config, uid: u32) -> String {
    match config.users.iter().find(|user| user.uid == uid) {
        Some(user) => format!("{} ({uid})", user.name),
        None => format!("uid {uid}"),
    }
}

fn group_words(config: &Config, gid: u32) -> String {
    group_name(config, gid).map_or_else(|| format!("gid {gid}"), |name| format!("{name} ({gid})"))
}

fn bits_words(bits: u32) -> String {
    let letters = [(4, 'r'), (2, 'w'), (1, 'x')];
    letters.iter().map(|(bit, letter)| if bits & bit != 0 { *letter } else { '-' }).collect()
}

/// An identity before objects, and how it is judged.
pub(super) struct Judged<'a> {
    pub(super) config: &'a Config,
    pub(super) files: &'a Files,
    pub(super) cred: &'a Cred,
    pub(super) by_bits: bool,
}

impl Judged<'_> {
    pub(super) async fn no_way_through(&self, step: &Step<'_>) -> String {
        format!("nobody gets through without search permission: {}", self.grounds(step, Wish::Enter).await)
    }

    /// What decided about `wish` to the object.
    async fn grounds(&self, step: &Step<'_>, wish: Wish) -> String {
        let grounds = self.files.grounds(self.cred, step.attr.id.ino, wish, self.by_bits).await;
        let (attr, what) = (step.attr, step.words());
        match grounds {
            Err(error) => error.to_string(),
            Ok(Grounds::Mode(ModeClass::Root, _)) => "root passes".to_owned(),
            Ok(Grounds::Mode(class, bits)) => {
                let to = match class {
                    ModeClass::Group => format!("the group {}", group_words(self.config, attr.gid)),
                    ModeClass::Others => "others".to_owned(),
                    _ => format!("the owner {}", user_words(self.config, attr.uid)),
                };
                format!("mode {:04o} of {what} gives {to} {}", attr.mode, bits_words(bits))
            }
            Ok(Grounds::List(None)) => format!("no rule of the list of {what} grants it"),
            Ok(Grounds::List(Some((at, rule)))) => self.rule_words(at, &rule, &what),
        }
    }

    fn rule_words(&self, at: usize, rule: &Rule, what: &str) -> String {
        let who = match &rule.who {
            Who::Owner => "the owner".to_owned(),
            Who::OwningGroup => "its group".to_owned(),
            Who::Everyone => "everyone".to_owned(),
            Who::User(uid) => user_words(self.config, *uid),
            Who::Group(gid) => format!("the group {}", group_words(self.config, *gid)),
            Who::Sid(_) => "a Windows group".to_owned(),
        };
        let does = if rule.allows { "grants" } else { "denies" };
        format!("rule {} of the list of {what} {does} it to {who}", at + 1)
    }

    /// One line for each thing that decided, with the operations that it decided about.
    pub(super) async fn words(
        &self,
        step: &Step<'_>,
        folder: Option<&Step<'_>>,
        answers: Vec<(&str, Op, Result<(), Stop>)>,
        reasons: &mut Reasons,
    ) {
        let mut lines: Vec<(ReasonEffect, String, Vec<&str>)> = Vec::new();
        for (name, op, answer) in answers {
            let (effect, why) = match answer {
                Ok(()) => (ReasonEffect::Opens, self.allowed(step, folder, op).await),
                Err(stop) => (ReasonEffect::Closes, self.refused(step, folder, op, &stop).await),
            };
            match lines.iter_mut().find(|(known, text, _)| *known == effect && *text == why) {
                Some((.., names)) => names.push(name),
                None => lines.push((effect, why, vec![name])),
            }
        }
        for (effect, why, names) in lines {
            let no = if effect == ReasonEffect::Closes { "no " } else { "" };
            reasons.push(effect, format!("{no}{}: {why}", names.join(", ")));
        }
    }

    async fn allowed(&self, step: &Step<'_>, folder: Option<&Step<'_>>, op: Op) -> String {
        match (op, folder) {
            (Op::See, Some(folder)) => self.grounds(folder, Wish::Enter).await,
            (Op::See, None) => "it is the root of the share".to_owned(),
            (Op::Do(wish @ (Wish::Rename | Wish::Remove)), Some(folder)) => self.grounds(folder, wish).await,
            (Op::Do(Wish::SetMode | Wish::SetTimes), _) if self.owns(step) => {
                format!("{} belongs to {}", step.words(), user_words(self.config, step.attr.uid))
            }
            (Op::Do(Wish::Read | Wish::Write | Wish::Truncate), _) if self.owns(step) => {
                format!(
                    "{} belongs to {}, {}",
                    step.words(),
                    user_words(self.config, step.attr.uid),
                    self.grounds(step, Wish::Read).await
                )
            }
            (Op::Do(wish), _) => self.grounds(step, wish).await,
        }
    }

    fn owns(&self, step: &Step<'_>) -> bool {
        self.cred.uid == step.attr.uid || self.cred.uid == 0
    }

    async fn refused(&self, step: &Step<'_>, folder: Option<&Step<'_>>, op: Op, stop: &Stop) -> String {
        let error = match stop {
            Stop::ReadOnly => return "the user may only read here".to_owned(),
            Stop::Attribute => return format!("{} has the attribute READONLY", step.words()),
            Stop::Volume(error) => error,
        };
        match (op, error, folder) {
            (_, FsError::ReadOnly(why), _) => why.clone(),
            (Op::Do(Wish::Rename | Wish::Remove), _, None) => "it is the root of the share".to_owned(),
            (Op::Do(Wish::Rename | Wish::Remove), FsError::NotPermitted, Some(folder))
                if folder.attr.mode & STICKY != 0 =>
            {
                let owner = user_words(self.config, step.attr.uid);
                format!("{} is sticky: only {owner}, its own owner and root take names away", folder.words())
            }
            (Op::Do(wish @ (Wish::Rename | Wish::Remove)), _, Some(folder)) => self.grounds(folder, wish).await,
            (Op::Do(Wish::SetMode | Wish::SetTimes), _, _) if !self.owns(step) => {
                let owner = user_words(self.config, step.attr.uid);
                format!("{} belongs to {owner}: the owner and root may", step.words())
            }
            (Op::Do(wish), ..) => self.grounds(step, wish).await,
            (Op::See, ..) => error.to_string(),
        }
    }
}

/// Networks as a list of words.
fn places(networks: &[Network]) -> String {
    match networks {
        [] => "nowhere".to_owned(),
        networks => networks.iter().map(Network::to_string).collect::<Vec<_>>().join(" "),
    }
}
