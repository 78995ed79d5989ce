//! The work behind the pages of a first run: looks at disks, checks plans, and hands a confirmed one to the command.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::Method;
use larder_api::endpoint::Endpoint;
use larder_api::endpoints::{GetDisks, PreviewLayouts};
use larder_api::{
    Failure, FolderFound, LayoutsRequest, SetupCheck, SetupErased, SetupFailure, SetupImport, SetupPlan, SetupProgress,
    SetupServed,
};
use larder_base::shell;
use larder_base::units::ByteSize;
use larder_doors::login::Gate;
use larder_facts::Machine;
use larder_facts::disk::{Prepare, PrepareOptions, Use};
use larder_pool::Pool;
use larder_web::{Ask, Asker, SetUp};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::disk::failure as disk_failure;
use super::super::up::{STEPS, look_at_new};
use larder_config::edit::replace_file;
use larder_config::machine;
use larder_config::{check_label, check_share_name, check_user_name};
use larder_daemon::disks::{self, aside};
use larder_watch::SetUpDeed;

/// The plan, until larder.toml is there (`setup.plan_first`).
const PLAN_NAME: &str = "setup.json";
const PLAN_BYTES_MAX: u64 = 1 << 20;
/// XFS keeps no more of a label.
const LABEL_CHARS_MAX: usize = 12;
/// The steps of a box that comes back.
const IMPORT_STEPS: [&str; 2] = ["Open the box that these disks hold", "Open the doors"];
/// The name under which guesses at the link are counted.
const GUESSED: &str = "set-up link";

/// What a person confirmed.
pub(super) enum Wanted {
    Make(SetupPlan),
    Import(SetupImport),
}

pub(super) struct Order {
    pub(super) wanted: Wanted,
    /// The browser.
    from: IpAddr,
}

impl Order {
    /// For the audit log: names alone (`audit.names_only`).
    pub(super) fn deed(&self) -> SetUpDeed {
        let (what, target) = match &self.wanted {
            Wanted::Make(plan) => {
                let devices = plan.devices.iter().map(|device| device.path.as_path());
                let disks = named(plan.folders.iter().map(PathBuf::as_path).chain(devices));
                ("SetUp", format!("user={} share={} disks={disks}", plan.user, plan.share))
            }
            Wanted::Import(import) => {
                ("SetUpImport", format!("disks={}", named(import.folders.iter().map(PathBuf::as_path))))
            }
        };
        SetUpDeed { what, target, from: self.from }
    }
}

fn named<'a>(disks: impl Iterator<Item = &'a Path>) -> String {
    disks.map(|disk| disk.display().to_string()).collect::<Vec<_>>().join(",")
}

/// One at a time.
pub(super) type Ordered = mpsc::Receiver<Order>;

pub(super) struct Task {
    data: PathBuf,
    json: bool,
    gate: Gate,
    orders: mpsc::Sender<Order>,
    progress: Mutex<SetupProgress>,
    unfinished: Mutex<Option<SetupPlan>>,
    left: CancellationToken,
}

impl Task {
    pub(super) fn new(data: &Path, json: bool) -> (Arc<Self>, Ordered) {
        let (orders, ordered) = mpsc::channel(1);
        let unfinished = Mutex::new(read_plan(&data.join(PLAN_NAME)));
        let (progress, left) = (Mutex::default(), CancellationToken::new());
        (
            Arc::new(Self { data: data.to_owned(), json, gate: Gate::default(), orders, progress, unfinished, left }),
            ordered,
        )
    }

    /// Cancelled when the last page was read.
    pub(super) fn left(&self) -> CancellationToken {
        self.left.clone()
    }

    /// The command waits for an order, and takes it at once.
    fn order(&self, progress: &mut SetupProgress, steps: Vec<String>, order: Order) -> Result<(), Failure> {
        let before = std::mem::replace(progress, SetupProgress { steps, ..SetupProgress::default() });
        self.orders.try_send(order).map_err(|_| {
            *progress = before;
            Failure::busy("the set-up is under way, or at its end")
        })
    }

