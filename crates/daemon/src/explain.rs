//! Why a user may do something with a file, or may not, through each door.
//!
//! - `explain.asks_the_doors`: the verdicts come from the code that decides: [`Share::entrance`] of the share as the
//!   servers have it, and the questions of [`super::ask`]. Here they get words alone.

use std::net::IpAddr;
use std::sync::Arc;

use super::ask::{self, Object, Op, Way};
use larder_api::share::NORMALIZE;
use larder_api::{
    ExplainRequest, ExplainedDoor, ExplainedObject, ExplainedOperation, Explanation, Failure, ReasonEffect,
};
use larder_files::Files;
use larder_fs::{Attr, Cred, FileKind, FsError, Ino, NameMatch};
use larder_keep::Storage;
use larder_people::{Door, Entrance, Share, User, Who};

use super::explain_words::{EntranceWords, Judged, Reasons, Step, class_of};
use super::{shares, translate};
use larder_config::{Config, ShareConfig, UserConfig, VolumeName};
use larder_document::{Document, State};
use larder_servers::Mounts;
use larder_servers::Servers;

/// READONLY, HIDDEN and SYSTEM of Windows.
const ATTRIBUTES: [(u32, &str); 3] = [(1, "readonly"), (2, "hidden"), (4, "system")];

/// The place that a path means.
struct Target {
    /// `None`: the folder of the host that the share is.
    volume: Option<VolumeName>,
    /// Names from the root of the volume, or from that folder.
    names: Vec<String>,
    /// The only share that is asked for.
    share: Option<String>,
}

impl Target {
    fn place(&self) -> String {
        match (&self.volume, &self.share) {
            (Some(volume), _) => volume.to_string(),
            (None, share) => format!("/{}", share.as_deref().unwrap_or_default()),
        }
    }
}

fn names_of(path: &str) -> Vec<String> {
    path.split('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned).collect()
}

/// `/SHARE/inside`, or `POOL/VOLUME/inside`.
fn target(path: &str, config: &Config) -> Result<Target, Failure> {
    if names_of(path).iter().any(|name| name == "..") {
        return Err(Failure::invalid(format!("'{path}' goes back with '..': write where it leads to")));
    }
    if let Some(inside) = path.strip_prefix('/') {
        let (name, rest) = inside.split_once('/').unwrap_or((inside, ""));
        let share = config.shares.iter().find(|share| share.name == name).ok_or_else(|| {
            Failure::not_found(format!("there is no share '{name}'"))
                .action("see which there are with: larder share list; a path of a volume begins with POOL/VOLUME")
        })?;
        let above = if share.volume.is_some() { names_of(&share.folder) } else { Vec::new() };
        let names = above.into_iter().chain(names_of(rest)).collect();
        return Ok(Target { volume: share.volume.clone(), names, share: Some(name.to_owned()) });
    }
    let names = names_of(path);
    let [pool, volume, inside @ ..] = names.as_slice() else {
        return Err(Failure::invalid(format!("'{path}' names no file"))
            .action("write /SHARE/inside, or POOL/VOLUME/inside such as tank/files/album"));
    };
    let volume = VolumeName::parse(&format!("{pool}/{volume}")).map_err(Failure::invalid)?;
    if config.pool(&volume.pool).is_none() {
        return Err(Failure::not_found(format!("there is no pool '{}'", volume.pool))
            .action("a path within a share begins with a slash: /SHARE/inside"));
    }
    Ok(Target { volume: Some(volume), names: inside.to_vec(), share: None })
}

/// The objects from `root` to the one that is asked for.
async fn chain(files: &Files, root: Ino, target: &Target) -> Result<Vec<Attr>, Failure> {
    let mut chain = vec![files.getattr(root).await.map_err(|e| failure(target, &e))?];
    for (n, name) in target.names.iter().enumerate() {
        let dir = chain[n];
        let found = files.lookup(&Cred::root(), dir.id.ino, name.as_bytes(), NameMatch::Exact).await;
        let at = target.names[..=n].join("/");
        let found = found.map_err(|error| match error {
            FsError::NotFound | FsError::NotDirectory => {
                Failure::not_found(format!("there is no '{at}' in {}", target.place()))
            }
            error => failure(target, &error),
        })?;
        if found.kind == FileKind::Symlink && n + 1 < target.names.len() {
            return Err(Failure::invalid(format!("'{at}' is a symbolic link"))
                .action("ask about the path that it leads to: rights are those of that path"));
        }
        chain.push(found);
    }
    Ok(chain)
}

fn failure(target: &Target, error: &FsError) -> Failure {
    translate::volume_error(format_args!("'{}' of {}", target.names.join("/"), target.place()), error)
}

/// A door, as people and the configuration call it.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) door: Door,
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    pub(super) is_served: bool,
}

