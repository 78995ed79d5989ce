//! Recycle bins of shares are thinned by age, as `recycle = { days = 30 }` asks for.
//!
//! Age is what has really passed since the removal, by the time of the box (`passed.really`): a clock that jumps empties no bin.
//! Once an hour each bin is asked, in memory, whether something in it is old enough. A bin is walked where the answer is yes:
//! once after a start, and then when its oldest removal has become too old. So an idle larder reads no disk for it.

use std::sync::Arc;
use std::time::Duration;

use larder_api::Failure;
use larder_api::share::RECYCLE;
use larder_base::passed;
use larder_files::{Age, Files};
use larder_keep::Storage;
use larder_people::Door;

use super::shares;
use larder_config::ShareConfig;
use larder_document::{Document, Kind, Standings};
use larder_servers::Servers;

const EVERY: Duration = Duration::from_secs(3600);
const DAY_SECS: i64 = 86_400;

pub struct Bins {
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub servers: Arc<Servers>,
    pub standings: Standings,
}

/// Runs until the daemon stops.
pub async fn run(bins: Bins) {
    loop {
        bins.thin_all().await;
        tokio::time::sleep(EVERY).await;
    }
}

impl Bins {
    async fn thin_all(&self) {
        for (share, days) in self.shares() {
            // A share that is not served has said so, and nothing goes into its bin.
            let Ok((files, root)) = shares::found(&share, &self.storage).await else { continue };
            let before = passed::now_secs() - i64::from(days) * DAY_SECS;
            self.thin(&share.name, &files.recycling(root), Age { before, when: passed::when_secs }).await;
        }
    }

    async fn thin(&self, share: &str, files: &Files, age: Age) {
        if !files.bin_is_due(age) {
            return;
        }
        let removed = files.thin_bin(age).await;
        if let Ok(removed @ 1..) = removed {
            tracing::debug!("removed {removed} old entries from the recycle bin of the share '{share}'");
        }
        let thinned = removed.map(drop).map_err(|error| Failure::unavailable(format!("old entries stay: {error}")));
        self.standings.set(Kind::Bin, share, thinned);
    }

    fn shares(&self) -> Vec<(ShareConfig, u32)> {
        let served = |share: &ShareConfig| {
            let by_web = self.servers.webdav_addr().or(self.servers.webdavs_addr());
            share.offers(Door::SMB) && self.servers.smb_addr().is_some()
                || share.offers(Door::Webdav) && by_web.is_some()
        };
        let config = self.document.config();
        let with_bins = config.shares.iter().filter(|share| served(share));
        with_bins.filter_map(|share| Some((share.clone(), share.number(&RECYCLE)?))).collect()
    }
}
