//! Model of a file's legal contents after a crash: for each page, the states since it was last durable.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// A file's past. Points of time are events of the film; a cut at `k` has seen the first `k` of them.
#[derive(Clone, Default)]
pub struct Past {
    /// Event before which it cannot exist, and event from which on it must.
    pub born: usize,
    pub durable_since: Option<usize>,
    sizes: Vec<(usize, u64)>,
    pages: BTreeMap<u64, Vec<(usize, Vec<u8>)>>,
    /// After each fsync: the event of its return, the last size, and the last state of each page.
    marks: Vec<(usize, usize, BTreeMap<u64, usize>)>,
}

impl Past {
    pub fn born(at: usize) -> Past {
        Past { born: at, sizes: vec![(at, 0)], ..Past::default() }
    }
    pub fn size(&self) -> u64 {
        self.sizes.last().expect("it has one from birth").1
    }

    fn state(&mut self, page: u64) -> &mut Vec<(usize, Vec<u8>)> {
        self.pages.entry(page).or_insert_with(|| vec![(0, vec![0; PAGE as usize])])
    }

    /// A write that begins when `at` events have happened.
    pub fn write(&mut self, at: usize, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let (page, within) = ((offset + done as u64) / PAGE, ((offset + done as u64) % PAGE) as usize);
            let len = (PAGE as usize - within).min(data.len() - done);
            let states = self.state(page);
            let mut next = states.last().expect("never empty").1.clone();
            next[within..within + len].copy_from_slice(&data[done..done + len]);
            states.push((at, next));
            done += len;
        }
        let end = offset + data.len() as u64;
        self.sizes.push((at, self.size().max(end)));
    }

    pub fn truncate(&mut self, at: usize, size: u64) {
        for (page, states) in self.pages.range_mut(size / PAGE..) {
            let mut next = states.last().expect("never empty").1.clone();
            next[size.saturating_sub(page * PAGE) as usize..].fill(0);
            states.push((at, next));
        }
        self.sizes.push((at, size));
    }

    /// An fsync has returned when `at` events had happened.
    pub fn fsynced(&mut self, at: usize) {
        self.durable_since.get_or_insert(at);
        let last = self.pages.iter().map(|(p, s)| (*p, s.len() - 1)).collect();
        self.marks.push((at, self.sizes.len() - 1, last));
    }

    /// The content as it is now.
    pub fn now(&self) -> Vec<u8> {
        let mut out = vec![0; self.size() as usize];
        for (page, states) in &self.pages {
            let begin = (page * PAGE) as usize;
            if begin < out.len() {
                let len = (out.len() - begin).min(PAGE as usize);
                out[begin..begin + len].copy_from_slice(&states.last().expect("never empty").1[..len]);
            }
        }
        out
    }

    /// Judges what was found after a cut at event `k`. `None`: the file is not there.
    pub fn judge(&self, k: usize, found: Option<&[u8]>) -> Result<(), String> {
        let Some(found) = found else {
            return match self.durable_since {
                Some(since) if since <= k => Err(format!("it was fsynced at event {since} and is gone")),
                _ => Ok(()),
            };
        };
        if self.born > k {
            return Err(format!("it exists before its birth at event {}", self.born));
        }
        let none = (0, 0, BTreeMap::new());
        let (_, size_at, pages_at) = self.marks.iter().rev().find(|(at, ..)| *at <= k).unwrap_or(&none);
        // 1. The size: between the least and the greatest since it was durable.
        let sizes = || self.sizes[*size_at..].iter().filter(|(at, _)| *at <= k).map(|(_, s)| *s);
        let size = found.len() as u64;
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        if size < least || size > most {
            return Err(format!("its size is {size}, and should be {least} to {most}"));
        }
        // 2. Each page: one of its states since it was durable, whole.
        for (page, bytes) in found.chunks(PAGE as usize).enumerate() {
            let zeros = vec![(0, vec![0; PAGE as usize])];
            let states = self.pages.get(&(page as u64)).unwrap_or(&zeros);
            let from = pages_at.get(&(page as u64)).copied().unwrap_or(0);
            let fits = |(at, state): &(usize, Vec<u8>)| *at <= k && &state[..bytes.len()] == bytes;
            if !states[from..].iter().any(fits) {
                let older = states[..from].iter().rposition(fits);
                let kind = match (older, bytes.iter().all(|b| *b == 0)) {
                    (_, true) => "zeros".to_string(),
                    (Some(n), _) => format!("state {n}, durable is {from}"),
                    (None, _) => "foreign or mixed bytes".to_string(),
                };
                return Err(format!("page {page} of {size} bytes holds {kind}, {} states", states.len()));
            }
        }
        Ok(())
    }
}

/// The judge itself: it must be able to say no.
#[test]
fn the_judge_refuses_what_no_crash_may_leave() {
    let (old, new) = (vec![1; 8192], vec![2; 8192]);
    let mut past = Past::born(0);
    past.write(1, 0, &old);
    past.fsynced(5);
    past.write(6, 0, &new);
    let mixed = [&old[..4096], &new[4096..]].concat();
    let torn = [&old[..100], &new[100..]].concat();
    let table: [(usize, Option<&[u8]>, bool); 9] = [
        (3, None, true),
        (5, None, false),
        (5, Some(&old), true),
        (5, Some(&new), false),
        (6, Some(&new), true),
        (6, Some(&mixed), true),
        (6, Some(&torn), false),
        (6, Some(&[0; 8192]), false),
        (6, Some(&old[..4096]), false),
    ];
    for (k, found, is_good) in table {
        assert_eq!(past.judge(k, found).is_ok(), is_good, "{k} {:?}", found.map(|f| (f.len(), f[0])));
    }
    // Durably truncated data never comes back.
    past.truncate(7, 4096);
    past.fsynced(9);
    past.truncate(10, 8192);
    assert!(past.judge(9, Some(&new)).is_err() && past.judge(10, Some(&new)).is_err());
    assert!(past.judge(10, Some(&[&new[..4096], &[0; 4096]].concat())).is_ok());
    assert_eq!(past.now(), [&new[..4096], &[0; 4096]].concat());
}
