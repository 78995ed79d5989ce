//! What is watched, and with what.

use std::sync::Arc;

use larder_alerts::Condition;
use larder_document::{DataFolder, Document, Standings};
use larder_keep::Storage;
use larder_servers::Servers;

use crate::state::Watch;

/// Conditions of parts that this crate does not know.
pub type Told = Box<dyn Fn() -> Vec<Condition> + Send + Sync>;

/// What is watched, and with what.
pub struct Watcher {
    pub watch: Arc<Watch>,
    pub document: Arc<Document>,
    pub storage: Arc<Storage>,
    pub servers: Arc<Servers>,
    pub folder: Arc<DataFolder>,
    pub standings: Standings,
    /// What other parts have to tell of.
    pub told: Told,
}
