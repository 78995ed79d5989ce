//! A folder of the host, copied into a volume: as it is, whole, and again at any time.
//!
//! One thread walks the folder, several copy its files, one gives names to those that are durable:
//!
//! ```text
//! walk --jobs--> copy (several) --copies without a name--> name
//! ```
//!
//! - `import.named_when_durable`: a file, link, pipe, socket or device is copied into an inode without a name, and gets its name
//!   when its data and attributes are durable; the name of an older copy passes to it in one step. So a name in the volume always
//!   leads to a whole copy, whenever the import is killed, and running it again goes on behind the last name.
//! - `import.marked_when_dressed`: the marker comes after all other attributes. A copy that looks like its source and lacks an
//!   attribute has another marker, so the next import looks at it again.
//! - `import.times_of_directories_last`: a directory gets its times when all its entries have their names.
//! - `import.nothing_of_others`: an import replaces and removes only what an import brought and nobody changed since, which
//!   the marker at each file tells ([`marker`]). All else is left as it is and named.
//! - `import.samba_kept`: streams, DOS attributes and the time of creation that Samba, or a shared folder of larder's, kept in
//!   extended attributes become those of the volume, and so does what lies in an AppleDouble file beside its own ([`doubles`]).
//!   What cannot be read as such stays the attribute or the file that it is.
//! - `import.inside_the_folder`: the source is read through descriptors of its directories. No symbolic link is followed, and
//!   no other mount is entered unless asked.
//! - `import.one_page_at_a_time`: what is kept in memory is a page of names for each level of directories, the jobs in the
//!   queues, and an entry for each inode with several names of which some have not come by yet ([`links`]).
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod apple;
mod copy;
mod count;
mod directory;
mod doubles;
mod dress;
mod links;
mod marker;
mod name;
mod progress;
mod remove;
mod run;
mod settle;
mod source;
mod state;
mod verify;
mod walk;

pub use progress::{Phase, Progress, Seen};
pub use run::run;
pub use source::{DirectoryId, directory_id};
pub use state::{Failed, Fault, Options, Report};

#[cfg(test)]
mod tests;
