//! Rules of membership: the effect of registrations and of silence on the cluster map.
//!
//! Pure: a map and an event go in, the next map and the answer come out. The caller stores the map by compare-and-swap before it answers.
//! Time and randomness are arguments.
//!
//! mgmt-I1: ids of file systems, nodes, targets and mirrors are never used twice: a new id is one above the highest that was ever given. The
//! map keeps the highest ids of removed entries (`ids_used`). 0 is never assigned (target 0 is the MGS).
//! mgmt-I2: a target is identified by its uuid; its id, index, kind, file system and mirror never change until it is removed. A removed
//! target does not come back under its old id.
//! mgmt-I3: every change raises the map's version by one. A registration of a mirror's only member raises the mirror's epoch by one, and so
//! does a member that comes or goes. A registration of a known member of two leaves the epoch, under which both have promised.
//! mgmt-I4: the map's wire form stays below `MAP_BYTES_MAX`, so that it fits the frame that carries it.
//! mgmt-I5: a target whose heartbeats arrive is not assigned to another host.
//! mgmt-I6: a mirror has one or two members of one index. A new second member is out. A member in sync is not removed while there is another.
//! mgmt-I7: a new second member shares no host, or no rack, with the first one, if its server asks for that.
//! mgmt-B1 to mgmt-B4: a lost map is made from superblocks (`rebuild.rs`).
//! mgmt-R1: a removal names one state of the map: its token holds for one entry and one version.
//! mgmt-R2: a removal leaves no entry that names a removed one. A file system with OSTs keeps its MDT.
//! mgmt-K1: when a server's or an administrator's certificate is revoked, the keys of all file systems change with the same version of the
//! map that revokes it (`crls.rs`).
//! mgmt-K2: they change also with each change of nodemaps after which a node may do less, so that no capability from before counts
//! (`nodemap.rs`).
//! mgmt-D1: a draining mirror is an OST's, is in the map, and is not the last of its file system that takes new objects (`drain.rs`).
//! mgmt-S1 to mgmt-S4: a slow link is found among its twins (`links.rs`).
//! mgmt-PA1 to mgmt-PA3: which value of a parameter holds at a target (`params.rs`).
//! mgmt-N1: a node takes the first nodemap that matches it, in the order of priority and then name (`nodemap.rs`).
//! mgmt-N2: no two ranges of a nodemap have an id in common, on either side.
//! mgmt-N3: the root of a nodemap is a path of plain names from the file system's root.

mod client_view;
mod create_fs;
mod crls;
mod drain;
mod links;
mod name;
pub mod nodemap;
pub mod params;
pub mod rebuild;
mod register;
mod remove;
mod routes;
mod states;
#[cfg(test)]
mod testing;

pub use client_view::client_view;
pub use create_fs::{COMMIT_INTERVAL_MS_MAX, COMMIT_INTERVAL_MS_MIN, apply_create_fs};
pub use crls::publish_crls;
pub use drain::{mirror_to_drain, set_draining};
pub use links::{End, Link, SlowLink, slow_links};
pub use name::{FS_NAME_MAX, check_fs_name, member_name, mirror_name, state_word, target_name};
pub use register::{COMMIT_INTERVAL_MS, Fresh, MAP_BYTES_MAX, apply_register, refuse_second_copy};
pub use remove::{apply_removal, plan_removal, removal_token};
pub use routes::{ROUTES_MAX, change_routes};
pub use states::{HEARTBEAT_MS, Reports, SILENCE_MS_MAX, next_states};

/// Values of `Target::state`.
pub const STATE_UNKNOWN: u8 = 0;
pub const STATE_UP: u8 = 1;
pub const STATE_DOWN: u8 = 2;
