//! An executor for one thread.

use super::error::{ClientError, Outcome};

/// A runtime for one thread. Everything that a share starts runs on it too, so its time is that of the thread.
pub(super) fn block_on<R>(work: impl Future<Output = Outcome<R>>) -> Outcome<R> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|e| ClientError::Local { what: "a thread of the bench".into(), reason: e.to_string() })?;
    let outcome = tokio::task::LocalSet::new().block_on(&runtime, work);
    // A name that is just being looked up must not hold up a person who wants to stop.
    runtime.shutdown_background();
    outcome
}
