//! Backup and restore of an MDT: copies all records of one state while the MDT serves, and makes a new MDT of them.
//!
//! mds-BK1: a backup is one state: a snapshot, and the counts that were pending at that time.
//! mds-BK2: a restored MDT gives out no fid, lease or session id that was given out after the backup. Counters are raised past all that can
//!     have been used. So are change numbers, and the layout generation of each file.
//! mds-BK3: a restored MDT has no sessions, no orphans, no slots and no changelog consumers.

use std::io::{Read, Write};
use std::sync::Arc;

use disk::Disk;
use disk::volume::{Format, Kind, Label, Verdict, Volume};
use kv::{Batch, Engine, Miss, Value, View};
use meta::counts::Pending;
use types::crc::crc32c;
use types::{Code, Fault, Key, Seq};
use wire::Wire;
use wire::check::{BackupHead, CopyOut, CopyReply, RawRecord};
use wire::codec::Bytes;

use crate::records::ids::raised;
use crate::records::ledger::Left;
use crate::records::look::{Trouble, Walk, look, until_loaded};
use crate::upkeep::abandoned::Abandoned;
use crate::upkeep::checkpoint::empty_on;
use crate::{Core, FormatSpec, Mdt, Records, Settings};

/// Bytes of records per answer, about. With one more record of the longest kind it still fits a frame. Tests use small answers.
pub const REPLY_BYTES: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// A backup that was not continued for this long is dropped.
const IDLE_MS: u64 = 60_000;
const MAGIC: [u8; 8] = *b"STRIAMDB";
const VERSION: u32 = 1;
const HEAD_BYTES_MAX: usize = 4096;

/// A backup in progress.
pub struct Copy {
    run: u64,
    used_ms: u64,
    walk: Arc<Walk<Records>>,
    seq: Seq,
    pending: Vec<(Key, Vec<u8>)>,
}

impl Core {
    pub fn on_copy_out(&self, req: &CopyOut) -> Result<CopyReply, Fault> {
        self.check_admin(&req.cap)?;
        let mut copying = self.copying.lock();
        let now_ms = self.clock.boot_ms();
        if req.run == 0 {
            // mds-BK1.
            let (snap, counts) = {
                let seat = self.executor.lead();
                (self.kv.snapshot(), seat.counts.clone())
            };
            let run = snap.seq().0 << 24 | (now_ms & 0xff_ffff).max(1);
            assert!(run != 0, "run 0 asks for a new backup");
            let (seq, walk, pending) = (snap.seq(), self.walks.begin(snap), counts.records().collect());
            *copying = Some(Copy { run, used_ms: now_ms, walk, seq, pending });
        }
        let copy = match copying.as_mut() {
            Some(copy) if req.run == 0 || copy.run == req.run => copy,
            _ => {
                let why = "this backup is over: another one began, or this one was not continued in time; begin anew";
                return Err(Fault::new(Code::Stale, why));
            }
        };
        copy.used_ms = now_ms;
        let after = Key::new(&req.after.0).ok_or(Code::BadRequest)?;
        let (mut records, more) = copy.walk.slice(&self.kv, |snap| self.records_after(snap, &after))?;
        if !more {
            records.extend(copy.pending.iter().map(|(key, value)| raw(key, value)));
        }
        let head = (req.run == 0).then(|| self.backup_head(copy.seq));
        let reply = CopyReply { run: copy.run, head, records, done: !more };
        assert!(reply.done || !reply.records.is_empty(), "the next call continues behind the last record");
        if reply.done {
            *copying = None;
        }
        Ok(reply)
    }

