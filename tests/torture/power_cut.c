// A disk that forgets what was not synced, as a library to be preloaded.
//
// Owns a mirror of one directory: what the disk would hold if the power failed now. The process
// itself sees its files as usual. When it is killed, the mirror is what a restart would find.
//
//   POWER_FILES   the directory whose files are mirrored (an absolute path without links)
//   POWER_DISK    the mirror; `tree` below it holds what is on the disk at the start
//   POWER_SEED    which unsynced sectors and names get to the disk by themselves
//   POWER_EARLY   how many of 1000: 0 is a disk that keeps everything back, 1000 one that writes on
//   POWER_FULL    while this file exists, no file grows
//
// The model: a file is sectors of 512 bytes. A sector that was written is dirty until its file is
// synced; any dirty sector may get to the disk at any time before that, in any order, so that writes
// are torn and reordered. A file's length gets there with its sync, or with a sector behind its end.
// Names (new files, directories, renames, removals) get there in their order: when their directory is
// synced, or by themselves; a sync of any directory is one of all, as with a journal. Shared memory (`*-shm`) never does. Only SQLite's and Rust's calls are
// covered: no stdio, no mapped files, one process per mirror.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SECTOR = 512, MOST_FILES = 256, MOST_OPS = 1024 };

typedef struct {
    ino_t ino;
    int disk;                 // the file in the mirror
    char path[PATH_MAX];      // where the mirror keeps it until it has a name
    unsigned char *dirty;     // one byte per sector
    size_t sectors;
    off_t shortest;           // since the last sync: what is behind was cut off
    int gone;                 // its name is: the number may be another file's by now
} File;

typedef enum { MADE, DIRECTORY, RENAMED, REMOVED } Kind;
typedef struct {
    Kind kind;
    char from[PATH_MAX], to[PATH_MAX]; // relative names; of MADE, `from` is the mirror's own path
} Op;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static File files[MOST_FILES];
static int file_count, made_count;
static Op ops[MOST_OPS];
static int op_count;
static const char *root, *disk, *full;
static uint64_t seed;
static unsigned early;

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        dprintf(2, "power-cut: there is no `%s`\n", name);
        _exit(70);
    }
    return found;
}

static void broken(const char *what) {
    dprintf(2, "power-cut: %s: %s\n", what, strerror(errno));
    _exit(70);
}

// Whatever the model needs, it can't go on without.
static void need(int done, const char *what) {
    if (done < 0) broken(what);
}

