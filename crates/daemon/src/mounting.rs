//! Mounts that somebody asks for, and those that the file names from then on.

use std::sync::Arc;

use larder_api::{Failure, MountRequest, MountStatus, UnmountRequest};
use larder_keep::Storage;

use super::imports;
use super::volumes::only_volume;
use larder_config::{MountConfig, VolumeName};
use larder_document::Document;
use larder_servers::Mounts;

pub struct Mounting {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub mounts: Mounts,
}

impl Mounting {
    pub async fn mount(&self, request: MountRequest) -> Result<MountStatus, Failure> {
        let (pool, volume) = match &request.volume {
            Some(name) => self.storage.find(name).await?,
            None => only_volume(&self.storage).await?,
        };
        let name = VolumeName { pool: pool.name.clone(), volume };
        let MountRequest { dir, options, snapshot, .. } = request;
        let mut wanted = MountConfig { dir, volume: name, options, snapshot };
        let mut status = self.mounts.make(&wanted).await?;
        if request.at_start {
            wanted.dir.clone_from(&status.dir);
            let mut state = self.document.lock().await;
            if let Err(failure) = self.document.edit(&mut state, |editor| editor.set_mount(&wanted)).await {
                let _ = self.mounts.remove(&status.dir).await;
                return Err(failure);
            }
            status.at_start = true;
        }
        Ok(status)
    }

    /// Places of this larder that an import must not copy.
    pub fn own_places(&self) -> imports::Own {
        let mounts = self.mounts.list().into_iter().map(|mount| mount.dir).collect();
        imports::Own { disks: self.storage.disks(), mounts }
    }

    pub fn list(&self) -> Vec<MountStatus> {
        let config = self.document.config();
        let mut list = self.mounts.list();
        list.iter_mut().for_each(|status| status.at_start = config.mounts.iter().any(|mount| mount.dir == status.dir));
        list
    }

    pub async fn unmount(&self, request: &UnmountRequest) -> Result<(), Failure> {
        if !request.at_start {
            return self.mounts.remove(&request.dir).await;
        }
        let mut state = self.document.lock().await;
        let before = self.mounts.wanted_at(&request.dir);
        let mut editor = self.document.editor()?;
        if !editor.remove_mount(&request.dir) && before.is_none() {
            return Err(Failure::not_found(format!("{} is no mount of the configuration", request.dir.display())));
        }
        let staged = editor.stage()?;
        if before.is_some() {
            self.mounts.remove(&request.dir).await?;
        }
        match staged.commit() {
            Ok(saved) => {
                self.document.take(&mut state, saved).await;
                Ok(())
            }
            Err(failure) => {
                self.mounts.make_again(before.iter()).await;
                Err(failure)
            }
        }
    }
}
