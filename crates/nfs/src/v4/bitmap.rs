//! `bitmap4` (RFC 8881 3.3.7): sets of attributes, hints, operations and notifications.

use super::super::xdr::{Garbage, Reader};
use super::wire::{Xdr, XdrOut};

/// Words in which numbers have a meaning to us.
const WORDS: usize = 3;
/// Numbers in these words.
const NUMBERS: u32 = 96;
/// Words that are looked at. No set of the protocol needs a tenth of them.
const WORDS_MAX: u32 = 64;

const _: () = assert!(NUMBERS as usize == WORDS * 32);

/// A set of small numbers. Numbers that no word here holds are one flag: nobody asks which they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bitmap {
    words: [u32; WORDS],
    has_unknown: bool,
}

impl Bitmap {
    pub const EMPTY: Bitmap = Bitmap { words: [0; WORDS], has_unknown: false };

    pub fn of(numbers: &[u32]) -> Self {
        let mut set = Self::EMPTY;
        numbers.iter().for_each(|number| set.insert(*number));
        set
    }

    fn place(number: u32) -> (usize, u32) {
        (usize::try_from(number / 32).unwrap_or(usize::MAX), 1 << (number % 32))
    }

    pub fn insert(&mut self, number: u32) {
        let (word, bit) = Self::place(number);
        match self.words.get_mut(word) {
            Some(word) => *word |= bit,
            None => self.has_unknown = true,
        }
    }

    pub fn has(&self, number: u32) -> bool {
        let (word, bit) = Self::place(number);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Whether there are numbers beyond those that have a meaning.
    pub fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Numbers of both sets.
    #[must_use]
    pub fn common(&self, other: &Bitmap) -> Bitmap {
        let mut words = self.words;
        words.iter_mut().zip(other.words).for_each(|(word, other)| *word &= other);
        Bitmap { words, has_unknown: self.has_unknown && other.has_unknown }
    }

    /// Numbers of this set that `other` lacks.
    #[must_use]
    pub fn without(&self, other: &Bitmap) -> Bitmap {
        let mut words = self.words;
        words.iter_mut().zip(other.words).for_each(|(word, other)| *word &= !other);
        Bitmap { words, has_unknown: self.has_unknown && !other.has_unknown }
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let set = *self;
        (0..NUMBERS).filter(move |number| set.has(*number))
    }
}

impl<'a> Xdr<'a> for Bitmap {
    fn get(r: &mut Reader<'a>) -> Result<Self, Garbage> {
        let count = r.u32()?;
        if count > WORDS_MAX {
            return Err(Garbage);
        }
        let mut set = Self::EMPTY;
        for at in 0..count {
            let word = r.u32()?;
            match usize::try_from(at).ok().and_then(|at| set.words.get_mut(at)) {
                Some(place) => *place = word,
                None => set.has_unknown |= word != 0,
            }
        }
        Ok(set)
    }

    fn put(&self, out: &mut XdrOut) {
        let used = self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        let used = if self.has_unknown { WORDS } else { used };
        out.writer().length(used + usize::from(self.has_unknown));
        self.words.iter().take(used).for_each(|word| out.writer().u32(*word));
        if self.has_unknown {
            out.writer().u32(1);
        }
    }
}
