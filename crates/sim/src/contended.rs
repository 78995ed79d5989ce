//! The model of an object that several clients store and delete at once.
//!
//! - `contended.one_moment`: a write happens at one moment between its begin and its answer. Its
//!   content may be visible until the answer to a write that began after its end. From then on it
//!   is hidden for good.
//! - `contended.unanswered_may_show`: the content of a write without an answer may show at any
//!   later opening, until the answer to a write that began after it.
//! - `contended.read_settles`: the content that a read finds while nobody writes is the content
//!   from then on.

use crate::objects::{Content, Known};

#[derive(Clone, Debug)]
struct Write {
    /// `None`: a delete.
    content: Option<Content>,
    begun: u64,
    ended: Option<u64>,
    is_answered: bool,
}

#[derive(Clone, Debug)]
pub struct Contended {
    now: u64,
    /// Writes whose content may be the object's content (`contended.one_moment`,
    /// `contended.unanswered_may_show`).
    writes: Vec<Write>,
    /// When each began, those too that are over: whoever began before may have met what was there for a while.
    all: Vec<(u64, Option<Content>)>,
}

/// Names a write or a read while it is under way.
#[derive(Clone, Debug)]
pub struct Under {
    begun: u64,
    /// The contents that may have been there when it began.
    before: Vec<Option<Content>>,
}

impl Default for Contended {
    fn default() -> Self {
        let nothing = Write { content: None, begun: 0, ended: Some(0), is_answered: true };
        Self { now: 0, writes: vec![nothing], all: Vec::new() }
    }
}

impl Contended {
    pub fn possible(&self) -> Vec<Option<Content>> {
        self.writes.iter().map(|write| write.content).collect()
    }

    pub fn begin_read(&mut self) -> Under {
        self.now += 1;
        Under { begun: self.now, before: self.possible() }
    }

    pub fn begin_write(&mut self, content: Option<Content>) -> Under {
        let under = self.begin_read();
        self.writes.push(Write { content, begun: under.begun, ended: None, is_answered: false });
        self.all.push((under.begun, content));
        under
    }

    pub fn end_write(&mut self, under: &Under, is_answered: bool) {
        self.now += 1;
        for write in self.writes.iter_mut().filter(|write| write.begun == under.begun) {
            (write.ended, write.is_answered) = (Some(self.now), is_answered);
        }
        let answered: Vec<u64> = self.writes.iter().filter(|w| w.is_answered).map(|w| w.begun).collect();
        let is_over = |write: &Write| write.ended.is_some_and(|ended| answered.iter().any(|begun| *begun > ended));
        self.writes.retain(|write| !is_over(write));
    }

    /// It was refused because of what is there.
    pub fn never(&mut self, under: &Under) {
        self.writes.retain(|write| write.begun != under.begun);
        self.all.retain(|(begun, _)| *begun != under.begun);
    }

    /// The contents that may have been there at some time since then; for a write, without its own.
    pub fn since(&self, under: &Under) -> Vec<Option<Content>> {
        let later = self.all.iter().filter(|(begun, _)| *begun > under.begun).map(|(_, content)| *content);
        under.before.iter().copied().chain(later).collect()
    }

    /// Judges what a read found.
    pub fn judge(&mut self, under: &Under, found: Option<&[u8]>) -> Result<(), String> {
        let mut known = Known { may_be: self.since(under) };
        known.settle(found)?;
        let is_quiet = self.writes.iter().all(|write| write.ended.is_some_and(|ended| ended < under.begun));
        if let (true, Some(content)) = (is_quiet, known.certain()) {
            self.is(content);
        }
        Ok(())
    }

    /// The object has this content (`contended.read_settles`). A write without an answer may still
    /// show at an opening. A read that began earlier may have found the earlier content.
    fn is(&mut self, content: Option<Content>) {
        self.now += 1;
        let begun = self.writes.iter().find(|write| write.content == content).map_or(0, |write| write.begun);
        self.writes.retain(|write| !write.is_answered && write.content != content);
        self.writes.push(Write { content, begun, ended: Some(self.now), is_answered: true });
    }

