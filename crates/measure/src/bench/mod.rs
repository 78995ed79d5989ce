//! Measuring storage from the disk up: disks, pool, wire, shares.
//!
//! M1. Whatever is measured ends as a [`BenchResult`]: tables, plots, comparisons and the doctor read nothing else.
//! M2. A number is never alone: beside it stand how it was measured, how much repeats differ, and what processor,
//!     disks and network did meanwhile.
//! M3. Data is incompressible and larger than memory, or caches are dropped; the result says which. What could not
//!     be done properly is a [`Note`], never silence.
//! M4. What a bench wrote it takes away, also when it is interrupted. It never writes to a device that holds data
//!     unless its serial was typed.

mod before;
mod ciphers;
pub mod compare;
mod ends;
mod far;
mod ground;
pub mod history;
mod net;
mod plan;
mod pool;
pub mod result;
mod run;
mod runner;
mod saturation;
pub mod show;

pub use far::FarEnd;
pub use net::{listen, samples_port};
pub use plan::{Changes, Preset};
pub use result::BenchResult;
pub use run::{DiskTarget, Finished, Host, PoolTarget, Request, ShareTarget, Subjects, run};
pub use runner::{Watch, title};
