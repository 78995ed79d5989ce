//! Settings of the kernel that list every choice and mark one: `none [mq-deadline] bfq`.

/// The chosen one of `a [b] c`; the only one where nothing is marked.
pub fn bracketed(text: &str) -> Option<String> {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word.to_owned());
    inside.or_else(|| (!text.contains(' ') && !text.is_empty()).then(|| text.to_owned()))
}
