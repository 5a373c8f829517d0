//! Checks the form of a request: ranges, lengths and counts, before the OST locks, allocates or writes.

use types::crc::fragment_count;
use types::{BULK_MAX, Code, FILE_SIZE_MAX, Fault, ObjectId};
use wire::object::SeekFrom;

/// Most objects in one Destroy or Glimpse: at 24 bytes each a log entry stays below 64 KiB. A caller with more sends several requests.
pub const OBJECTS_MAX: usize = 2048;
/// Most objects in one List reply: at 61 bytes each it stays well below the largest body.
pub const LIST_MAX: u32 = 16_384;
const _: () = assert!(OBJECTS_MAX * 24 < 64 << 10, "a log entry of a Destroy stays below 64 KiB");
const _: () = assert!(LIST_MAX as usize * 61 < wire::frame::BODY_MAX, "a List reply fits a frame");

/// Checks a write of `len` bulk bytes with `crcs` fragment CRCs.
pub fn write(object: &ObjectId, offset: u64, len: usize, crcs: usize) -> Result<(), Fault> {
    id(object)?;
    if len == 0 || len > BULK_MAX {
        return Err(bad(object, format!("a write carries 1 to {BULK_MAX} bytes, not {len}")));
    }
    end_of(object, offset, len as u64)?;
    let want = fragment_count(offset, len);
    if crcs != want {
        return Err(bad(
            object,
            format!("{len} bytes at {offset} have {want} fragments, the request has {crcs} CRCs"),
        ));
    }
    Ok(())
}

/// Checks a read of up to `len` bytes.
pub fn read(object: &ObjectId, offset: u64, len: u32) -> Result<(), Fault> {
    id(object)?;
    if len as usize > BULK_MAX {
        return Err(bad(object, format!("a read carries up to {BULK_MAX} bytes, not {len}")));
    }
    // Any offset is allowed: a read past the end gives no bytes.
    match offset.checked_add(len as u64) {
        Some(_) => Ok(()),
        None => Err(bad(object, format!("offset {offset} and length {len} do not add up"))),
    }
}

/// Checks a cut or extension to `len` bytes.
pub fn truncate(object: &ObjectId, len: u64) -> Result<(), Fault> {
    id(object)?;
    end_of(object, 0, len)
}

/// Checks a range to reserve, release or punch, and the object length `end` that comes with it.
pub fn range(object: &ObjectId, offset: u64, len: u64, end: u64) -> Result<(), Fault> {
    id(object)?;
    if len == 0 {
        return Err(bad(object, format!("a range of no bytes at {offset}")));
    }
    end_of(object, offset, len)?;
    end_of(object, 0, end)
}

/// Checks a list of objects to seek in.
pub fn seeks(from: &[SeekFrom]) -> Result<(), Fault> {
    count(from.len())?;
    from.iter().try_for_each(|f| {
        id(&f.object)?;
        end_of(&f.object, 0, f.offset)
    })
}

/// Checks a list of objects to destroy or glimpse.
pub fn objects(objects: &[ObjectId]) -> Result<(), Fault> {
    count(objects.len())?;
    objects.iter().try_for_each(id)
}

fn count(objects: usize) -> Result<(), Fault> {
    if objects > OBJECTS_MAX {
        let detail = format!("{objects} objects in one request; send at most {OBJECTS_MAX}");
        return Err(Fault::new(Code::BadRequest, detail));
    }
    Ok(())
}

/// Snapshots do not exist yet, so their number must be zero.
fn id(object: &ObjectId) -> Result<(), Fault> {
    match object.snapshot {
        0 => Ok(()),
        n => Err(bad(object, format!("snapshot {n} does not exist"))),
    }
}

fn end_of(object: &ObjectId, offset: u64, len: u64) -> Result<(), Fault> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_SIZE_MAX => Ok(()),
        _ => Err(Fault::new(
            Code::FileTooBig,
            format!("object {object}: {len} bytes at {offset} end past the limit of {FILE_SIZE_MAX} bytes"),
        )),
    }
}

fn bad(object: &ObjectId, why: String) -> Fault {
    Fault::new(Code::BadRequest, format!("object {object}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_bounded() {
        let o = ObjectId::default();
        let code = |r: Result<(), Fault>| r.err().map(|f| f.code);
        //           offset             len           crcs  refusal
        let table = [
            (0, 1, 1, None),
            (4095, 2, 2, None),
            (0, BULK_MAX, 256, None),
            (1, BULK_MAX, 257, None),
            (FILE_SIZE_MAX - 5, 5, 1, None),
            (0, 0, 0, Some(Code::BadRequest)),
            (0, BULK_MAX + 1, 257, Some(Code::BadRequest)),
            (0, 4096, 2, Some(Code::BadRequest)),
            (FILE_SIZE_MAX - 5, 6, 2, Some(Code::FileTooBig)),
            (u64::MAX, 2, 2, Some(Code::FileTooBig)),
        ];
        for (offset, len, crcs, want) in table {
            assert_eq!(code(write(&o, offset, len, crcs)), want, "{offset} {len} {crcs}");
        }
        assert_eq!(code(write(&ObjectId { snapshot: 1, ..o }, 0, 1, 1)), Some(Code::BadRequest));
    }

    #[test]
    fn reads_truncates_and_lists_are_bounded() {
        let o = ObjectId::default();
        assert!(read(&o, u64::MAX - 10, 10).is_ok());
        assert!(read(&o, u64::MAX - 10, 11).is_err());
        assert!(read(&o, 0, BULK_MAX as u32 + 1).is_err());
        assert!(truncate(&o, FILE_SIZE_MAX).is_ok());
        assert_eq!(truncate(&o, FILE_SIZE_MAX + 1).unwrap_err().code, Code::FileTooBig);
        //           offset             len  end                refusal
        let table = [
            (0, 1, 0, None),
            (FILE_SIZE_MAX - 1, 1, FILE_SIZE_MAX, None),
            (0, 0, 0, Some(Code::BadRequest)),
            (FILE_SIZE_MAX, 1, 0, Some(Code::FileTooBig)),
            (1, u64::MAX, 0, Some(Code::FileTooBig)),
            (0, 1, FILE_SIZE_MAX + 1, Some(Code::FileTooBig)),
        ];
        for (offset, len, end, want) in table {
            assert_eq!(range(&o, offset, len, end).err().map(|f| f.code), want, "{offset} {len} {end}");
        }
        let from = |offset| SeekFrom { object: o, offset };
        assert!(seeks(&[from(0), from(FILE_SIZE_MAX)]).is_ok() && seeks(&[from(FILE_SIZE_MAX + 1)]).is_err());
        assert!(seeks(&vec![from(0); OBJECTS_MAX + 1]).is_err());
        assert!(objects(&vec![o; OBJECTS_MAX]).is_ok());
        assert!(objects(&vec![o; OBJECTS_MAX + 1]).is_err());
    }
}
