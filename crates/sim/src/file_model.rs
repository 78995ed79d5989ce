//! The model of a file's bytes: the bytes that must be there after a power cut, and those that may be.
//!
//! - `filemodel.old_or_new`: every byte is the durable byte or the byte of a later write that was
//!   not made durable: old or new, never anything else.
//! - `filemodel.durable_hides_earlier`: bytes made durable over a range hide all earlier writes to
//!   the range.
//! - `filemodel.length_old_or_new`: the length is the durable length or a length that later writes
//!   may have made of it.
//! - `filemodel.commit_covers_answered`: a commit makes all changes durable that were answered
//!   before it began. Changes answered while it was under way stay uncertain.
//! - `filemodel.refused_may_be_there`: the data of a refused write may be stored later, when there is room again. It stays
//!   possible until a later change is durable over it, or the file is looked at after an opening.
//! - `filemodel.reservations_stay`: durably reserved room stays reserved until a write to its
//!   bytes, or their release, has begun.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A change of the bytes of a file.
#[derive(Clone, Debug)]
pub enum Change {
    Write(usize, Arc<[u8]>),
    Resize(usize),
    /// To this length, if it is shorter.
    Grow(usize),
    /// With `true` the file may become longer.
    Zero(Range<usize>, bool),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(offset, new) => put(bytes, *offset, new),
            Self::Resize(length) => bytes.resize(*length, 0),
            Self::Grow(length) => bytes.resize(bytes.len().max(*length), 0),
            Self::Zero(range, grows) => {
                if *grows && bytes.len() < range.end {
                    bytes.resize(range.end, 0);
                }
                let (start, end) = (range.start.min(bytes.len()), range.end.min(bytes.len()));
                bytes[start..end].fill(0);
            }
        }
    }
}

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Under way, or refused.
    Begun,
    Answered,
    /// Answered, and durable by then.
    Durable,
}

#[derive(Clone, Debug)]
struct Step {
    change: Change,
    stage: Stage,
    /// When it was answered.
    at: Duration,
}

/// A moment between changes of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

#[derive(Clone, Debug, Default)]
pub struct FileModel {
    /// The bytes that a reader sees now.
    now: Vec<u8>,
    /// The contents possible before `steps`, the first of which has this number.
    base: Image,
    steps: Vec<Step>,
    first: u64,
    /// The contents that both allow.
    image: Image,
    /// Room that must still be reserved (`filemodel.reservations_stay`).
    reserved: Spans,
    /// All that was ever written to.
    written: Spans,
}

/// Ranges of bytes, in order, apart from each other.
#[derive(Clone, Debug, Default)]
struct Spans(Vec<Range<usize>>);

impl Spans {
    fn remove(&mut self, range: &Range<usize>) {
        let cut = std::mem::take(&mut self.0)
            .into_iter()
            .flat_map(|span| [span.start..span.end.min(range.start), span.start.max(range.end)..span.end]);
        self.0 = cut.filter(|span| span.start < span.end).collect();
    }

    fn insert(&mut self, range: Range<usize>) {
        self.remove(&range);
        self.0.push(range);
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }
}

impl FileModel {
    pub fn bytes(&self) -> &[u8] {
        &self.now
    }

    /// Whether a reader of these bytes sees [`FileModel::bytes`] and nothing else: no refused change may be there.
    pub fn is_sure_of(&self, range: &Range<usize>) -> bool {
        let meets = |valid: &Range<usize>| valid.start < range.end && range.start < valid.end;
        let is_refused = |step: &Step| step.stage == Stage::Begun;
        !self.steps.iter().any(is_refused) && !self.base.layers.iter().any(|layer| layer.valid.iter().any(meets))
    }

    /// A change is under way: from now on it may be there. The one before it was answered or refused.
    pub fn begin(&mut self, change: Change) {
        self.image.begin(&change);
        match &change {
            Change::Write(offset, bytes) => {
                let range = *offset..offset + bytes.len();
                self.reserved.remove(&range);
                self.written.insert(range);
            }
            Change::Resize(length) if *length <= self.now.len() => self.reserved.remove(&(*length..usize::MAX)),
            Change::Resize(_) | Change::Grow(_) => {}
            Change::Zero(range, _) => self.reserved.remove(range),
        }
        self.steps.push(Step { change, stage: Stage::Begun, at: Duration::ZERO });
    }

