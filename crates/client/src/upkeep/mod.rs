//! Work on whole files that several operations share: settling, recovery, free space, requests to many objects, keep-alive.

pub(crate) mod alive;
pub(crate) mod elsewhere;
pub(crate) mod objects;
pub(crate) mod overshoot;
pub(crate) mod recover;
pub(crate) mod room;
pub(crate) mod settle;