    pub(super) fn reached(&self, step: usize) {
        self.progress.lock().done = step;
    }

    pub(super) fn steps_of_devices(&self, plan: &SetupPlan) -> usize {
        plan.devices.len()
    }

    pub(super) fn failed(&self, step: &str, failure: Failure) {
        self.progress.lock().failure = Some(SetupFailure { step: step.to_owned(), failure });
    }

    pub(super) fn served(&self, served: SetupServed) {
        let mut progress = self.progress.lock();
        progress.done = progress.steps.len();
        progress.served = Some(served);
    }

    /// larder.toml is there now.
    pub(super) fn forget_plan(&self) {
        if let Err(error) = std::fs::remove_file(self.data.join(PLAN_NAME)) {
            tracing::warn!(%error, "the plan of the set-up stays in the data folder; nothing reads it any more");
        }
        *self.unfinished.lock() = None;
    }

    fn keep_plan(&self, plan: &SetupPlan) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(plan).map_err(|e| Failure::internal(e.to_string()))?;
        replace_file(&self.data.join(PLAN_NAME), &text, 0o600)?;
        *self.unfinished.lock() = Some(plan.clone());
        Ok(())
    }

    /// Makes filesystems on the disks of the plan, and returns the folders of the pool. What is ready is a folder from then on.
    pub(super) async fn prepare(self: &Arc<Self>, plan: &SetupPlan) -> Result<Vec<PathBuf>, Failure> {
        let mut rest = plan.clone();
        self.keep_plan(&rest)?;
        while let Some(device) = rest.devices.first().cloned() {
            self.reached(plan.devices.len() - rest.devices.len());
            let taken = labels(&rest.folders);
            let prepared = aside(move || {
                let machine = Machine::this();
                let planned = plan_device(&machine, &device.path, &taken)?;
                planned.run(&machine, device.typed.as_deref()).map_err(|e| disk_failure(&e))
            });
            let prepared = prepared.await?;
            rest.devices.remove(0);
            rest.folders.push(prepared.mount.join(disks::FOLDER));
            self.keep_plan(&rest)?;
        }
        Ok(rest.folders)
    }

    /// A set-up that was cut off made a pool on these folders: it stays as it is.
    fn goes_on(&self, plan: &SetupPlan) -> bool {
        let is_ours = self.unfinished.lock().as_ref().is_some_and(|before| before.folders == plan.folders);
        is_ours && plan.devices.is_empty() && !Pool::scan(&plan.folders).is_empty()
    }
}

/// A whole disk, with a label that no other of the plan has.
fn plan_device(machine: &Machine, device: &Path, taken: &BTreeSet<String>) -> Result<Prepare, Failure> {
    let plan = |label: Option<String>| {
        let options =
            PrepareOptions { device: device.to_owned(), label, mount: None, fstab: PathBuf::from("/etc/fstab") };
        Prepare::plan(machine, &options).map_err(|e| disk_failure(&e))
    };
    let planned = plan(None)?;
    if !taken.contains(&planned.label) {
        return Ok(planned);
    }
    let name: String = format!("lrd-{}", planned.device.name).chars().take(LABEL_CHARS_MAX).collect();
    plan(Some(name))
}

/// The mount points' names, which are labels.
fn labels(folders: &[PathBuf]) -> BTreeSet<String> {
    let mounts = folders.iter().filter_map(|folder| folder.parent()?.file_name());
    mounts.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// `None`: there is none, or nothing that can be used.
fn read_plan(file: &Path) -> Option<SetupPlan> {
    let mut bytes = Vec::new();
    std::fs::File::open(file).ok()?.take(PLAN_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(plan) => Some(plan),
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "the plan of an earlier set-up cannot be read: it is not offered");
            None
        }
    }
}

