//! Paths of a share, as clients name them (MS-FSCC 2.1.5). One that has become an [`SmbPath`] needs
//! no further checks. What is none fails with the NTSTATUS that its client is answered with.

use std::str::FromStr;

use crate::moment::Moment;
use crate::ntstatus;

/// A validated, component-list path. No `..`, no Windows-forbidden chars.
/// Always relative to the share root; the empty path is the root.
///
/// The last component may name a stream of the file or directory,
/// `name:stream` or `name:stream:$DATA` (MS-FSCC 2.1.5); `name::$DATA` is the
/// file itself.
///
/// A component `@GMT-YYYY.MM.DD-HH.MM.SS`, wherever it stands, says that the path leads through the share as it was then
/// ([`SmbPath::moment`]).
///
/// Each component is a filename as MS-FSCC 2.1.5.2 defines it: 1 to 255
/// UTF-16 code units, with no control characters and none of
/// `" * / : < > ? \ |`. The whole path is at most 32,760 UTF-16 code units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SmbPath {
    components: Vec<String>,
    stream: Option<String>,
}

impl SmbPath {
    /// The share root.
    pub fn root() -> Self {
        Self::default()
    }

    /// Construct from a UTF-16 code-unit slice (already decoded from UTF-16LE
    /// wire bytes).
    pub fn from_utf16(units: &[u16]) -> Result<Self, u32> {
        String::from_utf16(units).map_err(|_| ntstatus::STATUS_OBJECT_NAME_INVALID)?.parse()
    }

    fn parse_components(s: &str) -> Result<Self, u32> {
        // Strip a leading separator (clients sometimes prefix `\` or `/`).
        let trimmed = s.strip_prefix('\\').or_else(|| s.strip_prefix('/')).unwrap_or(s);
        if trimmed.is_empty() {
            return Ok(Self::root());
        }
        if trimmed.encode_utf16().count() > MAX_PATH_UNITS {
            return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
        }

        let (trimmed, stream) = split_stream(trimmed)?;
        if trimmed.is_empty() {
            return Ok(Self { components: Vec::new(), stream });
        }

        // 2. Reject forbidden characters anywhere in the path. `\` and `/`
        //    are separators here.
        if trimmed.chars().any(|c| is_control(c) || is_forbidden(c)) {
            return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
        }

        // 3. Split on `\` or `/`; reject `.`, `..` and empty components (MS-FSCC 2.1.5.1).
        let mut components = Vec::new();
        for raw in trimmed.split(['\\', '/']) {
            if raw.is_empty() || raw == "." {
                // Doubled separator like `foo\\bar`: reject.
                return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
            }
            if raw == ".." {
                return Err(ntstatus::STATUS_OBJECT_PATH_SYNTAX_BAD);
            }
            // 4. Length.
            if raw.encode_utf16().count() > MAX_COMPONENT_UNITS {
                return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
            }
            components.push(raw.to_string());
        }
        lead_with_moment(&mut components)?;
        Ok(Self { components, stream })
    }

    /// The moment whose share it leads through, and the components below the share's root of then; none of a path of today.
    pub fn moment(&self) -> Option<(Moment, &[String])> {
        let (first, rest) = self.components.split_first()?;
        Some((Moment::from_label(first)?, rest))
    }

    /// The same in the share as it was at `moment`. Fails for a path that names a moment itself.
    pub fn at(&self, moment: Moment) -> Result<SmbPath, u32> {
        if self.moment().is_some() {
            return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
        }
        let components = std::iter::once(moment.label()).chain(self.components.iter().cloned()).collect();
        Ok(SmbPath { components, stream: self.stream.clone() })
    }

    /// The named stream that the path leads to, if it leads to one.
    pub fn stream(&self) -> Option<&str> {
        self.stream.as_deref()
    }

    /// The file or directory itself.
    pub fn without_stream(&self) -> SmbPath {
        SmbPath { components: self.components.clone(), stream: None }
    }

    /// A named stream of the same file or directory.
    pub fn with_stream(&self, stream: &str) -> SmbPath {
        SmbPath { components: self.components.clone(), stream: Some(stream.to_owned()) }
    }

    /// Path components in order. Empty for the root.
    pub fn components(&self) -> &[String] {
        &self.components
    }