    /// The change that was begun last was answered.
    pub fn answered(&mut self, is_durable: bool, at: Duration) {
        let Some(step) = self.steps.last_mut() else { return };
        step.change.apply(&mut self.now);
        step.at = at;
        step.stage = if is_durable { Stage::Durable } else { Stage::Answered };
        if is_durable {
            self.image.make_durable(&step.change);
        }
    }

    /// The change that was answered last reserves a range, durably; if it was `zeroed`, no data is in its place.
    pub fn reserved(&mut self, range: Range<usize>, zeroed: bool) {
        let mut holes = Spans(std::iter::once(range).collect());
        if !zeroed {
            self.written.0.iter().for_each(|written| holes.remove(written));
        }
        holes.0.into_iter().for_each(|hole| self.reserved.insert(hole));
    }

    /// After all that was answered so far.
    pub fn mark(&self) -> Mark {
        let open = self.steps.iter().rev().take_while(|step| step.stage == Stage::Begun).count();
        Mark(self.first + (self.steps.len() - open) as u64)
    }

    /// After all that was answered before some time.
    pub fn mark_at(&self, time: Duration) -> Mark {
        let is_old = |step: &Step| step.stage != Stage::Begun && step.at <= time;
        Mark(self.first + self.steps.iter().rposition(is_old).map_or(0, |at| at + 1) as u64)
    }

    /// All changes answered before `mark` are durable (`filemodel.commit_covers_answered`).
    pub fn committed(&mut self, mark: Mark) {
        let count = mark.0.saturating_sub(self.first).min(self.steps.len() as u64);
        if count == 0 {
            return;
        }
        self.first += count;
        for step in self.steps.drain(..count as usize) {
            self.base.begin(&step.change);
            // A refused change stays possible (`filemodel.refused_may_be_there`).
            if step.stage != Stage::Begun {
                self.base.make_durable(&step.change);
            }
        }
        self.image = self.base.clone();
        for step in &self.steps {
            self.image.begin(&step.change);
            if step.stage == Stage::Durable {
                self.image.make_durable(&step.change);
            }
        }
    }

    pub fn judge(&self, found: &[u8]) -> Result<(), String> {
        self.image.judge(found)
    }

    /// The file must have room for its reservations (`filemodel.reservations_stay`).
    pub fn judge_allocated(&self, allocated: u64) -> Result<(), String> {
        let reserved = self.reserved.bytes() as u64;
        if allocated >= reserved {
            return Ok(());
        }
        Err(format!("it takes up {allocated} bytes, and {reserved} are reserved"))
    }

    /// A file that was found, of which nothing else is known.
    pub fn found(bytes: Vec<u8>) -> Self {
        let mut written = Spans::default();
        written.insert(0..bytes.len());
        let mut file = Self { written, ..Self::default() };
        file.settle(bytes);
        file
    }

    /// The bytes found are the bytes from now on.
    pub fn settle(&mut self, found: Vec<u8>) {
        self.first += self.steps.len() as u64;
        self.steps.clear();
        self.image = Image { durable: found.clone(), ..Image::default() };
        self.base.clone_from(&self.image);
        self.now = found;
    }
}

/// Bytes that may lie over the durable ones.
#[derive(Clone, Debug)]
struct Layer {
    start: usize,
    bytes: Arc<[u8]>,
    /// The parts of it that still count.
    valid: Vec<Range<usize>>,
}

/// The contents that may be found.
#[derive(Clone, Debug, Default)]
struct Image {
    durable: Vec<u8>,
    layers: Vec<Layer>,
    length: Option<(usize, usize)>,
}

impl Image {
    fn lengths(&self) -> (usize, usize) {
        self.length.unwrap_or((self.durable.len(), self.durable.len()))
    }

    /// From now on the change may be there.
    fn begin(&mut self, change: &Change) {
        let (least, most) = self.lengths();
        match change {
            Change::Write(offset, bytes) => {
                self.layers.push(Layer::new(*offset, bytes.clone()));
                self.length = Some((least, most.max(offset + bytes.len())));
            }
            Change::Resize(length) => {
                if *length < most {
                    self.layers.push(Layer::zeros(*length..most));
                }
                self.length = Some((least.min(*length), most.max(*length)));
            }
            Change::Grow(length) => self.length = Some((least, most.max(*length))),
            Change::Zero(range, grows) => {
                self.layers.push(Layer::zeros(range.clone()));
                self.length = Some((least, if *grows { most.max(range.end) } else { most }));
            }
        }
    }

