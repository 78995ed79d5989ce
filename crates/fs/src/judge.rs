//! The judges of a volume, for trees that are none: who may do what, and which names there can be. All are pure.

pub use crate::access::{
    granted, may_add, may_link, may_remove, may_set, ownership, owns, require, rights, without_suid,
};
pub use crate::acl::Guarded;
pub use crate::names::fold;
pub use crate::names::{check_name, check_new_name, is_dots};
pub use crate::permit::{grounds_of, permitted};
