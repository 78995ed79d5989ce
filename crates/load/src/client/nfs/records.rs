//! Record marking (RFC 5531 11): a stream of bytes becomes records, and the data of large READs is handed on as it
//! comes in, without being collected.

/// Fragments together; a READ of the largest transfer with all its attributes is smaller.
const RECORD_BYTES_MAX: usize = (4 << 20) + 4096;
/// As much of a record is collected before anybody decides what it is: the head of every reply fits.
const HEAD_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("a record of more than {RECORD_BYTES_MAX} bytes")]
    TooLong,
}

/// The handling of a record, by its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// Collected, and handed over at its end.
    Keep,
    /// Handed on from this byte, piece by piece.
    Pass {
        from: usize,
    },
    Skip,
}

pub(super) trait Receiver {
    fn begin(&mut self, head: &[u8]) -> Begin;
    fn piece(&mut self, data: &[u8]);
    /// `kept` is empty when the record was passed on or skipped.
    fn end(&mut self, kept: &[u8]);
}

#[derive(Default)]
pub(super) struct Records {
    mark: Vec<u8>,
    fragment_left: usize,
    last: bool,
    total: usize,
    mode: Option<Begin>,
    kept: Vec<u8>,
}

impl Records {
    pub fn feed(&mut self, mut data: &[u8], to: &mut impl Receiver) -> Result<(), RecordError> {
        while !data.is_empty() {
            if self.fragment_left == 0 {
                data = self.read_mark(data)?;
            } else {
                data = self.read_fragment(data, to);
            }
            if self.mark.len() == 4 && self.fragment_left == 0 {
                self.mark.clear();
                if self.last {
                    self.finish(to);
                }
            }
        }
        Ok(())
    }

    fn read_mark<'a>(&mut self, data: &'a [u8]) -> Result<&'a [u8], RecordError> {
        let (head, rest) = data.split_at(data.len().min(4 - self.mark.len()));
        self.mark.extend_from_slice(head);
        if let Ok(mark) = <[u8; 4]>::try_from(self.mark.as_slice()) {
            let mark = u32::from_be_bytes(mark);
            self.last = mark >> 31 == 1;
            self.fragment_left = (mark & 0x7fff_ffff) as usize;
            self.total += self.fragment_left;
            if self.total > RECORD_BYTES_MAX {
                return Err(RecordError::TooLong);
            }
        }
        Ok(rest)
    }

    fn read_fragment<'a>(&mut self, data: &'a [u8], to: &mut impl Receiver) -> &'a [u8] {
        let room = if self.mode.is_none() { HEAD_BYTES - self.kept.len() } else { usize::MAX };
        let (part, rest) = data.split_at(data.len().min(self.fragment_left).min(room));
        self.fragment_left -= part.len();
        match self.mode {
            None | Some(Begin::Keep) => self.kept.extend_from_slice(part),
            Some(Begin::Pass { .. }) => to.piece(part),
            Some(Begin::Skip) => {}
        }
        if self.mode.is_none() && self.kept.len() == HEAD_BYTES {
            self.decide(to);
        }
        rest
    }

    fn decide(&mut self, to: &mut impl Receiver) {
        let mode = to.begin(&self.kept);
        if let Begin::Pass { from } = mode {
            to.piece(self.kept.get(from..).unwrap_or_default());
        }
        if mode != Begin::Keep {
            self.kept.clear();
        }
        self.mode = Some(mode);
    }

    fn finish(&mut self, to: &mut impl Receiver) {
        if self.mode.is_none() {
            self.decide(to);
        }
        to.end(&self.kept);
        self.kept.clear();
        self.mode = None;
        self.total = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first byte of a record says what is to become of it.
    #[derive(Default)]
    struct Seen(Vec<String>, Vec<u8>);

    impl Receiver for Seen {
        fn begin(&mut self, head: &[u8]) -> Begin {
            match head.first() {
                Some(b'p') => Begin::Pass { from: 1 },
                Some(b's') => Begin::Skip,
                _ => Begin::Keep,
            }
        }

        fn piece(&mut self, data: &[u8]) {
            self.1.extend_from_slice(data);
        }

        fn end(&mut self, kept: &[u8]) {
            self.0.push(format!("{}/{}", kept.len(), self.1.len()));
            self.1.clear();
        }
    }

    fn fragment(last: bool, bytes: &[u8]) -> Vec<u8> {
        let mark = u32::from(last) << 31 | bytes.len() as u32;
        [&mark.to_be_bytes()[..], bytes].concat()
    }

    #[test]
    fn any_split_gives_the_same_records() {
        let stream = [
            fragment(true, &[b'k'; 10]),
            fragment(false, &[b'p'; 700]),
            fragment(false, b""),
            fragment(true, &[b'x'; 5000]),
            fragment(true, b""),
            fragment(true, &[b's'; 3000]),
            fragment(true, &[b'k'; 3000]),
            fragment(true, b"p"),
        ]
        .concat();
        for step in [1, 2, 3, 7, 1000, 1024, 1028, stream.len()] {
            let (mut records, mut seen) = (Records::default(), Seen::default());
            for part in stream.chunks(step) {
                records.feed(part, &mut seen).unwrap();
            }
            assert_eq!(seen.0, ["10/0", "0/5699", "0/0", "0/0", "3000/0", "0/0"], "in steps of {step}");
        }
    }

    #[test]
    fn a_record_without_end_is_refused() {
        let mut records = Records::default();
        let part = fragment(false, &[b's'; 1 << 20]);
        let outcome = (0..8).try_for_each(|_| records.feed(&part, &mut Seen::default()));
        assert_eq!(outcome, Err(RecordError::TooLong));
        assert_eq!(Records::default().feed(&[0xff; 4], &mut Seen::default()), Err(RecordError::TooLong));
    }
}
