//! From a medium to a serving MDT: checkpoint, replay, start.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use disk::Disk;
use disk::volume::{Verdict, Volume};
use kv::{Engine, Tidied};
use pair::Companion;
use parking_lot::Mutex;
use types::{Code, Fault, Fid, Key, Seq, Shard};

use crate::bell::Bells;
use crate::executor::execute::{Executor, ExecutorState};
use crate::executor::room::Room;
use crate::joined::shard_of;
use crate::pair::{Lines, Pair};
use crate::records::ids::Ids;
use crate::records::ledger::Changelog;
use crate::records::look::{Trouble, look, look_around, until_loaded};
use crate::sessions::Load;
use crate::sessions::locks::Locks;
use crate::start::replica::Entry;
use crate::start::standby::{Parts, Standby, check_kind};
use crate::start::workers::Workers;
use crate::upkeep::checkpoint::{State, empty_on, read_state};
use crate::upkeep::scrub::Scrubber;
use crate::{Core, Mdt, Records, Settings};

impl Mdt {
    /// Recovers the MDT on `disk`. It answers `NotReady` to clients until `join`.
    pub fn open(disk: Arc<dyn Disk>, settings: Settings) -> Result<Arc<Mdt>, Fault> {
        Standby::open(disk, settings)?.serve(None)
    }
}

impl Standby {
    /// Steps 1 to 3: log and state of the MDT on `disk`.
    pub fn open(disk: Arc<dyn Disk>, settings: Settings) -> Result<Standby, Fault> {
        Standby::open_upto(disk, settings, None)
    }

    /// As `open`, of the log up to entry `after`. The entries behind it are cut off, durably. Refused if the checkpoint has some of them already.
    pub fn open_cut(disk: Arc<dyn Disk>, settings: Settings, after: Seq) -> Result<Standby, Fault> {
        Standby::open_upto(disk, settings, Some(after))
    }

    fn open_upto(disk: Arc<dyn Disk>, settings: Settings, upto: Option<Seq>) -> Result<Standby, Fault> {
        // 1. The medium.
        let volume = Volume::open(disk)?;
        check_kind(&volume)?;
        // 2. The checkpoint, and the log behind it.
        let (state, lines) = restore(&settings, &volume, upto)?;
        if state.kv.lost() > 0 {
            // An earlier life has met damage and gone on alone. The other member of a mirror may have these records.
            let lost = std::io::ErrorKind::InvalidData.into();
            volume.troubles().note_unread("a part of the MDT's table, lost before this start,", &lost);
        }
        // 3. Start: all that was replayed is durable now, and the incarnation is new unless the stop was clean.
        let was_clean = volume.was_clean();
        volume.start()?;
        Ok(Standby::new(volume, state, lines, was_clean, settings))
    }

    /// Serves clients in the life that the volume has.
    /// `companion`: its mirror, if it has one.
    pub fn serve(&self, companion: Option<Arc<dyn Companion>>) -> Result<Arc<Mdt>, Fault> {
        self.take_parts()?.serve(companion)
    }
}

impl Parts {
    pub fn serve(self, companion: Option<Arc<dyn Companion>>) -> Result<Arc<Mdt>, Fault> {
        let Parts { volume, state, lines, was_clean, settings } = self;
        let State { kv, mut slots, counts, kept } = state;
        let kv = Arc::into_inner(kv).expect("the standby's checkpoint has ended");
        let (label, incarnation) = (volume.label(), volume.incarnation());
        // 4. State that follows from the table.
        check_formatted(&settings, &kv)?;
        // A session whose record is lost counts as ended without a detach.
        let mut load = Load::new(settings.clock.boot_ms());
        look_around(&kv, &mut |view| load.go_on(view))?;
        let sessions = load.end()?;
        slots.keep_only(&sessions.ids());
        let ids = look(&kv, &mut |view| Ids::load(view))??;
        let changelog = Changelog::load(&kv)?;
        // An MDT that never joined has no index, and only the records of its formatting.
        if let Ok(shard) = shard_of(label.index) {
            for (from, to) in never_made(shard, &ids, &changelog) {
                // Unreadable leaves stay unreadable, which does not prevent a start.
                if let Err(fault) = until_loaded(&kv, &mut || kv.bare(&from, &to).map_err(Trouble::Absent)) {
                    tracing::warn!(%fault, "a leaf cannot be read: look at the medium (`dmesg`)");
                }
            }
        }
        let core = Arc::new_cyclic(|me: &Weak<Core>| Core {
            me: me.clone(),
            locks: Locks::new(sessions.ids()),
            room: Room::new(&kv, &slots),
            incarnation,
            was_clean,
            newest_lease: ids.newest_lease(),
            // The start flushed all replayed entries.
            change_let_by: AtomicU64::new(0),
            // A registration after this start may have raised the epoch of the log above the label's.
            epoch: AtomicU32::new(lines.newest().map_or(label.epoch, |line| line.max(label.epoch)).0),
            kv,
            executor: Executor::new(ExecutorState {
                slots,
                counts,
                ids,
                changelog,
                closed: false,
                is_behind: false,
                place: None,
                lines,
                payload: Vec::new(),
            }),
            sharers: crate::sessions::shared::Sharers::new(&sessions.ids()),
            leases: crate::sessions::leases::Leases::new(),
            makers: crate::sessions::makers::Makers::new(),
            roots: Default::default(),
            sessions,
            ending: Mutex::new(()),
            checkpointing: Mutex::new(kept),
            reserving: Mutex::new(()),
            joined: ArcSwapOption::empty(),
            counts_long: AtomicBool::new(false),
            changes_long: AtomicBool::new(false),
            rules: settings.rules.clone(),
            clock: settings.clock.clone(),
            started_sec: settings.clock.wall().sec.max(0) as u64,
            bells: Bells::default(),
            purged: Default::default(),
            known_groups: Default::default(),
            stopping: AtomicBool::new(false),
            checking: Mutex::new(None),
            walks: Default::default(),
            copying: Mutex::new(None),
            grace: Default::default(),
            hold: Mutex::new(None),
            giving: Mutex::new(None),
            copies: AtomicU64::new(0),
            verifier: Default::default(),
            scrubber: Scrubber::new(settings.clock.wall().sec.max(0) as u64),
            // Before ids are reserved, so that the mirror orders the reservation too.
            pair: Pair::of(companion, volume.last_seq()),
            volume,
            settings,
        });
        let weak = Arc::downgrade(&core);
        core.volume
            .on_parked(Box::new(move || weak.upgrade().iter().for_each(|core| core.bells.flush.ring())));
        // 5. Ids: all that were reserved before count as used (mds-O5).
        core.reserve_ids()?;
        // 6. Counts, if an older program made the MDT without them.
        core.begin_counts()?;
        assert!(core.executor.lead().ids.are_enough(), "mds-M5: ids are reserved before requests come");
        let workers = Workers::start(&core);
        tracing::info!(
            fs = label.fs_name,
            index = label.index,
            incarnation = incarnation.0,
            was_clean,
            records = core.kv.figures().size.records,
            "MDT recovered"
        );
        Ok(Arc::new(Mdt { core, workers }))
    }
}

