//! File operations of the story's client, by name in the root directory.

use client::{Handle, OpenFlags, SetAttr};
use types::{Attr, Buf, Code, Cred, Fault, Fid};

use super::Story;
use crate::Rng;

/// Bytes that tell where they belong: any two seeds or offsets differ in nearly every byte.
pub fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    // No page of it can be taken for a hole.
    bytes.iter_mut().for_each(|b| *b |= 1);
    bytes
}

/// One page of 4 KiB.
pub fn page_of(seed: u64) -> Vec<u8> {
    bytes_of(seed, 4096)
}

impl Story {
    /// Makes a file and keeps it open for reading and writing under its name.
    pub fn create(&self, name: &str) -> Result<Fid, Fault> {
        let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
        let (attr, handle) = self.fs().create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root())?;
        self.keep_handle(name, handle);
        Ok(attr.fid)
    }

    /// Makes a file with this striping, and opens it.
    pub fn create_striped(&self, name: &str, striping: &str) -> Result<Fid, Fault> {
        let fid = self.create(name)?;
        self.fs().setxattr(fid, b"stria.layout", striping.as_bytes(), 0, &Cred::root())?;
        Ok(fid)
    }

    /// As open(2) with O_CREAT and without O_EXCL.
    pub fn create_or_open(&self, name: &str) -> Result<Fid, Fault> {
        let flags = OpenFlags::read_write();
        let (attr, handle) = self.fs().create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root())?;
        self.keep_handle(name, handle);
        Ok(attr.fid)
    }

    /// Opens a file for reading and writing.
    pub fn open(&self, name: &str) -> Result<Fid, Fault> {
        let fid = self.lookup(name)?.fid;
        let (handle, _) = self.fs().open(fid, OpenFlags::read_write())?;
        self.keep_handle(name, handle);
        Ok(fid)
    }

    fn keep_handle(&self, name: &str, handle: Handle) {
        if let Some(old) = self.handles.lock().insert(name.into(), handle) {
            self.fs().release(old);
        }
    }

    /// The handle of an open file.
    pub fn handle(&self, name: &str) -> Handle {
        *self.handles.lock().get(name).unwrap_or_else(|| panic!("the story has not opened {name:?}"))
    }

    pub fn write(&self, name: &str, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.fs().write(self.handle(name), offset, data).map(drop)
    }

    pub fn fsync(&self, name: &str) -> Result<(), Fault> {
        self.fs().fsync(self.handle(name), false)
    }

    /// close(2): returns the result of `flush`; the descriptor is closed in any case.
    pub fn close(&self, name: &str) -> Result<(), Fault> {
        let handle = self.handle(name);
        self.handles.lock().remove(name);
        let said = self.fs().flush(handle);
        self.fs().release(handle);
        said
    }

    /// The whole content, through a descriptor of its own, checked against the size that `stat` gives.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, Fault> {
        let attr = self.lookup(name)?;
        self.read_fid(attr.fid)
    }

    pub fn read_fid(&self, fid: Fid) -> Result<Vec<u8>, Fault> {
        let (handle, attr) = self.fs().open(fid, OpenFlags::read_only())?;
        let read = self.read_handle(handle);
        self.fs().release(handle);
        let bytes = read?;
        assert_eq!(bytes.len() as u64, attr.size, "file {fid}: stat and read tell different sizes");
        Ok(bytes)
    }

    pub fn read_handle(&self, handle: Handle) -> Result<Vec<u8>, Fault> {
        let (mut bytes, mut buf) = (vec![], Buf::new());
        loop {
            self.fs().read(handle, bytes.len() as u64, 1 << 20, &mut buf)?;
            if buf.is_empty() {
                return Ok(bytes);
            }
            bytes.extend_from_slice(&buf);
        }
    }

    pub fn lookup(&self, name: &str) -> Result<Attr, Fault> {
        self.fs().lookup(Fid::ROOT, name.as_bytes())
    }

    pub fn exists(&self, name: &str) -> bool {
        match self.lookup(name) {
            Ok(_) => true,
            Err(fault) if fault.code == Code::NotFound => false,
            Err(fault) => panic!("lookup of {name:?}: {fault}"),
        }
    }

    pub fn rename(&self, old: &str, new: &str) -> Result<(), Fault> {
        self.fs().rename(Fid::ROOT, old.as_bytes(), Fid::ROOT, new.as_bytes(), 0, &Cred::root())
    }
    pub fn unlink(&self, name: &str) -> Result<(), Fault> {
        self.fs().unlink(Fid::ROOT, name.as_bytes(), &Cred::root())
    }
    pub fn mkdir(&self, name: &str) -> Result<Fid, Fault> {
        Ok(self.fs().mkdir(Fid::ROOT, name.as_bytes(), 0o755, &Cred::root())?.fid)
    }
    pub fn truncate(&self, name: &str, size: u64) -> Result<(), Fault> {
        let fid = self.lookup(name)?.fid;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs().setattr(fid, &set, &Cred::root()).map(|_| ())
    }
    pub fn sync_names(&self) -> Result<(), Fault> {
        self.fs().fsync_dir(Fid::ROOT)
    }

    /// Every name in the root directory, sorted, without `.` and `..`.
    pub fn list(&self) -> Result<Vec<String>, Fault> {
        let (mut names, mut cookie) = (vec![], 0);
        loop {
            let items = self.fs().readdir(Fid::ROOT, cookie, 100, false)?;
            let Some(last) = items.last() else { break };
            cookie = last.cookie;
            names.extend(items.into_iter().map(|i| String::from_utf8_lossy(&i.name).into_owned()));
        }
        names.retain(|n| n != "." && n != "..");
        names.sort();
        Ok(names)
    }
}
