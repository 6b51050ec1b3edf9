//! The system calls that have no safe form among the libraries in use, each behind a safe function.
//! The only unsafe code of the lab.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// Moves this thread into the network namespace that a file stands for.
pub fn enter_network(namespace: &File) -> io::Result<()> {
    // SAFETY: takes a descriptor that is open for the whole call, and no memory.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Whether each of two files can be read, after at most this long; a file that broke is an error.
pub fn readable(files: [&File; 2], limit: Duration) -> io::Result<[bool; 2]> {
    let mut wanted = files.map(|file| libc::pollfd {
        fd: file.as_raw_fd() as RawFd,
        events: libc::POLLIN,
        revents: 0,
    });
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: limit.subsec_nanos() as libc::c_long,
    };
    // SAFETY: `wanted` holds as many entries as said and outlives the call, as `limit` does; no
    // signal mask is given.
    let called = unsafe {
        libc::ppoll(
            wanted.as_mut_ptr(),
            wanted.len() as libc::nfds_t,
            &limit,
            std::ptr::null(),
        )
    };
    match checked(called) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok([false; 2]),
        Err(error) => return Err(error),
        Ok(()) => {}
    }
    let broken = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    if wanted
        .iter()
        .any(|one| one.revents & broken != 0 && one.revents & libc::POLLIN == 0)
    {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(wanted.map(|one| one.revents & libc::POLLIN != 0))
}

/// Lets this thread's timers be exact to a nanosecond instead of 50 µs.
pub fn exact_timers() {
    // SAFETY: takes an integer and no memory. Refused, it only leaves the timers as they are.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
}

/// Makes a TAP device of an open `/dev/net/tun`: Ethernet frames, each with its offload header, up
/// to 64 KiB long.
pub fn make_tap(file: &File, name: &str) -> io::Result<()> {
    // The kernel's `struct ifreq`: a name, then flags, in 40 bytes.
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        flags: libc::c_short,
        rest: [u8; 22],
    }
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        flags: (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short,
        rest: [0; 22],
    };
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.name.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` is laid out as and at
    // least as long as; it outlives the call.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) })?;
    let offload = libc::c_ulong::from(libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6);
    // SAFETY: TUNSETOFFLOAD takes an integer and no memory.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, offload) })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
