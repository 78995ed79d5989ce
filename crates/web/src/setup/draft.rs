//! What a person has chosen so far, kept between the steps. A password waits here for the last step, and in no page.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use larder_api::{DiskFound, DisksFound, Failure, LayoutsRequest, SetupDevice, SetupDoors, SetupPlan};

use super::password::{Strength, strength};
use crate::form::Form;

/// More folders than any box has disks.
const FOLDERS_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 4096;

#[derive(Clone, Default)]
pub struct Draft {
    /// Folders that were named by hand, in their order.
    pub named: Vec<PathBuf>,
    pub folders: Vec<PathBuf>,
    pub devices: Vec<PathBuf>,
    /// The first step was sent: nothing is proposed any more.
    pub has_chosen: bool,
    /// A set-up that was cut off goes on: its pool is there, and stays as it is.
    pub goes_on: bool,
    pub layout: String,
    pub names: Names,
    pub password: String,
}

/// The fields of the third step but the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Names {
    pub box_name: String,
    pub user: String,
    pub share: String,
    pub snapshots: bool,
    pub doors: SetupDoors,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            box_name: String::new(),
            user: String::new(),
            share: "files".to_owned(),
            snapshots: true,
            doors: SetupDoors { smb: true, webdav: true, ..SetupDoors::default() },
        }
    }
}

impl Draft {
    /// That of a set-up which was cut off.
    pub fn of_unfinished(plan: SetupPlan) -> Self {
        let SetupPlan { folders, layout, box_name, user, share, snapshots, doors, .. } = plan;
        let names = Names { box_name, user, share, snapshots, doors };
        Self { named: folders.clone(), folders, layout, names, has_chosen: true, ..Self::default() }
    }

    /// After a failure: the disks of the plan as far as it came.
    pub fn remain(&mut self, plan: SetupPlan) {
        self.named.clone_from(&plan.folders);
        self.folders = plan.folders;
        self.devices = plan.devices.into_iter().map(|device| device.path).collect();
    }

    pub fn is_chosen(&self, folder: &Path) -> bool {
        self.folders.iter().any(|chosen| chosen == folder)
    }

    /// Only proposals are checked before a person has said anything (`disks.data_never_proposed`).
    pub fn is_chosen_device(&self, disk: &DiskFound) -> bool {
        match self.has_chosen {
            true => self.devices.contains(&disk.device),
            false => disk.is_proposed && disk.refused.is_none(),
        }
    }

    /// Takes the first step as it was sent. Only what is offered, or was named by hand, can be chosen.
    pub fn choose(&mut self, form: &Form, found: &DisksFound) {
        let offered = found.folders.iter().filter(|one| one.refused.is_none()).map(|one| &one.path);
        let folders: Vec<PathBuf> = offered.chain(&self.named).cloned().collect();
        let wanted: Vec<PathBuf> = form.all("folder").map(PathBuf::from).collect();
        self.folders = Vec::new();
        for folder in folders.into_iter().filter(|one| wanted.contains(one)) {
            if !self.folders.contains(&folder) {
                self.folders.push(folder);
            }
        }
        let wanted: Vec<PathBuf> = form.all("device").map(PathBuf::from).collect();
        let offered = found.disks.iter().filter(|one| one.refused.is_none()).map(|one| one.device.clone());
        self.devices = offered.filter(|one| wanted.contains(one)).collect();
        self.named.retain(|folder| self.folders.contains(folder));
        self.has_chosen = true;
        self.goes_on = false;
    }

    /// A folder named by hand.
    pub fn name(&mut self, folder: PathBuf) -> Result<(), Failure> {
        if folder.as_os_str().len() > PATH_BYTES_MAX {
            return Err(Failure::invalid("the path is too long"));
        }
        if self.named.len() >= FOLDERS_MAX {
            return Err(Failure::invalid(format!("{FOLDERS_MAX} folders are named already")));
        }
        if !self.named.contains(&folder) {
            self.named.push(folder.clone());
        }
        if !self.is_chosen(&folder) {
            self.folders.push(folder);
        }
        self.has_chosen = true;
        Ok(())
    }

    pub fn request(&self) -> LayoutsRequest {
        LayoutsRequest { folders: self.folders.clone(), devices: self.devices.clone() }
    }

    /// Takes the third step as it was sent, the password apart.
    pub fn take_names(&mut self, form: &Form, from: IpAddr) {
        let nfs = form.is_checked("nfs");
        // The browser's own machine, and no other that a form might name.
        let nfs_from = (nfs && form.is_checked("nfs_from") && !from.is_loopback()).then_some(from);
        self.names = Names {
            box_name: form.text("box").to_owned(),
            user: form.text("user").to_owned(),
            share: form.text("share").to_owned(),
            snapshots: form.is_checked("snapshots"),
            doors: SetupDoors {
                smb: form.is_checked("smb"),
                webdav: form.is_checked("webdav"),
                sftp: form.is_checked("sftp"),
                nfs,
                nfs_from,
            },
        };
    }

    /// A password and its repetition.
    pub fn take_password(&mut self, form: &Form) -> Result<(), Failure> {
        let (password, again) = (form.get("password").unwrap_or_default(), form.get("again").unwrap_or_default());
        self.password.clear();
        if password != again {
            return Err(Failure::invalid("the two passwords differ").action("Type both again"));
        }
        if password.is_empty() {
            return Err(Failure::invalid("the password is missing"));
        }
        if self.strength_of(password) == Strength::Weak {
            let failure = Failure::invalid("this password is guessed soon: it is short, common, or like a name here");
            return Err(
                failure.action("Take four words that do not belong together, or 12 characters of several kinds")
            );
        }
        password.clone_into(&mut self.password);
        Ok(())
    }