    pub fn records_after(
        &self,
        snap: &<Records as Engine>::Snap,
        after: &Key,
    ) -> Result<(Vec<RawRecord>, bool), Fault> {
        let (from, end) = (after.after(), Key::new(&[u8::MAX]).expect("one byte fits"));
        until_loaded(&self.kv, &mut || {
            let (mut records, mut bytes, mut more) = (Vec::new(), 0, false);
            let walked = snap.range(&from, &end, &mut |key, value| {
                more = bytes >= REPLY_BYTES;
                if !more {
                    bytes += 16 + key.as_bytes().len() + value.len();
                    records.push(raw(key, value));
                }
                !more
            });
            debug_assert!(
                records.windows(2).all(|two| two[0].key < two[1].key),
                "mds-BK1: records are in key order"
            );
            match walked {
                Ok(()) => Ok((records, more)),
                Err(Miss::Absent(what)) => Err(Trouble::Absent(what)),
                // A damaged record must not be left out without an error.
                Err(Miss::Damage(damage)) => Err(Trouble::Damage(damage)),
            }
        })
    }

    fn backup_head(&self, seq: Seq) -> BackupHead {
        let Label { fs_name, fs_uuid, uuid, target, index, mirror, epoch, .. } = self.volume.label();
        let (incarnation, made) = (self.incarnation, self.clock.wall());
        BackupHead {
            fs_name,
            fs_uuid,
            target_uuid: uuid,
            target,
            index,
            mirror,
            epoch,
            incarnation,
            seq,
            made,
        }
    }

    /// Drops a backup that its client does not continue.
    pub fn sweep_copy(&self) {
        let Some(mut copying) = self.copying.try_lock() else { return };
        let is_idle = |copy: &Copy| self.clock.boot_ms().saturating_sub(copy.used_ms) >= IDLE_MS;
        if copying.as_ref().is_some_and(is_idle) {
            *copying = None;
        }
    }
}

pub fn raw(key: &Key, value: &[u8]) -> RawRecord {
    RawRecord { key: Bytes(key.as_bytes().to_vec()), value: Bytes(value.to_vec()) }
}

/// Encodes the head of a backup, which comes before the records.
pub fn encode_head(head: &BackupHead) -> Vec<u8> {
    let body = head.to_bytes();
    let mut out = MAGIC.to_vec();
    VERSION.put(&mut out);
    (body.len() as u32).put(&mut out);
    out.extend(body);
    crc32c(&out).put(&mut out);
    out
}

pub fn read_head(input: &mut dyn Read) -> Result<BackupHead, Fault> {
    let wrong = |why: &str| Fault::new(Code::Invalid, format!("no backup of an MDT: {why}"));
    let mut bytes = vec![0; 16];
    input.read_exact(&mut bytes).map_err(|e| wrong(&e.to_string()))?;
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
    let (version, len) = (number(8), number(12) as usize);
    if bytes[..8] != MAGIC || version != VERSION || len > HEAD_BYTES_MAX {
        return Err(wrong("it begins otherwise, or a newer program wrote it"));
    }
    bytes.resize(16 + len + 4, 0);
    input.read_exact(&mut bytes[16..]).map_err(|e| wrong(&e.to_string()))?;
    let (all, crc) = bytes.split_at(16 + len);
    if crc32c(all).to_le_bytes() != crc {
        return Err(wrong("its head has a wrong checksum"));
    }
    BackupHead::from_bytes(&all[16..]).map_err(|e| wrong(&e.to_string()))
}

/// Result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    pub records: u64,
    pub sessions_ended: usize,
}