__attribute__((constructor)) static void begin(void) {
    root = getenv("POWER_FILES");
    disk = getenv("POWER_DISK");
    full = getenv("POWER_FULL");
    const char *text = getenv("POWER_SEED");
    seed = text ? strtoull(text, NULL, 10) : 1;
    text = getenv("POWER_EARLY");
    early = text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

static uint64_t next(void) {
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int by_itself(void) { return next() % 1000 < early; }

// The name below the root, or nothing if it is elsewhere or never kept.
static const char *inside(const char *path) {
    if (!root || !disk) return NULL;
    size_t n = strlen(root), m = strlen(path);
    if (strncmp(path, root, n) != 0 || path[n] != '/') return NULL;
    if (m > 4 && strcmp(path + m - 4, "-shm") == 0) return NULL;
    return path + n + 1;
}

static const char *inside_at(int dir, const char *path, char *buffer) {
    if (path[0] == '/') return inside(path);
    char link[64];
    ssize_t n = 0;
    if (dir == AT_FDCWD) {
        if (!getcwd(buffer, PATH_MAX)) return NULL;
        n = (ssize_t)strlen(buffer);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        n = readlink(link, buffer, PATH_MAX - 1);
        if (n < 0) return NULL;
    }
    snprintf(buffer + n, (size_t)(PATH_MAX - n), "/%s", path);
    return inside(buffer);
}

static void on_disk(const char *name, char *path) {
    if (snprintf(path, PATH_MAX, "%s/tree/%s", disk, name) >= PATH_MAX) broken("a long path");
}

// Names get to the disk in their order: all up to this one.
static void settle(int count) {
    char from[PATH_MAX], to[PATH_MAX];
    for (int i = 0; i < count; i++) {
        Op *op = &ops[i];
        on_disk(op->to, to);
        switch (op->kind) {
        case MADE:
            REAL(unlink)(to);
            need(REAL(link)(op->from, to), to);
            break;
        case DIRECTORY:
            if (REAL(mkdir)(to, 0700) < 0 && errno != EEXIST) broken(to);
            break;
        case RENAMED:
            on_disk(op->from, from);
            // What was renamed may be of a kind that is never kept.
            if (REAL(rename)(from, to) < 0 && errno != ENOENT) broken(to);
            break;
        case REMOVED:
            if (REAL(unlink)(to) < 0 && errno == EISDIR) REAL(rmdir)(to);
            break;
        }
    }
    memmove(ops, ops + count, (size_t)(op_count - count) * sizeof *ops);
    op_count -= count;
}

static void named(Kind kind, const char *from, const char *to) {
    if (op_count == MOST_OPS) settle(op_count);
    Op *op = &ops[op_count++];
    op->kind = kind;
    snprintf(op->from, PATH_MAX, "%s", from);
    snprintf(op->to, PATH_MAX, "%s", to);
    if (by_itself()) settle(1 + (int)(next() % (uint64_t)op_count));
}

static File *by_number(ino_t ino) {
    for (int i = 0; i < file_count; i++)
        if (files[i].ino == ino) return &files[i];
    return NULL;
}

// These sectors are not on the disk as they are.
static void soil(File *file, size_t first, size_t last) {
    if (last >= file->sectors) {
        size_t sectors = last + 1024;
        file->dirty = realloc(file->dirty, sectors);
        if (!file->dirty) broken("memory");
        memset(file->dirty + file->sectors, 0, sectors - file->sectors);
        file->sectors = sectors;
    }
    memset(file->dirty + first, 1, last - first + 1);
}

static File *new_file(ino_t ino, int fd) {
    File *file = by_number(ino);
    if (file) {
        // The number of a file that is gone.
        close(file->disk);
        free(file->dirty);
    } else if (file_count < MOST_FILES) {
        file = &files[file_count++];
    } else {
        errno = EMFILE;
        broken("too many files");
    }
    memset(file, 0, sizeof *file);
    file->ino = ino;
    file->disk = fd;
    file->shortest = INT64_MAX;
    return file;
}

static int quiet_open(const char *path, int flags) {
    return REAL(openat)(AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

// A file that the process just made.
static void made(int fd, const char *name) {
    struct stat stat;
    char path[PATH_MAX];
    if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode)) return;
    if (snprintf(path, PATH_MAX, "%s/made-%d-%d", disk, (int)getpid(), made_count++) >= PATH_MAX)
        broken("a long path");
    int copy = quiet_open(path, O_CREAT | O_RDWR | O_EXCL);
    need(copy, path);
    new_file(stat.st_ino, copy);
    named(MADE, path, name);
}

// The file behind a descriptor, if it is mirrored.
static File *known(int fd) {
    struct stat stat;
    if (!root || fd < 3 || fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode)) return NULL;
    File *found = by_number(stat.st_ino);
    if (found) return found;
    char link[64], path[PATH_MAX], copy[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return NULL;
    path[n] = 0;
    const char *name = inside(path);
    if (!name) return NULL;
    on_disk(name, copy);
    int old = quiet_open(copy, O_RDWR);
    if (old >= 0) return new_file(stat.st_ino, old);
    // Another process made it: as new as one of ours, and none of it is on the disk.
    made(fd, name);
    File *file = by_number(stat.st_ino);
    if (file && stat.st_size > 0) soil(file, 0, (size_t)(stat.st_size - 1) / SECTOR);
    return file;
}

// What was cut off is gone before anything written later gets there.
static void cut_off(File *file) {
    struct stat copy;
    need(fstat(file->disk, &copy), "a copy");
    if (file->shortest < copy.st_size) need(REAL(ftruncate64)(file->disk, file->shortest), "a length");
    file->shortest = INT64_MAX;
}

static void copy_sector(int fd, File *file, size_t sector) {
    cut_off(file);
    char bytes[SECTOR];
    off_t at = (off_t)(sector * SECTOR);
    ssize_t n = REAL(pread64)(fd, bytes, SECTOR, at);
    // Opened for writing only: read by another door.
    if (n < 0) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int other = quiet_open(link, O_RDONLY);
        need(other, link);
        n = REAL(pread64)(other, bytes, SECTOR, at);
        close(other);
    }
    if (n > 0) need((int)REAL(pwrite64)(file->disk, bytes, (size_t)n, at), "a sector");
    file->dirty[sector] = 0;
}

static void wrote(int fd, off_t at, size_t n) {
    File *file = known(fd);
    if (!file || n == 0) return;
    size_t first = (size_t)at / SECTOR, last = ((size_t)at + n - 1) / SECTOR;
    soil(file, first, last);
    // Some get there now, of this write and of earlier ones.
    for (size_t i = first; i <= last; i++)
        if (by_itself()) copy_sector(fd, file, i);
    for (int tries = 0; early && tries < 4; tries++) {
        size_t i = next() % (last + 1);
        if (file->dirty[i] && by_itself()) copy_sector(fd, file, i);
    }
}

static void shortened(int fd) {
    File *file = known(fd);
    struct stat stat;
    if (!file || fstat(fd, &stat) < 0) return;
    if (by_itself()) need(REAL(ftruncate64)(file->disk, stat.st_size), "a length");
    else if (stat.st_size < file->shortest) file->shortest = stat.st_size;
}

static void synced(int fd) {
    struct stat stat;
    if (!root || fstat(fd, &stat) < 0) return;
    if (S_ISDIR(stat.st_mode)) {
        settle(op_count);
        return;
    }
    File *file = known(fd);
    if (!file) return;
    cut_off(file);
    need(REAL(ftruncate64)(file->disk, stat.st_size), "a length");
    for (size_t i = 0; i < file->sectors; i++)
        if (file->dirty[i]) copy_sector(fd, file, i);
}

static int no_room(int fd, off_t end) {
    struct stat stat;
    if (!full || access(full, F_OK) != 0 || fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode)) return 0;
    if (!known(fd) || end <= stat.st_size) return 0;
    errno = ENOSPC;
    return 1;
}