/// The state of the checkpoint with the log replayed, up to an entry if one is given. And the lines of that log.
fn restore(settings: &Settings, volume: &Volume, upto: Option<Seq>) -> Result<(State, Lines), Fault> {
    let is_behind = |seq: Seq| upto.is_some_and(|upto| seq > upto);
    let had = volume.checkpoint_seq();
    if let Some(upto) = upto.filter(|_| is_behind(had)) {
        let why =
            format!("the MDT's checkpoint has entries up to {had}, and those behind {upto} are to be cut");
        return Err(Fault::new(Code::Stale, format!("{why}; fill it with the content of the other member")));
    }
    let empty = empty_on(volume, settings.record_memory())?;
    let mut state = match volume.checkpoint_reader()? {
        Some(mut reader) => read_state(empty, volume.checkpoint_seq(), &mut reader)?,
        None => {
            let (slots, counts, kept) = Default::default();
            State { kv: Arc::new(empty), slots, counts, kept }
        }
    };
    let (mut fault, mut lines) = (None, Lines::default());
    let replayed = volume.replay(&mut |entry| {
        let last = Seq(entry.seq.0 + u64::from(entry.ops) - 1);
        if is_behind(last) {
            return Verdict::Cut;
        }
        lines.note(entry.epoch, entry.seq);
        if last <= had {
            // mds-RP6: the log was held behind the checkpoint.
            return Verdict::Keep;
        }
        match Entry::decode(entry.payload, entry.ops).map_err(|why| unreadable(entry.seq, &why)).and_then(
            |read| {
                let ready = state.prepare(&*settings.rules, read)?;
                state.apply(entry.seq, ready)
            },
        ) {
            // No other thread runs yet, so leaves are evicted here.
            Ok(()) => {
                while state.kv.tidy() != Tidied::Done {}
                Verdict::Keep
            }
            Err(f) => {
                fault.get_or_insert(f);
                Verdict::Cut
            }
        }
    })?;
    if let (None, Some(upto)) = (&fault, upto.filter(|upto| *upto != replayed.end.seq)) {
        let why =
            format!("the MDT's log has no entry that ends with {upto}: it ends with {}", replayed.end.seq);
        return Err(Fault::new(Code::Stale, format!("{why}; fill it with the content of the other member")));
    }
    // The entry's checksum is right, so this is no torn write: a newer program wrote it, or it is damage. Cutting the log here would lose
    // acknowledged changes.
    match fault {
        None => Ok((state, lines)),
        Some(fault) => Err(fault),
    }
}

fn unreadable(seq: Seq, why: &str) -> Fault {
    Fault::new(Code::Damaged, format!("log entry {seq}: {why}; open the MDT with the program that wrote it"))
}

pub fn check_formatted(settings: &Settings, kv: &Records) -> Result<(), Fault> {
    match look(kv, &mut |view| settings.rules.is_formatted(view))? {
        true => Ok(()),
        false => Err(Fault::new(
            Code::Damaged,
            "the MDT has no root directory: formatting did not end, or its records are lost; format it anew or run fsck",
        )),
    }
}

/// Key ranges of records that were never made. A lost leaf that covers some of them lost none of their records.
fn never_made(shard: Shard, ids: &Ids, changelog: &Changelog) -> Vec<(Key, Key)> {
    use meta::keys::*;
    let (fid, session) = ids.limits();
    let of_kind = |kind: u8, from: u64, to: Option<u64>| {
        let key =
            |number: u64| Key::new(&[&[kind][..], &number.to_be_bytes()].concat()).expect("9 bytes fit");
        (key(from), to.map_or(kind_start(kind + 1), key))
    };
    let next_shard = shard.0.checked_add(1).map(|next| Fid::new(Shard(next), 0).0);
    let of_fids = [INODE, INLINE, XATTRS, ORPHAN, DEAD, COUNTS];
    let mut all = of_fids.map(|kind| of_kind(kind, Fid::new(shard, fid).0, next_shard)).to_vec();
    all.push(of_kind(SESSION, Fid::new(shard, session.0).0, None));
    all.push(of_kind(CHANGE, changelog.next(), None));
    all
}