    /// The change, begun last, is there for good.
    fn make_durable(&mut self, change: &Change) {
        let (least, most) = self.lengths();
        match change {
            Change::Write(offset, bytes) => {
                let end = offset + bytes.len();
                self.hide(*offset..end);
                put(&mut self.durable, *offset, bytes);
                self.length = Some((least.max(end), most.max(end)));
            }
            Change::Resize(length) => {
                self.hide(*length..usize::MAX);
                self.durable.truncate(*length);
                self.length = Some((*length, *length));
            }
            Change::Grow(length) => self.length = Some((least.max(*length), most.max(*length))),
            Change::Zero(range, grows) => {
                if *grows {
                    self.length = Some((least.max(range.end), most.max(range.end)));
                }
                let length = self.durable.len();
                self.durable[range.start.min(length)..range.end.min(length)].fill(0);
                self.hide(range.clone());
            }
        }
    }

    /// Hides all earlier writes to the range (`filemodel.durable_hides_earlier`).
    fn hide(&mut self, range: Range<usize>) {
        for layer in &mut self.layers {
            let cut = std::mem::take(&mut layer.valid)
                .into_iter()
                .flat_map(|valid| [valid.start..valid.end.min(range.start), valid.start.max(range.end)..valid.end]);
            layer.valid = cut.filter(|valid| valid.start < valid.end).collect();
        }
        self.layers.retain(|layer| !layer.valid.is_empty());
    }

    /// Judges what a power cut left.
    fn judge(&self, found: &[u8]) -> Result<(), String> {
        let (least, most) = self.lengths();
        if !(least..=most).contains(&found.len()) {
            return Err(format!("it has {} bytes, it should have {least} to {most}", found.len()));
        }
        for (at, byte) in found.iter().enumerate() {
            let old = self.durable.get(at).copied().unwrap_or(0);
            if *byte != old && !self.layers.iter().any(|layer| layer.has(at, *byte)) {
                return Err(format!("byte {at} of {} is {byte:#04x}, neither old ({old:#04x}) nor new", found.len()));
            }
        }
        Ok(())
    }
}

impl Layer {
    fn new(start: usize, bytes: Arc<[u8]>) -> Self {
        let valid = std::iter::once(start..start + bytes.len()).collect();
        Self { start, bytes, valid }
    }

    fn zeros(range: Range<usize>) -> Self {
        Self::new(range.start, vec![0; range.len()].into())
    }

