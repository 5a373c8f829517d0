//! The decoder of requests, under bytes that the kernel would never send, and on one of each kind that it does.

use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

use fusedev::request::{HEADER_LEN, Operation, forgets, header, operation};
use fusedev::{INodeNo, RenameFlags, RequestId, TimeOrNow, opcode};
use hammer::Hammer;

fn request(opcode: u32, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut out = Vec::new();
    out.extend(((HEADER_LEN + body.len()) as u32).to_ne_bytes());
    out.extend(opcode.to_ne_bytes());
    out.extend(77u64.to_ne_bytes());
    out.extend(9u64.to_ne_bytes());
    [1000u32, 100, 4242, 0].iter().for_each(|n| out.extend(n.to_ne_bytes()));
    out.extend(body);
    out
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// One of each kind, as the kernel writes them.
fn samples() -> Vec<Vec<u8>> {
    let args = words(&[3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    let plain = [
        opcode::FORGET,
        opcode::GETATTR,
        opcode::SETATTR,
        opcode::OPEN,
        opcode::READ,
        opcode::RELEASE,
        opcode::FSYNC,
        opcode::LISTXATTR,
        opcode::FLUSH,
        opcode::INIT,
        opcode::OPENDIR,
        opcode::READDIR,
        opcode::RELEASEDIR,
        opcode::FSYNCDIR,
        opcode::GETLK,
        opcode::SETLK,
        opcode::SETLKW,
        opcode::ACCESS,
        opcode::INTERRUPT,
        opcode::FALLOCATE,
        opcode::READDIRPLUS,
        opcode::LSEEK,
        opcode::COPY_FILE_RANGE,
        opcode::SYNCFS,
        opcode::STATX,
        opcode::NOTIFY_REPLY,
    ];
    let bare = [opcode::READLINK, opcode::STATFS, opcode::DESTROY, 9999];
    let named = [opcode::LOOKUP, opcode::UNLINK, opcode::RMDIR, opcode::REMOVEXATTR];
    let mut all: Vec<_> = plain.map(|op| request(op, &[&args])).into();
    all.extend(bare.map(|op| request(op, &[])));
    all.extend(named.map(|op| request(op, &[b"name\0"])));
    all.extend([
        request(opcode::SYMLINK, &[b"name\0target\0"]),
        request(opcode::MKNOD, &[&words(&[1, 2]), b"name\0"]),
        request(opcode::MKDIR, &[&words(&[1]), b"name\0"]),
        request(opcode::RENAME, &[&words(&[1]), b"old\0new\0"]),
        request(opcode::RENAME2, &[&words(&[1, 2]), b"old\0new\0"]),
        request(opcode::LINK, &[&words(&[1]), b"new\0"]),
        request(opcode::CREATE, &[&words(&[1, 2]), b"name\0"]),
        request(opcode::TMPFILE, &[&words(&[1, 2]), b"#7\0"]),
        request(opcode::WRITE, &[&words(&[1, 2, 4, 0, 0]), b"data"]),
        request(opcode::SETXATTR, &[&words(&[5, 0]), b"user.a\0", b"value"]),
        request(opcode::GETXATTR, &[&words(&[64]), b"user.a\0"]),
        request(opcode::IOCTL, &[&words(&[1, 0, 0, 4]), b"data"]),
        request(opcode::BATCH_FORGET, &[&words(&[2, 5, 1, 6, 2])]),
    ]);
    all
}

fn decode(bytes: &[u8]) -> Option<Operation<'_>> {
    let (head, body) = header(bytes)?;
    operation(head.opcode, body, true)
}

/// The header's length must be true for anything behind it to be read.
fn mend_length(bytes: &mut [u8]) {
    let len = (bytes.len() as u32).to_ne_bytes();
    if let Some(place) = bytes.first_chunk_mut() {
        *place = len;
    }
}

#[test]
fn no_bytes_make_the_decoder_panic() {
    let outcome = Hammer::new("FUSE request").seeds(samples()).repair(&mend_length).run(
        |bytes| decode(bytes).map(|_| ()),
        |bytes, ()| {
            if let Some(Operation::BatchForget { pairs }) = decode(bytes) {
                assert!(forgets(pairs).count() <= bytes.len() / 16);
            }
            bytes.len()
        },
    );
    assert!(outcome.accepted > outcome.inputs / 20, "{outcome:?}");
}

#[test]
fn a_request_that_is_cut_short_anywhere_is_refused_or_shorter() {
    for whole in samples() {
        let (head, body) = header(&whole).unwrap();
        assert_eq!(
            (head.unique, head.node, head.uid, head.gid, head.pid),
            (RequestId(77), INodeNo(9), 1000, 100, 4242)
        );
        let full = operation(head.opcode, body, true);
        assert!(full.is_some(), "{}", head.opcode);
        // A header that lies about the length is none.
        assert!(header(&whole[..whole.len() - 1]).is_none());
        for len in 0..body.len() {
            // A name without its NUL, a number without its last byte, data shorter than said: none of these may be taken.
            if let Some(Operation::Write { data, .. }) = operation(head.opcode, &body[..len], true) {
                assert_eq!(data.len(), 4);
            }
        }
    }
}

#[test]
fn arguments_arrive_as_they_were_sent() {
    let bytes = request(opcode::RENAME2, &[&words(&[21, 2]), b"old\0new\0"]);
    let (name, new_name) = (OsStr::new("old"), OsStr::new("new"));
    let flags = RenameFlags::RENAME_EXCHANGE;
    assert_eq!(decode(&bytes), Some(Operation::Rename { new_parent: INodeNo(21), name, new_name, flags }));
    assert_eq!(decode(&request(opcode::LOOKUP, &[b"no end"])), None);
    assert_eq!(decode(&request(opcode::WRITE, &[&words(&[1, 2, 5, 0, 0]), b"four"])), None);
    let pairs = request(opcode::BATCH_FORGET, &[&words(&[2, 5, 1, 6, 2])]);
    let Some(Operation::BatchForget { pairs }) = decode(&pairs) else { panic!("no forgets") };
    assert_eq!(forgets(pairs).collect::<Vec<_>>(), [(INodeNo(5), 1), (INodeNo(6), 2)]);
    // A count that the bytes do not have.
    assert_eq!(decode(&request(opcode::BATCH_FORGET, &[&words(&[3, 5, 1, 6, 2])])), None);
}

#[test]
fn times_before_1970_arrive_as_they_were_sent() {
    let mut args = words(&[1 << 4, 0, 0, 0, -5i64 as u64, 0, 0]);
    [300_000_000u32, 0, 0, 0, 0, 0, 0, 0].iter().for_each(|n| args.extend(n.to_ne_bytes()));
    let bytes = request(opcode::SETATTR, &[&args]);
    let Some(Operation::SetAttr(set)) = decode(&bytes) else { panic!("no setattr") };
    // 5 s before, and 300 ms on.
    let time = UNIX_EPOCH - Duration::from_millis(4_700);
    assert_eq!((set.atime, set.mtime, set.size), (Some(TimeOrNow::SpecificTime(time)), None, None));
}

/// Bytes for one seeds the other: a value with the extended form would be misread in the short one.
#[test]
fn setxattr_has_two_forms() {
    let short = request(opcode::SETXATTR, &[&words(&[5]), b"user.a\0", b"value"]);
    let (head, body) = header(&short).unwrap();
    let want = Operation::SetXattr { name: OsStr::new("user.a"), value: b"value", flags: 0, extra_flags: 0 };
    assert_eq!(operation(head.opcode, body, false), Some(want));
    let long = request(opcode::SETXATTR, &[&words(&[5, 1]), b"user.a\0", b"value"]);
    let want = Operation::SetXattr { name: OsStr::new("user.a"), value: b"value", flags: 0, extra_flags: 1 };
    assert_eq!(decode(&long), Some(want));
}
