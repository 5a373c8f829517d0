//! The table from `Code` to Linux's errno numbers. It is here only; every door uses it.

use types::Code;

/// Linux's numbers, equal on x86-64, aarch64 and riscv64.
mod number {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const E2BIG: i32 = 7;
    pub const EACCES: i32 = 13;
    pub const EBUSY: i32 = 16;
    pub const EEXIST: i32 = 17;
    pub const EXDEV: i32 = 18;
    pub const ENOTDIR: i32 = 20;
    pub const EISDIR: i32 = 21;
    pub const EINVAL: i32 = 22;
    pub const EFBIG: i32 = 27;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const EMLINK: i32 = 31;
    pub const ERANGE: i32 = 34;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ENOTEMPTY: i32 = 39;
    pub const ELOOP: i32 = 40;
    pub const ENODATA: i32 = 61;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ETIMEDOUT: i32 = 110;
    pub const ESTALE: i32 = 116;
}

/// The errno that a program sees for `code`; 0 for `Code::Ok`.
///
/// Codes that the client handles by itself (`NotReady`, `Moved`, `NoSession`, `BadChecksum`, `NeedLayout`, `NotInline`,
/// `NeedSection`, `TooMuch`) only arrive here when that failed: then they are `EIO`.
pub fn errno_of(code: Code) -> i32 {
    use number::*;
    match code {
        Code::Ok => 0,
        Code::NotFound => ENOENT,
        Code::Exists => EEXIST,
        Code::NotDir => ENOTDIR,
        Code::IsDir => EISDIR,
        Code::NotEmpty => ENOTEMPTY,
        Code::NoSpace => ENOSPC,
        Code::Stale => ESTALE,
        Code::Access => EACCES,
        Code::Perm => EPERM,
        Code::NameTooLong => ENAMETOOLONG,
        Code::TooManyLinks => EMLINK,
        Code::NoData => ENODATA,
        Code::Range => ERANGE,
        Code::CrossDevice => EXDEV,
        Code::Loop => ELOOP,
        Code::Invalid => EINVAL,
        Code::Timeout => ETIMEDOUT,
        Code::Unsupported => EOPNOTSUPP,
        Code::FileTooBig => EFBIG,
        Code::ReadOnly => EROFS,
        Code::Busy => EBUSY,
        Code::TooLong => E2BIG,
        Code::Damaged | Code::Fenced | Code::BadRequest | Code::NotReady | Code::Moved | Code::Io => EIO,
        Code::NoSession | Code::BadChecksum | Code::NeedLayout | Code::NotInline => EIO,
        Code::NeedSection | Code::TooMuch => EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_an_errno_and_lost_data_is_eio() {
        for code in Code::ALL {
            assert_eq!(errno_of(*code) == 0, *code == Code::Ok, "{code:?}");
        }
        assert_eq!(errno_of(Code::Damaged), 5);
        assert_eq!(errno_of(Code::NoSpace), 28);
    }
}
