//! Nothing: slatedb's feature `foyer`, which would count processors with this crate, is off in larder.
