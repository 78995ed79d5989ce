//! Local mounts that are made at every start.

use std::path::PathBuf;

use larder_fuse::MountOptions;

use larder_keep::VolumeName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountConfig {
    pub dir: PathBuf,
    pub volume: VolumeName,
    pub options: Vec<String>,
    /// The snapshot of it that is mounted.
    pub snapshot: Option<String>,
}

/// The usual options and `words`, as `mount -o` has them; later ones win.
pub fn mount_options(words: &[String]) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    words.iter().try_for_each(|word| options.take(word)).map(|()| options)
}
