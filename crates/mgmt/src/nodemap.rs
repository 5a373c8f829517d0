//! Nodemaps: the match of a node, the ids that its callers get, and changes of the list by administrators.
//!
//! Servers apply nodemaps to clients. The match needs no look-up: a server knows the certificate and the address of each connection.

use core::net::IpAddr;

use types::{Code, Cred, Fault, NAME_MAX, Uuid};
use wire::map::{ClusterMap, IdRange, Nodemap, Squash};
use wire::mgmt::ChangeNodemaps;

use crate::crls::give_keys;
use crate::register::check_size;

/// Most nodemaps: some for each site of a federation.
pub const NODEMAPS_MAX: usize = 256;
/// Most ranges of users, and of groups, of a nodemap.
pub const RANGES_MAX: usize = 64;
/// Longest name and longest pattern in bytes, that of a certificate's node name.
const TEXT_MAX: usize = 63;
/// The user and group of squashed callers, unless others are given.
pub const NOBODY: u32 = 65_534;
/// Longest path of a root, in bytes: 256 nodemaps with such ones fit in a map.
const ROOT_MAX: usize = 1024;
const ROLES: [&str; 4] = ["server", "client", "admin", "router"];

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer<'a> {
    /// Role and node name of its certificate.
    pub certificate: Option<(&'a str, &'a str)>,
    pub net: &'a str,
    pub address: Option<IpAddr>,
}

/// mgmt-N1, of a list that `in_order` made.
pub fn find<'m>(nodemaps: &'m [Nodemap], peer: &Peer<'_>) -> Option<&'m Nodemap> {
    nodemaps.iter().find(|nodemap| matches(nodemap, peer))
}

/// The nodemaps in the order in which they are looked at.
pub fn in_order(map: &ClusterMap) -> Vec<Nodemap> {
    let mut nodemaps = map.nodemaps.clone();
    nodemaps.sort_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)));
    nodemaps
}

fn matches(nodemap: &Nodemap, peer: &Peer<'_>) -> bool {
    let is_any = |text: &str| text.is_empty();
    let has_role = match peer.certificate {
        Some((role, node)) => {
            (is_any(&nodemap.role) || nodemap.role == role)
                && (is_any(&nodemap.node) || fits(nodemap.node.as_bytes(), node.as_bytes()))
        }
        None => is_any(&nodemap.role) && is_any(&nodemap.node),
    };
    // A process on the server's own host, which has no net, is matched only if the nodemap names it.
    let has_net = match nodemap.net.as_str() {
        "" => !peer.net.starts_with("local"),
        net => net == peer.net,
    };
    let has_address = is_any(&nodemap.address)
        || Cidr::parse(&nodemap.address).zip(peer.address).is_some_and(|(cidr, address)| cidr.has(address));
    has_role && has_net && has_address
}

/// `*` stands for any characters. Linear in the text: a later `*` never needs an earlier one again.
pub(crate) fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// The addresses of a net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cidr {
    address: IpAddr,
    bits: u32,
}

impl Cidr {
    /// Reads `ADDRESS/BITS`, or an address alone.
    fn parse(text: &str) -> Option<Cidr> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok()?,
            Some(_) => return None,
        };
        (bits <= most).then_some(Cidr { address, bits })
    }

    fn has(self, other: IpAddr) -> bool {
        let differ = match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
            (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= self.bits
    }
}

/// True if callers get other ids than they claim, so that a client's kernel cannot judge them.
pub fn changes_ids(nodemap: &Nodemap) -> bool {
    nodemap.squash != Squash::None || maps_ids(nodemap)
}

/// True if ids are mapped in requests and in replies.
pub fn maps_ids(nodemap: &Nodemap) -> bool {
    !nodemap.uids.is_empty() || !nodemap.gids.is_empty()
}

/// True if both give each caller the same ids. `None`: no nodemap.
pub fn has_same_ids(one: Option<&Nodemap>, other: Option<&Nodemap>) -> bool {
    let ids = |n: &Nodemap| (n.squash, n.squash_uid, n.squash_gid, n.uids.clone(), n.gids.clone());
    let of = |nodemap: Option<&Nodemap>| nodemap.filter(|n| changes_ids(n)).map(ids);
    of(one) == of(other)
}

/// The caller in the file system for a caller of the client. A squashed caller has no groups but the one of the squash.
pub fn caller(nodemap: &Nodemap, claimed: &Cred) -> Cred {
    let squashed = || Cred { uid: nodemap.squash_uid, gid: nodemap.squash_gid, groups: vec![] };
    let is_squashed = match nodemap.squash {
        Squash::All => true,
        Squash::Root => claimed.uid == 0,
        Squash::None => false,
    };
    let Some(uid) = to_fs(&nodemap.uids, claimed.uid).filter(|_| !is_squashed) else { return squashed() };
    // A group that no range has gives no rights.
    let gid = to_fs(&nodemap.gids, claimed.gid).unwrap_or(nodemap.squash_gid);
    let groups = claimed.groups.iter().filter_map(|gid| to_fs(&nodemap.gids, *gid)).collect();
    Cred { uid, gid, groups }
}