    fn has(&self, at: usize, byte: u8) -> bool {
        self.valid.iter().any(|valid| valid.contains(&at)) && self.bytes.get(at - self.start) == Some(&byte)
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    let end = offset + new.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(file: &mut FileModel, change: Change, is_durable: bool) {
        file.begin(change);
        file.answered(is_durable, Duration::from_secs(1));
    }

    fn write(file: &mut FileModel, offset: usize, bytes: &[u8], is_durable: bool) {
        change(file, Change::Write(offset, bytes.into()), is_durable);
    }

    fn check(file: &FileModel, good: &[&[u8]], bad: &[&[u8]]) {
        good.iter().for_each(|bytes| assert_eq!(file.judge(bytes), Ok(()), "{bytes:?}"));
        bad.iter().for_each(|bytes| assert!(file.judge(bytes).is_err(), "{bytes:?}"));
    }

    #[test]
    fn unstable_bytes_are_old_or_new() {
        let mut file = FileModel::default();
        write(&mut file, 0, b"aaaa", true);
        check(&file, &[b"aaaa"], &[b"", b"aaab", b"aaa", b"aaaaa"]);
        write(&mut file, 2, b"bbbb", false);
        assert_eq!(file.bytes(), b"aabbbb");
        check(&file, &[b"aaaa", b"aabb", b"aaba", b"aabbbb", b"aaaa\0b"], &[b"bbaa", b"aa", b"aaaaab\0"]);
        file.committed(file.mark());
        check(&file, &[b"aabbbb"], &[b"aaaa", b"aabbb"]);
    }

    #[test]
    fn what_is_durable_hides_what_was_before() {
        let mut file = FileModel::default();
        write(&mut file, 0, b"uuuuuu", false);
        write(&mut file, 2, b"ss", true);
        check(&file, &[b"\0\0ss", b"uussuu", b"\0uss"], &[b"uuuuuu", b"uus", b"\0\0us"]);
        file.begin(Change::Resize(3));
        check(&file, &[b"uussuu", b"uus"], &[b"uu"]);
        file.answered(true, Duration::ZERO);
        check(&file, &[b"uus", b"\0\0s"], &[b"uussuu", b"uuss"]);
        change(&mut file, Change::Resize(5), true);
        check(&file, &[b"uus\0\0"], &[b"uussu", b"uus"]);
        file.begin(Change::Zero(0..1, false));
        check(&file, &[b"uus\0\0", b"\0us\0\0"], &[]);
        file.answered(true, Duration::ZERO);
        check(&file, &[b"\0us\0\0", b"\0\0s\0\0"], &[b"uus\0\0"]);
    }

    #[test]
    fn what_is_reserved_stays_until_it_is_written_or_given_back() {
        let mut file = FileModel::default();
        write(&mut file, 0, b"aaaa", true);
        file.reserved(0..100, false);
        assert_eq!(file.reserved.bytes(), 96);
        assert!(file.judge_allocated(96).is_ok() && file.judge_allocated(95).is_err());
        file.begin(Change::Write(10, b"bbbb"[..].into()));
        file.settle(b"aaaa".to_vec());
        assert_eq!(file.reserved.bytes(), 92);
        file.reserved(0..100, true);
        change(&mut file, Change::Resize(50), true);
        assert_eq!(file.reserved.bytes(), 100, "the file grew");
        change(&mut file, Change::Resize(40), true);
        change(&mut file, Change::Zero(0..10, false), true);
        assert_eq!(file.reserved.0.first(), Some(&(10..40)));
        assert_eq!(file.reserved.bytes(), 30);
    }

    #[test]
    fn a_refused_write_stays_possible_until_it_is_overwritten() {
        let mut file = FileModel::default();
        write(&mut file, 0, b"aa", true);
        file.begin(Change::Write(1, b"bbb"[..].into()));
        change(&mut file, Change::Grow(3), true);
        write(&mut file, 2, b"c", true);
        assert!(!file.is_sure_of(&(0..1)));
        file.committed(file.mark());
        file.committed(file.mark());
        assert!(file.is_sure_of(&(0..1)) && !file.is_sure_of(&(0..2)) && file.is_sure_of(&(2..3)));
        check(&file, &[b"aac", b"abc", b"aacb", b"abcb"], &[b"aa", b"aab", b"aacc"]);
        change(&mut file, Change::Resize(2), true);
        check(&file, &[b"aa", b"ab"], &[b"aac", b"a"]);
    }

    #[test]
    fn nothing_is_reserved_where_a_found_file_has_bytes() {
        let mut file = FileModel::found(b"aaaa".to_vec());
        file.reserved(0..10, false);
        assert_eq!(file.reserved.bytes(), 6);
    }

    #[test]
    fn a_relaxed_truncation_is_durable_with_the_next_commit() {
        let mut file = FileModel::default();
        write(&mut file, 0, b"aaaa", true);
        change(&mut file, Change::Resize(1), false);
        assert_eq!(file.bytes(), b"a");
        check(&file, &[b"aaaa", b"a", b"a\0\0\0"], &[b"", b"aaaaa"]);
        file.committed(file.mark());
        check(&file, &[b"a"], &[b"aaaa", b"a\0"]);
    }

    #[test]
    fn a_commit_covers_what_was_answered_before_it_began() {
        let mut file = FileModel::default();
        write(&mut file, 0, b"aa", false);
        let mark = file.mark();
        write(&mut file, 1, b"bb", false);
        write(&mut file, 3, b"c", true);
        file.begin(Change::Write(0, b"d"[..].into()));
        assert_eq!(file.mark(), Mark(3));
        file.committed(mark);
        check(&file, &[b"aa\0c", b"abbc", b"dbbc"], &[b"\0a\0c", b"aab", b"cabc"]);
        assert_eq!(file.bytes(), b"abbc");
        assert_eq!(file.mark_at(Duration::from_secs(2)), Mark(3));
        assert_eq!(file.mark_at(Duration::ZERO), Mark(1));
        file.committed(file.mark());
        check(&file, &[b"abbc", b"dbbc"], &[b"aa\0c"]);
    }
}
