//! Glimpse: lengths and times of objects as acknowledged. A higher lease version than an object has seen fences it: after the answer no
//! write with a lower version is carried out, so the answer stays true.

use object::{LeaseVersion, fence};
use store::Attrs;
use types::{Fault, ObjectId};
use wire::Wire;
use wire::object::{Glimpse, GlimpseReply, ObjectStat, RIGHT_READ};

use crate::Core;
use crate::admit::lease_of;
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_glimpse(&self, ctx: &Ctx<'_>, g: Glimpse, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        object::check::objects(&g.objects)?;
        self.check_cap_right(ctx, &g.cap, RIGHT_READ)?;
        let mut objects = Vec::with_capacity(g.objects.len());
        for id in &g.objects {
            self.check_cap(ctx, &g.cap, id, RIGHT_READ)?;
            fence::admit(&g.cap, id, LeaseVersion::from_u64(self.store.lease(*id)?))?;
            // Fence first, so that fenced clients cannot change the object after it was looked at.
            self.store.fence(*id, lease_of(&g.cap))?;
            self.await_entries(id)?;
            objects.push(describe(*id, self.store.stat(*id)?));
        }
        assert!(objects.len() == g.objects.len(), "a glimpse answers for each object");
        GlimpseReply { objects }.put(reply);
        Ok(Served::READ)
    }
}

pub fn describe(object: ObjectId, attrs: Option<Attrs>) -> ObjectStat {
    let exists = attrs.is_some();
    let Attrs { len, used, reserved_end, mtime, .. } = attrs.unwrap_or_default();
    ObjectStat { object, exists, len, used, reserved_end, mtime }
}