static off_t end_of(int fd, size_t n) {
    int flags = fcntl(fd, F_GETFL);
    struct stat stat;
    if (flags >= 0 && (flags & O_APPEND) && fstat(fd, &stat) == 0) return stat.st_size + (off_t)n;
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at < 0 ? 0 : at + (off_t)n;
}

#define LOCKED(type, ...)               \
    pthread_mutex_lock(&lock);          \
    type result;                        \
    __VA_ARGS__;                        \
    int kept = errno;                   \
    pthread_mutex_unlock(&lock);        \
    errno = kept;                       \
    return result

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
    LOCKED(ssize_t, {
        result = no_room(fd, at + (off_t)n) ? -1 : REAL(pwrite64)(fd, bytes, n, at);
        if (result > 0) wrote(fd, at, (size_t)result);
    });
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return pwrite64(fd, bytes, n, at); }

ssize_t write(int fd, const void *bytes, size_t n) {
    if (!root || fd < 3) return REAL(write)(fd, bytes, n);
    struct stat stat;
    // A pipe may block: not under the lock.
    if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode)) return REAL(write)(fd, bytes, n);
    LOCKED(ssize_t, {
        result = no_room(fd, end_of(fd, n)) ? -1 : REAL(write)(fd, bytes, n);
        off_t after = lseek(fd, 0, SEEK_CUR);
        if (result > 0) wrote(fd, after - result, (size_t)result);
    });
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct stat stat;
    if (!root || fd < 3 || fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode))
        return REAL(writev)(fd, parts, count);
    size_t n = 0;
    for (int i = 0; i < count; i++) n += parts[i].iov_len;
    LOCKED(ssize_t, {
        result = no_room(fd, end_of(fd, n)) ? -1 : REAL(writev)(fd, parts, count);
        off_t after = lseek(fd, 0, SEEK_CUR);
        if (result > 0) wrote(fd, after - result, (size_t)result);
    });
}

