//! State that the client holds without asking a target: open files, content, names, listings; and the plain values of the API.

pub(crate) mod accessed;
pub(crate) mod api;
pub(crate) mod content;
pub(crate) mod files;
pub(crate) mod hold;
pub(crate) mod leased;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod removed;
