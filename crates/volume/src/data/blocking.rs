//! Work that keeps a processor busy for long: compressing, verifying.

use larder_base::task;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `work` where it blocks no other task; `None` when the runtime shuts down. Tests and
/// simulators have a runtime of one thread: there the work is done in place, so that the order of
/// all work follows from one seed.
pub(super) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return Some(work());
    }
    task::blocking(work).await.ok()
}
