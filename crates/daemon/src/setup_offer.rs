//! The set-up in a browser that a running daemon offers while it has nothing to serve.
//!
//! - `setup_offer.ends_with_the_first_entry`: once the configuration has a pool, a share or a user, by whatever way, no
//!   link is drawn any more. A set-up that makes these itself goes on to its last page.

use larder_api::SetupLink;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use larder_config::Config;

/// Draws another link.
type Draw = Box<dyn Fn() -> SetupLink + Send + Sync>;

#[derive(Default)]
pub struct SetupOffer {
    draw: Mutex<Option<Draw>>,
    /// Cancelled by the first entry of the configuration.
    configured: CancellationToken,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl SetupOffer {
    /// Offers a set-up, and runs it until it is over.
    pub fn begin(&self, draw: Draw, work: impl Future<Output = ()> + Send + 'static) {
        *self.draw.lock() = Some(draw);
        self.tasks.spawn(work);
    }

    /// Another link, while there is a set-up; the one before opens nothing any more.
    pub(super) fn draw(&self) -> Option<SetupLink> {
        self.draw.lock().as_ref().map(|draw| draw())
    }

    pub fn configured(&self) -> CancellationToken {
        self.configured.clone()
    }

    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// `setup_offer.ends_with_the_first_entry`
    pub(super) fn look_at(&self, config: &Config) {
        if !config.is_blank() {
            self.withdraw();
            self.configured.cancel();
        }
    }

    pub fn withdraw(&self) {
        *self.draw.lock() = None;
    }

    pub(super) async fn end(&self) {
        self.withdraw();
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
