//! The seccomp filter: an allow-list of the system calls that srv6d, its libraries and their threads make.
//!
//! A call that is known and refused fails with EPERM. A call that is in no list fails with ENOSYS: libraries then
//! assume an older kernel and use another call, as glibc does for `clone3`, whose flags a filter cannot see. The filter
//! never kills the process: a call that is missing from the list by mistake causes an error message, but loses no
//! packet.
//!
//! The process can neither execute programs nor create processes: the guard processes are started before. Nor can it
//! execute memory that it has written, as `MemoryDenyWriteExecute` of systemd.exec(5) has it: libraries that are loaded
//! later come from files, whose pages are executable from the beginning.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The reason why there is no filter.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Kernel(#[from] seccompiler::Error),
}

/// Calls that are allowed with any arguments.
const ALLOWED: &[c_long] = &[
    // Descriptors
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    // Files
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_copy_file_range,
    libc::SYS_memfd_create, // libbpf uses one to reserve a descriptor number for each map
    libc::SYS_sendfile,
    libc::SYS_umask,
    // Memory
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    // Threads, signals, time
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Sockets, except for their creation, which is restricted below
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    // XDP programs and their maps; the remaining capabilities restrict them
    libc::SYS_bpf,
    // Identity and environment of this process
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getrusage,
    libc::SYS_capget,
    // Calls that can only reduce privileges: no capability comes back, and no filter is removed
    libc::SYS_capset,
    libc::SYS_seccomp,
];

/// Older forms of allowed calls, which exist on some architectures.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_eventfd,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_time,
    libc::SYS_getrlimit,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[libc::SYS_renameat];

/// Calls that are refused with EPERM, so that the caller gets the true reason. A call that is in neither list is
/// refused as well, with ENOSYS.
const REFUSED: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_open_by_handle_at,
    libc::SYS_personality,
    libc::SYS_acct,
    libc::SYS_syslog,
];

/// Families, types and protocols of sockets that may be created; an empty list allows all protocols.
const SOCKETS: [(i32, i32, &[i32]); 10] = [
    (libc::AF_UNIX, libc::SOCK_STREAM, &[]), // until `refuse_local_streams`
    (libc::AF_UNIX, libc::SOCK_DGRAM, &[]),
    (libc::AF_INET, libc::SOCK_STREAM, &[]),
    (libc::AF_INET, libc::SOCK_DGRAM, &[]),
    (libc::AF_INET6, libc::SOCK_STREAM, &[]),
    (libc::AF_INET6, libc::SOCK_DGRAM, &[]),
    // Finds the neighbour on a port.
    (libc::AF_INET6, libc::SOCK_RAW, &[libc::IPPROTO_ICMPV6]),
    (libc::AF_NETLINK, libc::SOCK_RAW, &NETLINK),
    (libc::AF_NETLINK, libc::SOCK_DGRAM, &NETLINK),
    (libc::AF_XDP, libc::SOCK_RAW, &[]),
];

/// Protocols of netlink sockets that may be created: links and routes, owners of sockets, features of devices. The
/// firewall and `IPsec` are not among them.
const NETLINK: [i32; 3] = [libc::NETLINK_ROUTE, libc::NETLINK_INET_DIAG, libc::NETLINK_GENERIC];

/// Mask of the bits of a socket's type that name the type. The other bits are flags.
const TYPE: u64 = 0xf;

/// Allowed commands of fcntl(2). `F_SETOWN` and `F_SETSIG` are not among them: with both, the kernel sends any signal to
/// any process of the same user.
const FCNTL: [i32; 8] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GET_SEALS,
    libc::F_ADD_SEALS,
];

/// Allowed requests of ioctl(2): about a device by its name, about a socket or pipe, and whether a descriptor is a
/// terminal.
#[allow(clippy::unnecessary_cast, reason = "C libraries differ in the type")]
const REQUESTS: [u64; 10] = [
    libc::SIOCETHTOOL as u64,
    libc::SIOCGIFINDEX as u64,
    libc::SIOCGIFNAME as u64,
    libc::SIOCGIFFLAGS as u64,
    libc::SIOCGIFMTU as u64,
    libc::SIOCGIFHWADDR as u64,
    libc::FIONBIO as u64,
    libc::FIONREAD as u64,
    libc::TCGETS as u64,
    libc::TIOCGWINSZ as u64,
];

/// Allowed requests of prctl(2): those about names, and one that cannot be undone.
const PRCTL: [i32; 4] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA, libc::PR_SET_NO_NEW_PRIVS];

/// Rules of a filter, by system call.
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Installs the filters for every thread of the process. `NoNewPrivs` must be set.
pub(super) fn install() -> Result<(), FilterError> {
    // Two filters may both refuse a call. The kernel then returns the error of the one installed last.
    for program in [allow_list()?, refusals()?] {
        seccompiler::apply_filter_all_threads(&program)?;
    }
    Ok(())
}

