//! The words of `share explain`: what opened the way to a file, bounded it or closed it.

use std::net::IpAddr;

use super::ask::{Op, Stop};
use larder_api::{ExplainedDoor, ExplainedReason, ReasonEffect};
use larder_files::Files;
use larder_fs::acl::{Rule, Who};
use larder_fs::{Attr, Cred, FileKind, FsError, Grounds, ModeClass, Wish};
use larder_people::{Listed, Network, Reason, Share, Squashing, User, Why};

use super::explain::Asked;
use super::shares;
use larder_config::{Config, ShareConfig};

/// `entrance.reserved_ports`, for people.
const BY_ROOT: &str = "from ports below 1024 alone, which root of the client uses; for programs of ordinary users and Macs \
                       without resvport: larder share set NAME --secure=no";
/// What being trusted by NFS means.
const WHOEVER: &str = "anybody on these machines is whoever he says";
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

    /// A sentence for each rule that decided about an entrance. `cred`: whom files take the caller for.
    pub(super) fn entrance(&mut self, why: &Why<'_>, words: &EntranceWords<'_>, cred: Option<&Cred>) {
        for reason in why.iter() {
            let is_changed = |cred: &&Cred| (cred.uid, cred.gid) != (words.user.uid, words.user.gid);
            match (reason, cred.filter(is_changed)) {
                (Reason::ActsAs(squashing), Some(cred)) => self.push(ReasonEffect::Bounds, acts_as(squashing, cred)),
                (Reason::ActsAs(_), None) => {}
                (reason, _) => self.push(effect_of(&reason), words.of(reason)),
            }
            match reason {
                Reason::NoNetworks | Reason::NotListed => self.ways_around(words.share, words.config),
                Reason::Untrusted => self.push(ReasonEffect::Closes, shares::opening(words.share)),
                _ => {}
            }
        }
    }

    /// The same of a mount.
    pub(super) fn mount(&mut self, why: &Why<'_>) {
        for reason in why.iter() {
            let text = match reason {
                Reason::Private(owner) => format!("the mount is private: it is for uid {owner} alone"),
                _ => "the mount is read-only".to_owned(),
            };
            self.push(effect_of(&reason), text);
        }
    }

    /// The other shares that let more people to the files of a share for certain users.
    pub(super) fn ways_around(&mut self, share: &ShareConfig, config: &Config) {
        for way in config.ways_around(share) {
            self.push(ReasonEffect::Bounds, format!("but the same files are reached {way}"));
        }
    }
}

fn effect_of(reason: &Reason<'_>) -> ReasonEffect {
    match reason {
        Reason::Listed(_) => ReasonEffect::Opens,
        reason if reason.shuts_out() => ReasonEffect::Closes,
        _ => ReasonEffect::Bounds,
    }
}

fn acts_as(squashing: Squashing, cred: &Cred) -> String {
    let why = match squashing {
        Squashing::Common => "common = true",
        Squashing::All => "squash = \"all\"",
        Squashing::Root => "squash = \"root\"",
    };
    format!("acts as uid {} gid {} ({why})", cred.uid, cred.gid)
}

/// What sentences about an entrance name.
pub(super) struct EntranceWords<'a> {
    pub(super) share: &'a ShareConfig,
    pub(super) asked: Asked,
    pub(super) user: &'a User,
    pub(super) from: Option<IpAddr>,
    pub(super) config: &'a Config,
}

impl EntranceWords<'_> {
    fn of(&self, reason: Reason<'_>) -> String {
        let Asked { name: door, key, .. } = self.asked;
        let (share, user) = (self.share, &self.user.name);
        let only_from = share.only_from.as_deref().unwrap_or_default();
        let trusted = || share.nfs_networks().unwrap_or_default();
        match reason {
            Reason::DoorClosed => format!("the share is not offered over {door} ({key} = false)"),
            Reason::NoNetworks => {
                "the share is for certain users, and NFS cannot tell who asks: it is exported only to \
                                   networks that the share names"
                    .to_owned()
            }
            Reason::Untrusted => format!("{}: {WHOEVER}", self.outside(&trusted())),
            Reason::Outside => self.outside(only_from),
            Reason::FromTrusted => format!("from {}: {WHOEVER}", places(&trusted())),
            Reason::FromInside => format!("from {}: only_from bounds every door", places(only_from)),
            Reason::Port(port) => format!("port {port} needs no privilege: {BY_ROOT}"),
            Reason::ReservedPorts => BY_ROOT.to_owned(),
            Reason::Unencrypted => "the client does not encrypt".to_owned(),
            Reason::Encrypted => "clients that do not encrypt are refused".to_owned(),
            Reason::NoGuests => "nobody comes in without logging in".to_owned(),
            Reason::OtherShare(other) => format!("the app token is for the share '{other}' alone"),
            Reason::NotListed => {
                let [writers, readers] = [true, false].map(Share::list_key);
                format!("neither {writers} nor {readers} names {user} or a group of theirs")
            }
            Reason::Private(owner) => format!("it is for uid {owner} alone"),
            Reason::Listed(listed) => self.listed(listed),
            Reason::ReaderByList => "that list lets the user read alone".to_owned(),
            Reason::ReaderByToken => "the app token lets the user read alone".to_owned(),
            Reason::ReadOnly if !share.is_writable() => "the share is read-only".to_owned(),
            Reason::ReadOnly => "the share is read-only: its files follow another machine's".to_owned(),
            Reason::ActsAs(_) => "acts as somebody else".to_owned(),
        }
    }

    fn outside(&self, networks: &[Network]) -> String {
        match self.from {
            Some(from) => format!("{from} is in none of the networks {}", places(networks)),
            None => "no network may come in".to_owned(),
        }
    }

    fn listed(&self, listed: Listed<'_>) -> String {
        let user = &self.user.name;
        match listed {
            Listed::Name { may_write } => format!("{} names {user}", Share::list_key(may_write)),
            Listed::Group { name, may_write } => {
                format!("{} names @{name}, and {user} is in it", Share::list_key(may_write))
            }
            Listed::All => "the share is for all users".to_owned(),
            Listed::Guest => "the share is open to guests".to_owned(),
        }
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
