//! What Samba keeps of a file in its extended attributes, for those who read files that it served: the same decoders by which
//! shared folders show them (`dos.as_samba`, `stream.as_samba`).

use bytes::Bytes;
use larder_base::Timestamp;

use crate::{dos, streams};

/// The meaning of one extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// DOS attributes, as in [`larder_fs::Attr::dos`], and the time of creation; each where it is known.
    Dos {
        /// `None`: not said.
        attributes: Option<u32>,
        /// `None`: not said.
        created: Option<Timestamp>,
    },
    /// A named stream.
    Stream {
        /// As clients call it.
        name: Bytes,
        /// Its bytes.
        data: Vec<u8>,
    },
}

/// `None`: it is none of Samba's, or damaged.
pub fn meaning(attribute: &[u8], value: &[u8]) -> Option<Meaning> {
    if attribute == dos::NAME {
        return dos::meaning(value).map(|(attributes, created)| Meaning::Dos { attributes, created });
    }
    let name = streams::name_of(&Bytes::copy_from_slice(attribute))?;
    // No door could show it otherwise.
    streams::attribute_of(&name).ok()?;
    Some(Meaning::Stream { name, data: streams::without_end(value.to_vec()) })
}
