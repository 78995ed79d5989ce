//! Why a user may do something with a file, or may not, through each door.
//!
//! - `explain.asks_the_doors`: the verdicts come from the code that decides: the share as the
//!   servers have it, and the questions of [`larder_serve::ask`]. Here they get words alone.

use std::net::IpAddr;

use larder_api::{
    ExplainRequest, ExplainedDoor, ExplainedObject, ExplainedOperation, Explanation, Failure, ReasonEffect,
};
use larder_files::Files;
use larder_fs::{Attr, Cred, FileKind, FsError, Ino, NameMatch};
use larder_serve::ask::{self, DoorKind, Object, Op, Way};
use larder_serve::login::DoorUser;
use larder_serve::share::Closed;

use super::explain_words::{Judged, Reasons, Step, class_of};
use super::{Daemon, State, shares, translate};
use crate::config::{Config, Entrance, ListedBy, ShareConfig, UserConfig, VolumeName};

/// READONLY, HIDDEN and SYSTEM of Windows.
const ATTRIBUTES: [(u32, &str); 3] = [(1, "readonly"), (2, "hidden"), (4, "system")];

/// `export.reserved_ports`, for people.
const BY_ROOT: &str = "from ports below 1024 alone, which root of the client uses; for programs of ordinary users and Macs \
                       without resvport: larder share set NAME --secure=no";

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
    translate::volume_failure(format_args!("'{}' of {}", target.names.join("/"), target.place()), error)
}

/// Everything that the answer is about.
struct Question<'a> {
    config: &'a Config,
    user: &'a UserConfig,
    door_user: DoorUser,
    from: Option<IpAddr>,
    target: &'a Target,
    /// The volume and the objects on the way, or why there are none.
    there: Result<(Files, Vec<Attr>), Failure>,
}

