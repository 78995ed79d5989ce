//! Numbers of streams, which the host has none for.
//!
//! - `stream.numbers_for_now`: doors know files by number, so streams and the directories of streams get numbers while larder
//!   runs. None is a number of the host ([`FIRST_INO`]), and none is given twice: a removed stream's number leads nowhere.

use std::collections::HashMap;

use bytes::Bytes;
use larder_fs::{FileId, FsError, FsResult, Ino};

/// The numbers of streams: the last sixteenth of those that mean no snapshot to the doors.
pub(crate) const FIRST_INO: u64 = INO_END - (INO_END >> 4);
const INO_END: u64 = 1 << 40;
/// Numbers that are kept although nobody has them open. A client that lost one looks the name up again.
const NUMBERS_MAX: usize = 1 << 16;
/// Times that a number is looked for that nobody has.
const ROUND_MAX: u64 = NUMBERS_MAX as u64;

pub(crate) fn is_stream(ino: Ino) -> bool {
    (FIRST_INO..INO_END).contains(&ino.0)
}

/// A stream by its attribute's name, or without one the directory of all streams of its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    pub(crate) owner: FileId,
    pub(crate) attribute: Option<Bytes>,
}

/// The numbers of streams.
#[derive(Default)]
pub(crate) struct Streams {
    by_number: HashMap<Ino, Stream>,
    numbers: HashMap<Stream, Ino>,
    opens: HashMap<Ino, usize>,
    given: u64,
}

impl Streams {
    pub(crate) fn number(&mut self, stream: Stream) -> FsResult<Ino> {
        if let Some(ino) = self.numbers.get(&stream) {
            return Ok(*ino);
        }
        if self.by_number.len() >= NUMBERS_MAX {
            let opens = &self.opens;
            self.by_number.retain(|ino, _| opens.contains_key(ino));
            self.numbers.retain(|_, ino| opens.contains_key(ino));
        }
        for _ in 0..ROUND_MAX {
            let ino = Ino(FIRST_INO + self.given % (INO_END - FIRST_INO));
            self.given += 1;
            if !self.by_number.contains_key(&ino) && !self.opens.contains_key(&ino) {
                self.by_number.insert(ino, stream.clone());
                self.numbers.insert(stream, ino);
                return Ok(ino);
            }
        }
        Err(FsError::Busy("too many streams are open"))
    }

    pub(crate) fn get(&self, ino: Ino) -> Option<Stream> {
        self.by_number.get(&ino).cloned()
    }

    pub(crate) fn forget(&mut self, stream: &Stream) -> Option<Ino> {
        let ino = self.numbers.remove(stream)?;
        self.by_number.remove(&ino);
        Some(ino)
    }

    pub(crate) fn renamed(&mut self, from: &Stream, to: Stream) {
        self.forget(&to);
        if let Some(ino) = self.forget(from) {
            self.by_number.insert(ino, to.clone());
            self.numbers.insert(to, ino);
        }
    }

    pub(crate) fn pin(&mut self, ino: Ino) {
        *self.opens.entry(ino).or_default() += 1;
    }

    pub(crate) fn unpin(&mut self, ino: Ino) {
        if let Some(count) = self.opens.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.opens.remove(&ino);
            }
        }
    }
}
