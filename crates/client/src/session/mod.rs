//! Sessions at the targets: links, slots, requests and their replay, locks, grants, sharing with other clients.

pub(crate) mod aside;
pub(crate) mod asks;
pub(crate) mod batch;
pub(crate) mod behind;
pub(crate) mod cluster;
pub(crate) mod doubts;
pub(crate) mod ear;
pub(crate) mod gone;
pub(crate) mod grants;
pub(crate) mod guarded;
pub(crate) mod identity;
pub(crate) mod jobs;
pub(crate) mod link;
pub(crate) mod locks;
pub(crate) mod losses;
pub(crate) mod owed;
pub(crate) mod params;
pub(crate) mod request;
pub(crate) mod root;
pub(crate) mod section;
pub(crate) mod sent;
pub(crate) mod sharing;
pub(crate) mod ship;
pub(crate) mod slots;
pub(crate) mod unshipped;