impl Ask for Task {
    /// The endpoints that need no daemon.
    fn carry(
        &self,
        _: Option<Asker>,
        method: Method,
        path: String,
        body: Bytes,
    ) -> BoxFuture<'_, Result<Bytes, Failure>> {
        let further = self.unfinished.lock().as_ref().map(|plan| plan.folders.clone()).unwrap_or_default();
        Box::pin(async move {
            let answer = match path.as_str() {
                GetDisks::PATH if method == GetDisks::METHOD => {
                    serde_json::to_vec(&aside(move || Ok(disks::found(&Machine::this(), &further))).await?)
                }
                PreviewLayouts::PATH if method == PreviewLayouts::METHOD => {
                    let request: LayoutsRequest =
                        serde_json::from_slice(&body).map_err(|e| Failure::invalid(e.to_string()))?;
                    serde_json::to_vec(&disks::answer_layouts(request).await?)
                }
                _ => return Err(Failure::not_found("no daemon runs yet: the set-up knows disks and layouts alone")),
            };
            answer.map(Bytes::from).map_err(|e| Failure::internal(e.to_string()))
        })
    }
}

impl SetUp for Task {
    fn counts(&self, from: IpAddr) -> bool {
        self.gate.counts(from, GUESSED)
    }

    fn forgives(&self, from: IpAddr) {
        self.gate.forgives(from, GUESSED);
    }

    fn unfinished(&self) -> Option<SetupPlan> {
        self.unfinished.lock().clone()
    }

    fn trial(&self) -> Vec<PathBuf> {
        (1..=3).map(|n| self.data.join(format!("disk{n}"))).collect()
    }

    fn import_line(&self, folders: &[PathBuf]) -> String {
        let words: Vec<String> = folders.iter().map(|folder| shell::word(folder)).collect();
        let program = shell::word(Path::new(&machine::program()));
        format!("{program} --data {} up {}", shell::word(&self.data), words.join(" "))
    }

    fn folder(&self, path: PathBuf) -> BoxFuture<'_, Result<FolderFound, Failure>> {
        Box::pin(aside(move || Ok(disks::folder_at(&Machine::this(), &path))))
    }

    fn check_names(&self, plan: &SetupPlan) -> Result<(), Failure> {
        check_user_name(&plan.user).map_err(Failure::invalid)?;
        if ["all", "none"].contains(&plan.user.as_str()) {
            return Err(Failure::invalid(format!("'{}' stands for other things in lists of users", plan.user))
                .action("Choose another name"));
        }
        check_share_name(&plan.share).map_err(Failure::invalid)?;
        if !plan.box_name.is_empty() {
            check_label(&plan.box_name).map_err(Failure::invalid)?;
        }
        let doors = &plan.doors;
        if !(doors.smb || doors.webdav || doors.sftp || doors.nfs) {
            return Err(Failure::invalid("no door is open: nobody could reach the files").action("Open one at least"));
        }
        Ok(())
    }

    fn check(&self, plan: SetupPlan) -> BoxFuture<'_, Result<SetupCheck, Failure>> {
        let goes_on = self.goes_on(&plan);
        Box::pin(aside(move || check(&plan, goes_on)))
    }

    fn begin(&self, plan: SetupPlan, from: IpAddr) -> Result<(), Failure> {
        self.check_names(&plan)?;
        let mut progress = self.progress.lock();
        if !progress.steps.is_empty() && progress.failure.is_none() {
            return Err(Failure::busy("the set-up is under way"));
        }
        let devices = plan.devices.iter().map(|device| format!("Make a filesystem on {}", device.path.display()));
        let steps = devices.chain(STEPS.map(str::to_owned)).collect();
        self.order(&mut progress, steps, Order { wanted: Wanted::Make(plan), from })?;
        if !self.json {
            tracing::info!("the set-up begins");
        }
        Ok(())
    }

    fn import(&self, import: SetupImport, from: IpAddr) -> Result<(), Failure> {
        let mut progress = self.progress.lock();
        if !progress.steps.is_empty() && progress.failure.is_none() {
            return Err(Failure::busy("the set-up is under way"));
        }
        let steps = IMPORT_STEPS.map(str::to_owned).to_vec();
        self.order(&mut progress, steps, Order { wanted: Wanted::Import(import), from })
    }

    fn progress(&self) -> SetupProgress {
        self.progress.lock().clone()
    }

    fn forget_failure(&self) {
        let mut progress = self.progress.lock();
        if progress.failure.is_some() {
            *progress = SetupProgress::default();
        }
    }

    fn leave(&self) {
        self.left.cancel();
    }
}

