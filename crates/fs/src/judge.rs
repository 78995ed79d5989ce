//! Who may do what, and which names there can be, whichever tree it is. All are pure.

pub use crate::access::{
    granted, may_add, may_link, may_remove, may_set, ownership, owns, require, rights, without_suid,
};
pub use crate::acl::Guarded;
pub use crate::names::{check_name, check_new_name, fold, is_dots};
pub use crate::permit::{grounds_of, permitted};
