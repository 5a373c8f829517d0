//! `chattr` and `lsattr`: the ioctls that get and set a file's flags, in both of the kernel's forms.
//!
//! The kernel decodes them, checks the caller (owner, CAP_LINUX_IMMUTABLE) and sends a plain `int` or a `struct fsxattr`. Other ioctls are
//! not supported.

use client::{FLAG_APPEND, FLAG_IMMUTABLE, FLAG_NOATIME, FLAG_NODUMP};

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
/// Bytes of a `struct fsxattr`: flags, extent size, extents, project, copy-on-write extent size, padding.
const FSXATTR_BYTES: usize = 28;

/// A flag in both forms.
const FORMS: [(u32, u32); 4] =
    [(FLAG_IMMUTABLE, 0x8), (FLAG_APPEND, 0x10), (FLAG_NOATIME, 0x40), (FLAG_NODUMP, 0x80)];

/// The request of an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Get(Form),
    Set(u32),
    /// A known form that asks for something that Stria does not store.
    Unsupported,
    /// Another ioctl.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Int,
    Fsxattr,
}

pub fn asked(cmd: u32, data: &[u8]) -> Asked {
    let word = |at: usize| data.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    match cmd {
        GETFLAGS => Asked::Get(Form::Int),
        FSGETXATTR => Asked::Get(Form::Fsxattr),
        SETFLAGS => word(0).map_or(Asked::Unknown, Asked::Set),
        FSSETXATTR if data.len() < FSXATTR_BYTES => Asked::Unknown,
        FSSETXATTR => {
            let xflags = word(0).unwrap_or(0);
            let known = FORMS.iter().fold(0, |sum, (_, x)| sum | x);
            // Extent sizes and project ids are not supported.
            let is_plain = [4, 12, 16].into_iter().all(|at| word(at) == Some(0));
            match xflags & !known == 0 && is_plain {
                true => Asked::Set(
                    FORMS.iter().filter(|(_, x)| xflags & x != 0).fold(0, |sum, (flag, _)| sum | flag),
                ),
                false => Asked::Unsupported,
            }
        }
        _ => Asked::Unknown,
    }
}

impl Form {
    pub fn answer(self, flags: u32) -> Vec<u8> {
        match self {
            Form::Int => flags.to_le_bytes().to_vec(),
            Form::Fsxattr => {
                let xflags = FORMS.iter().filter(|(f, _)| flags & f != 0).fold(0, |sum, (_, x)| sum | x);
                let mut out = vec![0; FSXATTR_BYTES];
                out[..4].copy_from_slice(&u32::to_le_bytes(xflags));
                out
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let mut fsx = vec![0u8; FSXATTR_BYTES];
        fsx[0] = 0x8 | 0x80;
        assert_eq!(asked(FSSETXATTR, &fsx), Asked::Set(FLAG_IMMUTABLE | FLAG_NODUMP));
        assert_eq!(Form::Fsxattr.answer(FLAG_IMMUTABLE | FLAG_NODUMP), fsx);
        assert_eq!(asked(SETFLAGS, &0x30u32.to_le_bytes()), Asked::Set(FLAG_IMMUTABLE | FLAG_APPEND));
        assert_eq!(Form::Int.answer(0x30), [0x30, 0, 0, 0]);
        assert_eq!(asked(GETFLAGS, &[]), Asked::Get(Form::Int));
    }

    #[test]
    fn what_is_not_kept_is_refused_and_what_is_not_ours_is_unknown() {
        let mut project = vec![0u8; FSXATTR_BYTES];
        project[12] = 1;
        assert_eq!(asked(FSSETXATTR, &project), Asked::Unsupported);
        let mut dax = vec![0u8; FSXATTR_BYTES];
        dax[1] = 0x80;
        assert_eq!(asked(FSSETXATTR, &dax), Asked::Unsupported);
        for (cmd, len) in [(FSSETXATTR, 27), (SETFLAGS, 3), (0x5401, 0)] {
            assert_eq!(asked(cmd, &vec![0; len]), Asked::Unknown, "{cmd:#x}");
        }
    }
}