/// What a plan would do; refuses what cannot be done, as far as a look tells.
fn check(plan: &SetupPlan, goes_on: bool) -> Result<SetupCheck, Failure> {
    let machine = Machine::this();
    let mut check = SetupCheck::default();
    let mut taken = labels(&plan.folders);
    for device in &plan.devices {
        let planned = plan_device(&machine, &device.path, &taken)?;
        taken.insert(planned.label.clone());
        let holds: Vec<String> = planned.uses.iter().map(Use::text).map(str::to_owned).collect();
        let verb = if holds.is_empty() { "Make a filesystem on" } else { "ERASE everything on" };
        check.deeds.push(format!(
            "{verb} {}, and mount it at {} at every start",
            planned.title(),
            planned.mount.display()
        ));
        check.erased.push(SetupErased {
            device: device.path.clone(),
            title: planned.title(),
            holds,
            token: planned.token,
        });
    }
    let count = plan.folders.len() + plan.devices.len();
    let disks = if count == 1 { "1 disk".to_owned() } else { format!("{count} disks") };
    if goes_on {
        check.deeds.push(format!("Go on with the pool that is on {disks} already"));
    } else {
        look_at_new(&plan.folders)?;
        let request = LayoutsRequest {
            folders: plan.folders.clone(),
            devices: plan.devices.iter().map(|device| device.path.clone()).collect(),
        };
        let preview = disks::layouts(&machine, &request)?;
        let layout = preview.layouts.into_iter().find(|one| one.layout == plan.layout);
        let layout = layout.ok_or_else(|| Failure::invalid(format!("there is no layout '{}'", plan.layout)))?;
        if let Some(why) = layout.refused {
            return Err(Failure::invalid(format!("{} is not possible: {why}", plan.layout)));
        }
        let folders: Vec<String> = plan.folders.iter().map(|folder| folder.display().to_string()).collect();
        let places = if folders.is_empty() { String::new() } else { format!(" ({})", folders.join(", ")) };
        let (layout, usable) = (&plan.layout, ByteSize(layout.usable_bytes));
        check.deeds.push(format!("Make the pool 'tank', {layout}, of {disks}{places}: {usable} for files"));
    }
    check.deeds.extend(deeds(plan));
    Ok(check)
}

fn deeds(plan: &SetupPlan) -> Vec<String> {
    let doors = &plan.doors;
    let nfs = match (doors.nfs, doors.nfs_from) {
        (true, Some(from)) => Some(format!("NFS for this box and {from}")),
        (true, None) => Some("NFS for this box alone".to_owned()),
        (false, _) => None,
    };
    let open = [
        doors.smb.then(|| "SMB".to_owned()),
        doors.webdav.then(|| "browser and WebDAV over HTTPS".to_owned()),
        doors.sftp.then(|| "SFTP".to_owned()),
        nfs,
    ];
    let open: Vec<String> = open.into_iter().flatten().collect();
    let mut deeds = vec![
        format!("Make the share '{}', for all users", plan.share),
        format!("Make the user {}, who owns it", plan.user),
        format!("Open {}", open.join(", ")),
    ];
    deeds.push(match plan.snapshots {
        true => "Take snapshots: 24 hourly, 30 daily, 8 weekly and 12 monthly ones are kept".to_owned(),
        false => "Take no snapshots by itself".to_owned(),
    });
    if !plan.box_name.is_empty() {
        deeds.push(format!("Be found in the network as '{}'", plan.box_name));
    }
    deeds
}

