//! Uses of a file, and the kinds of its opens.

/// A set of uses of a file: those of an open, or those that it denies to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses(u8);

impl Uses {
    /// Neither data nor name: attributes alone.
    pub const NOTHING: Uses = Uses(0);
    /// Reading data.
    pub const READ: Uses = Uses(1);
    /// Writing data.
    pub const WRITE: Uses = Uses(2);
    /// Removing and renaming.
    pub const DELETE: Uses = Uses(4);

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Uses) -> Uses {
        Uses(self.0 | other.0)
    }

    /// Both sets together if `also`, else this one alone.
    #[must_use]
    pub const fn and_if(self, also: bool, other: Uses) -> Uses {
        if also { self.and(other) } else { self }
    }

    /// Whether data is written.
    pub const fn writes(self) -> bool {
        self.meets(Self::WRITE)
    }

    /// Whether both sets have a use in common.
    pub const fn meets(self, other: Uses) -> bool {
        self.0 & other.0 != 0
    }
}

/// The properties of an open that decide about others. Many opens of a file are alike.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub door: u32,
    pub does: Uses,
    pub denies: Uses,
    /// Judged within its door, too (`opens.claimed_within`).
    pub is_claimed: bool,
}

impl Kind {
    /// Of an open that does and denies nothing yet.
    pub fn idle(door: u32) -> Self {
        Self { door, does: Uses::NOTHING, denies: Uses::NOTHING, is_claimed: false }
    }

    /// Whether it keeps nobody from anything.
    pub fn is_idle(&self) -> bool {
        self.does.and(self.denies) == Uses::NOTHING
    }

    /// Whether an open of this kind and one of the other exclude each other.
    pub fn refuses(&self, other: &Kind) -> bool {
        let is_judged = self.door != other.door || (self.is_claimed && other.is_claimed);
        is_judged && (self.denies.meets(other.does) || other.denies.meets(self.does))
    }
}

/// The opens of one file. A client may have it open thousands of times: a judgement looks at the
/// kinds that there are.
#[derive(Default)]
pub(crate) struct Kinds(Vec<(Kind, usize)>);

impl Kinds {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The kinds with the number of opens of each, which is never zero.
    pub fn iter(&self) -> impl Iterator<Item = &(Kind, usize)> {
        self.0.iter()
    }

    pub fn add(&mut self, kind: Kind) {
        match self.0.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, count)) => *count += 1,
            None => self.0.push((kind, 1)),
        }
    }

    pub fn remove(&mut self, kind: Kind) {
        let at = self.0.iter().position(|(other, _)| *other == kind);
        debug_assert!(at.is_some(), "an open is counted until it ends");
        if let Some(at) = at {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.swap_remove(at);
            }
        }
    }

    pub fn any(&self, is_it: impl Fn(&Kind) -> bool) -> bool {
        self.any_but(None, is_it)
    }

    /// As [`Kinds::any`], of all opens but one of the kind `own`.
    pub fn any_but(&self, own: Option<Kind>, is_it: impl Fn(&Kind) -> bool) -> bool {
        self.0.iter().any(|(kind, count)| *count > usize::from(own == Some(*kind)) && is_it(kind))
    }
}
