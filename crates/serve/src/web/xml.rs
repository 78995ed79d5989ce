//! XML of requests, and the texts of answers. Documents are short, have no DTD and no deep nests.

use roxmltree::{Document, Node, ParsingOptions};

use super::fail::Fail;

pub const DAV: &str = "DAV:";
/// Elements and texts of a request.
const NODES_MAX: u32 = 10_000;
/// Elements within elements of a property.
const DEPTH_MAX: usize = 32;

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

pub fn parse(text: &str) -> Result<Document<'_>, Fail> {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options);
    let document = document.map_err(|_| Fail::bad_request("the body is no well-formed XML"))?;
    // Namespaces in XML 1.0, 2.2: a prefix cannot be undeclared. The parser takes it.
    let undeclares =
        |node: Node<'_, '_>| node.namespaces().any(|space| space.name().is_some() && space.uri().is_empty());
    if document.root().descendants().filter(Node::is_element).any(undeclares) {
        return Err(Fail::bad_request("a prefix of the body has no namespace"));
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
    fn documents_that_would_cost_much_are_refused() {
        assert!(parse("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>").is_err());
        assert!(parse(&format!("<a>{}</a>", "<b/>".repeat(20_000))).is_err());
        let deep = format!("{}{}", "<a>".repeat(200), "</a>".repeat(200));
        let document = parse(&deep).unwrap();
        assert!(push_element(&mut String::new(), document.root_element()).is_err());
        for bad in ["", "<a>", "text", "<a:b/>"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
