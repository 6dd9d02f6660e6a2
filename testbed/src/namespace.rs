//! A network namespace of our own, with a name that carries a lease.
//!
//! It is bound to a file in `/run/netns`, so `ip netns exec NAME …` can look into it while it
//! lives. Which namespace a thread is in is a property of that thread alone, so work inside is done
//! by threads made for it; the threads and child processes that they start are inside as well.
//!
//! Always true: the namespace of the calling thread never changes.
//! Source: network_namespaces(7), setns(2), ip-netns(8).

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use rxsteer_netlink::{Netlink, Protocol};

use crate::error::During as _;
use crate::{Lease, TestbedError};

/// Where namespaces have their names.
pub(crate) const NETNS_DIR: &str = "/run/netns";

/// A network namespace that is removed when this is dropped.
///
/// Its loopback device is up; there is nothing else in it.
pub struct Namespace {
    lease: Lease,
    file: File,
    route: Mutex<Netlink>,
    generic: Mutex<Netlink>,
}

impl Namespace {
    /// Makes a namespace.
    pub(crate) fn new() -> Result<Self, TestbedError> {
        let lease = Lease::next().during(|| "name a namespace".into())?;
        let path = path_of(&lease.to_string());
        let made = on_a_thread(|| Self::make(lease, &path)).during(|| "start a thread".into())?;
        let namespace = made.inspect_err(|_| drop(remove_name(&path)))?;
        namespace.set_up("lo")?;
        Ok(namespace)
    }

    /// Makes it in this thread, which is a thread for just this.
    fn make(lease: Lease, path: &Path) -> Result<Self, TestbedError> {
        fs::create_dir_all(NETNS_DIR).during(|| format!("create {NETNS_DIR}"))?;
        File::create_new(path).during(|| format!("create {}", path.display()))?;
        unshare(CloneFlags::CLONE_NEWNET).during(|| "make a network namespace".into())?;
        mount(Some("/proc/thread-self/ns/net"), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .during(|| format!("bind the namespace to {}", path.display()))?;
        Ok(Self {
            lease,
            file: File::open(path).during(|| format!("open {}", path.display()))?,
            route: Mutex::new(Netlink::open(Protocol::Route).during(|| "open rtnetlink".into())?),
            generic: Mutex::new(Netlink::open(Protocol::Generic).during(|| "open netlink".into())?),
        })
    }

    /// Returns its name, which `ip netns` knows.
    pub fn name(&self) -> String {
        self.lease.to_string()
    }

    /// Runs `work` inside, in a thread of its own, and returns what it returned.
    ///
    /// The thread sees the `/proc` of this namespace, but the `/sys` of the caller's. A panic of
    /// `work` goes on in the caller.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        self.enter(false, work)
    }

    /// The same, and the thread sees the `/sys` of this namespace too.
    ///
    /// # Errors
    /// If the namespace cannot be entered or `/sys` cannot be mounted.
    pub fn run_with_sys<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, TestbedError> {
        self.enter(true, work)
    }

    fn enter<T: Send>(
        &self,
        sys: bool,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, TestbedError> {
        enter(&self.file, sys, work).during(|| format!("enter namespace {}", self.lease))
    }

    /// Moves the calling thread inside, for good; threads that it starts begin inside.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn adopt_thread(&self) -> Result<(), TestbedError> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .during(|| format!("enter namespace {}", self.lease))
    }

    /// Writes a network setting of this namespace, such as `net.ipv4.ip_forward`.
    ///
    /// It goes with the namespace, so no journal is kept.
    ///
    /// # Errors
    /// With the path, if there is no such setting here or the kernel refuses the value.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<(), TestbedError> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.run(|| fs::write(&path, value))?.during(|| format!("write {value} to {path}"))
    }

    /// Writes a file of a device of this namespace: `write_sys("rx0", "queues/rx-0/rps_cpus", "3")`.
    ///
    /// # Errors
    /// With the path, if there is no such file or the kernel refuses the value.
    pub fn write_sys(&self, device: &str, file: &str, value: &str) -> Result<(), TestbedError> {
        let path = format!("/sys/class/net/{device}/{file}");
        self.run_with_sys(|| fs::write(&path, value))?.during(|| format!("write {value} to {path}"))
    }

    /// Reads a file of a device of this namespace, without the line's end.
    ///
    /// # Errors
    /// With the path, if it cannot be read.
    pub fn read_sys(&self, device: &str, file: &str) -> Result<String, TestbedError> {
        let path = format!("/sys/class/net/{device}/{file}");
        let text = self.run_with_sys(|| fs::read_to_string(&path))?;
        Ok(text.during(|| format!("read {path}"))?.trim_end().to_owned())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn route(&self) -> MutexGuard<'_, Netlink> {
        // A panic in between leaves at most an answer unread, which the next question passes over.
        self.route.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn generic(&self) -> MutexGuard<'_, Netlink> {
        self.generic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Namespace").field(&self.name()).finish()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The devices go when the last descriptor and thread of it do, which is right after this.
        // Nobody is left to tell; what stays is found and told of by the next `reap`.
        let _ = remove_name(&path_of(&self.lease.to_string()));
    }
}

/// Returns the file that a namespace of this name is bound to.
pub(crate) fn path_of(name: &str) -> PathBuf {
    Path::new(NETNS_DIR).join(name)
}

/// Takes the name from a namespace; nothing if another was faster.
pub(crate) fn remove_name(path: &Path) -> io::Result<()> {
    // Without a mount, where its maker was killed in between, there is only the file (umount(2): EINVAL).
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Runs `work` in a thread inside the namespace of this file.
pub(crate) fn enter<T: Send>(
    namespace: &File,
    sys: bool,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    on_a_thread(|| {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        if sys {
            mount_sys()?;
        }
        Ok(work())
    })?
}

/// Gives this thread mounts of its own, with the `/sys` of its network namespace.
fn mount_sys() -> io::Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What is mounted here from now on is not seen elsewhere; what is unmounted there is gone here.
    mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE)?;
    Ok(())
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let made = thread::Builder::new().name("rxs-inside".into()).spawn_scoped(scope, work)?;
        Ok(made.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
