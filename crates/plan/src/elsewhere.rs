//! An OST is full: on which others may a growing file go on?

use std::collections::BTreeSet;

use types::MirrorId;

/// Less room than this is none: a file that moved on for less would be on its way again with the next write.
pub const ROOM_MIN: u64 = 2 << 20;
/// Of the roomiest, an OST must have this share: those that fill at about the same time are left together, in one move.
const SHARE: u64 = 2;

/// The mirrors that the tail of a file is to avoid, of `all` with the bytes that each has for `wanted` more (`None`: it does not say).
/// Nothing if there is nowhere to go. Those that `refused` are full, whatever they say: others may have been quicker to take what is there.
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
    Some(all.iter().filter(|of| !is_roomy(of)).map(|(mirror, _)| *mirror).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What OSTs say, those that refused, what is wanted; and what is to be avoided.
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
