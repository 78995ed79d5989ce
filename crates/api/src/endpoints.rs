//! All endpoints.
//!
//! - `endpoints.declared_once`: an endpoint is declared here and nowhere else. Nothing else writes a path; the daemon does not compile
//!   without exactly one handler for each; `docs/api.json` is what follows from this list.
//!
//! An entry reads: name, what its path names, who may call it, form, method, path, and request => response.

use hyper::Method;

use crate::endpoint::{self, Caller, Declared, Endpoint, Form};
use crate::*;

/// One endpoint as a type.
macro_rules! declare {
    (@param) => { () };
    (@param $param:ty) => { $param };
    ($name:ident, $about:literal, ($($param:ty)?), $caller:ident, $form:ident, $method:ident, $path:literal, $request:ty, $response:ty) => {
        #[doc = $about]
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Endpoint for $name {
            const NAME: &'static str = stringify!($name);
            const METHOD: Method = Method::$method;
            const PATH: &'static str = $path;
            const ABOUT: &'static str = $about.trim_ascii();
            const CALLER: Caller = Caller::$caller;
            const FORM: Form = Form::$form;
            type Param = declare!(@param $($param)?);
            type Request = $request;
            type Response = $response;
        }

        impl endpoint::$form for $name {}
    };
}

/// Those of the daemon's socket. `for_each_endpoint!(x)` in another crate calls the macro `x` with all of their names.
macro_rules! endpoints {
    ($d:tt $(
        #[doc = $about:literal]
        $name:ident($($param:ty)?): $caller:ident $form:ident $method:ident $path:literal, $request:ty => $response:ty;
    )*) => {
        $(declare!($name, $about, ($($param)?), $caller, $form, $method, $path, $request, $response);)*

        /// The declarations of the daemon's socket.
        pub fn of_socket() -> Vec<Declared> {
            vec![$(Declared::of::<$name>()),*]
        }

        #[macro_export]
        macro_rules! for_each_endpoint {
            ($d callback:ident) => { $d callback! { $($name)* } };
        }
    };
}

