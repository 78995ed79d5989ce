//! Seams: moments within a step that threads of a real machine can fall into, and that a simulator with one thread would pass
//! over. The simulator lets other tasks go on there; everywhere else a seam is nothing.

use std::cell::Cell;
use std::pin::Pin;

/// What a simulator waits for at a seam.
pub type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    static WAIT: Cell<Option<fn() -> Wait>> = const { Cell::new(None) };
}

/// From now on seams wait for what `wait` makes, on this thread alone.
pub fn simulate(wait: Option<fn() -> Wait>) {
    WAIT.set(wait);
}

/// A bound that a simulated machine meets with little data.
pub fn bound(real: usize, simulated: usize) -> usize {
    let is_simulated = WAIT.try_with(Cell::get).ok().flatten().is_some();
    if is_simulated { simulated } else { real }
}

/// A seam: whatever may happen at the same time may happen here.
pub async fn between() {
    if let Some(wait) = WAIT.try_with(Cell::get).ok().flatten() {
        wait().await;
    }
}
