//! When an OST is full: the OSTs on which the tail of a growing file may continue.

use std::collections::BTreeSet;

use types::MirrorId;

/// Bytes that an OST must have free beyond the wanted ones. With less, the next write would move the file again.
pub const ROOM_MIN: u64 = 2 << 20;
/// An OST must have at least 1/SHARE of the free space of the emptiest OST. OSTs that fill at about the same time are so left together,
/// in one move.
const SHARE: u64 = 2;

/// The mirrors that the tail of a file must avoid. `all` has each mirror with its free bytes (`None`: the OST did not report them);
/// `wanted` is in bytes.
/// `None` if no mirror has enough free space. Mirrors in `refused` count as full whatever they report: other clients may have taken the
/// space since.
pub fn avoided(
    all: &[(MirrorId, Option<u64>)],
    refused: &BTreeSet<MirrorId>,
    wanted: u64,
) -> Option<Vec<MirrorId>> {
    let room =
        |(mirror, free): &(MirrorId, Option<u64>)| free.filter(|_| !refused.contains(mirror)).unwrap_or(0);
    let most = all.iter().map(room).max().filter(|most| *most >= wanted.saturating_add(ROOM_MIN))?;
    let is_roomy =
        |of: &&(MirrorId, Option<u64>)| room(of) >= wanted.saturating_add(ROOM_MIN).max(most / SHARE);
    let avoided: Vec<MirrorId> = all.iter().filter(|of| !is_roomy(of)).map(|(mirror, _)| *mirror).collect();
    assert!(avoided.len() < all.len(), "the mirror with the most free space is never avoided");
    Some(avoided)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Free bytes by OST, mirrors that refused, wanted bytes; the expected mirrors to avoid.
    type Row<'a> = (&'a [Option<u64>], &'a [u32], u64, Option<&'a [u32]>);

    #[test]
    fn a_file_goes_where_there_is_room_for_more_than_a_moment() {
        const M: u64 = 1 << 20;
        let avoid = |free: &[Option<u64>], refused: &[u32], wanted: u64| {
            let all: Vec<_> = (0..).map(MirrorId).zip(free.iter().copied()).collect();
            let refused = refused.iter().map(|m| MirrorId(*m)).collect();
            avoided(&all, &refused, wanted).map(|list| list.into_iter().map(|m| m.0).collect::<Vec<_>>())
        };
        //           free                                          refused  wanted  avoided
        let table: &[Row<'_>] = &[
            (&[Some(0), Some(90 * M)], &[0], M, Some(&[0])),
            (&[Some(80 * M), Some(90 * M)], &[0], M, Some(&[0])),
            (&[Some(0), Some(ROOM_MIN)], &[0], 0, Some(&[0])),
            (&[Some(0), Some(ROOM_MIN)], &[0], 1, None),
            (&[Some(0), Some(90 * M)], &[0, 1], 0, None),
            (&[Some(0), None, Some(50 * M), Some(24 * M), Some(25 * M)], &[0], M, Some(&[0, 1, 3])),
            (&[Some(0), Some(50 * M), Some(40 * M)], &[0], 45 * M, Some(&[0, 2])),
            (&[Some(0), Some(50 * M)], &[0], u64::MAX, None),
            (&[], &[], 0, None),
        ];
        for (free, refused, wanted, want) in table {
            assert_eq!(avoid(free, refused, *wanted).as_deref(), *want, "{free:?} {refused:?} {wanted}");
        }
    }
}
