//! The test kit: clusters of real processes to be killed, hosts as network namespaces, thousands of sessions, clusters in this process whose power can be
//! cut, and seeded randomness.

pub mod cluster;
pub mod hosts;
pub mod linear;
pub mod load;
pub mod rng;
pub mod story;
pub mod stranger;

/// Members of a real etcd.
pub use mapstore::etcd::testing as etcd;

pub use cluster::{Cluster, Role, Shape, Wiring, is_mounted};
pub use rng::Rng;
pub use story::{Story, StoryShape, Who};
pub use stranger::Stranger;
pub use verify;
