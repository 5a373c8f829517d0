//! Striping: the request of a user (`StripeSpec`), and the layout made from it when a file needs objects.

use types::layout::{STRIPE_SIZE, STRIPE_SIZE_MIN};
use types::*;
use wire::Empty;
use wire::changelog::ChangeOp;
use wire::meta::{GetStripe, GetStripeReply, SetStripe, StripeComponent, StripeSpec};

use crate::inode::{load_inode, store_inode};
use crate::records::InodeRecord;
use crate::{Ctx, Txn, View, access, note};

/// `-c -1` and `-i -1`: all OSTs, any OST.
pub const ALL: u16 = u16::MAX;

/// Sets or clears the striping of a directory, or of a regular file without content.
pub fn set_stripe(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: SetStripe) -> Result<Empty, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    if !access::is_owner(&inode, &req.cred) {
        return Err(Fault::new(Code::Perm, "only the owner or root may set the striping"));
    }
    match inode.attr.kind {
        Kind::Dir => {}
        Kind::File if inode.layout.is_none() && inode.attr.size == 0 => {}
        Kind::File => {
            let why =
                "the file has content; striping is set on an empty file, or on a directory for new files";
            return Err(Fault::new(Code::Exists, why));
        }
        _ => return Err(Fault::new(Code::Invalid, "only directories and regular files have striping")),
    }
    if let Some(spec) = &req.spec {
        validate(ctx, spec)?;
    }
    inode.spec = req.spec;
    inode.attr.ctime = req.now;
    store_inode(txn, &inode);
    note::changed(txn, ChangeOp::Layout, req.fid, Some(&req.cred));
    Ok(Empty {})
}

pub fn get_stripe(ctx: &Ctx<'_>, view: &dyn View, req: GetStripe) -> Result<GetStripeReply, Fault> {
    let inode = load_inode(view, req.fid)?;
    Ok(GetStripeReply {
        inline_max: inline_max(ctx, &inode),
        spec: inode.spec.clone(),
        inode: inode.to_wire(),
    })
}

/// The striping of a new file or directory in `parent`.
pub fn inherit_spec(parent: &InodeRecord) -> Option<StripeSpec> {
    parent.spec.clone()
}

/// Size in bytes up to which this file may stay inline. A replayed request was carried out under the limit of then (meta-I5).
pub fn inline_max(ctx: &Ctx<'_>, inode: &InodeRecord) -> u32 {
    if ctx.replay {
        return INLINE_MAX;
    }
    inode.spec.as_ref().and_then(|s| s.inline_max).unwrap_or(ctx.inline_max)
}

fn validate(ctx: &Ctx<'_>, spec: &StripeSpec) -> Result<(), Fault> {
    let refuse = |why: String| Err(Fault::new(Code::Invalid, why));
    if spec.components.len() > types::layout::COMPONENTS_MAX {
        return refuse(format!(
            "{} components; at most {}",
            spec.components.len(),
            types::layout::COMPONENTS_MAX
        ));
    }
    if spec.inline_max.is_some_and(|n| n > INLINE_MAX) {
        return refuse(format!("inline_max above {INLINE_MAX} bytes"));
    }
    let mut start = 0;
    for c in &spec.components {
        let size = effective_size(c) as u64;
        if size < STRIPE_SIZE_MIN as u64 || !size.is_power_of_two() {
            return refuse(format!("stripe size {size}: use a power of two of at least 64K"));
        }
        if c.end <= start || (c.end != u64::MAX && c.end % size != 0) {
            return refuse(format!(
                "component end {}: ends must rise and be multiples of the stripe size",
                c.end
            ));
        }
        if c.start != ALL && named(ctx, c.start).is_none() {
            let osts = ctx.ost_mirrors.len();
            return refuse(format!("OST index {}: there are {osts} OSTs, and none of this index", c.start));
        }
        start = c.end;
    }
    Ok(())
}

fn effective_size(c: &StripeComponent) -> u32 {
    if c.stripe_size == 0 { STRIPE_SIZE } else { c.stripe_size }
}

