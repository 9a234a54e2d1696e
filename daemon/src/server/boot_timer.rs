//! A deadline on the clock that counts suspend: a laptop that slept wakes up late, not hours later.
//!
//! Owns the timer. Must not know what the deadline is for.

#[cfg(target_os = "linux")]
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::time::Duration;

#[cfg(target_os = "linux")]
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;

/// Lends tokio the descriptor to wait for.
#[cfg(target_os = "linux")]
struct Timer(TimerFd);

#[cfg(target_os = "linux")]
impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Rings once the machine has been up for so long.
pub struct BootTimer {
    deadline: Option<Duration>,
    /// `None` where the system has none: then suspend counts only from the next event on.
    #[cfg(target_os = "linux")]
    fd: Option<AsyncFd<Timer>>,
}

impl BootTimer {
    /// One that isn't set. Needs a runtime.
    #[must_use]
    pub fn new() -> Self {
        Self {
            deadline: None,
            #[cfg(target_os = "linux")]
            fd: None,
        }
    }

    /// Sets, moves or clears the deadline, given as time since the machine was started.
    pub fn set(&mut self, deadline: Option<Duration>) {
        if deadline == self.deadline {
            return;
        }
        self.deadline = deadline;
        #[cfg(target_os = "linux")]
        if let Err(error) = self.arm() {
            tracing::warn!(%error, "no timer that counts suspend");
            self.fd = None;
        }
    }

    #[cfg(target_os = "linux")]
    fn arm(&mut self) -> std::io::Result<()> {
        // Made when first needed: most daemons never have a turn that waits.
        if self.fd.is_none() && self.deadline.is_some() {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
            #[expect(
                deprecated,
                reason = "its successor is unsafe; the timer owns its descriptor"
            )]
            let fd = AsyncFd::new(Timer(timer))?;
            self.fd = Some(fd);
        }
        let Some(fd) = &self.fd else { return Ok(()) };
        match self.deadline {
            // Zero would disarm it.
            Some(deadline) => {
                let at = deadline.max(Duration::from_millis(1)).into();
                let absolute = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
                fd.get_ref().0.set(Expiration::OneShot(at), absolute)?;
            }
            None => fd.get_ref().0.unset()?,
        }
        Ok(())
    }

    /// Returns when the deadline has come; never, when there is none.
    pub async fn rung(&mut self) {
        let Some(deadline) = self.deadline else {
            return std::future::pending().await;
        };
        #[cfg(target_os = "linux")]
        if let Some(fd) = &self.fd {
            if let Ok(mut ready) = fd.readable().await {
                ready.clear_ready();
            }
            self.deadline = None;
            return;
        }
        let now = Duration::from_millis(agentd_base::clock::boot_ms());
        tokio::time::sleep(deadline.saturating_sub(now)).await;
        self.deadline = None;
    }
}

impl Default for BootTimer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_rings_at_its_deadline_and_only_then() {
        let now = || Duration::from_millis(agentd_base::clock::boot_ms());
        let mut timer = BootTimer::new();
        let deadline = now() + Duration::from_millis(30);
        timer.set(Some(deadline + Duration::from_secs(3600)));
        timer.set(Some(deadline));
        timer.rung().await;
        assert!(now() >= deadline);
        timer.set(Some(Duration::ZERO));
        timer.rung().await;
        timer.set(Some(now() + Duration::from_secs(3600)));
        timer.set(None);
        let silent = tokio::time::timeout(Duration::from_millis(30), timer.rung());
        assert!(silent.await.is_err(), "a cleared timer does not ring");
    }
}
