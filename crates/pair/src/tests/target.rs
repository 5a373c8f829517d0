//! A target in memory: a host's disk, and how it is filled.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use disk::Trouble;
use mirror::MemberId;
use parking_lot::Mutex;
use types::{Code, Epoch, Fault, ObjectId, Seq};
use wire::codec::{Reader, Wire};
use wire::pair::{
    CompareRecords, CompareRecordsReply, CompareStep, ListLostReply, PageOf, PageWanted, page_form,
};

use super::world::Between;
use crate::planted::Rule;
use crate::{Companion, Copied, Filled, Filling, LogLines, Logged, Place, Replica, StageId};

/// The state that a host keeps over a kill.
#[derive(Default)]
pub struct Disk {
    pub note: Vec<u8>,
    /// All entries, also those that the log does not have any more: the target's content.
    pub log: Vec<Logged>,
    /// So many of them are durable.
    pub durable: usize,
    /// So many of them are not in the log any more.
    pub trimmed: usize,
    /// The last entry that a copy had, or that was known when this member became empty: entries follow from there.
    pub base: Seq,
    /// The log has no space for an entry now.
    pub is_full: bool,
    /// The medium has no space for an entry.
    pub is_refusing: bool,
    /// There is too much to become empty while promises wait.
    pub is_large: bool,
    /// Pages that no entry names yet.
    pub staged: Vec<(StageId, Vec<u8>)>,
    /// Of its medium.
    pub trouble: Option<Trouble>,
    /// Entries cannot be read from the log.
    pub is_log_lost: bool,
    /// That says nothing about the medium.
    pub is_passing: bool,
    /// An administrator has the filling of the other member wait.
    pub is_fill_paused: Arc<AtomicBool>,
}

impl Disk {
    pub fn end(&self) -> Seq {
        self.log.last().map_or(self.base, |entry| entry.place.last.max(self.base))
    }
    pub fn push(&mut self, entry: Logged) {
        assert_eq!(entry.place.first, Seq(self.end().0 + 1), "the log has no gaps");
        self.log.push(entry);
    }
    pub fn lines(&self) -> LogLines {
        let mut lines: Vec<(Epoch, Seq)> = Vec::new();
        for Logged { place, .. } in &self.log[self.trimmed..] {
            if lines.last().is_none_or(|(line, _)| *line != place.line) {
                lines.push((place.line, place.first));
            }
        }
        LogLines { lines, end: self.end() }
    }
    /// Contents without the first byte, which tells whether pages are missing.
    pub fn contents(&self) -> Vec<(Place, &[u8])> {
        self.log.iter().map(|entry| (entry.place, &entry.content[1..])).collect()
    }
}

/// The other member's seat finds this one there, if the target is filled live.
pub struct Target(pub Arc<Mutex<Disk>>, pub Option<(MemberId, Arc<Between>)>);

/// Kind of an entry that carries an earlier one, and of the one that ends a filling.
const FILL: u8 = b'f';
const END: u8 = b'e';

/// Fills the other member, an earlier entry at a time.
struct Fills {
    disk: Arc<Mutex<Disk>>,
    of: (MemberId, Arc<Between>),
    since: Option<Seq>,
    next: usize,
    gone: Option<Rule>,
}

impl Filling for Fills {
    fn step(&mut self) -> Result<Filled, Fault> {
        let (seat, mut content) =
            (self.of.1.seats.lock()[self.of.0.index()].clone().expect("it orders"), vec![]);
        let disk = self.disk.lock();
        let since = self.since.unwrap_or(Seq(disk.end().0 + 1));
        let has_all = disk.log.get(self.next).is_none_or(|entry| entry.place.first >= since);
        let is_end = has_all || (self.gone == Some(Rule::FillingIsWhole) && self.next == 1);
        match disk.log.get(self.next).filter(|_| !is_end) {
            Some(Logged { place, content: bytes }) => {
                content.push(FILL);
                place.line.put(&mut content);
                place.first.put(&mut content);
                place.last.put(&mut content);
                content.extend_from_slice(bytes);
            }
            None => {
                content.push(END);
                since.put(&mut content);
            }
        }
        drop(disk);
        let place = seat.order(1)?;
        self.disk.lock().push(Logged { place, content: content.clone() });
        seat.commit(place, &content)?;
        (self.since, self.next) = (Some(since), self.next + 1);
        Ok(Filled { objects: self.next as u64, end: is_end.then_some(place.last), ..Filled::default() })
    }
}

fn carried(content: &[u8]) -> Option<Logged> {
    let mut r = Reader::new(content.strip_prefix(&[FILL])?);
    let line = Epoch::get(&mut r).expect("a line");
    let (first, last) = (Seq::get(&mut r).expect("seqs"), Seq::get(&mut r).expect("seqs"));
    let content = r.take(r.remaining()).expect("the rest").to_vec();
    Some(Logged { place: Place { line, first, last }, content })
}

