//! The calls that each role may make: pki-R1 in one place.
//!
//! Services ask here before they look at a request. Without TLS there is no role, and every call is allowed (SECURITY.md).
//! A row is about the call alone. Calls that carry an administrator's capability need the file system's key too, which the MGS gives to
//! servers and administrators only.

use wire::{Request, call_name, session, shared};
use wire::{
    accessed, batch, changelog, check, fabric, jobs, lock, mdt, meta, mgmt, notice, object, ost, pair,
    params, purge, router,
};

use crate::identity::{Identity, Role};

/// Roles that may make a call.
type Roles = &'static [Role];

const ANY: Roles = &[Role::Server, Role::Client, Role::Admin, Role::Router];
/// A mount. A host that serves or administers may mount too, with its one certificate.
const USE: Roles = &[Role::Server, Role::Client, Role::Admin];
/// A look at everything, with the file system's key.
const KEY: Roles = &[Role::Server, Role::Admin];
const SERVERS: Roles = &[Role::Server];
const ADMINS: Roles = &[Role::Admin];

macro_rules! rows {
    ($($roles:ident: $($module:ident::{$($call:ident),* $(,)?}),+;)*) => {
        /// Each call with the roles that may make it.
        const ROWS: &[(u16, Roles)] = &[$($($((<$module::$call as Request>::CALL, $roles)),*),+),*];
    };
}

rows! {
    ANY: fabric::{NetStat}, mgmt::{GetMap, MgsStat}, notice::{WatchMap};
    USE:
        session::{Attach, KeepAlive, Detach, Flush, TargetStat},
        jobs::{TellJobs},
        notice::{Listen},
        shared::{Enter, Leave, Hold, CatchUp, Close},
        meta::{
            Lookup, GetAttr, SetAttr, Create, MakeDir, Symlink, Link, Unlink, RemoveDir, Rename, ReadLink, ReadDir, GetXattr, SetXattr,
            RemoveXattr, ListXattr, Open, Release, ReadInline, Grow, Switch, Settle, Truncate, SetStripe, GetStripe, PathOf, Scan,
            SetFlags, Tmpfile, OpenRead, CreateWith, WriteInline, GetAttrs, Counts, PathsOf, MoveTail, LeaseDir, LeaveDir, WatchDir,
            AllocateInline, SeekInline,
        },
        object::{
            Write, Grant, Read, Truncate, Glimpse, ReportMissing, Reserve, Release, Punch, Seek, SeekReserved, LockRange, UnlockRange,
        },
        lock::{Lock, TestLock, CancelLock, Reclaim, DropOwner, AwaitLocks},
        purge::{Dying},
        accessed::{Accessed},
        batch::{Batch};
    KEY:
        fabric::{NetTrace},
        object::{Destroy, List, Verify, DamageList},
        ost::{OstStat, OstSpace},
        mdt::{MdtStat, MdtLeases},
        check::{Check},
        meta::{Migrate, CutOver, DropPending, Repoint},
        changelog::{ListConsumers},
        pair::{MemberStat},
        params::{ParamList};
    SERVERS:
        mgmt::{Register, Heartbeat},
        pair::{Letters, FlushLog, Stage, CopyAll, FetchPages, CompareRanges, CompareRecords, ListLost, AskMembers},
        notice::{LookAround, ModeChanged, LocksFree, Evicted, Forget, GiveBack, NewMap};
    ADMINS:
        jobs::{JobStats},
        object::{DamageClear, ScrubControl},
        mdt::{EvictSession, ScrubRecords},
        params::{ParamSet},
        mgmt::{ChangeNodemaps, ChangeParams, ChangeRoutes, CreateFs, PlanRemoval, PublishCrl, Remove, SetDraining},
        router::{RouterStat, RouterDrain},
        pair::{HandOver, Resync, VerifyMirror, VerifyRecords},
        check::{Repair, CopyOut},
        changelog::{RegisterConsumer, DeregisterConsumer, ReadChanges, AckChanges};
}

fn roles_of(call: u16) -> Option<Roles> {
    ROWS.iter().find(|(number, _)| *number == call).map(|(_, roles)| *roles)
}

/// The rows by call number, for requests: a bit for each role; all bits where no call is.
const BY_CALL: [u8; CALLS_END] = {
    let (mut table, mut row) = ([u8::MAX; CALLS_END], 0);
    while row < ROWS.len() {
        let (call, roles) = ROWS[row];
        let (mut bits, mut n) = (0, 0);
        while n < roles.len() {
            bits |= 1 << roles[n] as u8;
            n += 1;
        }
        table[call as usize] = bits;
        row += 1;
    }
    table
};
/// Above all call numbers.
const CALLS_END: usize = 0x700;