endpoints! { $
    /// Says which daemon this is, where it answers, and which pools it has.
    GetInfo(): Owner Json GET "/v1/info", () => DaemonInfo;
    /// Says how the pools are, after a look at their disks.
    GetPools(): Owner Json GET "/v1/pools", () => Vec<PoolStatus>;
    /// Says how the pools are as far as is known: looks at no disk and wakes none.
    GetPoolsKnown(): Owner Json GET "/v1/pools/known", () => Vec<PoolStatus>;
    /// Lists the pools: those that are open, and those found on configured disks.
    ListPools(): Owner Json GET "/v1/pools/list", () => Vec<PoolListed>;
    /// Opens a pool on the disks named, and adds it to the configuration.
    ImportPool(): Owner Json POST "/v1/pools/import", PoolImport => PoolStatus;
    /// Closes a pool and takes it out of the configuration, so that its disks can move.
    ExportPool(String): Owner Json POST "/v1/pools/{name}/export", TakeAway => Done;
    /// Gives a pool another name.
    RenamePool(String): Owner Json POST "/v1/pools/{name}/rename", PoolRename => PoolStatus;
    /// Sets the error counters of a pool's disks to zero.
    ClearPool(String): Owner Json POST "/v1/pools/{name}/clear", () => Done;
    /// Changes the disks or the layout of a pool, or says what that would do.
    ChangePool(String): Owner Json POST "/v1/pools/{name}/change", PoolChangeRequest => PoolChangePlan;
    /// Says what happened to a pool, oldest first.
    GetPoolHistory(String): Owner Json GET "/v1/pools/{name}/history", () => PoolHistory;
    /// Says how far the scrub of a pool is, or how the last one ended.
    GetPoolScrub(String): Owner Json GET "/v1/pools/{name}/scrub", () => PoolScrub;
    /// Starts, pauses or stops the scrub of a pool.
    ScrubPool(String): Owner Json POST "/v1/pools/{name}/scrub", ScrubRequest => PoolScrub;
    /// Destroys a pool with everything in it, and erases its disks.
    DestroyPool(String): Owner Json POST "/v1/pools/{name}/destroy", TakeAway => PoolDestroyed;
    /// Gives up changes that a journal had acknowledged and that never reached the bucket of a store.
    ForgetLost(String): Owner Json POST "/v1/stores/{name}/forget", () => Done;

    /// Lists the disks of the machine and the folders that a pool could be made of. Asks no disk.
    GetDisks(): Owner Json GET "/v1/disks", () => DisksFound;
    /// Says what each layout would make of disks: room, survivable failures, speed. Changes nothing.
    PreviewLayouts(): Owner Json POST "/v1/layouts", LayoutsRequest => LayoutsPreview;

    /// Lists the volumes of all pools and stores.
    GetVolumes(): Owner Json GET "/v1/volumes", () => Vec<VolumeStatus>;
    /// Makes a volume, and shares it where that is asked for.
    CreateVolume(): Owner Json POST "/v1/volumes", VolumeCreate => VolumeStatus;
    /// Changes properties and quotas of a volume.
    SetVolume(String): Owner Json PATCH "/v1/volumes/{*name}", VolumeChange => VolumeStatus;
    /// Destroys a volume, with its shares and mounts.
    DestroyVolume(String): Owner Json DELETE "/v1/volumes/{*name}", TakeAway => Done;
    /// Moves a volume, and answers when it is done; a caller that goes away while data is copied interrupts it.
    MoveVolume(): Owner Json POST "/v1/move", VolumeMove => VolumeMoved;
    /// Says what the files of each user and group in a volume take up.
    GetOwners(String): Owner Json GET "/v1/owners/{*name}", () => Vec<OwnerUse>;
    /// Says what opens an encrypted volume, and whether it is open.
    GetKeys(String): Owner Json GET "/v1/keys/{*name}", () => KeysStatus;
    /// Unlocks, locks or encrypts a volume, or changes what opens it.
    ChangeKeys(String): Owner Json POST "/v1/keys/{*name}", KeysRequest => KeysStatus;
    /// Reads what the volumes consist of, and lists what is wrong.
    CheckVolumes(): Owner Json POST "/v1/check", CheckRequest => Vec<CheckResult>;
    /// Copies a folder of the host into a volume; a caller that goes away stops it.
    ImportFolder(String): Owner Lines POST "/v1/import/{*name}", ImportRequest => ImportEvent;

    /// Lists the snapshots of a volume.
    GetSnapshots(String): Owner Json GET "/v1/snapshots/{*name}", () => SnapshotsStatus;
    /// Takes, destroys, renames, holds or releases snapshots of a volume, or takes the volume back to one.
    ChangeSnapshots(String): Owner Json POST "/v1/snapshots/{*name}", SnapshotsRequest => SnapshotsStatus;
    /// Lists the schedules of automatic snapshots.
    GetSnapshotSchedules(): Owner Json GET "/v1/snapshot-schedules", () => Vec<SnapshotSchedule>;
    /// Sets or ends the schedule of automatic snapshots of a volume.
    SetSnapshotSchedule(): Owner Json POST "/v1/snapshot-schedules", SnapshotScheduleSet => Vec<SnapshotSchedule>;
    /// Says how often each pool is scrubbed by itself.
    GetScrubSchedules(): Owner Json GET "/v1/scrub-schedules", () => Vec<ScrubSchedule>;
    /// Sets how often a pool is scrubbed by itself.
    SetScrubSchedule(): Owner Json POST "/v1/scrub-schedules", ScrubSchedule => Vec<ScrubSchedule>;
    /// Lists the paths that differ between two snapshots of a volume, or between one and now.
    DiffSnapshots(String): Owner Json POST "/v1/diff/{*name}", DiffRequest => Vec<DiffEntry>;
    /// Makes a volume that begins as a snapshot.
    CloneSnapshot(String): Owner Json POST "/v1/clone/{*name}", CloneRequest => VolumeStatus;
    /// Sends a snapshot of a volume as a stream for a replica.
    SendSnapshot(String): Owner Download POST "/v1/send/{*name}", SendRequest => ();
    /// Sends the files of a snapshot as a tar stream.
    ExportSnapshot(String): Owner Download POST "/v1/export/{*name}", ExportRequest => ();

    /// Says what a replica has, and what it waits for.
    GetReplica(String): OwnerOrSender Json GET "/v1/receive/{*name}", () => ReplicaState;
    /// Takes a snapshot into a replica.
    ReceiveSnapshot(String): OwnerOrSender Upload POST "/v1/receive/{*name}", ReceiveQuery => Received;
    /// Keeps the sealed record of the sending box beside a replica.
    ReceiveRecord(String): OwnerOrSender Json POST "/v1/record/{*name}", SentRecord => Done;
    /// Makes a volume of its own out of a replica.
    PromoteReplica(String): Owner Json POST "/v1/promote/{*name}", () => Done;
    /// Lists what is replicated, and how far it is.
    GetReplications(): Owner Json GET "/v1/replications", () => Replications;
    /// Adds or removes a replication.
    ChangeReplications(): Owner Json POST "/v1/replications", ReplicationChange => Replications;
    /// Replicates a volume now, and answers when it is done; a caller that goes away interrupts it.
    ReplicateNow(): Owner Json POST "/v1/replicate", Replicate => Replications;
    /// Makes a code that lets another machine send into a replica here.
    AcceptReplica(): Owner Json POST "/v1/accept", Accept => Accepted;

    /// Lists the shares.
    GetShares(): Owner Json GET "/v1/shares", () => Vec<ShareStatus>;
    /// Shares a volume, a folder of it, or a folder of the host.
    AddShare(): Owner Json POST "/v1/shares", ShareAdd => ShareChanged;
    /// Changes a share.
    SetShare(String): Owner Json PATCH "/v1/shares/{name}", ShareChange => ShareChanged;
    /// Ends a share; its files stay.
    RemoveShare(String): Owner Json DELETE "/v1/shares/{name}", () => Done;
    /// Says what a user may do with a file through each door, and why.
    ExplainAccess(): Owner Json POST "/v1/explain", ExplainRequest => Explanation;

    /// Lists the users.
    GetUsers(): Owner Json GET "/v1/users", () => Vec<UserStatus>;
    /// Makes a user.
    AddUser(): Owner Json POST "/v1/users", UserAdd => UserAdded;
    /// Changes what a user is.
    SetUser(String): Owner Json PATCH "/v1/users/{name}", UserChange => UserStatus;
    /// Removes a user; files stay.
    RemoveUser(String): Owner Json DELETE "/v1/users/{name}", () => UserRemoved;
    /// Sets the password of a user.
    SetPassword(String): Owner Json POST "/v1/users/{name}/password", UserPassword => PasswordSet;
    /// Lists the public keys of a user.
    GetUserKeys(String): Owner Json GET "/v1/users/{name}/keys", () => Vec<UserKey>;
    /// Adds or removes public keys of a user.
    ChangeUserKeys(String): Owner Json POST "/v1/users/{name}/keys", UserKeysChange => Vec<UserKey>;
    /// Lists the groups.
    GetGroups(): Owner Json GET "/v1/groups", () => Vec<GroupStatus>;
    /// Makes a group.
    AddGroup(): Owner Json POST "/v1/groups", GroupAdd => GroupStatus;
    /// Adds users to a group, or takes them out.
    ChangeGroup(String): Owner Json PATCH "/v1/groups/{name}", GroupChange => GroupStatus;
    /// Removes a group; files stay.
    RemoveGroup(String): Owner Json DELETE "/v1/groups/{name}", () => GroupRemoved;
    /// Lists the links that users made in the browser.
    GetLinks(): Owner Json GET "/v1/links", () => Vec<LinkStatus>;
    /// Ends a link.
    RevokeLink(String): Owner Json DELETE "/v1/links/{name}", () => LinksEnded;
    /// Ends all links of a user.
    RevokeLinksOf(String): Owner Json DELETE "/v1/users/{name}/links", () => LinksEnded;
    /// Lists the app tokens, without what is secret of them.
    GetTokens(): Owner Json GET "/v1/tokens", () => Vec<TokenStatus>;
    /// Makes an app token; the answer alone has it.
    CreateToken(): Owner Json POST "/v1/tokens", TokenCreate => TokenCreated;
    /// Ends an app token, named by its id or name.
    RevokeToken(String): Owner Json DELETE "/v1/tokens/{name}", () => TokenStatus;

    /// Looks at everything that alerts are about, and lists alerts and their receivers. Asks no disk.
    GetAlerts(): Owner Json GET "/v1/alerts", () => AlertsStatus;
    /// Acknowledges or silences an alert, or vouches for the client that it is about.
    ChangeAlert(): Owner Json POST "/v1/alerts", AlertChange => AlertStatus;
    /// Lists the files that lost data, also those that are restored or removed.
    GetDamage(): Owner Json GET "/v1/damage", () => DamageKept;
    /// Says how the battery behind this machine is, and when larder stops.
    GetUps(): Owner Json GET "/v1/ups", () => UpsStatus;
    /// Sends a test message to each receiver, and says whether it was taken.
    TestAlerts(): Owner Json POST "/v1/alerts/test", () => Vec<AlertTested>;
    /// Lists what was done, who logged in, and who was refused.
    GetAudit(): Owner Json POST "/v1/audit", AuditQuery => Vec<AuditRecord>;
    /// Says how healthy the disks of this machine are. Wakes none that sleeps.
    GetDiskHealth(): Owner Json GET "/v1/disks/health", () => Vec<DiskHealth>;

    /// Watches the connections of clients for a second, and says what limits each. Asks no disk.
    GetTop(): Owner Json GET "/v1/top", () => Top;
    /// Lists the files that clients have open or locked over SMB and NFSv4.
    GetOpenFiles(): Owner Json GET "/v1/opens", () => OpenFiles;
    /// Closes an open of a client, and releases its locks.
    EndOpenFile(String): Owner Json DELETE "/v1/opens/{name}", () => Done;
    /// Lists the slowest transfers of the last two days, the last first. Asks no disk.
    GetTopWorst(): Owner Json GET "/v1/top/worst", () => Vec<TopWorst>;

    /// Lists the newest lines of the log, from memory.
    GetLog(): Owner Json GET "/v1/log", () => LogKept;
    /// Says what the box did and drew over an hour, a day, a month and a year.
    GetCharts(): Owner Json GET "/v1/charts", () => Charts;
    /// Says what the machine draws now, and what it costs in a year. Asks no disk.
    GetPower(): Owner Json GET "/v1/power", () => PowerStatus;
    /// Compares settings of a job by the energy and money that they take.
    WhatIfPower(): Owner Json POST "/v1/power/what-if", WhatIfRequest => Report;
    /// Watches for five seconds what keeps disks and processor awake. Asks no disk.
    GetAwake(): Owner Json GET "/v1/power/awake", () => Report;
    /// Says what limits this box: the machine as it is, and its clients as they are served now. Asks no disk.
    RunDoctor(): Owner Json GET "/v1/doctor", () => DoctorReport;
    /// Says how far the bench of the daemon is, or how the last one ended.
    GetBenchState(): Owner Json GET "/v1/bench", () => BenchState;
    /// Starts a bench; one at a time. Its result is kept in the data folder.
    StartBench(): Owner Json POST "/v1/bench", BenchStart => BenchState;
    /// Stops the bench. It takes away what it wrote, and the results so far are kept.
    StopBench(): Owner Json DELETE "/v1/bench", () => BenchState;
    /// Lists the results of benches in the data folder.
    GetBenches(): Owner Json GET "/v1/benches", () => Vec<BenchKept>;
    /// Shows the result of a bench.
    GetBench(String): Owner Json GET "/v1/benches/{name}", () => Report;
    /// Removes the result of a bench.
    RemoveBench(String): Owner Json DELETE "/v1/benches/{name}", () => Done;
    /// Holds two results of benches against each other.
    CompareBenches(): Owner Json POST "/v1/benches/compare", BenchCompare => Report;

    /// Lists the mounts of this daemon.
    GetMounts(): Owner Json GET "/v1/mounts", () => Vec<MountStatus>;
    /// Mounts a volume on a folder of the host.
    MountVolume(): Owner Json POST "/v1/mounts", MountRequest => MountStatus;
    /// Ends a mount.
    UnmountVolume(): Owner Json POST "/v1/unmount", UnmountRequest => Done;
    /// Draws another link of the set-up, while larder has none to serve; the one before is good no more.
    DrawSetupLink(): Owner Json POST "/v1/setup/link", () => SetupLink;
    /// Reads the configuration again.
    ReloadConfig(): Owner Json POST "/v1/reload", () => ConfigRead;
    /// Tells the metrics of the daemon, in the text form of Prometheus.
    GetMetrics(): OwnerOrScraper Text GET "/metrics", () => String;

    /// Tells the configuration as its file has it.
    ReadConfig(): Owner Json POST "/v1/config/read", () => ConfigText;
    /// Says what a configuration would change, whom that would interrupt, and what a file cannot change.
    PlanConfig(): Owner Json POST "/v1/config/plan", ConfigText => ConfigPlan;
    /// Makes a configuration the daemon's own, as a whole or not at all.
    ApplyConfig(): Owner Json POST "/v1/config/apply", ConfigApply => ConfigApplied;
    /// Lists the versions of this box that its pools keep, and what opens them.
    GetConfigHistory(): Owner Json GET "/v1/config/history", () => ConfigHistory;
    /// Shows one version of this box.
    GetConfigVersion(String): Owner Json GET "/v1/config/history/{name}", () => ConfigVersionText;
    /// Makes this box what it was at one time, or what the record beside a replica says; or says what that would change.
    RestoreConfig(): Owner Json POST "/v1/config/restore", ConfigRestore => ConfigApplied;
    /// Makes a new recovery key for the record of this box. The one before opens nothing any more.
    RenewRecoveryKey(): Owner Json POST "/v1/config/recovery-key", () => BoxRecoveryKey;
}

