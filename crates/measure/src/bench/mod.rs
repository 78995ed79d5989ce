//! Measuring storage from the disk up: disks, pool, wire, shares.
//!
//! - `bench.one_result`: every measurement ends as a [`BenchResult`]: tables, plots, comparisons and the doctor read nothing
//!   else.
//! - `bench.numbers_explained`: a number is never alone. Beside it stand its method, the spread of its repeats, and the load
//!   of processor, disks and network meanwhile.
//! - `bench.no_caches`: data is incompressible and larger than memory, or caches are dropped; the result says which. A step
//!   that could not be done properly is a [`Note`], never silence.
//! - `bench.data_taken_away`: a bench removes everything that it wrote, even when it is interrupted.
//! - `bench.serial_typed`: a bench writes to a device that holds data only after its serial number was typed.

mod again;
mod before;
mod ciphers;
pub mod compare;
mod ends;
mod far;
#[cfg(any(test, fuzzing))]
pub use far::fuzz_samples;
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
