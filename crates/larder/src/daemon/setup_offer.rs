//! The set-up in a browser that a running daemon offers while it has nothing to serve.
//!
//! - `setup_offer.ends_with_the_first_entry`: once the configuration has a pool, a share or a user, by whatever way, no
//!   link is drawn any more. A set-up that makes these itself goes on to its last page.

use larder_api::{Failure, SetupLink};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Daemon;
use crate::config::Config;
use crate::config::edit::Editor;

/// Draws another link.
type Draw = Box<dyn Fn() -> SetupLink + Send + Sync>;

#[derive(Default)]
pub(crate) struct SetupOffer {
    draw: Mutex<Option<Draw>>,
    /// Cancelled by the first entry of the configuration.
    configured: CancellationToken,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl SetupOffer {
    /// Offers a set-up, and runs it until it is over.
    pub(crate) fn begin(&self, draw: Draw, work: impl Future<Output = ()> + Send + 'static) {
        *self.draw.lock() = Some(draw);
        self.tasks.spawn(work);
    }

    pub(crate) fn configured(&self) -> CancellationToken {
        self.configured.clone()
    }

    pub(crate) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// `setup_offer.ends_with_the_first_entry`
    pub(super) fn look_at(&self, config: &Config) {
        if !config.is_blank() {
            self.withdraw();
            self.configured.cancel();
        }
    }

    pub(crate) fn withdraw(&self) {
        *self.draw.lock() = None;
    }

    pub(super) async fn end(&self) {
        self.withdraw();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Daemon {
    pub(crate) fn setup_link(&self) -> Result<SetupLink, Failure> {
        let draw = self.setup_offer.draw.lock();
        let draw = draw.as_ref().ok_or_else(|| {
            Failure::not_found("there is no set-up: this larder has something to serve, or was told to offer none")
                .action("see what it serves with: larder share list")
        })?;
        Ok(draw())
    }

    /// The configuration that a set-up adds to.
    pub(crate) async fn blank_config(&self) -> Result<Config, Failure> {
        let config = self.state.lock().await.config.clone();
        match config.is_blank() {
            true => Ok(config),
            false => Err(Failure::invalid("larder was configured by commands meanwhile: nothing was made")
                .action("go on with commands, or with the page: larder share list shows what there is")),
        }
    }

    /// Takes over what a set-up made: the configuration keeps what it says, and has `config`'s entries from now on.
    pub(crate) async fn set_up(&self, config: &Config) -> Result<(), Failure> {
        let mut state = self.state.lock().await;
        let mut editor = Editor::open(&self.file)?;
        editor.add_entries(config);
        self.save(&mut state, editor).await
    }

    /// Closes a pool that a set-up opened and did not come to an end with.
    pub(crate) async fn give_back(&self, pool: &str) {
        let Ok(open) = self.storage.pool(Some(pool)) else { return };
        self.storage.remove(pool);
        if let Err(failure) = open.close().await {
            tracing::warn!(%pool, "the pool of a set-up that failed was not closed: {}", failure.message);
        }
    }
}