/// The id in the file system; `None`: no range has it. A list without ranges leaves ids as they are.
pub fn to_fs(ranges: &[IdRange], id: u32) -> Option<u32> {
    let in_range = |r: &IdRange| id.checked_sub(r.from).filter(|n| *n < r.count).map(|n| r.to + n);
    if ranges.is_empty() { Some(id) } else { ranges.iter().find_map(in_range) }
}

/// The id that the client sees; `squash` for one that no range has.
pub fn to_client(ranges: &[IdRange], id: u32, squash: u32) -> u32 {
    let in_range = |r: &IdRange| id.checked_sub(r.to).filter(|n| *n < r.count).map(|n| r.from + n);
    if ranges.is_empty() { id } else { ranges.iter().find_map(in_range).unwrap_or(squash) }
}

/// The refusal of a node that a nodemap bans.
pub fn banned(nodemap: &Nodemap) -> Fault {
    let why = format!("the nodemap {} bans this node; `stria nodemap list` shows it", nodemap.name);
    Fault::new(Code::Access, why)
}

/// True if the node sees a directory as its root.
pub fn has_root(nodemap: &Nodemap) -> bool {
    !nodemap.root.is_empty()
}

/// A path without doubled slashes and without one at its end. The file system's root is the empty text.
pub fn plain_root(path: &str) -> String {
    let names = path.split('/').filter(|name| !name.is_empty()).map(|name| format!("/{name}"));
    if path.starts_with('/') { names.collect() } else { path.into() }
}

/// The names that lead from the file system's root to the nodemap's.
pub fn root_names(nodemap: &Nodemap) -> impl Iterator<Item = &str> {
    nodemap.root.split('/').skip(1)
}

/// The refusal of a node whose root is not there.
pub fn root_missing(nodemap: &Nodemap) -> Fault {
    let Nodemap { name, root, .. } = nodemap;
    let next = "make it from another mount, or name another one with `stria nodemap modify --root`";
    let why = format!("the root of the nodemap {name} of this node is {root}, which is no directory; {next}");
    Fault::new(Code::NotFound, why)
}

/// The refusal of a request about the whole file system by a node below a root.
pub fn below_root(nodemap: &Nodemap) -> Fault {
    let Nodemap { name, root, .. } = nodemap;
    let next = "ask from a node that sees the whole file system";
    let why = format!("the nodemap {name} shows this node only {root}, and this is about all files; {next}");
    Fault::new(Code::Access, why)
}

/// The refusal of a change by a node that may only read.
pub fn read_only(nodemap: &Nodemap) -> Fault {
    let why = format!("the nodemap {} lets this node only read; `stria nodemap list` shows it", nodemap.name);
    Fault::new(Code::ReadOnly, why)
}

/// The map after a change of its nodemaps. A nodemap to be removed must be there unchanged, so that of two administrators that change one at
/// the same time the second is refused. Nothing is changed by a refused request. `keys` has one for each file system (mgmt-K2).
pub fn change_nodemaps(
    map: &ClusterMap,
    change: &ChangeNodemaps,
    keys: &[Uuid],
) -> Result<ClusterMap, Fault> {
    let mut next = map.clone();
    for gone in &change.remove {
        let at = next.nodemaps.iter().position(|n| n.name == gone.name).ok_or_else(|| missing(&gone.name))?;
        if next.nodemaps[at] != *gone {
            let why =
                format!("the nodemap {} was changed meanwhile; look at it and change it again", gone.name);
            return Err(Fault::new(Code::Busy, why));
        }
        next.nodemaps.remove(at);
    }
    for new in &change.add {
        check(new)?;
        if next.nodemaps.iter().any(|n| n.name == new.name) {
            let why = format!("there is a nodemap {} already; `stria nodemap modify` changes it", new.name);
            return Err(Fault::new(Code::Exists, why));
        }
        next.nodemaps.push(new.clone());
    }
    if next.nodemaps.len() > NODEMAPS_MAX {
        let why = format!("the map would have more than {NODEMAPS_MAX} nodemaps; remove one first");
        return Err(Fault::new(Code::NoSpace, why));
    }
    if takes_rights(&in_order(map), &in_order(&next)) {
        give_keys(&mut next, keys)?;
    }
    next.version += 1;
    check_size(&next)?;
    Ok(next)
}