impl Question<'_> {
    /// What the user may do through a door, having come in by `way` at the directory number `top` of the chain.
    async fn judge(&self, door: DoorKind, way: &Way, top: usize, reasons: &mut Reasons) -> Vec<ExplainedOperation> {
        let Ok((files, chain)) = &self.there else { return Vec::new() };
        let Some((last, dirs)) = chain.get(top..).and_then(<[Attr]>::split_last) else { return Vec::new() };
        let judged = Judged { config: self.config, files, cred: &way.cred, by_bits: door == DoorKind::Mount };
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

    async fn nfs(&self, share: &ShareConfig, is_served: bool) -> ExplainedDoor {
        let (mut door, mut reasons) = self.door("NFS", Some(share));
        let Some(networks) = reasons.offered("NFS", "nfs", share.nfs, is_served).then(|| share.nfs_networks()) else {
            return reasons.into(door);
        };
        let Some(networks) = networks else {
            reasons.push(
                ReasonEffect::Closes,
                "the share is for certain users, and NFS cannot tell who asks: it is exported only to networks that \
                 the share names"
                    .to_owned(),
            );
            reasons.ways_around(share, self.config);
            return reasons.into(door);
        };
        let rule = shares::export_rule(share, networks);
        if !reasons.within(&rule.networks, self.from, "anybody on these machines is whoever he says") {
            reasons.push(ReasonEffect::Closes, shares::opening(share));
            return reasons.into(door);
        }
        reasons.bounds(rule.secure, BY_ROOT);
        let (user, gids) = (self.user, self.config.gids_of(self.user));
        let way = ask::by_nfs(&rule, user.uid, user.gid, &gids);
        reasons.identity(share, user, &way.cred);
        reasons.bounds(rule.read_only, "the share is read-only");
        self.forms(share, &mut reasons);
        door.acts_as = Some((way.cred.uid, way.cred.gid));
        if self.is_there(&mut reasons) {
            door.operations = self.judge(DoorKind::Nfs, &way, self.top_of(share), &mut reasons).await;
        }
        reasons.into(door)
    }

    /// A door that knows the user by name. `way` asks it.
    async fn by_name(
        &self,
        kind: DoorKind,
        share: &ShareConfig,
        offered: (&str, &str, bool, bool),
        login: Result<(), String>,
        way: impl FnOnce(&Files, Ino) -> Result<Way, Closed>,
    ) -> ExplainedDoor {
        let (name, key, is_offered, is_served) = offered;
        let (mut door, mut reasons) = self.door(name, Some(share));
        if !reasons.offered(name, key, is_offered, is_served) {
            return reasons.into(door);
        }
        if let Err(why) = login {
            reasons.push(ReasonEffect::Closes, why);
            return reasons.into(door);
        }
        reasons.bounds(share.encrypt && kind == DoorKind::Smb, "clients that do not encrypt are refused");
        let entrance = share.entrance(self.user, self.config);
        if !self.is_there(&mut reasons) {
            return reasons.into(door);
        }
        let Ok((files, chain)) = &self.there else { return reasons.into(door) };
        let Some(root) = chain.get(self.top_of(share)) else { return reasons.into(door) };
        match way(files, root.id.ino) {
            Err(Closed::Network) => {
                reasons.within(share.only_from.as_deref().unwrap_or_default(), self.from, "");
            }
            Err(_) => {
                reasons.push(ReasonEffect::Closes, not_listed(self.user));
                reasons.ways_around(share, self.config);
            }
            Ok(way) => {
                if let Some(bound) = &share.only_from {
                    reasons.within(bound, self.from, "only_from bounds every door");
                }
                reasons.push(ReasonEffect::Opens, listed(self.user, entrance.as_ref()));
                let by_list = entrance.is_some_and(|entrance| !entrance.may_write);
                reasons.bounds(by_list, "that list lets the user read alone");
                reasons.bounds(share.read_only, "the share is read-only");
                self.forms(share, &mut reasons);
                reasons.identity(share, self.user, &way.cred);
                door.acts_as = Some((way.cred.uid, way.cred.gid));
                door.operations = self.judge(kind, &way, self.top_of(share), &mut reasons).await;
            }
        }
        reasons.into(door)
    }

    /// Whether names are found in any Unicode form, where that makes a difference.
    fn forms(&self, share: &ShareConfig, reasons: &mut Reasons) {
        let is_plain = self.target.names.iter().all(|name| name.is_ascii());
        match share.normalize {
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

    async fn mount(&self, mounts: &[super::mounts::MountedAt]) -> Vec<ExplainedDoor> {
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
            let owner = rustix::process::geteuid().as_raw();
            if !mount.for_others && owner != self.user.uid {
                let text = format!("the mount is private: it is for uid {owner} alone");
                reasons.push(ReasonEffect::Closes, text);
                doors.push(reasons.into(door));
                continue;
            }
            let gids = self.config.gids_of(self.user);
            let way = Way { cred: Cred::new(self.user.uid, self.user.gid, gids), may_write: !mount.read_only };
            reasons.bounds(mount.read_only, "the mount is read-only");
            reasons.bounds(
                !self.config.gids_of(self.user).is_empty(),
                "groups count as far as the account on this machine is in them",
            );
            door.acts_as = Some((way.cred.uid, way.cred.gid));
            if self.is_there(&mut reasons) {
                door.operations = self.judge(DoorKind::Mount, &way, 0, &mut reasons).await;
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

fn listed(user: &UserConfig, entrance: Option<&Entrance>) -> String {
    let name = &user.name;
    match entrance.map(|entrance| (&entrance.by, entrance.may_write)) {
        Some((ListedBy::Name, true)) => format!("users names {name}"),
        Some((ListedBy::Name, false)) => format!("read_only_users names {name}"),
        Some((ListedBy::Group(group), true)) => format!("users names @{group}, and {name} is in it"),
        Some((ListedBy::Group(group), false)) => format!("read_only_users names @{group}, and {name} is in it"),
        Some((ListedBy::All, _)) => "the share is for all users".to_owned(),
        Some((ListedBy::Guest, _)) => "the share is open to guests".to_owned(),
        None => "the door lets the user in".to_owned(),
    }
}

fn not_listed(user: &UserConfig) -> String {
    format!("neither users nor read_only_users names {} or a group of theirs", user.name)
}

impl Daemon {
    pub(crate) async fn explain(&self, request: &ExplainRequest) -> Result<Explanation, Failure> {
        let state = self.state.lock().await;
        let config = state.config.clone();
        super::known::no_such_user(&config, &request.user)?;
        let target = target(&request.path, &config)?;
        let user = config.user(&request.user).ok_or_else(|| Failure::not_found("the user is gone"))?;
        let (smb_login, door_login) = self.logins(&state, user);
        drop(state);
        let there = match self.tree_of(&target, &config).await {
            Ok((files, root)) => {
                let chain = chain(&files, root, &target).await?;
                Ok((files, chain))
            }
            Err(failure) => Err(failure),
        };
        let door_user = shares::door_user(user, &config);
        let question = Question { config: &config, user, door_user, from: request.from, target: &target, there };
        let mut doors = Vec::new();
        for share in config.shares.iter().filter(|share| concerns(share, &target)) {
            doors.push(question.nfs(share, self.servers.nfs_addr().is_some()).await);
            doors.extend(self.named_doors(&question, share, &smb_login, &door_login).await);
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
        Ok((if share.normalize { files.ignoring_forms() } else { files }, root))
    }

    async fn named_doors(
        &self,
        question: &Question<'_>,
        share: &ShareConfig,
        smb_login: &Result<(), String>,
        door_login: &Result<(), String>,
    ) -> Vec<ExplainedDoor> {
        let (config, user, from) = (question.config, &question.door_user, question.from);
        let smb =
            |files: &Files, root: Ino| ask::by_smb(&shares::smb_share(share, config, files.clone(), root), user, from);
        let named = |files: &Files, root: Ino| {
            ask::by_name(&shares::door_share(share, config, files.clone(), root), user, from)
        };
        let smb_login = if share.guest { Ok(()) } else { smb_login.clone() };
        let web = self.servers.webdav_addr().or(self.servers.webdavs_addr()).is_some();
        let sftp = self.servers.sftp_addr().is_some();
        vec![
            question
                .by_name(
                    DoorKind::Smb,
                    share,
                    ("SMB", "smb", share.smb, self.servers.smb_addr().is_some()),
                    smb_login,
                    smb,
                )
                .await,
            question
                .by_name(DoorKind::Sftp, share, ("SFTP", "sftp", share.sftp, sftp), door_login.clone(), named)
                .await,
            question
                .by_name(DoorKind::Webdav, share, ("WebDAV", "webdav", share.webdav, web), door_login.clone(), named)
                .await,
        ]
    }

    /// Whether the user has anything to log in with over SMB, and over the doors that take passwords.
    fn logins(&self, state: &State, user: &UserConfig) -> (Result<(), String>, Result<(), String>) {
        let name = &user.name;
        let help = format!("set one with: larder user passwd {name}");
        let has_password = state.secrets.has(name);
        let smb = match has_password {
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
