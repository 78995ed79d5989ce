//! XML of requests, and the texts of answers. Documents are short, have no DTD and no deep nests.
//!
//! - `xml.counted_first`: attributes, namespaces and levels are counted by one pass over the text before
//!   it is parsed. The parser looks for duplicates among attributes, and for each element among the
//!   namespaces around it, so its time is bounded by these counts.
//! - `xml.off_the_serving_threads`: a document of more than [`IN_PLACE_BYTES_MAX`] is read on a thread for
//!   such work, at most [`AT_ONCE`] at a time, in turns by network (`turns.one_a_network`).
//! - `xml.names_short`: a namespace has at most [`SPACE_BYTES_MAX`], since answers repeat it for each name.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use roxmltree::{Document, Node, ParsingOptions};

use super::fail::Fail;
use larder_base::task;
use larder_doors::turns::Turns;

pub const DAV: &str = "DAV:";
/// Elements and texts of a request.
const NODES_MAX: u32 = 10_000;
/// Elements within elements of a property.
const DEPTH_MAX: usize = 32;
/// Those of the request around a property.
const LEVELS_MAX: usize = 64;
/// Of all elements. Clients send a few.
const ATTRIBUTES_MAX: usize = 512;
/// Of these, declarations of namespaces. Clients send one for each kind of property, which are a dozen.
const NAMESPACES_MAX: usize = 64;
const SPACE_BYTES_MAX: usize = 1 << 10;
/// Properties that one request may name: all that a file may have, and those of the server.
pub const NAMES_MAX: usize = 256;
/// What an element may be as text, with its namespaces in each of its parts.
const ELEMENT_BYTES_MAX: usize = 64 << 10;
/// Longer than the requests of all clients that are not told to set large values. Takes less than 100 us.
const IN_PLACE_BYTES_MAX: usize = 4 << 10;
pub const AT_ONCE: usize = 2;

/// The name of a property.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    pub space: String,
    pub local: String,
}

impl Name {
    pub fn of(node: Node<'_, '_>) -> Self {
        let name = node.tag_name();
        Self { space: name.namespace().unwrap_or_default().to_owned(), local: name.name().to_owned() }
    }

    /// An element of this name without content.
    pub fn push_empty(&self, out: &mut String) {
        push_start(out, &self.space, &self.local);
        out.push_str("/>");
    }
}

/// Reads a body, on another thread if it is long (`xml.off_the_serving_threads`).
pub async fn read<T: Send + 'static>(
    (turns, address): (&Arc<Turns>, IpAddr),
    body: &[u8],
    read: fn(&[u8]) -> Result<T, Fail>,
) -> Result<T, Fail> {
    const BUSY: Fail = Fail::new(StatusCode::SERVICE_UNAVAILABLE, "too many long requests wait; ask again");
    if body.len() <= IN_PLACE_BYTES_MAX {
        return read(body);
    }
    let turn = turns.take(address, false).await.map_err(|_| BUSY)?;
    let body = body.to_vec();
    let work = task::blocking(move || {
        let _turn = turn;
        read(&body)
    });
    work.await.unwrap_or(Err(Fail::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed")))
}

/// What a text has, as far as it is well-formed (`xml.counted_first`).
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    attributes: usize,
    namespaces: usize,
    levels: usize,
}

impl Counts {
    fn of(text: &str) -> Self {
        let (mut counts, mut level, mut rest) = (Self::default(), 0_usize, text);
        let after = |rest: &'_ str, end: &str| rest.find(end).map_or(rest.len(), |at| at + end.len());
        while let Some(at) = rest.find('<') {
            rest = rest.get(at..).unwrap_or_default();
            let skipped = match () {
                () if rest.starts_with("<!--") => after(rest, "-->"),
                () if rest.starts_with("<![CDATA[") => after(rest, "]]>"),
                () if rest.starts_with("<?") => after(rest, "?>"),
                () if rest.starts_with("</") => {
                    level = level.saturating_sub(1);
                    after(rest, ">")
                }
                () => {
                    let (end, closes) = counts.tag(rest);
                    level += usize::from(!closes);
                    counts.levels = counts.levels.max(level);
                    end
                }
            };
            rest = rest.get(skipped..).unwrap_or_default();
        }
        counts
    }

    /// Counts the attributes of a tag. Returns where it ends and whether it closes its element.
    fn tag(&mut self, text: &str) -> (usize, bool) {
        let (mut quote, mut word, mut before) = (None, 0, b' ');
        for (at, byte) in text.bytes().enumerate() {
            match (quote, byte) {
                (Some(open), _) if byte == open => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'>') => return (at + 1, before == b'/'),
                (None, b'=') => {
                    self.attributes += 1;
                    self.namespaces += usize::from(text.get(word..at).is_some_and(|name| name.starts_with("xmlns")));
                }
                (None, _) if byte.is_ascii_whitespace() => {}
                (None, _) if before.is_ascii_whitespace() || matches!(before, b'"' | b'\'') => word = at,
                (None, _) => {}
            }
            before = byte;
        }
        (text.len(), false)
    }
}