/// mgmt-K2: true unless each node keeps what it has by the lists, which are in order. A nodemap that comes or goes counts as a loss, since the
/// nodes of others may take it, or fall to others.
fn takes_rights(before: &[Nodemap], after: &[Nodemap]) -> bool {
    let matched = |n: &Nodemap| [&n.name, &n.role, &n.node, &n.net, &n.address].map(String::clone);
    let takes = |(old, new): (&Nodemap, &Nodemap)| {
        matched(old) != matched(new)
            || (new.ban && !old.ban)
            || (new.read_only && !old.read_only)
            || (has_root(new) && new.root != old.root)
            || !has_same_ids(Some(old), Some(new))
    };
    before.len() != after.len() || before.iter().zip(after).any(takes)
}

pub fn missing(name: &str) -> Fault {
    Fault::new(Code::NotFound, format!("there is no nodemap {name:?}; `stria nodemap list` shows them"))
}

/// Refuses a definition that cannot mean what its author wants.
fn check(nodemap: &Nodemap) -> Result<(), Fault> {
    let invalid = |why: String| Err(Fault::new(Code::Invalid, why));
    let is_text = |text: &str, also: &str| {
        text.len() <= TEXT_MAX && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
    };
    if nodemap.name.is_empty() || !is_text(&nodemap.name, "-_.") {
        return invalid("a nodemap's name has 1 to 63 letters, digits, '-', '_' and '.'".into());
    }
    let of = |why: String| invalid(format!("nodemap {}: {why}", nodemap.name));
    if !nodemap.role.is_empty() && !ROLES.contains(&nodemap.role.as_str()) {
        return of(format!("{:?} is no role; give {}", nodemap.role, ROLES.join(", ")));
    }
    if !is_text(&nodemap.node, "-.*") {
        return of(format!(
            "{:?} is no pattern of node names: letters, digits, '-', '.' and '*'",
            nodemap.node
        ));
    }
    let is_net = nodemap.net == "local0"
        || nodemap
            .net
            .strip_prefix("tcp")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if !nodemap.net.is_empty() && !is_net {
        return of(format!("{:?} is no net; give tcp0, tcp1, ... or local0", nodemap.net));
    }
    if !nodemap.address.is_empty() && Cidr::parse(&nodemap.address).is_none() {
        return of(format!("{:?} is no address; give one as 10.1.0.0/16", nodemap.address));
    }
    if [&nodemap.role, &nodemap.node, &nodemap.net, &nodemap.address].iter().all(|text| text.is_empty()) {
        return of(
            "it matches by nothing; give a role, a node, a net or an address (--node '*' is any certificate)"
                .into(),
        );
    }
    if nodemap.squash_uid == u32::MAX || nodemap.squash_gid == u32::MAX {
        return of("4294967295 is no id".into());
    }
    if nodemap.squash_uid == 0 {
        return of("callers are squashed to root; give another user than 0".into());
    }
    check_root(&nodemap.root).or_else(of)?;
    for ranges in [&nodemap.uids, &nodemap.gids] {
        check_ranges(ranges).or_else(of)?;
    }
    Ok(())
}

/// mgmt-N3.
fn check_root(root: &str) -> Result<(), String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.len() <= NAME_MAX && name != "." && name != ".." && !name.contains('\0')
    };
    match root.split_once('/') {
        _ if root.len() > ROOT_MAX => Err(format!("its root has more than {ROOT_MAX} bytes")),
        _ if root.is_empty() => Ok(()),
        Some(("", names)) if names.split('/').all(is_name) => Ok(()),
        _ => Err(format!(
            "{root:?} is no path in the file system; give one as /projects/a, without '.', '..' and '/' at its end"
        )),
    }
}

/// mgmt-N2.
fn check_ranges(ranges: &[IdRange]) -> Result<(), String> {
    if ranges.len() > RANGES_MAX {
        return Err(format!("it has more than {RANGES_MAX} ranges"));
    }
    // The last number means that an id is not known.
    let is_good = |first: u32, count: u32| count > 0 && first.checked_add(count).is_some();
    let overlap = |a: u32, b: u32, of_a: u32, of_b: u32| a < b + of_b && b < a + of_a;
    for (n, r) in ranges.iter().enumerate() {
        if !is_good(r.from, r.count) || !is_good(r.to, r.count) {
            return Err(format!(
                "the range {}:{}:{} has ids above 4294967294, or none",
                r.from, r.to, r.count
            ));
        }
        for other in &ranges[..n] {
            if overlap(r.from, other.from, r.count, other.count)
                || overlap(r.to, other.to, r.count, other.count)
            {
                return Err(format!("two ranges have an id in common: {}:{}:{}", r.from, r.to, r.count));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