    /// Is this the share root?
    pub fn is_root(&self) -> bool {
        self.components.is_empty() && self.stream.is_none()
    }

    /// Return the parent path, or `None` if this is the root.
    pub fn parent(&self) -> Option<SmbPath> {
        let mut components = self.components.clone();
        components.pop()?;
        Some(SmbPath { components, stream: None })
    }

    /// Return the last component, if any.
    pub fn file_name(&self) -> Option<&str> {
        self.components.last().map(|s| s.as_str())
    }

    /// Validate `last` and append its components to this path.
    #[cfg(test)]
    pub fn join(&self, last: &str) -> Result<SmbPath, u32> {
        // Run `last` through the same validator (treating it as a single-
        // component path).
        let extra = last.parse::<SmbPath>()?;
        let mut out = self.clone();
        out.components.extend(extra.components);
        Ok(out)
    }

    /// Render as a backslash-separated string. Empty for root.
    pub fn display_backslash(&self) -> String {
        let mut shown = self.components.join("\\");
        if let Some(stream) = &self.stream {
            shown.push(':');
            shown.push_str(stream);
        }
        shown
    }
}

/// Moves the component that names a moment to the front (`moment.leads_the_path`). A path leads to one moment at most.
fn lead_with_moment(components: &mut [String]) -> Result<(), u32> {
    let mut moments = (0..components.len()).filter(|&at| Moment::from_label(&components[at]).is_some());
    match (moments.next(), moments.next()) {
        (_, Some(_)) => Err(ntstatus::STATUS_OBJECT_NAME_INVALID),
        (Some(at), None) => {
            components[..=at].rotate_right(1);
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

/// Takes the stream off the last component.
fn split_stream(path: &str) -> Result<(&str, Option<String>), u32> {
    let last = path.rfind(['\\', '/']).map_or(0, |at| at + 1);
    let Some(colon) = path[last..].find(':') else { return Ok((path, None)) };
    let (file, stream) = (&path[..last + colon], &path[last + colon + 1..]);
    let (stream, kind) = match stream.split_once(':') {
        Some((stream, kind)) => (stream, Some(kind)),
        None => (stream, None),
    };
    let is_valid = match kind {
        Some(kind) => kind.eq_ignore_ascii_case("$DATA"),
        None => !stream.is_empty(),
    };
    if !is_valid || stream.contains('\0') || stream.encode_utf16().count() > MAX_COMPONENT_UNITS {
        return Err(ntstatus::STATUS_OBJECT_NAME_INVALID);
    }
    Ok((file, (!stream.is_empty()).then(|| stream.to_owned())))
}

impl FromStr for SmbPath {
    type Err = u32;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse_components(s)
    }
}

impl std::fmt::Display for SmbPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_root() { f.write_str("\\") } else { f.write_str(&self.display_backslash()) }
    }
}

/// Longest filename component, in UTF-16 code units (MS-FSCC 2.1.5.2).
const MAX_COMPONENT_UNITS: usize = 255;

/// Longest pathname, in UTF-16 code units (MS-FSCC 2.1.5).
const MAX_PATH_UNITS: usize = 32_760;

/// True if `name` is one filename component that `SmbPath` accepts, so a
/// client that sees it in a listing can open it.
pub fn is_valid_component(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && name.encode_utf16().count() <= MAX_COMPONENT_UNITS
        && !name.chars().any(|c| is_control(c) || is_forbidden(c) || matches!(c, '\\' | '/'))
        && Moment::from_label(name).is_none()
}

/// True if `pattern` is a valid QUERY_DIRECTORY search pattern (MS-FSA
/// 2.1.5.6.3): a filename component in which the wildcards `* ? < > "` may
/// appear, or `.` or `..`.
pub fn is_valid_pattern(pattern: &str) -> bool {
    !pattern.is_empty()
        && pattern.encode_utf16().count() <= MAX_COMPONENT_UNITS
        && !pattern.chars().any(|c| is_control(c) || matches!(c, ':' | '|' | '\\' | '/'))
}

fn is_control(c: char) -> bool {
    ('\u{0000}'..='\u{001F}').contains(&c)
}