    fn strength_of(&self, password: &str) -> Strength {
        strength(password, &[&self.names.user, &self.names.box_name, &self.names.share])
    }

    pub fn strength(&self) -> Strength {
        self.strength_of(&self.password)
    }

    /// The whole, with what was typed for disks that are erased.
    pub fn plan(&self, typed: impl Fn(&Path) -> Option<String>) -> SetupPlan {
        let device = |path: &PathBuf| SetupDevice { path: path.clone(), typed: typed(path) };
        SetupPlan {
            folders: self.folders.clone(),
            devices: self.devices.iter().map(device).collect(),
            layout: self.layout.clone(),
            box_name: self.names.box_name.clone(),
            user: self.names.user.clone(),
            password: self.password.clone(),
            share: self.names.share.clone(),
            snapshots: self.names.snapshots,
            doors: self.names.doors.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_api::FolderFound;

    use super::*;

    fn disk(device: &str, refused: Option<&str>, is_proposed: bool) -> DiskFound {
        DiskFound {
            device: device.into(),
            model: None,
            serial: None,
            size_bytes: 1 << 40,
            kind: None,
            bus: "SATA".to_owned(),
            rotational: None,
            removable: false,
            is_system: false,
            used: Vec::new(),
            holds: Vec::new(),
            is_contents_known: true,
            notes: Vec::new(),
            refused: refused.map(str::to_owned),
            is_proposed,
            token: device.to_owned(),
        }
    }

    fn folder(path: &str, refused: Option<&str>) -> FolderFound {
        FolderFound {
            path: path.into(),
            mount: None,
            filesystem: None,
            size_bytes: 0,
            available_bytes: 0,
            disks: Vec::new(),
            notes: Vec::new(),
            refused: refused.map(str::to_owned),
            pool: None,
        }
    }

    #[test]
    fn only_what_is_offered_can_be_chosen() {
        let disks = vec![
            disk("/dev/sda", Some("this machine starts from it"), false),
            disk("/dev/sdb", None, true),
            disk("/dev/sdc", None, false),
        ];
        let folders = vec![folder("/mnt/a/larder", None), folder("/mnt/full/larder", Some("not empty"))];
        let found = DisksFound { disks, folders, pools: Vec::new() };
        let mut draft = Draft::default();
        let checked =
            |draft: &Draft| -> Vec<bool> { found.disks.iter().map(|one| draft.is_chosen_device(one)).collect() };
        assert_eq!(checked(&draft), [false, true, false], "what holds data is not proposed");
        draft.name("/srv/x".into()).unwrap();
        let form = b"device=/dev/sda&device=/dev/sdc&device=/dev/sdz&folder=/mnt/a/larder&folder=/mnt/full/larder&folder=/etc&folder=/srv/x";
        draft.choose(&Form::read(form).unwrap(), &found);
        assert_eq!(draft.devices, [PathBuf::from("/dev/sdc")]);
        assert_eq!(draft.folders, [PathBuf::from("/mnt/a/larder"), PathBuf::from("/srv/x")]);
        draft.choose(&Form::read(b"").unwrap(), &found);
        assert!(draft.folders.is_empty() && draft.devices.is_empty() && draft.named.is_empty());
        assert_eq!(checked(&draft), [false; 3], "an empty choice is one");
        for at in 0..FOLDERS_MAX {
            draft.name(format!("/srv/{at}").into()).unwrap();
        }
        assert!(draft.name("/srv/more".into()).is_err());
    }

    #[test]
    fn passwords_are_checked_and_kept_out_of_what_is_written() {
        let mut draft = Draft::default();
        let from = IpAddr::from([192, 168, 1, 7]);
        draft.take_names(&Form::read(b"user=ann&share=files&nfs=on&nfs_from=on").unwrap(), from);
        assert_eq!(draft.names.doors.nfs_from, Some(from));
        assert!(!draft.names.snapshots && !draft.names.doors.smb);
        for (form, word) in [
            (&b"password=a&again=b"[..], "differ"),
            (b"password=&again=", "missing"),
            (b"password=ann12345&again=ann12345", "guessed"),
        ] {
            let failure = draft.take_password(&Form::read(form).unwrap()).unwrap_err();
            assert!(failure.message.contains(word), "{failure:?}");
            assert!(draft.password.is_empty());
        }
        draft.take_password(&Form::read(b"password=Pantry-Shelf-42&again=Pantry-Shelf-42").unwrap()).unwrap();
        draft.devices = vec!["/dev/sdb".into()];
        draft.remain(SetupPlan { folders: vec!["/mnt/larder-1/larder".into()], ..SetupPlan::default() });
        assert!(draft.devices.is_empty() && draft.is_chosen(Path::new("/mnt/larder-1/larder")));
        let plan = draft.plan(|_| None);
        assert_eq!(plan.password, "Pantry-Shelf-42");
        assert!(!format!("{plan:?}").contains("Pantry"));
        assert!(!serde_json::to_string(&plan).unwrap().contains("Pantry"));
    }
}