pub fn parse(text: &str) -> Result<Document<'_>, Fail> {
    let counts = Counts::of(text);
    if counts.attributes > ATTRIBUTES_MAX || counts.namespaces > NAMESPACES_MAX {
        return Err(Fail::bad_request("the body has more attributes or namespaces than any request needs"));
    }
    if counts.levels > LEVELS_MAX {
        return Err(Fail::bad_request("the XML nests too deeply"));
    }
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options);
    let document = document.map_err(|_| Fail::bad_request("the body is no well-formed XML"))?;
    // Namespaces in XML 1.0, 2.2: a prefix cannot be undeclared. The parser takes it.
    let undeclares =
        |node: Node<'_, '_>| node.namespaces().any(|space| space.name().is_some() && space.uri().is_empty());
    if document.root().descendants().filter(Node::is_element).any(undeclares) {
        return Err(Fail::bad_request("a prefix of the body has no namespace"));
    }
    // `xml.names_short`.
    let is_long = |space: Option<&str>| space.is_some_and(|space| space.len() > SPACE_BYTES_MAX);
    let is_long = |node: Node<'_, '_>| {
        is_long(node.tag_name().namespace()) || node.attributes().any(|attribute| is_long(attribute.namespace()))
    };
    if document.root().descendants().filter(Node::is_element).any(is_long) {
        return Err(Fail::bad_request("a namespace of the body is too long"));
    }
    Ok(document)
}

pub fn is(node: Node<'_, '_>, local: &str) -> bool {
    node.tag_name().namespace() == Some(DAV) && node.tag_name().name() == local
}

pub fn elements<'a, 'input>(node: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(Node::is_element)
}

/// The child `DAV:local`.
pub fn child<'a, 'input>(node: Node<'a, 'input>, local: &str) -> Option<Node<'a, 'input>> {
    elements(node).find(|child| is(*child, local))
}

/// Without `>`.
fn push_start(out: &mut String, space: &str, local: &str) {
    match space {
        DAV => {
            out.push_str("<D:");
            out.push_str(local);
        }
        "" => {
            out.push('<');
            out.push_str(local);
            out.push_str(" xmlns=\"\"");
        }
        space => {
            out.push_str("<p:");
            out.push_str(local);
            out.push_str(" xmlns:p=\"");
            push_text(out, space);
            out.push('"');
        }
    }
}

fn push_end(out: &mut String, space: &str, local: &str) {
    out.push_str(match space {
        DAV => "</D:",
        "" => "</",
        _ => "</p:",
    });
    out.push_str(local);
    out.push('>');
}

/// Text, or the value of an attribute.
pub fn push_text(out: &mut String, text: &str) {
    let mut plain = 0;
    for (at, char) in text.char_indices() {
        let instead = match char {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            '"' => "&quot;",
            '\'' => "&#39;",
            '\r' => "&#13;",
            // No XML 1.0 (2.2) has these.
            '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}' => "\u{fffd}",
            _ => continue,
        };
        out.push_str(text.get(plain..at).unwrap_or_default());
        out.push_str(instead);
        plain = at + char.len_utf8();
    }
    out.push_str(text.get(plain..).unwrap_or_default());
}

/// Writes an element so that it means the same in any place where `D` is the prefix of `DAV:`.
pub fn push_element(out: &mut String, node: Node<'_, '_>) -> Result<(), Fail> {
    push_nested(out, node, None, 0)
}

