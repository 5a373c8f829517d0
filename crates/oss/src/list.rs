//! List and Verify: the calls of fsck.

use object::check::LIST_MAX;
use types::Fault;
use wire::Wire;
use wire::object::{List, ListReply, RIGHT_ADMIN, Verify, VerifyReply};

use crate::Core;
use crate::glimpse::describe;
use crate::serve::{Ctx, Served};

/// Pages verified per call of the store.
const PART_PAGES: u32 = 1024;

impl Core {
    pub fn on_list(&self, ctx: &Ctx<'_>, l: List, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        self.check_cap_right(ctx, &l.cap, RIGHT_ADMIN)?;
        let (found, more) = self.store.list(l.after, l.max.clamp(1, LIST_MAX) as usize)?;
        assert!(found.len() <= LIST_MAX as usize, "a list fits its reply");
        assert!(
            found.first().is_none_or(|(id, _)| l.after.is_none_or(|after| *id > after)),
            "a list goes on"
        );
        debug_assert!(found.is_sorted_by(|a, b| a.0 < b.0), "a list has each object once, in id order");
        let objects = found.into_iter().map(|(id, attrs)| describe(id, Some(attrs))).collect();
        ListReply { objects, more }.put(reply);
        Ok(Served::READ)
    }

    pub fn on_verify(&self, ctx: &Ctx<'_>, v: Verify, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        self.check_cap(ctx, &v.cap, &v.object, RIGHT_ADMIN)?;
        let (mut bad_pages, mut next) = (0, Some(0));
        while let Some(from) = next {
            let found = self.store.verify(v.object, from, PART_PAGES)?;
            found.bad.iter().for_each(|(offset, kind)| self.record_damage(ctx, v.object, *offset, *kind));
            bad_pages += found.bad.len() as u64;
            assert!(found.next.is_none_or(|next| next > from), "each part of a verify reads further pages");
            next = found.next;
        }
        VerifyReply { bad_pages }.put(reply);
        Ok(Served::READ)
    }
}