/// Everything that the answer is about.
struct Question<'a> {
    config: &'a Config,
    user: &'a UserConfig,
    /// The same as the doors know it.
    person: User,
    from: Option<IpAddr>,
    target: &'a Target,
    /// The volume and the objects on the way, or why there are none.
    there: Result<(Files, Vec<Attr>), Failure>,
}

impl Question<'_> {
    /// What the user may do through a door, having come in by `way` at the directory number `top` of the chain.
    async fn judge(&self, door: Door, way: &Way, top: usize, reasons: &mut Reasons) -> Vec<ExplainedOperation> {
        let Ok((files, chain)) = &self.there else { return Vec::new() };
        let Some((last, dirs)) = chain.get(top..).and_then(<[Attr]>::split_last) else { return Vec::new() };
        let judged =
            Judged { config: self.config, files, cred: &way.cred, by_bits: matches!(door, Door::Mount { .. }) };
        for (n, dir) in dirs.iter().enumerate() {
            let object = Object { attr: *dir, parent: None };
            let step = Step { attr: dir, name: self.name_of(top + n) };
            let entered = ask::verdict(door, files, way, &object, Op::Do(larder_fs::Wish::Enter)).await;
            if !matches!(entered, Ok(Some(Ok(())))) {
                reasons.push(ReasonEffect::Closes, judged.no_way_through(&step).await);
                return none_of(last.kind);
            }
        }
        let object = Object { attr: *last, parent: dirs.last().map(|dir| dir.id.ino) };
        let step = Step { attr: last, name: self.name_of(chain.len() - 1) };
        let folder = dirs.last().map(|attr| Step { attr, name: self.name_of(chain.len() - 2) });
        let mut operations = Vec::new();
        let mut answers = Vec::new();
        for (name, op) in ask::operations(last.kind) {
            let verdict = match ask::verdict(door, files, way, &object, *op).await {
                Ok(verdict) => verdict,
                Err(error) => {
                    reasons.push(ReasonEffect::Closes, failure(self.target, &error).message);
                    return none_of(last.kind);
                }
            };
            let allowed = verdict.as_ref().map(Result::is_ok);
            operations.push(ExplainedOperation { name: (*name).to_owned(), allowed });
            answers.extend(verdict.map(|verdict| (*name, *op, verdict)));
        }
        judged.words(&step, folder.as_ref(), answers, reasons).await;
        operations
    }

    fn name_of(&self, at: usize) -> String {
        match self.target.names.get(..at) {
            Some(names) if !names.is_empty() => format!("'{}'", names.join("/")),
            _ => format!("the root of {}", self.target.place()),
        }
    }

    fn kind(&self) -> FileKind {
        match &self.there {
            Ok((_, chain)) => chain.last().map_or(FileKind::File, |attr| attr.kind),
            Err(_) => FileKind::File,
        }
    }

    fn door(&self, door: &str, share: Option<&ShareConfig>) -> (ExplainedDoor, Reasons) {
        let operations = none_of(self.kind());
        let share = share.map(|share| share.name.clone());
        let explained = ExplainedDoor { door: door.to_owned(), share, acts_as: None, operations, reasons: Vec::new() };
        (explained, Reasons::default())
    }

    /// The number of the share's directory in the chain.
    fn top_of(&self, share: &ShareConfig) -> usize {
        if share.volume.is_some() { names_of(&share.folder).len() } else { 0 }
    }

    /// The way through a door of a share. `login`: what the user comes in as, or why not at all.
    async fn share(&self, share: &ShareConfig, asked: Asked, login: Result<Who<'_>, &str>) -> ExplainedDoor {
        let (explained, mut reasons) = self.door(asked.name, Some(share));
        if !asked.is_served {
            let text = format!("larder does not serve {}: name an address for it under [listen]", asked.name);
            reasons.push(ReasonEffect::Closes, text);
            return reasons.into(explained);
        }
        let rules = match &self.there {
            Ok((files, _)) => shares::rules(share, files),
            Err(_) => Arc::new(share.rules.clone()),
        };
        let who = match login {
            Err(why) if rules.offers(asked.door) => {
                reasons.push(ReasonEffect::Closes, why.to_owned());
                return reasons.into(explained);
            }
            who => who.unwrap_or(Who::Guest),
        };
        let entrance = rules.entrance(who, self.from, asked.door);
        self.enter(explained, reasons, entrance, (share, asked, who)).await
    }

    /// What lies behind an entrance.
    async fn enter(
        &self,
        mut explained: ExplainedDoor,
        mut reasons: Reasons,
        entrance: Entrance<'_>,
        (share, asked, who): (&ShareConfig, Asked, Who<'_>),
    ) -> ExplainedDoor {
        let named = match who {
            Who::Guest => None,
            _ => Some(&self.person),
        };
        let cred = entrance.rights.map(|rights| rights.cred_of(named));
        let words = EntranceWords { share, asked, user: &self.person, from: self.from, config: self.config };
        reasons.entrance(&entrance.why, &words, cred.as_ref());
        let (Some(rights), Some(cred)) = (entrance.rights, cred) else { return reasons.into(explained) };
        explained.acts_as = Some((cred.uid, cred.gid));
        self.forms(share, &mut reasons);
        if self.is_there(&mut reasons) {
            let way = Way { cred, may_write: rights.may_write };
            explained.operations = self.judge(asked.door, &way, self.top_of(share), &mut reasons).await;
        }
        reasons.into(explained)
    }

    /// Whether names are found in any Unicode form, where that makes a difference.
    fn forms(&self, share: &ShareConfig, reasons: &mut Reasons) {
        let is_plain = self.target.names.iter().all(|name| name.is_ascii());
        match share.is_on(&NORMALIZE) {
            true if is_plain => {}
            true => reasons.push(ReasonEffect::Opens, "names match in any Unicode form (normalize = true)".to_owned()),
            false => reasons.bounds(true, "names match in the Unicode form alone that is stored (normalize = false)"),
        }
    }

    fn is_there(&self, reasons: &mut Reasons) -> bool {
        if let Err(failure) = &self.there {
            let action = failure.action.as_ref().map(|action| format!(": {action}")).unwrap_or_default();
            reasons.push(ReasonEffect::Closes, format!("{}{action}", failure.message));
        }
        self.there.is_ok()
    }

    async fn mount(&self, mounts: &[larder_servers::mounts::MountedAt]) -> Vec<ExplainedDoor> {
        if mounts.is_empty() {
            let (door, mut reasons) = self.door("mount", None);
            let text = format!("{} is not mounted on this machine", self.target.place());
            reasons.push(ReasonEffect::Closes, text);
            return vec![reasons.into(door)];
        }
        let mut doors = Vec::new();
        for mount in mounts {
            let (mut door, mut reasons) = self.door("mount", None);
            let text = format!("mounted at {}; the kernel judges by mode bits alone", mount.dir.display());
            reasons.push(ReasonEffect::Opens, text);
            let private_to = (!mount.for_others).then(|| rustix::process::geteuid().as_raw());
            let rules = Share { read_only: mount.read_only, ..Share::new(self.target.place()) };
            let asked = Door::Mount { private_to };
            let Entrance { rights, why } = rules.entrance(Who::User(&self.person), self.from, asked);
            reasons.mount(&why);
            let Some(rights) = rights else {
                doors.push(reasons.into(door));
                continue;
            };
            let way = Way { cred: rights.cred_of(Some(&self.person)), may_write: rights.may_write };
            reasons
                .bounds(!self.person.gids.is_empty(), "groups count as far as the account on this machine is in them");
            door.acts_as = Some((way.cred.uid, way.cred.gid));
            if self.is_there(&mut reasons) {
                door.operations = self.judge(asked, &way, 0, &mut reasons).await;
            }
            doors.push(reasons.into(door));
        }
        doors
    }
}

