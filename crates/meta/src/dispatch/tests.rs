use types::*;
use wire::meta::{Create, Inode, Lookup};
use wire::{Request, Wire};

use super::{is_mutation, mutate, read};
use crate::testing::*;

/// Every call of the conversation is known, and answered on its own side only.
#[test]
fn every_call_has_its_rule() {
    assert_eq!(
        super::CALLS.iter().map(|c| c.0).collect::<Vec<_>>(),
        wire::meta::CALLS
            .iter()
            .map(|c| c.0)
            .chain([wire::shared::Enter::CALL, wire::accessed::Accessed::CALL])
            .collect::<Vec<_>>()
    );
    assert_eq!(
        (is_mutation(Lookup::CALL), is_mutation(Create::CALL), is_mutation(0x0101)),
        (Some(false), Some(true), None)
    );
    for (call, mutates) in super::CALLS {
        // No body fits: each call decodes before it does anything, and the other side does not know it.
        let mut w = World::new();
        let junk = [0xff; 3];
        World::with_ctx(false, false, |ctx| {
            let changed = mutate(ctx, &mut w.txn, *call, &junk, &[]).map_err(|f| f.code);
            let seen = read(ctx, &w.txn, *call, &junk, &mut Buf::new()).map_err(|f| f.code);
            let want = match mutates {
                true => (Err(Code::BadRequest), Err(Code::Unsupported)),
                false => (Err(Code::Unsupported), Err(Code::BadRequest)),
            };
            assert_eq!((changed, seen), want, "{call:#x}");
        });
    }
}

#[test]
fn replies_are_bodies_without_a_head() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    let body = Lookup { parent: ROOT, name: bytes("f"), cred: Cred::root() }.to_bytes();
    let reply = World::with_ctx(false, false, |ctx| read(ctx, &w.txn, Lookup::CALL, &body, &mut Buf::new()));
    assert_eq!(reply.map(|b| Inode::from_bytes(&b).map(|i| i.attr.fid)), Ok(Ok(f)));
}
