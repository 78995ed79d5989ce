//! The names of a path that are still to be walked, those of the symbolic links on the way among them.
//!
//! - `steps.links_on_the_server`: the server follows links, within their share. A target counts from the folder that its link
//!   is in. An absolute target leads nowhere, since it means something on the machine that made it alone.
//! - `steps.bounded`: a path has at most [`LINKS_MAX`] links, and [`STEPS_MAX`] names wait at a time.

use bytes::Bytes;
use larder_files::Files;
use larder_fs::{FsError, Ino};

/// Links followed for one path, as Linux has it.
const LINKS_MAX: usize = 40;
/// Names of a path and of the links in it.
pub const STEPS_MAX: usize = 4096;

/// Why a walk ends before its last name.
#[derive(Clone, Debug)]
pub enum LostWay {
    /// More than [`STEPS_MAX`] steps.
    TooLong,
    /// Of a symbolic link.
    Nowhere,
    /// The volume refuses a step.
    Volume(FsError),
}

impl From<FsError> for LostWay {
    fn from(error: FsError) -> Self {
        Self::Volume(error)
    }
}

/// To anybody who knows the tree alone, a way that is lost is a name that is not there.
impl From<LostWay> for FsError {
    fn from(lost: LostWay) -> Self {
        match lost {
            LostWay::TooLong | LostWay::Nowhere => Self::NotFound,
            LostWay::Volume(error) => error,
        }
    }
}

/// Empty names and `.` are no steps; `..` is one, and the walk's to take.
#[derive(Clone, Default)]
pub struct Steps {
    /// The next is the last.
    names: Vec<Bytes>,
    links: usize,
}

impl Steps {
    /// The steps of a path.
    ///
    /// # Errors
    /// [`LostWay::TooLong`] beyond [`STEPS_MAX`] steps.
    pub fn of(path: &Bytes) -> Result<Self, LostWay> {
        let mut steps = Self::default();
        steps.push(path)?;
        Ok(steps)
    }

    fn push(&mut self, path: &Bytes) -> Result<(), LostWay> {
        let names = path.split(|&byte| byte == b'/').rev().filter(|name| !name.is_empty() && *name != b".");
        self.names.extend(names.map(|name| path.slice_ref(name)));
        if self.names.len() > STEPS_MAX { Err(LostWay::TooLong) } else { Ok(()) }
    }

    /// A path of links takes many steps, which may all be in memory: others have their turn between them.
    pub async fn next(&mut self) -> Option<Bytes> {
        tokio::task::coop::consume_budget().await;
        self.names.pop()
    }

    /// Whether the walk has come to its end.
    pub fn are_over(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a link was followed.
    pub fn are_of_links(&self) -> bool {
        self.links > 0
    }

    /// The last name of the path, which is walked no more.
    pub fn take_last(&mut self) -> Option<Bytes> {
        (!self.names.is_empty()).then(|| self.names.remove(0))
    }

    /// The target of a link is walked next (`steps.links_on_the_server`).
    pub async fn follow(&mut self, files: &Files, link: Ino) -> Result<(), LostWay> {
        self.links += 1;
        let target = files.readlink(link).await?;
        if self.links > LINKS_MAX || target.starts_with(b"/") {
            return Err(LostWay::Nowhere);
        }
        self.push(&target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_come_in_their_order() {
        let mut steps = Steps::of(&Bytes::from_static(b"//a/./b/../c/")).unwrap();
        assert_eq!(steps.take_last().unwrap(), "c");
        let mut names = Vec::new();
        while let Some(name) = steps.next().await {
            names.push(name);
        }
        assert_eq!(names, ["a", "b", ".."]);
        assert!(steps.are_over() && !steps.are_of_links() && steps.take_last().is_none());
        assert!(Steps::of(&Bytes::from("a/".repeat(STEPS_MAX))).is_ok());
        assert!(matches!(Steps::of(&Bytes::from("a/".repeat(STEPS_MAX + 1))), Err(LostWay::TooLong)));
    }
}