/// pki-R1: may a node with this role make this call? A number that no call has is for the service to refuse.
pub fn may(role: Role, call: u16) -> bool {
    BY_CALL.get(usize::from(call)).is_none_or(|bits| bits & 1 << role as u8 != 0)
}

/// The reason of a refusal to `peer`, and the next step.
pub fn refusal(peer: &Identity, call: u16) -> String {
    let call_text = call_name(call).unwrap_or("an unknown call");
    let (whose, role) = match roles_of(call) {
        Some(SERVERS) => ("a server's", Role::Server),
        Some(KEY | ADMINS) => ("an administrator's", Role::Admin),
        _ => ("a client's", Role::Client),
    };
    let next = match role {
        Role::Admin => "set STRIA_TLS to the folder of one; ",
        _ => "",
    };
    format!(
        "{peer} may not send {call_text}: it needs {whose} certificate; {next}`stria cluster add-node NODE --role {role}` makes one"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Serial;

    #[test]
    fn every_call_has_one_row() {
        let calls = wire::ALL_CALLS.iter().copied().flatten();
        for (call, name) in calls.clone() {
            let rows = ROWS.iter().filter(|(number, _)| number == call).count();
            assert_eq!(rows, 1, "{name} ({call:#06x}) needs one row in may.rs");
        }
        assert_eq!(calls.count(), ROWS.len(), "no row is of another call");
    }

    /// The table once more, as a reader of SECURITY.md expects it: by role, the calls of `wire` that it may not make.
    #[test]
    fn each_role_is_refused_what_is_not_its_own() {
        let refused = |role| {
            let calls = wire::ALL_CALLS.iter().copied().flatten();
            calls.filter(|(call, _)| !may(role, *call)).map(|(_, name)| *name).collect::<Vec<_>>()
        };
        let notices = ["LookAround", "ModeChanged", "LocksFree", "Evicted", "Forget", "GiveBack", "NewMap"];
        let admins = [
            "JobStats",
            "DamageClear",
            "ScrubControl",
            "EvictSession",
            "ScrubRecords",
            "Repair",
            "CopyOut",
            "RegisterConsumer",
            "DeregisterConsumer",
            "ReadChanges",
            "AckChanges",
            "ChangeNodemaps",
            "ChangeRoutes",
            "CreateFs",
            "PlanRemoval",
            "PublishCrl",
            "Remove",
            "SetDraining",
            "ChangeParams",
            "ParamSet",
            "RouterStat",
            "RouterDrain",
            "HandOver",
            "Resync",
            "VerifyMirror",
            "VerifyRecords",
        ];
        let key = [
            "ParamList",
            "NetTrace",
            "Destroy",
            "List",
            "Verify",
            "DamageList",
            "OstStat",
            "OstSpace",
            "MdtStat",
            "MdtLeases",
            "Check",
            "Migrate",
            "CutOver",
            "DropPending",
            "Repoint",
            "ListConsumers",
            "MemberStat",
        ];
        let servers = [
            "Register",
            "Heartbeat",
            "Letters",
            "FlushLog",
            "Stage",
            "CopyAll",
            "FetchPages",
            "CompareRanges",
            "CompareRecords",
            "ListLost",
            "AskMembers",
        ];
        let sorted = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names
        };
        assert_eq!(sorted(refused(Role::Server)), sorted(admins.to_vec()));
        assert_eq!(sorted(refused(Role::Admin)), sorted([&servers[..], &notices].concat()));
        assert_eq!(sorted(refused(Role::Client)), sorted([&servers[..], &notices, &admins, &key].concat()));
        let calls = wire::ALL_CALLS.iter().copied().flatten();
        let allowed = calls.filter(|(call, _)| may(Role::Router, *call)).map(|(_, name)| *name);
        assert_eq!(sorted(allowed.collect()), ["GetMap", "MgsStat", "NetStat", "WatchMap"]);
    }

    #[test]
    fn a_refusal_names_the_certificate_that_is_needed() {
        let who = Identity::parse("stria://alpha/client/login1", Serial(1)).unwrap();
        let told = refusal(&who, <mdt::EvictSession as Request>::CALL);
        assert_eq!(
            told,
            "client login1 of alpha may not send EvictSession: it needs an administrator's certificate; set STRIA_TLS to the folder of \
             one; `stria cluster add-node NODE --role admin` makes one"
        );
        let told = refusal(&who, <mgmt::Register as Request>::CALL);
        assert!(
            told.contains("a server's certificate") && told.ends_with("--role server` makes one"),
            "{told}"
        );
    }

    #[test]
    fn only_a_server_serves() {}
}
