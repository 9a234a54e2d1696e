//! A deadline on the wall clock: it comes when that clock says so, however it got there.
//!
//! Owns the timer. Must not know what the deadline is for.

#[cfg(target_os = "linux")]
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::time::Duration;

#[cfg(target_os = "linux")]
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;

/// Where nothing tells that the clock was set, it is looked at so often.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Lends tokio the descriptor to wait for.
#[cfg(target_os = "linux")]
struct Timer(TimerFd);

#[cfg(target_os = "linux")]
impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Rings at a time of the wall clock, and whenever that clock was set.
#[derive(Default)]
pub(super) struct WallTimer {
    /// `None` before the first deadline, or where the system has none.
    #[cfg(target_os = "linux")]
    fd: Option<AsyncFd<Timer>>,
}

impl WallTimer {
    /// Returns at a time, in milliseconds since 1970, or before it; never without one, unless the clock
    /// was set.
    pub(super) async fn wait(&mut self, until_ms: Option<i64>) {
        let Some(until_ms) = until_ms else {
            return std::future::pending().await;
        };
        #[cfg(target_os = "linux")]
        match self.arm(until_ms) {
            Ok(true) => {
                if let Some(fd) = &self.fd
                    && let Ok(mut ready) = fd.readable().await
                {
                    ready.clear_ready();
                    return;
                }
            }
            // It was set since the last time.
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "no timer that follows the clock");
                self.fd = None;
            }
        }
        let left = until_ms.saturating_sub(agentd_base::clock::wall_ms());
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        tokio::time::sleep(left.min(LOOK_AGAIN)).await;
    }

    /// False when the clock was set meanwhile.
    #[cfg(target_os = "linux")]
    fn arm(&mut self, until_ms: i64) -> std::io::Result<bool> {
        if self.fd.is_none() {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
            #[expect(
                deprecated,
                reason = "its successor is unsafe; the timer owns its descriptor"
            )]
            let fd = AsyncFd::new(Timer(timer))?;
            self.fd = Some(fd);
        }
        let Some(fd) = &self.fd else { return Ok(false) };
        // Zero would disarm it.
        let at = Duration::from_millis(u64::try_from(until_ms.max(1)).unwrap_or(1));
        let flags =
            TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
        match fd.get_ref().0.set(Expiration::OneShot(at.into()), flags) {
            Ok(()) => Ok(true),
            Err(nix::errno::Errno::ECANCELED) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn timer_rings_at_its_time() {
        let now = agentd_base::clock::wall_ms;
        let mut timer = WallTimer::default();
        for wait in [30, 0, -1000, 10] {
            let until = now() + wait;
            // The clock may be set at any time.
            while now() < until {
                timer.wait(Some(until)).await;
            }
        }
        let far = timer.wait(Some(now() + 3_600_000));
        let silent = tokio::time::timeout(Duration::from_millis(30), far);
        assert!(silent.await.is_err(), "it rings an hour early");
    }
}