fn none_of(kind: FileKind) -> Vec<ExplainedOperation> {
    let no = |(name, _): &(&str, Op)| ExplainedOperation { name: (*name).to_owned(), allowed: Some(false) };
    ask::operations(kind).iter().map(no).collect()
}

/// What is known of this daemon for an explanation.
pub struct Explaining {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub servers: Arc<Servers>,
    pub mounts: Mounts,
}

impl Explaining {
    pub async fn access(&self, request: &ExplainRequest) -> Result<Explanation, Failure> {
        let state = self.document.lock().await;
        let config = Arc::clone(&state.config);
        larder_document::known::no_such_user(&config, &request.user)?;
        let target = target(&request.path, &config)?;
        let user = config.user(&request.user).ok_or_else(|| Failure::not_found("the user is gone"))?;
        let (smb_login, door_login) = logins(&state, user);
        drop(state);
        let there = match self.tree_of(&target, &config).await {
            Ok((files, root)) => {
                let chain = chain(&files, root, &target).await?;
                Ok((files, chain))
            }
            Err(failure) => Err(failure),
        };
        let person = config.person(user);
        let question = Question { config: &config, user, person, from: request.from, target: &target, there };
        let mut doors = Vec::new();
        for share in config.shares.iter().filter(|share| concerns(share, &target)) {
            for (asked, login) in self.doors_of(&question, share, &smb_login, &door_login) {
                doors.push(question.share(share, asked, login).await);
            }
        }
        if let Some(volume) = &target.volume {
            doors.extend(question.mount(&self.mounts.of(volume)).await);
        }
        explanation(question, doors).await
    }

