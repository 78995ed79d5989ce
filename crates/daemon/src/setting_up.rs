//! What a set-up in a browser does to the daemon beside which it runs (`setup_offer.*`).

use std::sync::Arc;

use larder_api::{Failure, SetupLink};

use super::Daemon;
use larder_config::Config;

impl Daemon {
    pub fn setup_link(&self) -> Result<SetupLink, Failure> {
        self.setup_offer.draw().ok_or_else(|| {
            Failure::not_found("there is no set-up: this larder has something to serve, or was told to offer none")
                .action("see what it serves with: larder share list")
        })
    }

    /// The configuration that a set-up adds to.
    pub async fn blank_config(&self) -> Result<Config, Failure> {
        let config = self.document.config();
        // The pool is made before the file names it.
        self.document.check_writable().await?;
        match config.is_blank() {
            true => Ok(Arc::unwrap_or_clone(config)),
            false => Err(Failure::invalid("larder was configured by commands meanwhile: nothing was made")
                .action("go on with commands, or with the page: larder share list shows what there is")),
        }
    }

    /// Takes over what a set-up made: the configuration keeps what it says, and has `config`'s entries from now on.
    pub async fn set_up(&self, config: &Config) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        self.document.edit(&mut state, |editor| editor.add_entries(config)).await
    }

    /// Closes a pool that a set-up opened and did not come to an end with.
    pub async fn give_back(&self, pool: &str) {
        let Ok(open) = self.storage.pool(Some(pool)) else { return };
        self.storage.remove(pool);
        if let Err(failure) = open.close().await {
            tracing::warn!(%pool, "the pool of a set-up that failed was not closed: {}", failure.message);
        }
    }
}
