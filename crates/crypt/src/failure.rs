//! What went wrong with a sealed object, as its store says it.

use object_store::Error;
use object_store::path::Path;

use crate::SealError;

pub(crate) fn generic(location: &Path, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let why: Box<dyn std::error::Error + Send + Sync> = why.into();
    Error::Generic { store: "sealed", source: format!("{location}: {why}").into() }
}

pub(crate) fn refused(location: &Path, error: SealError) -> Error {
    generic(location, error)
}