    /// The tree of the target, and where its names begin.
    async fn tree_of(&self, target: &Target, config: &Config) -> Result<(Files, Ino), Failure> {
        if let Some(volume) = &target.volume {
            return Ok((self.storage.files(volume).await?, Ino::ROOT));
        }
        let share = config.shares.iter().find(|share| target.share.as_ref() == Some(&share.name));
        let share = share.ok_or_else(|| Failure::not_found("the share is gone"))?;
        let (files, root) = shares::found(share, &self.storage).await?;
        Ok((if share.is_on(&NORMALIZE) { files.ignoring_forms() } else { files }, root))
    }

    /// The doors of a share, and what the user comes in as.
    fn doors_of<'q>(
        &self,
        question: &'q Question<'_>,
        share: &ShareConfig,
        smb_login: &'q Result<(), String>,
        door_login: &'q Result<(), String>,
    ) -> [(Asked, Result<Who<'q>, &'q str>); 4] {
        let login = |login: &'q Result<(), String>| match login {
            Ok(()) => Ok(Who::User(&question.person)),
            Err(why) => Err(why.as_str()),
        };
        let by_smb = login(smb_login).or_else(|why| if share.lets_in_guests() { Ok(Who::Guest) } else { Err(why) });
        let servers = &self.servers;
        let door = |door, name, key, is_served| Asked { door, name, key, is_served };
        let web = servers.webdav_addr().or(servers.webdavs_addr()).is_some();
        [
            (door(Door::Nfs { port: None }, "NFS", "nfs", servers.nfs_addr().is_some()), Ok(Who::Machine)),
            (door(Door::Smb { encrypts: true }, "SMB", "smb", servers.smb_addr().is_some()), by_smb),
            (door(Door::Sftp, "SFTP", "sftp", servers.sftp_addr().is_some()), login(door_login)),
            (door(Door::Webdav, "WebDAV", "webdav", web), login(door_login)),
        ]
    }
}

/// Whether the user has anything to log in with over SMB, and over the doors that take passwords.
fn logins(state: &State, user: &UserConfig) -> (Result<(), String>, Result<(), String>) {
    let name = &user.name;
    let help = format!("set one with: larder user passwd {name}");
    let has_password = state.secrets.has(name);
    let smb = match has_password {
        true if state.secrets.lacks_nt_hash(name) => Err(format!(
            "the password of {name} was set while SMB was not served: set it again with: larder user passwd {name}"
        )),
        true => Ok(()),
        false => Err(format!("{name} has no password: {help}")),
    };
    let others = !user.ssh_keys.is_empty()
        || !state.config.ssh_ca_keys.is_empty()
        || state.tokens.list().iter().any(|token| token.user == *name && !token.expired);
    let door = match has_password || others {
        true => Ok(()),
        false => Err(format!("{name} has neither password nor key nor token: {help}")),
    };
    (smb, door)
}

/// Whether a share is a way to the target.
fn concerns(share: &ShareConfig, target: &Target) -> bool {
    match &target.share {
        Some(name) => share.name == *name,
        None => share.volume == target.volume && target.names.starts_with(&names_of(&share.folder)),
    }
}

async fn explanation(question: Question<'_>, doors: Vec<ExplainedDoor>) -> Result<Explanation, Failure> {
    let Question { config, user, target, there, .. } = question;
    let (object, fault) = match there {
        Ok((files, chain)) => (object(config, &files, chain.last()).await, None),
        Err(failure) => (None, Some(failure.message)),
    };
    let named = config.groups.iter().filter(|group| Config::is_member(user, group));
    Ok(Explanation {
        user: user.name.clone(),
        uid: user.uid,
        gid: user.gid,
        gids: config.gids_of(user),
        groups: named.map(|group| group.name.clone()).collect(),
        volume: target.place(),
        path: target.names.join("/"),
        object,
        fault,
        doors,
    })
}

async fn object(config: &Config, files: &Files, attr: Option<&Attr>) -> Option<ExplainedObject> {
    let attr = attr?;
    let has_list = files.acl(attr.id.ino).await.is_ok_and(|(_, list)| list.is_some());
    let set = ATTRIBUTES.iter().filter(|(bit, _)| attr.dos & bit != 0).map(|(_, name)| (*name).to_owned());
    Some(ExplainedObject {
        kind: class_of(attr.kind).to_owned(),
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        owner: config.users.iter().find(|user| user.uid == attr.uid).map(|user| user.name.clone()),
        group: super::explain_words::group_name(config, attr.gid),
        has_list,
        attributes: set.collect(),
    })
}
