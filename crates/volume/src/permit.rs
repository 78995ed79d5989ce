//! Questions about permissions (`permit.same_judges`).

use larder_fs::acl::Guarded;
use larder_fs::judge::{grounds_of, permitted};
use larder_fs::*;

use crate::attr::guarded;
use crate::volume::Volume;

impl Volume {
    /// Whether `cred` may do `wish` to an object of the directory `parent`; of the root of a share nobody asks for its
    /// directory. `by_bits` judges by the mode bits alone, as a kernel does for a mount.
    pub async fn permits(&self, cred: &Cred, ino: Ino, parent: Option<Ino>, wish: Wish, by_bits: bool) -> FsResult<()> {
        if wish.changes() {
            self.state.check_changeable(ino)?;
        }
        let object = self.judged(ino, by_bits).await?;
        let parent = match parent {
            Some(parent) if wish.asks_parent() => Some(self.judged(parent, by_bits).await?),
            _ => None,
        };
        permitted(&object, parent.as_ref(), cred, wish)
    }

    /// What decides about `wish` to the object, for a person who wants to know why.
    pub async fn grounds(&self, cred: &Cred, ino: Ino, wish: Wish, by_bits: bool) -> FsResult<Grounds> {
        Ok(grounds_of(&self.judged(ino, by_bits).await?, cred, wish))
    }

    async fn judged(&self, ino: Ino, by_bits: bool) -> FsResult<Guarded> {
        let object = guarded(&*self.state.inode(ino).await?)?;
        Ok(Guarded { acl: object.acl.filter(|_| !by_bits), ..object })
    }
}
