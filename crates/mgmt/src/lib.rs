//! Rules of membership: the effect of registrations and of silence on the cluster map.
//!
//! Pure: a map and an event go in, the next map and the answer come out. The caller stores the map by compare-and-swap before it answers.
//! Time and randomness are arguments.
//!
//! mgmt-I1: ids of file systems, nodes, targets and mirrors are never used twice: a new id is one above the highest that was ever given. The
//! map keeps the highest ids of removed entries (`ids_used`). 0 is never assigned (target 0 is the MGS).
//! mgmt-I2: a target is identified by its uuid; its id, index, kind, file system and mirror never change until it is removed. A removed
//! target does not come back under its old id.
//! mgmt-I3: every change raises the map's version by one; every registration raises the mirror's epoch by one.
//! mgmt-I4: the map's wire form stays below `MAP_BYTES_MAX`, so that it fits the frame that carries it.
//! mgmt-I5: a target whose heartbeats arrive is not assigned to another host.
//! mgmt-R1: a removal names one state of the map: its token holds for one entry and one version.
//! mgmt-R2: a removal leaves no entry that names a removed one. A file system with OSTs keeps its MDT.
//! mgmt-K1: when a server's or an administrator's certificate is revoked, the keys of all file systems change with the same version of the
//! map that revokes it (`crls.rs`).
//! mgmt-K2: they change also with each change of nodemaps after which a node may do less, so that no capability from before counts
//! (`nodemap.rs`).
//! mgmt-S1 to mgmt-S4: a slow link is found among its twins (`links.rs`).
//! mgmt-N1: a node takes the first nodemap that matches it, in the order of priority and then name (`nodemap.rs`).
//! mgmt-N2: no two ranges of a nodemap have an id in common, on either side.
//! mgmt-N3: the root of a nodemap is a path of plain names from the file system's root.

mod client_view;
mod create_fs;
mod crls;
mod links;
mod name;
pub mod nodemap;
mod register;
mod remove;
mod routes;
mod states;

pub use client_view::client_view;
pub use create_fs::{COMMIT_INTERVAL_MS_MAX, COMMIT_INTERVAL_MS_MIN, apply_create_fs};
pub use crls::publish_crls;
pub use links::{End, Link, SlowLink, slow_links};
pub use name::{FS_NAME_MAX, check_fs_name};
pub use register::{COMMIT_INTERVAL_MS, Fresh, MAP_BYTES_MAX, apply_register, refuse_second_copy};
pub use remove::{apply_removal, plan_removal, removal_token};
pub use routes::{ROUTES_MAX, change_routes};
pub use states::{HEARTBEAT_MS, Reports, SILENCE_MS_MAX, next_states};

/// Values of `Target::state`.
pub const STATE_UNKNOWN: u8 = 0;
pub const STATE_UP: u8 = 1;
pub const STATE_DOWN: u8 = 2;
