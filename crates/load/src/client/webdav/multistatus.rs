//! The answer to PROPFIND (RFC 4918 14.16), as far as it is asked for: names, folder or not, sizes.
//!
//! Read tag by tag without a tree: prefixes of namespaces are ignored, nothing is expanded, so nothing can explode.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// As the server wrote it.
    pub href: String,
    pub folder: bool,
    pub size: Option<u64>,
}

const FOUND_MAX: usize = 200_000;

/// `None` when it is no such answer.
pub(super) fn parse(text: &str) -> Option<Vec<Found>> {
    let mut all = Vec::new();
    let mut current: Option<Found> = None;
    let mut seen_root = false;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        let _ = before;
        let (tag, after) = after.split_once('>')?;
        rest = after;
        let closing = tag.starts_with('/');
        let name = tag.trim_start_matches('/').split([' ', '\t', '\r', '\n', '/']).next().unwrap_or("");
        let local = name.rsplit(':').next().unwrap_or("");
        let content = || unescape(after.split('<').next().unwrap_or("").trim());
        match (local, closing, &mut current) {
            ("multistatus", false, _) => seen_root = true,
            ("response", false, _) => current = Some(Found::default()),
            ("response", true, found) => all.extend(found.take()),
            ("href", false, Some(found)) if found.href.is_empty() => found.href = content(),
            ("collection", false, Some(found)) => found.folder = true,
            ("getcontentlength", false, Some(found)) => found.size = content().parse().ok(),
            _ => {}
        }
        if all.len() > FOUND_MAX {
            return None;
        }
    }
    seen_root.then_some(all)
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_several_servers() {
        let apache = r#"<?xml version="1.0" encoding="utf-8"?>
            <D:multistatus xmlns:D="DAV:"><D:response xmlns:lp1="DAV:"><D:href>/dav/a%20b/</D:href>
            <D:propstat><D:prop><lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop>
            <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
            <D:response><D:href>/dav/x&amp;y</D:href><D:propstat><D:prop><lp1:resourcetype/>
            <lp1:getcontentlength>4096</lp1:getcontentlength></D:prop></D:propstat></D:response></D:multistatus>"#;
        let found = parse(apache).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], Found { href: "/dav/a%20b/".into(), folder: true, size: None });
        assert_eq!(found[1], Found { href: "/dav/x&y".into(), folder: false, size: Some(4096) });
        assert_eq!(parse("<multistatus xmlns=\"DAV:\"></multistatus>"), Some(vec![]));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for text in ["", "<html><body>hello</body></html>", "<multistatus><response", "plain"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
