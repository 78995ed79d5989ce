//! Volumes of a store that machines at other seats have.

use larder_api::Failure;
use larder_base::{Seat, boxed};
use larder_fs::{FsError, FsResult};
use larder_volume::Seated;
use uuid::Uuid;

use crate::storage::Storage;
use crate::store::Store;

impl Store {
    /// A volume, with the seat that has it.
    #[boxed]
    pub async fn seated(&self, id: Uuid) -> FsResult<Seated> {
        let all = self.registry.seated().await?;
        all.into_iter().find(|one| one.info.id == id).ok_or(FsError::NotFound)
    }

    /// Whether a machine at another seat of the store has the volume.
    #[boxed]
    pub async fn is_elsewhere(&self, volume: &str) -> bool {
        !self.is_read_only()
            && self.registry.has_seats()
            && self
                .registry
                .seated()
                .await
                .is_ok_and(|all| all.iter().any(|one| one.info.name == volume && one.seat != *self.registry.seat()))
    }

    /// Volumes of the store that machines at other seats have, by name and seat.
    #[boxed]
    pub async fn elsewhere(&self) -> Result<Vec<(String, Seat)>, Failure> {
        if !self.registry.has_seats() || self.is_read_only() {
            return Ok(Vec::new());
        }
        let all = self.registry.seated().await.map_err(|error| self.failure("", &error))?;
        let others = all.into_iter().filter(|one| one.seat != *self.registry.seat());
        Ok(others.map(|one| (one.info.name, one.seat)).collect())
    }
}

impl Storage {
    /// Whether a machine at another seat of its store has the volume.
    #[boxed]
    pub async fn is_elsewhere(&self, name: &str) -> bool {
        match self.named(name) {
            Ok((pool, volume)) => pool.is_elsewhere(&volume).await,
            Err(_) => false,
        }
    }
}