fn allow_list() -> Result<BpfProgram, BackendError> {
    let own = u64::from(std::process::id());
    let mut rules: Rules = ALLOWED.iter().chain(OLDER).map(|&call| (call, Vec::new())).collect();
    let sockets: Result<Vec<Vec<SeccompRule>>, BackendError> =
        SOCKETS.into_iter().map(|(family, of_type, protocols)| sockets_of(family, of_type, protocols)).collect();
    rules.insert(libc::SYS_socket, sockets?.concat());
    rules.insert(libc::SYS_socketpair, one_of(0, [number(libc::AF_UNIX)].into_iter())?);
    rules.insert(libc::SYS_fcntl, one_of(1, FCNTL.into_iter().map(number))?);
    // A thread may set only its own cores.
    rules.insert(libc::SYS_sched_setaffinity, one_of(0, [0].into_iter())?);
    rules.insert(libc::SYS_ioctl, one_of(1, REQUESTS.into_iter())?);
    rules.insert(libc::SYS_prctl, one_of(0, PRCTL.into_iter().map(number))?);
    rules.insert(libc::SYS_prlimit64, one_of(0, [0, own].into_iter())?);
    // A signal to one of the process's own threads, as abort(3) sends it.
    rules.insert(libc::SYS_tgkill, one_of(0, [own].into_iter())?);
    rules.insert(libc::SYS_clone, vec![is_thread(true)?]);
    compiled(rules, SeccompAction::Errno(errno(libc::ENOSYS)), SeccompAction::Allow)
}

fn refusals() -> Result<BpfProgram, BackendError> {
    let mut rules: Rules = REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_clone, vec![is_thread(false)?]);
    rules.insert(libc::SYS_mmap, vec![has_protection(libc::PROT_WRITE | libc::PROT_EXEC)?]);
    rules.insert(libc::SYS_mprotect, vec![has_protection(libc::PROT_EXEC)?]);
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_fork, libc::SYS_vfork, libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_mknod] {
        rules.insert(call, Vec::new());
    }
    compiled(rules, SeccompAction::Allow, SeccompAction::Errno(errno(libc::EPERM)))
}

/// Refuses to create Unix sockets that could connect to other services of the machine, such as the service manager or a
/// container engine, which do for root whatever it asks. The management socket must be open.
pub(super) fn refuse_local_streams() -> Result<(), FilterError> {
    let types = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].into_iter();
    let rules: Result<Vec<Vec<SeccompRule>>, BackendError> =
        types.map(|of_type| sockets_of(libc::AF_UNIX, of_type, &[])).collect();
    let rules = Rules::from([(libc::SYS_socket, rules?.concat())]);
    let program = compiled(rules, SeccompAction::Allow, SeccompAction::Errno(errno(libc::EPERM)))?;
    Ok(seccompiler::apply_filter_all_threads(&program)?)
}

/// Makes the rules that match socket(2) of a family, a type and one of the protocols, or any if there are none.
fn sockets_of(family: i32, of_type: i32, protocols: &[i32]) -> Result<Vec<SeccompRule>, BackendError> {
    let is = |argument, operator, value: i32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, number(value))
    };
    let is_it = || Ok([is(0, SeccompCmpOp::Eq, family)?, is(1, SeccompCmpOp::MaskedEq(TYPE), of_type)?]);
    if protocols.is_empty() {
        return Ok(vec![SeccompRule::new(is_it()?.to_vec())?]);
    }
    let with = |&protocol| SeccompRule::new([&is_it()?[..], &[is(2, SeccompCmpOp::Eq, protocol)?]].concat());
    protocols.iter().map(with).collect()
}

fn number(constant: i32) -> u64 {
    u64::from(constant.unsigned_abs())
}

fn compiled(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Result<BpfProgram, BackendError> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, otherwise, matched, architecture)?.try_into()
}

/// Makes a rule for each value that the argument may have in its lower 32 bits.
fn one_of(argument: u8, values: impl Iterator<Item = u64>) -> Result<Vec<SeccompRule>, BackendError> {
    let is = |value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    values.map(|value| SeccompRule::new(vec![is(value)?])).collect()
}

/// Makes a rule that matches clone(2) calls that create a thread (`yes`) or a process.
fn is_thread(yes: bool) -> Result<SeccompRule, BackendError> {
    let flag = u64::from(libc::CLONE_THREAD.unsigned_abs());
    let value = if yes { flag } else { 0 };
    let is_set = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), value)?;
    SeccompRule::new(vec![is_set])
}

/// Makes a rule that matches mmap(2) and mprotect(2) calls that ask for all of these protections.
fn has_protection(all: i32) -> Result<SeccompRule, BackendError> {
    let all = number(all);
    let is_set = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(all), all)?;
    SeccompRule::new(vec![is_set])
}

fn errno(code: i32) -> u32 {
    code.unsigned_abs()
}
