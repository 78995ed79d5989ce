//! Why a request of the object store was refused, and the store's error for it.

use object_store::Error;
use object_store::path::Path;

use crate::error::PoolError;

/// The condition of a put was not met.
#[derive(Debug)]
pub enum Refused {
    Exists,
    /// The version that is there instead of the one asked for.
    Changed(Option<String>),
    /// It was outrun again and again (`write.outrun`).
    Outrun,
    Error(PoolError),
}

impl From<PoolError> for Refused {
    fn from(error: PoolError) -> Self {
        Self::Error(error)
    }
}

/// Why a conditional request was refused, as the source of an `object_store::Error`.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    #[error("no such object")]
    NotFound,
    #[error("it exists")]
    Exists,
    #[error("its version is {0}, not the one asked for")]
    Changed(String),
    #[error("another version was stored or deleted while this one was being uploaded: upload it again")]
    Outrun,
    #[error("the range {0} does not lie within its {1} bytes")]
    Range(String, u64),
}

pub fn not_found(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: Box::new(Reason::NotFound) }
}

pub fn already_exists(path: &str) -> Error {
    Error::AlreadyExists { path: path.to_owned(), source: Box::new(Reason::Exists) }
}

pub fn bad_range(range: impl std::fmt::Debug, size: u64) -> Error {
    Error::Generic { store: "larder-pool", source: Box::new(Reason::Range(format!("{range:?}"), size)) }
}

/// The store's error for a refused commit.
pub fn refused(path: &str, refused: Refused) -> Error {
    match refused {
        Refused::Exists => already_exists(path),
        Refused::Changed(version) => {
            let version = version.unwrap_or_else(|| "none".to_owned());
            Error::Precondition { path: path.to_owned(), source: Box::new(Reason::Changed(version)) }
        }
        Refused::Outrun => Error::Precondition { path: path.to_owned(), source: Box::new(Reason::Outrun) },
        Refused::Error(error) => error.into(),
    }
}