fn push_nested(out: &mut String, node: Node<'_, '_>, lang: Option<&str>, depth: usize) -> Result<(), Fail> {
    const XML: &str = "http://www.w3.org/XML/1998/namespace";
    if depth > DEPTH_MAX {
        return Err(Fail::bad_request("the XML nests too deeply"));
    }
    if out.len() > ELEMENT_BYTES_MAX {
        return Err(Fail::new(StatusCode::INSUFFICIENT_STORAGE, "an element of the body is too large"));
    }
    let name = Name::of(node);
    push_start(out, &name.space, &name.local);
    for (number, attribute) in node.attributes().enumerate() {
        match attribute.namespace() {
            None => {
                out.push(' ');
                out.push_str(attribute.name());
            }
            Some(XML) => {
                out.push_str(" xml:");
                out.push_str(attribute.name());
            }
            Some(space) => {
                out.push_str(&format!(" xmlns:a{number}=\""));
                push_text(out, space);
                out.push_str(&format!("\" a{number}:{}", attribute.name()));
            }
        }
        out.push_str("=\"");
        push_text(out, attribute.value());
        out.push('"');
    }
    // The language of a property is part of it, also where an element around it names it (RFC 4918 4.3).
    let own = node.attribute((XML, "lang"));
    if let (0, None, Some(lang)) = (depth, own, lang_around(node, lang)) {
        out.push_str(" xml:lang=\"");
        push_text(out, lang);
        out.push('"');
    }
    if !node.has_children() {
        out.push_str("/>");
        return Ok(());
    }
    out.push('>');
    for child in node.children() {
        if child.is_element() {
            push_nested(out, child, None, depth + 1)?;
        } else if child.is_text() {
            push_text(out, child.text().unwrap_or_default());
        }
    }
    push_end(out, &name.space, &name.local);
    Ok(())
}

fn lang_around<'a>(node: Node<'a, '_>, known: Option<&'a str>) -> Option<&'a str> {
    const XML: &str = "http://www.w3.org/XML/1998/namespace";
    known.or_else(|| node.ancestors().find_map(|above| above.attribute((XML, "lang"))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_element_means_the_same_elsewhere() {
        let text = "<x:a xmlns:x='urn:x' xmlns='urn:y' xml:lang='de'><b c='&lt;' x:d='1'>t &amp; u</b><e xmlns=''/><x:f/></x:a>";
        let document = parse(text).unwrap();
        let mut out = String::new();
        push_element(&mut out, document.root_element()).unwrap();
        let again = parse(&out).unwrap();
        let names = |document: &Document<'_>| -> Vec<(String, String)> {
            document.descendants().filter(Node::is_element).map(|n| (Name::of(n).space, Name::of(n).local)).collect()
        };
        assert_eq!(names(&document), names(&again), "{out}");
        assert!(out.contains("xml:lang=\"de\"") && out.contains("t &amp; u"), "{out}");
        assert_eq!(again.descendants().find(|n| n.has_tag_name(("urn:y", "b"))).unwrap().attribute("c"), Some("<"));
    }

    #[test]
    fn attributes_namespaces_and_levels_are_counted() {
        let check = |text: &str, attributes, namespaces, levels| {
            assert_eq!(Counts::of(text), Counts { attributes, namespaces, levels }, "{text}");
        };
        check("<a/>", 0, 0, 0);
        check("<?xml version=\"1.0\" x='>'?><!-- <a b=''> --><a b='1'>t = '=' <b/><![CDATA[<c d='']]></a>", 1, 0, 1);
        check("<x:a xmlns:x='urn:x>'\n xmlns = \"DAV:\"><b x:c='='><d/></b></x:a>", 3, 2, 2);
        check("<a b=''xmlns:c=''d='xmlns'/>", 3, 1, 0);
        check("<a b='", 1, 0, 1);
        check("<a><b><c></c></b><b/></a><a", 0, 0, 3);
    }

    #[test]
    fn answers_to_a_short_text_are_short() {
        let space = "u".repeat(SPACE_BYTES_MAX);
        let many = format!("<a xmlns='{space}'>{}</a>", "<b/>".repeat(9000));
        let document = parse(&many).unwrap();
        assert!(push_element(&mut String::new(), document.root_element()).is_err());
        assert!(parse(&format!("<a xmlns='{space}u'/>")).is_err());
        assert!(parse(&format!("<a xmlns:x='{space}u' x:b=''/>")).is_err());
    }

    #[test]
    fn documents_that_would_cost_much_are_refused() {
        let attributes: String = (0..30_000).map(|n| format!(" a{n}=''")).collect();
        let spaces: String = (0..4000).map(|n| format!(" xmlns:a{n}='u'")).collect();
        let began = std::time::Instant::now();
        assert!(
            parse(&format!("<a{attributes}/>")).is_err()
                && parse(&format!("<a{spaces}>{}</a>", "<b/>".repeat(4000))).is_err()
        );
        assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
        assert!(parse("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>").is_err());
        assert!(parse(&format!("<a>{}</a>", "<b/>".repeat(20_000))).is_err());
        let deep = format!("{}{}", "<a>".repeat(200), "</a>".repeat(200));
        assert!(parse(&deep).is_err());
        let deep = format!("{}{}", "<a>".repeat(60), "</a>".repeat(60));
        let document = parse(&deep).unwrap();
        assert!(push_element(&mut String::new(), document.root_element()).is_err());
        for bad in ["", "<a>", "text", "<a:b/>"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
