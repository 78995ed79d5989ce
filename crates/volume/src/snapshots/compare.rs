//! Rows that differ between two pages of one table.

use bytes::Bytes;

/// A row that differs: the key, one value, the other.
pub(crate) type Differing = (Bytes, Option<Bytes>, Option<Bytes>);

/// Compares two pages of at most `limit` rows that begin at the same key, as far as both of them reach. Returns the rows that
/// differ, and where the next pages begin; that is `to` if there are none.
pub(crate) fn differing(
    one: Vec<(Bytes, Bytes)>,
    other: Vec<(Bytes, Bytes)>,
    limit: usize,
    to: &Bytes,
) -> (Vec<Differing>, Bytes) {
    // Beyond the end of a full page nothing is known.
    let end = |page: &[(Bytes, Bytes)]| page.last().filter(|_| page.len() == limit).map(|(key, _)| key.clone());
    let known = match (end(&one), end(&other)) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    let next = known.map_or_else(|| to.clone(), |last| [&last[..], &[0][..]].concat().into());
    let is_known = |(key, _): &(Bytes, Bytes)| *key < next;
    let mut other = other.into_iter().filter(is_known).peekable();
    let mut rows = Vec::new();
    for (key, value) in one.into_iter().filter(is_known) {
        while let Some((at, theirs)) = other.next_if(|(at, _)| *at < key) {
            rows.push((at, None, Some(theirs)));
        }
        match other.next_if(|(at, _)| *at == key) {
            Some((_, theirs)) if theirs == value => {}
            theirs => rows.push((key, Some(value), theirs.map(|(_, theirs)| theirs))),
        }
    }
    rows.extend(other.map(|(key, theirs)| (key, None, Some(theirs))));
    (rows, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(rows: &[(&'static str, &'static str)]) -> Vec<(Bytes, Bytes)> {
        rows.iter()
            .map(|(key, value)| (Bytes::from_static(key.as_bytes()), Bytes::from_static(value.as_bytes())))
            .collect()
    }

    #[test]
    fn rows_of_one_side_and_changed_ones_differ() {
        let to = Bytes::from_static(b"z");
        let (rows, next) = differing(
            pages(&[("a", "1"), ("b", "1"), ("d", "1")]),
            pages(&[("b", "1"), ("c", "1"), ("d", "2")]),
            9,
            &to,
        );
        let keys: Vec<&[u8]> = rows.iter().map(|(key, ..)| &key[..]).collect();
        assert_eq!(keys, [b"a", b"c", b"d"]);
        assert_eq!(next, to);
        // A full page says nothing of what is behind it.
        let (rows, next) = differing(pages(&[("a", "1"), ("b", "1")]), pages(&[("c", "1")]), 2, &to);
        assert_eq!((rows.len(), &next[..]), (2, &b"b\0"[..]));
    }
}