#[cfg(test)]
mod tests {
    use larder_api::{SetupDevice, SetupDoors};

    use larder_api::FailureKind;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn plan(folders: &[PathBuf]) -> SetupPlan {
        SetupPlan {
            folders: folders.to_vec(),
            layout: "mirror".to_owned(),
            user: "ann".to_owned(),
            password: "Pantry-Shelf-42".to_owned(),
            share: "files".to_owned(),
            doors: SetupDoors { smb: true, ..SetupDoors::default() },
            ..SetupPlan::default()
        }
    }

    #[test]
    fn a_plan_is_kept_without_its_password_and_offered_again() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let (task, _orders) = Task::new(data, true);
        assert!(task.unfinished().is_none());
        let wanted = plan(&[data.join("a"), data.join("b")]);
        task.keep_plan(&wanted).unwrap();
        let text = std::fs::read_to_string(data.join(PLAN_NAME)).unwrap();
        assert!(text.contains("ann") && !text.contains("Pantry"), "{text}");
        let (again, _orders) = Task::new(data, true);
        assert_eq!(again.unfinished(), Some(SetupPlan { password: String::new(), ..wanted }));
        again.forget_plan();
        assert!(!data.join(PLAN_NAME).exists());
        std::fs::write(data.join(PLAN_NAME), "{\"folders\": 7").unwrap();
        assert!(Task::new(data, true).0.unfinished().is_none());
    }

    #[test]
    fn plans_say_what_they_do_and_bad_ones_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let two = [folder.path().join("a"), folder.path().join("b")];
        let said = check(&plan(&two), false).unwrap();
        assert!(said.erased.is_empty());
        let text = said.deeds.join("\n");
        for word in ["mirror", "2 disks", "'files'", "ann", "SMB", "no snapshots"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        let refused = |plan: SetupPlan| check(&plan, false).unwrap_err().message;
        assert!(refused(SetupPlan { layout: "raidz2".to_owned(), ..plan(&two) }).contains("4 disks"));
        assert!(refused(plan(&[two[0].clone(), two[0].clone()])).contains("twice"));
        let devices = vec![SetupDevice { path: "/dev/surely-not-there".into(), typed: None }];
        assert!(refused(SetupPlan { devices, ..plan(&[]) }).contains("surely-not-there"));
        std::fs::create_dir(&two[0]).unwrap();
        std::fs::write(two[0].join("holiday.jpg"), "x").unwrap();
        assert!(refused(plan(&two)).contains("not empty"));
        assert!(!two[1].exists(), "a look makes nothing");
    }

    #[tokio::test]
    async fn one_plan_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (task, mut orders) = Task::new(folder.path(), true);
        for (bad, word) in [
            (SetupPlan { user: "a b".to_owned(), ..plan(&[]) }, "user name"),
            (SetupPlan { user: "all".to_owned(), ..plan(&[]) }, "stands for"),
            (SetupPlan { share: "a/b".to_owned(), ..plan(&[]) }, "share name"),
            (SetupPlan { box_name: "<b>".to_owned(), ..plan(&[]) }, "machine"),
            (SetupPlan { doors: SetupDoors::default(), ..plan(&[]) }, "door"),
        ] {
            assert!(task.begin(bad, HERE).unwrap_err().message.contains(word), "{word}");
        }
        task.begin(plan(&[]), HERE).unwrap();
        assert_eq!(task.begin(plan(&[]), HERE).unwrap_err().kind, FailureKind::Busy);
        let ordered = orders.recv().await;
        let ordered = ordered.unwrap();
        let deed = ordered.deed();
        assert_eq!((deed.what, deed.target.as_str()), ("SetUp", "user=ann share=files disks="));
        assert!(matches!(ordered.wanted, Wanted::Make(plan) if plan.password == "Pantry-Shelf-42"));
        assert_eq!(task.progress().steps, STEPS);
        task.failed("names", Failure::invalid("no"));
        task.begin(plan(&[]), HERE).unwrap();
        assert!(task.progress().failure.is_none());
    }
}
