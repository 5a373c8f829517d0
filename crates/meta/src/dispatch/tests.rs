use types::*;
use wire::meta::{Create, FIDS_MAX, GetAttrs, GetAttrsReply, Inode, Lookup};
use wire::{Request, Wire};

use super::{is_mutation, mutate, read};
use crate::Space;
use crate::testing::*;

/// Every call of the conversation is known, and answered only as a read or only as a change.
#[test]
fn every_call_has_its_rule() {
    assert_eq!(
        super::CALLS.iter().map(|c| c.0).collect::<Vec<_>>(),
        wire::meta::CALLS
            .iter()
            .map(|c| c.0)
            // Counts need rows that are in no record yet; the MDT keeps them.
            .filter(|call| *call != wire::meta::Counts::CALL)
            // Leases of directories are no records.
            .filter(|call| {
                use wire::meta::{LeaseDir, LeaveDir, WatchDir};
                ![LeaseDir::CALL, LeaveDir::CALL, WatchDir::CALL].contains(call)
            })
            .chain([wire::shared::Enter::CALL, wire::accessed::Accessed::CALL])
            .collect::<Vec<_>>()
    );
    assert_eq!(
        (is_mutation(Lookup::CALL), is_mutation(Create::CALL), is_mutation(0x0101)),
        (Some(false), Some(true), None)
    );
    for (call, mutates) in super::CALLS {
        // No body decodes: each call decodes before it changes anything, and the other sort does not know it.
        let mut w = World::new();
        let junk = [0xff; 3];
        World::with_ctx(false, Space::AMPLE, |ctx| {
            let changed = mutate(ctx, &mut w.txn, *call, &junk, &[]).map_err(|f| f.code);
            let seen = read(ctx, &w.txn, *call, &junk, &mut vec![], &mut Buf::new()).map_err(|f| f.code);
            let want = match mutates {
                true => (Err(Code::BadRequest), Err(Code::Unsupported)),
                false => (Err(Code::Unsupported), Err(Code::BadRequest)),
            };
            assert_eq!(is_mutation(*call), Some(*mutates), "{call:#x}");
            assert_eq!((changed, seen), want, "{call:#x}");
        });
    }
}

#[test]
fn what_is_no_metadata_call_is_none() {
    for call in [0, 0x0101, 0x01ff, 0x0200, 0x02ff, 0x0300, u16::MAX] {
        assert_eq!(is_mutation(call), None, "{call:#x}");
    }
}

#[test]
fn replies_follow_what_stands_there() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    let body = Lookup { parent: ROOT, name: bytes("f"), cred: Cred::root() }.to_bytes();
    let mut reply = b"head".to_vec();
    let done = World::with_ctx(false, Space::AMPLE, |ctx| {
        read(ctx, &w.txn, Lookup::CALL, &body, &mut reply, &mut Buf::new())
    });
    assert_eq!((done, &reply[..4]), (Ok(()), &b"head"[..]));
    assert_eq!(Inode::from_bytes(&reply[4..]).map(|i| i.attr.fid), Ok(f));
}

#[test]
fn several_are_told_of_at_once_and_what_is_gone_is_none() {
    let mut w = World::new();
    let (f, g) = (w.file(ROOT, "f"), w.file(ROOT, "g"));
    let ask = |fids: Vec<Fid>| {
        let mut reply = vec![];
        let body = GetAttrs { fids }.to_bytes();
        let said = World::with_ctx(false, Space::AMPLE, |ctx| {
            read(ctx, &w.txn, GetAttrs::CALL, &body, &mut reply, &mut Buf::new())
        });
        said.map(|()| GetAttrsReply::from_bytes(&reply).unwrap().inodes)
    };
    let told: Vec<_> =
        ask(vec![g, Fid(1 << 40), f]).unwrap().into_iter().map(|i| i.map(|i| i.attr.fid)).collect();
    assert_eq!(told, [Some(g), None, Some(f)]);
    assert_eq!(ask(vec![f; FIDS_MAX + 1]).unwrap_err().code, Code::BadRequest);
}
