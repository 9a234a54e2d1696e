// A wall clock that jumps, as a library to be preloaded.
//
// Owns what the wall clock says. The clocks that only go forward are the system's.
//
//   CLOCK_JUMP   a file that holds the seconds to be added, as eight bytes of this machine; who writes
//                them makes the clock jump at once
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *jump;
static int (*gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_JUMP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *jump, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED) {
        dprintf(2, "clock: %s can't be mapped\n", path);
        _exit(70);
    }
    jump = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = gettime(clock, now);
    if (result == 0 && jump && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *jump;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
