//! The model of a file's bytes: what must be there after a power cut, and what may be.
//!
//! B1. Every byte is the durable one or one that a later write that was not made durable put there: old or new, never anything else.
//! B2. What was made durable over a range hides all that was written to it before.
//! B3. The length is the durable one or one that later writes may have made of it.

use std::ops::Range;
use std::sync::Arc;

/// Bytes that may lie over the durable ones.
#[derive(Clone, Debug)]
struct Layer {
    start: usize,
    bytes: Arc<[u8]>,
    /// The parts of it that still count.
    valid: Vec<Range<usize>>,
}

#[derive(Clone, Debug, Default)]
pub struct FileModel {
    /// What a reader sees now.
    now: Vec<u8>,
    durable: Vec<u8>,
    layers: Vec<Layer>,
    length: Option<(usize, usize)>,
}

impl FileModel {
    pub fn bytes(&self) -> &[u8] {
        &self.now
    }

    fn lengths(&self) -> (usize, usize) {
        self.length.unwrap_or((self.durable.len(), self.durable.len()))
    }

    /// A write is under way: from now on its bytes may be there.
    pub fn begin_write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.layers.push(Layer::new(offset, bytes.into()));
        let (least, most) = self.lengths();
        self.length = Some((least, most.max(end)));
    }

    /// It was answered.
    pub fn wrote(&mut self, offset: usize, bytes: &[u8], is_stable: bool) {
        put(&mut self.now, offset, bytes);
        if is_stable {
            let end = offset + bytes.len();
            self.hide(offset..end);
            put(&mut self.durable, offset, bytes);
            let (least, most) = self.lengths();
            self.length = Some((least.max(end), most.max(end)));
        }
    }

    /// A change of length is under way.
    pub fn begin_resize(&mut self, length: usize) {
        let (least, most) = self.lengths();
        let end = most.max(self.now.len());
        if length < end {
            self.begin_write_of_zeros(length..end);
        }
        self.length = Some((least.min(length), most.max(length)));
    }

    pub fn resized(&mut self, length: usize) {
        self.hide(length..usize::MAX);
        self.now.resize(length, 0);
        self.durable.truncate(length);
        self.length = Some((length, length));
    }

    /// A range is about to become zeros; with `grows` the file may become longer.
    pub fn begin_zero(&mut self, range: Range<usize>, grows: bool) {
        let (least, most) = self.lengths();
        self.begin_write_of_zeros(range.clone());
        self.length = Some((least, if grows { most.max(range.end) } else { most }));
    }

    pub fn zeroed(&mut self, range: Range<usize>, grows: bool) {
        if grows && self.now.len() < range.end {
            self.now.resize(range.end, 0);
            let (least, most) = self.lengths();
            self.length = Some((least.max(range.end), most.max(range.end)));
        }
        for bytes in [&mut self.now, &mut self.durable] {
            let (start, end) = (range.start.min(bytes.len()), range.end.min(bytes.len()));
            bytes[start..end].fill(0);
        }
        self.hide(range);
    }

    fn begin_write_of_zeros(&mut self, range: Range<usize>) {
        self.layers.push(Layer::new(range.start, vec![0; range.len()].into()));
    }

    /// All of it is durable.
    pub fn committed(&mut self) {
        self.durable.clone_from(&self.now);
        self.layers.clear();
        self.length = None;
    }

    /// B2.
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
    pub fn judge(&self, found: &[u8]) -> Result<(), String> {
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

    /// What was found is what it is.
    pub fn settle(&mut self, found: Vec<u8>) {
        self.now = found;
        self.committed();
    }
}

impl Layer {
    fn new(start: usize, bytes: Arc<[u8]>) -> Self {
        let valid = std::iter::once(start..start + bytes.len()).collect();
        Self { start, bytes, valid }
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

    fn write(file: &mut FileModel, offset: usize, bytes: &[u8], is_stable: bool) {
        file.begin_write(offset, bytes);
        file.wrote(offset, bytes, is_stable);
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
        file.committed();
        check(&file, &[b"aabbbb"], &[b"aaaa", b"aabbb"]);
    }

    #[test]
    fn what_is_durable_hides_what_was_before() {
        let mut file = FileModel::default();
        write(&mut file, 0, b"uuuuuu", false);
        write(&mut file, 2, b"ss", true);
        check(&file, &[b"\0\0ss", b"uussuu", b"\0uss"], &[b"uuuuuu", b"uus", b"\0\0us"]);
        file.begin_resize(3);
        check(&file, &[b"uussuu", b"uus"], &[b"uu"]);
        file.resized(3);
        check(&file, &[b"uus", b"\0\0s"], &[b"uussuu", b"uuss"]);
        file.begin_resize(5);
        file.resized(5);
        check(&file, &[b"uus\0\0"], &[b"uussu", b"uus"]);
        file.begin_zero(0..1, false);
        check(&file, &[b"uus\0\0", b"\0us\0\0"], &[]);
        file.zeroed(0..1, false);
        check(&file, &[b"\0us\0\0", b"\0\0s\0\0"], &[b"uus\0\0"]);
    }
}