int ftruncate64(int fd, off64_t n) {
    LOCKED(int, {
        result = no_room(fd, n) ? -1 : REAL(ftruncate64)(fd, n);
        if (result == 0) shortened(fd);
    });
}
int ftruncate(int fd, off_t n) { return ftruncate64(fd, n); }

// The real sync is left out: the mirror outlives a kill as it is.
static int sync_one(int fd) {
    LOCKED(int, {
        result = 0;
        synced(fd);
    });
}
int fsync(int fd) { return root ? sync_one(fd) : REAL(fsync)(fd); }
int fdatasync(int fd) { return root ? sync_one(fd) : REAL(fdatasync)(fd); }

// Another process made it, maybe with the number of one that is gone: none of it is on the disk.
static void found(int fd, const char *name) {
    struct stat stat;
    File *file = fstat(fd, &stat) == 0 ? by_number(stat.st_ino) : NULL;
    if (!file || !file->gone) return;
    made(fd, name);
    if (stat.st_size > 0) soil(by_number(stat.st_ino), 0, (size_t)(stat.st_size - 1) / SECTOR);
}

static int open_any(int dir, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    const char *name = (flags & O_CREAT) ? inside_at(dir, path, buffer) : NULL;
    if (!name) return REAL(openat)(dir, path, flags, mode);
    LOCKED(int, {
        int there = faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        result = REAL(openat)(dir, path, flags, mode);
        if (result >= 0 && !there) made(result, name);
        if (result >= 0 && there) found(result, name);
    });
}

#define MODE(flags)                     \
    mode_t mode = 0;                    \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest;                   \
        va_start(rest, flags);          \
        mode = va_arg(rest, mode_t);    \
        va_end(rest);                   \
    }

int open(const char *path, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return open_any(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int dir, const char *path, int flags, ...);
int openat64(int dir, const char *path, int flags, ...) { MODE(flags) return open_any(dir, path, flags | O_LARGEFILE, mode); }

// The file that is about to lose its name.
static void going(int dir, const char *path) {
    struct stat stat;
    File *file = fstatat(dir, path, &stat, AT_SYMLINK_NOFOLLOW) == 0 ? by_number(stat.st_ino) : NULL;
    if (file) file->gone = 1;
}

int rename(const char *from, const char *to) {
    LOCKED(int, {
        going(AT_FDCWD, to);
        result = REAL(rename)(from, to);
        const char *was = inside(from);
        const char *is = inside(to);
        if (result == 0 && was && is) named(RENAMED, was, is);
    });
}

static void gone(const char *name) {
    if (name) named(REMOVED, "", name);
}

int unlink(const char *path) {
    LOCKED(int, {
        going(AT_FDCWD, path);
        result = REAL(unlink)(path);
        if (result == 0) gone(inside(path));
    });
}

int unlinkat(int dir, const char *path, int flags) {
    char buffer[PATH_MAX];
    LOCKED(int, {
        const char *name = inside_at(dir, path, buffer);
        going(dir, path);
        result = REAL(unlinkat)(dir, path, flags);
        if (result == 0) gone(name);
    });
}

int rmdir(const char *path) {
    LOCKED(int, {
        result = REAL(rmdir)(path);
        if (result == 0) gone(inside(path));
    });
}

int mkdir(const char *path, mode_t mode) {
    LOCKED(int, {
        result = REAL(mkdir)(path, mode);
        if (result == 0 && inside(path)) named(DIRECTORY, "", inside(path));
    });
}
