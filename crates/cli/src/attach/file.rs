//! Reading a file of settings, which must not wait for anybody.
//!
//! Source: statfs(2) for the numbers of file systems, open(2) for what is opened without waiting.

use std::fs::{File, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::statfs::fstatfs;

/// File systems in which the kernel makes up files: some of them wait when they are read, and take what
/// they give away from others. proc, sysfs, debugfs, tracefs.
const MADE_UP: [u64; 4] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163];

/// Reads a file of at most 1 MiB.
///
/// # Errors
/// As for opening and reading a file; if it is not a regular one, if the kernel makes it up, if it is
/// larger or not UTF-8.
pub(super) fn read_bounded(path: &Path) -> io::Result<String> {
    let most = rxsteer_lab::config::MAX_BYTES as u64;
    // What was opened is looked at, and not what has the name: that could change in between.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let opened = File::options().read(true).custom_flags(flags.bits()).open(path);
    let file = opened.map_err(|error| match std::fs::metadata(path) {
        // To open a socket is answered with "no such device or address".
        Ok(about) if !about.is_file() => refused(kind(about.file_type())),
        _ => error,
    })?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(refused(kind(about.file_type())));
    }
    let filesystem = fstatfs(&file)?.filesystem_type().0 as u64;
    if MADE_UP.contains(&filesystem) {
        return Err(refused("made up by the kernel"));
    }
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(text)
}

fn refused(kind: &str) -> io::Error {
    io::Error::other(format!("it is {kind}; settings are read from regular files only"))
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "no regular file"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;

    use super::*;

    fn said(path: &Path) -> String {
        read_bounded(path).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_read_and_nobody_is_waited_for() {
        let dir = std::env::temp_dir().join(format!("rxsteer-file-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let at = |name: &str| dir.join(name);
        std::fs::write(at("regular"), "qsize = 5\n").unwrap();
        std::os::unix::fs::symlink(at("regular"), at("link")).unwrap();
        assert_eq!(read_bounded(&at("regular")).unwrap(), "qsize = 5\n");
        assert_eq!(read_bounded(&at("link")).unwrap(), "qsize = 5\n");
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        let rest = "; settings are read from regular files only";
        assert_eq!(said(&at("fifo")), format!("it is a FIFO{rest}"));
        assert_eq!(said(&at("socket")), format!("it is a socket{rest}"));
        assert_eq!(said(&dir), format!("it is a directory{rest}"));
        assert_eq!(said(Path::new("/dev/zero")), format!("it is a device{rest}"));
        assert_eq!(
            said(Path::new("/proc/self/status")),
            format!("it is made up by the kernel{rest}")
        );
        let most = rxsteer_lab::config::MAX_BYTES;
        std::fs::write(at("large"), vec![b'#'; most + 1]).unwrap();
        assert_eq!(said(&at("large")), "the file is larger than 1 MiB");
        std::fs::write(at("large"), vec![b'#'; most]).unwrap();
        assert_eq!(read_bounded(&at("large")).unwrap().len(), most);
        assert_eq!(read_bounded(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