impl Mdt {
    /// Makes the MDT of a backup anew on `disk`. `input` reads the records behind the head. Without `force`, refuses a medium that is not
    /// blank. `settings` are those of later opens, except threads.
    pub fn restore(
        disk: Arc<dyn Disk>,
        head: &BackupHead,
        log_bytes: Option<u64>,
        force: bool,
        input: &mut dyn Read,
        settings: Settings,
    ) -> Result<Restored, Fault> {
        let BackupHead { fs_name, fs_uuid, target_uuid, target, index, mirror, epoch, .. } = head.clone();
        let label =
            Label { kind: Kind::Mdt, fs_name, fs_uuid, uuid: target_uuid, target, index, mirror, epoch };
        let FormatSpec { label, log_bytes, checkpoint_bytes } =
            FormatSpec::divided(label, disk.size(), log_bytes);
        // 1. An empty volume.
        Volume::format(&*disk, &Format { label, log_bytes, checkpoint_bytes }, force)?;
        let volume = Volume::open(disk.clone())?;
        volume.replay(&mut |_| Verdict::Keep)?;
        volume.start()?;
        // 2. The records, and mds-BK2.
        let damaged = |why: &dyn std::fmt::Display| {
            Fault::new(Code::Damaged, format!("the backup cannot be read: {why}"))
        };
        let (kv, mut counts, mut bad) =
            (empty_on(&volume, settings.record_memory())?, Pending::default(), None);
        let mut changelog = Left::default();
        let read = kv::checkpoint::read_stream(input, &mut |mut batch| {
            batch.0.retain_mut(|change| {
                if change.value.as_ref().is_some_and(|value| changelog.takes(&change.key, value.raw())) {
                    return false;
                }
                // A restored MDT has no abandoned range: a backup stops at damage, and the changelog is left out.
                if change.key == Abandoned::key() {
                    return false;
                }
                // mds-BK2. A record that cannot be decoded is kept, and fsck reports it.
                if let (Some(fid), Some(value)) = (meta::keys::fid_of_inode(&change.key), &change.value)
                    && let Ok(Some(raised)) = meta::restored::inode(fid, value.raw())
                {
                    change.value = Some(Value::new(&raised));
                }
                let pending = change
                    .value
                    .as_ref()
                    .filter(|_| change.key.as_bytes().first() == Some(&meta::keys::PENDING));
                if let Some(value) = pending {
                    bad = counts.restore(&change.key, value.raw()).err().or(bad.take());
                }
                pending.is_none()
            });
            kv.apply(Seq(0), batch);
        });
        read.map_err(|e| damaged(&e))?;
        if let Some(why) = bad {
            return Err(damaged(&why));
        }
        let mut batch = Batch::new();
        // `look` loads leaves, so that a record that is not in memory is not taken for absent.
        look(&kv, &mut |view| raised(view))??.into_iter().for_each(|(key, value)| batch.put(key, value));
        changelog.record().into_iter().for_each(|(key, value)| batch.put(key, value));
        kv.apply(Seq(0), batch);
        // 3. The first checkpoint makes all of it durable.
        let (snap, records) = (kv.snapshot(), kv.figures().size.records);
        let mut rows = counts.records().map(|(key, value)| (key, Value::new(&value)));
        volume
            .checkpoint(volume.position(), &mut |out: &mut dyn Write| kv.checkpoint(&snap, &mut rows, out))?;
        volume.close_clean()?;
        drop((snap, kv, volume));
        // 4. mds-BK3.
        let mdt = Mdt::open(disk, Settings { background: false, ..settings })?;
        let sessions = mdt.core.sessions.ids();
        {
            let _one = mdt.core.ending.lock();
            sessions.iter().try_for_each(|id| mdt.core.end_session(*id))?;
        }
        mdt.stop(true)?;
        Ok(Restored { records, sessions_ended: sessions.len() })
    }
}

/// Writes records behind the head of a backup.
pub struct Stream<'a>(kv::checkpoint::Writer<'a>);

impl<'a> Stream<'a> {
    pub fn begin(head: &BackupHead, out: &'a mut dyn Write) -> std::io::Result<Stream<'a>> {
        out.write_all(&encode_head(head))?;
        Ok(Stream(kv::checkpoint::Writer::new(out)?))
    }

    pub fn record(&mut self, record: &RawRecord) -> std::io::Result<()> {
        let key = Key::new(&record.key).ok_or_else(|| std::io::Error::other("a key that is too long"))?;
        self.0.record(&key, &record.value, crc32c(&record.value))
    }

    pub fn finish(self) -> std::io::Result<()> {
        self.0.finish()
    }
}