/// The layout of a file that needs objects. Deterministic in `(fid, spec, OSTs, draining ones, avoid)`, so that a replay gives the same.
///
/// The first stripe lies on OST `fid mod n`, so successive files use all OSTs in turn. Each further component begins after the last OST
/// of the one before.
pub fn make_layout(
    ctx: &Ctx<'_>,
    fid: Fid,
    spec: Option<&StripeSpec>,
    generation: Generation,
    avoid: &[MirrorId],
) -> Result<Layout, Fault> {
    if ctx.ost_mirrors.is_empty() {
        // Not `NoSpace`: the client waits for an OST that is about to start.
        return Err(Fault::new(Code::NotReady, "no OST has registered yet; start one"));
    }
    let layout = Layout { generation, components: lay(ctx, fid, &wanted(spec), avoid) };
    match layout.is_valid() {
        true => Ok(layout),
        false => Err(Fault::new(Code::Invalid, "the striping makes no valid layout")),
    }
}

/// The components of a specification; the last reaches to the end of any file.
pub fn wanted(spec: Option<&StripeSpec>) -> Vec<StripeComponent> {
    let mut wanted = match spec {
        Some(s) if !s.components.is_empty() => s.components.clone(),
        _ => StripeComponent::progressive(),
    };
    if let Some(last) = wanted.last_mut() {
        last.end = u64::MAX;
    }
    assert!(wanted.last().is_some_and(|last| last.end == u64::MAX), "types-I1: a layout has no end");
    wanted
}

/// The OSTs that new objects may lie on: those that are not draining, or all if there is no other.
pub fn open_osts(ctx: &Ctx<'_>) -> Vec<MirrorId> {
    let open: Vec<MirrorId> = ctx.ost_mirrors.iter().filter(|m| !ctx.draining.contains(m)).copied().collect();
    if open.is_empty() { ctx.ost_mirrors.to_vec() } else { open }
}

/// Makes components as wanted. Mirrors in `avoid` are used only where the specification names the first OST, or if there are no others.
/// Draining ones are left out (meta-M4): in place of one that the specification names comes the next OST. There must be an OST.
pub fn lay(ctx: &Ctx<'_>, fid: Fid, wanted: &[StripeComponent], avoid: &[MirrorId]) -> Vec<Component> {
    let all = &open_osts(ctx);
    let roomy: Vec<MirrorId> = all.iter().filter(|m| !avoid.contains(m)).copied().collect();
    let roomy = if roomy.is_empty() { all } else { &roomy };
    let mut at = (fid.counter() % roomy.len() as u64) as usize;
    let mut components = Vec::with_capacity(wanted.len());
    for c in wanted {
        let osts: &[MirrorId] = match is_pinned(ctx, c) {
            true => all,
            false => roomy,
        };
        if let Some(first) = named(ctx, c.start) {
            // Mirrors are in id order.
            at = all.partition_point(|m| *m < first);
        }
        let count = match c.stripe_count {
            0 => 1,
            ALL => osts.len().min(types::layout::STRIPES_MAX),
            n => (n as usize).min(osts.len()),
        };
        assert!((1..=osts.len()).contains(&count), "types-I3: a component has a stripe, each on its own OST");
        let mirrors = (0..count).map(|s| osts[(at + s) % osts.len()]).collect();
        at += count;
        components.push(Component {
            end: c.end,
            stripe_size: effective_size(c),
            mirrors,
            written: Vec::new(),
        });
    }
    components
}

/// True if the specification names the first OST of the component.
pub fn is_pinned(ctx: &Ctx<'_>, c: &StripeComponent) -> bool {
    named(ctx, c.start).is_some()
}

/// The OST of an index. OSTs register in any order, and some are removed: an index is no place in the list.
fn named(ctx: &Ctx<'_>, index: u16) -> Option<MirrorId> {
    let place = match ctx.ost_indexes {
        _ if index == ALL => return None,
        [] => usize::from(index),
        indexes => indexes.iter().position(|own| *own == u32::from(index))?,
    };
    ctx.ost_mirrors.get(place).copied()
}
