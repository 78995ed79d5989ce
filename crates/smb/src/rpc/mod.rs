//! The named pipes of IPC$, and the list of shares that is read over them ([`larder_smb_wire::rpc`]).

mod calls;
pub(crate) mod pipe;
pub(crate) mod srvsvc;

/// The pipe IPC$ serves, as a CREATE names it.
pub(crate) const SRVSVC_PIPE: &str = "srvsvc";