declare!(
    PairMachine,
    "Makes a machine known as a sender into a replica, by the secret of a code.",
    (),
    Invited,
    Json,
    POST,
    "/v1/pair",
    Pair,
    Paired
);

/// All declarations: of the socket, and of the door for other machines.
pub fn all() -> Vec<Declared> {
    let mut all = of_socket();
    all.push(Declared::of::<PairMachine>());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_path_of_its_own_and_the_callers_of_its_door() {
        let mut seen = BTreeSet::new();
        for one in all() {
            assert!(seen.insert((one.path, one.method.to_string())), "{} {} is declared twice", one.method, one.path);
            assert!(one.about.ends_with('.'), "{}: '{}' is no sentence", one.name, one.about);
            assert!(one.path.matches('{').count() <= 1, "{}: {} has several parameters", one.name, one.path);
        }
        // Doors other than the socket have these endpoints, and no more.
        let by = |caller| all().iter().filter(|one| one.caller == caller).map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(by(Caller::OwnerOrSender), ["GetReplica", "ReceiveSnapshot", "ReceiveRecord"]);
        assert_eq!(by(Caller::OwnerOrScraper), ["GetMetrics"]);
        assert_eq!(by(Caller::Invited), ["PairMachine"]);
        assert_eq!(GetUserKeys::path("ann b"), "/v1/users/ann%20b/keys");
    }
}