    /// The process died: nothing is under way any more.
    pub fn died(&mut self) {
        self.now += 1;
        let now = self.now;
        self.writes.iter_mut().for_each(|write| write.ended = write.ended.or(Some(now)));
    }

    /// The content found at an opening is the content from now on.
    pub fn settle(&mut self, found: Option<&[u8]>) -> Result<(), String> {
        let mut known = Known { may_be: self.possible() };
        known.settle(found)?;
        self.settle_as(known.certain().flatten());
        Ok(())
    }

    pub fn settle_as(&mut self, content: Option<Content>) {
        self.writes = vec![Write { content, begun: 0, ended: Some(0), is_answered: true }];
        // Nobody is under way.
        self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn content(number: u64) -> Option<Content> {
        Some(Content { number, length: 10 })
    }

    fn bytes(number: u64) -> Vec<u8> {
        content(number).unwrap().bytes()
    }

    #[test]
    fn of_writes_at_once_either_may_be_there_until_one_is_read_in_peace() {
        let mut object = Contended::default();
        let (one, two) = (object.begin_write(content(1)), object.begin_write(content(2)));
        let read = object.begin_read();
        object.end_write(&two, true);
        assert!(object.judge(&read, None).is_ok() && object.judge(&read, Some(&bytes(1))).is_ok());
        object.end_write(&one, true);
        assert_eq!(object.possible(), [content(1), content(2)], "what was there before is over");
        let read = object.begin_read();
        assert!(object.judge(&read, None).is_err());
        object.judge(&read, Some(&bytes(1))).unwrap();
        assert_eq!(object.possible(), [content(1)]);
        let read = object.begin_read();
        assert!(object.judge(&read, Some(&bytes(2))).is_err());
    }

    #[test]
    fn a_slow_read_says_nothing_of_what_was_written_meanwhile() {
        let mut object = Contended::default();
        let slow = object.begin_read();
        let one = object.begin_write(content(1));
        object.end_write(&one, true);
        let quick = object.begin_read();
        object.judge(&quick, Some(&bytes(1))).unwrap();
        object.judge(&slow, None).unwrap();
        assert_eq!(object.possible(), [content(1)]);
    }

    #[test]
    fn who_is_slow_may_have_met_what_came_and_went() {
        let mut object = Contended::default();
        let (slow_read, slow_write) = (object.begin_read(), object.begin_write(content(1)));
        for what in [content(2), None] {
            let write = object.begin_write(what);
            object.end_write(&write, true);
        }
        assert!(object.since(&slow_write).contains(&content(2)));
        object.never(&slow_write);
        object.judge(&slow_read, Some(&bytes(2))).unwrap();
        let read = object.begin_read();
        assert!(object.judge(&read, Some(&bytes(2))).is_err() && object.possible() == [None]);
    }

    #[test]
    fn one_that_began_after_the_end_of_another_hides_it() {
        let mut object = Contended::default();
        let one = object.begin_write(content(1));
        object.end_write(&one, true);
        let two = object.begin_write(None);
        assert_eq!(object.possible(), [content(1), None]);
        object.end_write(&two, true);
        assert_eq!(object.possible(), [None]);
    }

    #[test]
    fn what_was_not_answered_may_show_until_it_is_overwritten() {
        let mut object = Contended::default();
        let one = object.begin_write(content(1));
        object.end_write(&one, false);
        let read = object.begin_read();
        object.judge(&read, None).unwrap();
        assert_eq!(object.possible(), [content(1), None]);
        let two = object.begin_write(content(2));
        object.died();
        assert!(object.settle(Some(&bytes(3))).is_err());
        assert_eq!(object.possible(), [content(1), None, content(2)]);
        object.end_write(&two, true);
        assert_eq!(object.possible(), [content(2)]);
        object.settle(Some(&bytes(2))).unwrap();
        let three = object.begin_write(content(3));
        object.never(&three);
        assert_eq!(object.possible(), [content(2)]);
    }
}