impl Replica for Target {
    fn keep_note(&self, note: &[u8]) -> Result<(), Fault> {
        self.0.lock().note = note.to_vec();
        Ok(())
    }
    fn flush(&self) -> Result<Seq, Fault> {
        let mut disk = self.0.lock();
        disk.durable = disk.log.len();
        Ok(disk.end())
    }
    fn trouble(&self) -> Option<Trouble> {
        self.0.lock().trouble.clone()
    }
    fn first(&self) -> Seq {
        let disk = self.0.lock();
        disk.log.get(disk.trimmed).map_or(Seq(disk.end().0 + 1), |entry| entry.place.first)
    }
    fn entries(&self, after: Seq, bytes_max: usize) -> Result<Vec<Logged>, Fault> {
        let (mut disk, mut bytes, mut found) = (self.0.lock(), 0, Vec::new());
        if disk.is_log_lost {
            if !disk.is_passing {
                disk.trouble = Some(Trouble::Refused { why: "the log is lost".into(), is_full: false });
            }
            return Err(Fault::new(Code::Io, "the log cannot be read"));
        }
        for entry in disk.log[disk.trimmed..].iter().filter(|entry| entry.place.first > after) {
            bytes += entry.content.len();
            if !found.is_empty() && bytes > bytes_max {
                break;
            }
            // The log has the pages.
            let kind = if entry.content[0] == b'n' { b'p' } else { entry.content[0] };
            let content = [&[kind], &entry.content[1..]].concat();
            found.push(Logged { content, ..entry.clone() });
        }
        Ok(found)
    }
    fn can_append(&self, content: &[u8]) -> bool {
        content[0] != b'n' && !self.0.lock().is_full
    }
    fn append(&self, entry: &Logged) -> Result<(), Fault> {
        if !self.can_append(&entry.content) {
            return Err(Fault::new(Code::Invalid, "the pages of an entry are not here"));
        }
        let mut disk = self.0.lock();
        if disk.is_refusing {
            disk.trouble = Some(Trouble::Refused { why: "no space".into(), is_full: true });
            return Err(Fault::new(Code::NoSpace, "no space"));
        }
        disk.push(entry.clone());
        if let Some(carried) = carried(&entry.content) {
            let at = disk.log.partition_point(|entry| entry.place.first < carried.place.first);
            let is_there = disk.log.get(at).is_some_and(|entry| entry.place == carried.place);
            if !is_there {
                disk.log.insert(at, carried);
                disk.trimmed += 1;
                disk.durable = 0;
            }
        }
        Ok(())
    }
    fn is_filled_live(&self) -> bool {
        self.1.is_some()
    }
    fn is_emptied_at_once(&self) -> bool {
        !self.0.lock().is_large
    }
    fn begin_refill(&self, _: Epoch, end: Seq) -> Result<(), Fault> {
        let mut disk = self.0.lock();
        *disk = Disk { note: std::mem::take(&mut disk.note), base: end, ..Disk::default() };
        Ok(())
    }
    fn filled_since(&self, content: &[u8]) -> Option<Seq> {
        Seq::from_bytes(content.strip_prefix(&[END])?).ok()
    }
    fn fill(&self) -> Result<Box<dyn Filling>, Fault> {
        let (disk, of) = (self.0.clone(), self.1.clone().expect("it is filled live"));
        let seat = of.1.seats.lock()[of.0.index()].clone().expect("it orders");
        let gone = *seat.shared().gone.lock();
        Ok(Box::new(Fills { disk, of, since: None, next: 0, gone }))
    }
    fn stage(&self, id: StageId, pages: &[u8]) -> Result<(), Fault> {
        self.0.lock().staged.push((id, pages.to_vec()));
        Ok(())
    }
    /// A page of its log: the content of the entry with this number.
    fn give_pages(
        &self,
        _: ObjectId,
        wanted: &[PageWanted],
        bytes: &mut Vec<u8>,
    ) -> Result<Vec<PageOf>, Fault> {
        let disk = self.0.lock();
        let page = |wanted: &PageWanted| {
            let Some(entry) = disk.log.get(wanted.page as usize) else {
                return PageOf { form: page_form::HOLE, crc: 0 };
            };
            let mut page = entry.content[1..].to_vec();
            page.resize(types::PAGE_SIZE, 0);
            bytes.extend(page);
            PageOf { form: page_form::SOUND, crc: wanted.crc }
        };
        Ok(wanted.iter().map(page).collect())
    }
    /// It keeps a state if that is asked for at its own end.
    fn compare_records(&self, wanted: &CompareRecords) -> Result<CompareRecordsReply, Fault> {
        let is_at = matches!(wanted.step, CompareStep::Begin { seq } if seq == self.0.lock().end());
        Ok(CompareRecordsReply { run: u64::from(is_at), part: None })
    }
    fn list_lost(&self) -> Result<ListLostReply, Fault> {
        Ok(ListLostReply { lost: self.0.lock().log.len() as u64, places: vec![] })
    }
    fn copy_out(&self, copy: u64, part: u64) -> Result<Copied, Fault> {
        let disk = self.0.lock();
        let mut content = Vec::new();
        // A part for each entry.
        if let Some(Logged { place, content: bytes }) = disk.log.get(part as usize) {
            place.line.put(&mut content);
            place.first.put(&mut content);
            place.last.put(&mut content);
            content.extend_from_slice(bytes);
        }
        let is_last = part as usize + 1 >= disk.log.len();
        Ok(Copied { copy: copy.max(1), is_last, end: disk.end(), content })
    }
}
