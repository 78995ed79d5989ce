//! Damaged and missing objects, between a pool and the volumes on it.

use std::sync::Weak;

use futures::future::BoxFuture;
use larder_volume::{DamagedObject, MissingObjects, Registry};

pub(crate) fn damaged_objects(damaged: &[larder_pool::Damage]) -> Vec<DamagedObject> {
    let object = |one: &larder_pool::Damage| DamagedObject { path: one.object.clone(), ranges: one.ranges.clone() };
    damaged.iter().map(object).collect()
}

pub(crate) fn gone_of(gone: MissingObjects) -> larder_pool::MissingObjects {
    let length = |object: &DamagedObject| object.ranges.last().map_or(0, |range| range.end);
    let objects = gone.objects.into_iter().map(|object| (object.path.clone(), length(&object))).collect();
    larder_pool::MissingObjects { objects, asked: gone.asked }
}

/// Those who use a pool. It must not hold what holds it.
pub struct VolumesOf(pub Weak<Registry>);

impl larder_pool::Users for VolumesOf {
    /// For the pool's history, which counts what `status` counts.
    fn count_unused(&self, damage: Vec<larder_pool::Damage>) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let Some(registry) = self.0.upgrade() else { return 0 };
            let report = registry.damaged_files(&damaged_objects(&damage)).await;
            report.map_or(0, |report| report.unused.len() as u64)
        })
    }

    fn find_missing(&self) -> BoxFuture<'_, Option<larder_pool::MissingObjects>> {
        Box::pin(async move { self.0.upgrade()?.missing_objects().await.ok().map(gone_of) })
    }
}