fn is_forbidden(c: char) -> bool {
    matches!(c, '<' | '>' | ':' | '"' | '|' | '?' | '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(s: &str) -> Vec<u16> {
        s.encode_utf16().collect()
    }

    fn p(s: &str) -> SmbPath {
        s.parse().unwrap()
    }

    #[test]
    fn root_paths() {
        assert!("".parse::<SmbPath>().unwrap().is_root());
        assert!("\\".parse::<SmbPath>().unwrap().is_root());
        assert!("/".parse::<SmbPath>().unwrap().is_root());
        assert!(SmbPath::from_utf16(&utf16("")).unwrap().is_root());
    }

    #[test]
    fn simple_paths_split() {
        let p = "dir\\sub\\file.txt".parse::<SmbPath>().unwrap();
        assert_eq!(p.components(), &["dir", "sub", "file.txt"]);
        assert_eq!(p.display_backslash(), "dir\\sub\\file.txt");
        assert!(!p.is_root());
        assert_eq!(p.file_name(), Some("file.txt"));
    }

    #[test]
    fn forward_slash_accepted() {
        let p = "a/b/c".parse::<SmbPath>().unwrap();
        assert_eq!(p.components(), &["a", "b", "c"]);
    }

    #[test]
    fn a_moment_leads_the_path_wherever_it_stands() {
        let label = "@GMT-2026.11.25-13.00.01";
        let moment = Moment::from_label(label).unwrap();
        for (text, rest) in [
            (label.to_owned(), &[][..]),
            (format!("{label}\\a\\b"), &["a", "b"][..]),
            (format!("a\\{label}\\b"), &["a", "b"][..]),
            (format!("a/b/{label}"), &["a", "b"][..]),
        ] {
            let path = p(&text);
            let (found, components) = path.moment().unwrap();
            assert_eq!((found, components.iter().map(String::as_str).collect::<Vec<_>>().as_slice()), (moment, rest));
            assert_eq!(path.components()[0], label);
            assert!(!path.is_root() && path.at(moment).is_err(), "{text}");
        }
        let stream = p(&format!("a\\{label}:s"));
        assert_eq!((stream.stream(), stream.components().len()), (Some("s"), 2));
        assert_eq!(p("a\\b").at(moment).unwrap(), p(&format!("a\\b\\{label}")));
        assert_eq!(SmbPath::root().at(moment).unwrap(), p(label));
        assert_eq!(p("a:s").at(moment).unwrap().stream(), Some("s"));
        assert!(p("a\\@GMT-2026.13.25-13.00.01\\b").moment().is_none());
        assert!(format!("{label}\\a\\{label}").parse::<SmbPath>().is_err());
        assert!(!is_valid_component(label) && is_valid_component("@GMT-"));
    }

    #[test]
    fn rejects_dot_components() {
        for bad in ["a\\.\\b", "a\\.", ".", ".\\a"] {
            assert!(bad.parse::<SmbPath>().is_err(), "{bad}");
        }
    }

    #[test]
    fn parent_returns_one_component_less() {
        let p = "a\\b\\c".parse::<SmbPath>().unwrap();
        let parent = p.parent().unwrap();
        assert_eq!(parent.components(), &["a", "b"]);
        let grand = parent.parent().unwrap();
        assert_eq!(grand.components(), &["a"]);
        let root = grand.parent().unwrap();
        assert!(root.is_root());
        assert!(root.parent().is_none());
    }

    #[test]
    fn join_appends_component() {
        let p = "a".parse::<SmbPath>().unwrap();
        let q = p.join("b").unwrap();
        assert_eq!(q.components(), &["a", "b"]);
    }

    #[test]
    fn rejects_double_dot() {
        assert!("a\\..\\b".parse::<SmbPath>().is_err());
        assert!("..".parse::<SmbPath>().is_err());
    }

    #[test]
    fn rejects_double_separator() {
        assert!("a\\\\b".parse::<SmbPath>().is_err());
    }

    #[test]
    fn rejects_forbidden_chars() {
        for bad in ["a<b", "a>b", "a:b\\c", "a\"b", "a|b", "a?b", "a*b"] {
            assert!(bad.parse::<SmbPath>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rejects_control_chars() {
        let s = format!("a{}b", '\u{0001}');
        assert!(s.parse::<SmbPath>().is_err());
        let s = format!("a{}b", '\u{0000}');
        assert!(s.parse::<SmbPath>().is_err());
    }

    #[test]
    fn accepts_reserved_dos_names() {
        for name in ["CON", "aux.c", "dir\\nul", "LPT9.log"] {
            assert!(name.parse::<SmbPath>().is_ok(), "{name}");
        }
        assert!(is_valid_component("aux.c"));
    }

    #[test]
    fn limits_component_and_path_length() {
        let longest = "x".repeat(255);
        assert!(longest.parse::<SmbPath>().is_ok());
        assert!(format!("{longest}y").parse::<SmbPath>().is_err());
        // Length counts UTF-16 code units: U+1F600 takes two.
        assert!("\u{1F600}".repeat(127).parse::<SmbPath>().is_ok());
        assert!("\u{1F600}".repeat(128).parse::<SmbPath>().is_err());

        let component = "x".repeat(254);
        let path = vec![component.as_str(); 129].join("\\");
        assert_eq!(path.len(), 32_894);
        assert!(path.parse::<SmbPath>().is_err());
        let path = vec![component.as_str(); 128].join("\\");
        assert_eq!(path.len(), 32_639);
        assert!(path.parse::<SmbPath>().is_ok());
    }

    #[test]
    fn component_validation_matches_path_parsing() {
        for name in ["a.txt", " lead", "\u{F021}"] {
            assert!(is_valid_component(name), "{name}");
            assert!(name.parse::<SmbPath>().is_ok(), "{name}");
        }
        for name in ["", ".", "..", "a:b", "a*b", "a\\b", "a/b", "a\u{1}b"] {
            assert!(!is_valid_component(name), "{name:?}");
        }
        assert!(!is_valid_component(&"x".repeat(256)));
    }

    #[test]
    fn pattern_validation_allows_wildcards_and_dots() {
        for pattern in ["*", "*.txt", "a?b", "<.\"", ">", ".", ".."] {
            assert!(is_valid_pattern(pattern), "{pattern}");
        }
        for pattern in ["", "a|b", "a:b", "a\\b", "a/b", "a\u{0}"] {
            assert!(!is_valid_pattern(pattern), "{pattern:?}");
        }
        assert!(!is_valid_pattern(&"*".repeat(256)));
    }

    #[test]
    fn allows_lookalike_names() {
        // Not reserved.
        assert!("CON1".parse::<SmbPath>().is_ok());
        assert!("LPT".parse::<SmbPath>().is_ok());
        assert!("LPT0".parse::<SmbPath>().is_ok()); // 0 is not in the 1-9 range
        assert!("NUL_FILE.txt".parse::<SmbPath>().is_ok());
    }

    #[test]
    fn rejects_unpaired_surrogate() {
        let units: [u16; 2] = [0xD800, 0x0061]; // unpaired high surrogate
        assert!(SmbPath::from_utf16(&units).is_err());
    }

    #[test]
    fn a_path_may_lead_to_a_stream() {
        for (text, components, stream) in [
            ("d\\f:s", &["d", "f"][..], Some("s")),
            ("f:s:$DATA", &["f"], Some("s")),
            ("f:?Stream*\u{5}:$data", &["f"], Some("?Stream*\u{5}")),
            ("f::$DATA", &["f"], None),
            (":s", &[], Some("s")),
        ] {
            let path = p(text);
            assert_eq!(
                (path.components(), path.stream()),
                (&components.iter().map(|c| c.to_string()).collect::<Vec<_>>()[..], stream)
            );
        }
        for bad in ["f:", "f::", "f:s:", "f:s:$INDEX", "f:s:$DATA:x", "d:s\\f", "f:a\u{0}b", "d\\:s"] {
            assert!(bad.parse::<SmbPath>().is_err(), "{bad:?}");
        }
        assert!(!p(":s").is_root() && p("::$DATA").is_root());
        assert_eq!(p("d\\f:s").to_string(), "d\\f:s");
    }

    #[test]
    fn round_trip_via_utf16() {
        let p = SmbPath::from_utf16(&utf16("a\\b")).unwrap();
        assert_eq!(p.components(), &["a", "b"]);
    }
}
