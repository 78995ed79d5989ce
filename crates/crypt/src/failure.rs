//! What went wrong with a sealed object, as its store says it.

use object_store::Error;
use object_store::path::Path;

use crate::SealError;

pub(crate) fn generic(location: &Path, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let why: Box<dyn std::error::Error + Send + Sync> = why.into();
    Error::Generic { store: "sealed", source: format!("{location}: {why}").into() }
}

/// A key that is missing stays so however often the object is read, and the metadata engine tries [`Error::Generic`] again without end.
pub(crate) fn refused(location: &Path, error: SealError) -> Error {
    match error {
        SealError::UnknownKey(_) => Error::NotSupported { source: format!("{location}: {error}").into() },
        error => generic(location, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_is_not_tried_again() {
        let at = Path::from("volumes/x/seg/1");
        let missing = refused(&at, SealError::UnknownKey(2));
        assert!(matches!(missing, Error::NotSupported { .. }) && missing.to_string().contains("volume key 2"));
        assert!(matches!(refused(&at, SealError::Forged), Error::Generic { .. }));
    }
}
