/* An LD_PRELOAD library that breaks the disk and the wall clock of the processes it is loaded into.
 *
 * It sees each call that changes a file below CHAOS_ROOT. While the file CHAOS_ARM exists it is read
 * before each of them, so a fault can be armed in the middle of a life, and disarmed again. It holds
 *
 *     SERIAL ACTION NTH EVERY OPS WHO PART
 *
 * SERIAL   counts from 1 again when it changes
 * ACTION   kill, short (half of the bytes, then death), or the number of an errno
 * NTH      the first of the calls that match which is hit; with EVERY 1 all after it as well
 * OPS      comma list of write fsync truncate rename unlink mkdir create link; - is any
 * WHO      text in the process's command line; - is any       PART  text in the path; - is any
 *
 * A fault of one call (EVERY 0) renames the file to CHAOS_ARM.struck first: it strikes once, whoever
 * comes first. Each hit is a line of CHAOS_LOG. CHAOS_CLOCK names a file with seconds to add to
 * CLOCK_REALTIME. What bypasses libc is not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char root[PATH_MAX], arm_file[PATH_MAX], struck_file[PATH_MAX], log_file[PATH_MAX],
    clock_file[PATH_MAX], command[4096];
static long seen, counter;
static int ready;

struct arm {
    long serial, nth;
    int every;
    char action[16], ops[128], who[128], part[128];
};

#define REAL(ret, name, ...)               \
    static ret (*name##_r)(__VA_ARGS__);   \
    if (!name##_r) name##_r = dlsym(RTLD_NEXT, #name)

static int raw_open(const char *path, int flags) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static long raw_read(const char *path, char *into, size_t size) {
    int fd = raw_open(path, O_RDONLY);
    if (fd < 0) return -1;
    long count = syscall(SYS_read, fd, into, size - 1);
    syscall(SYS_close, fd);
    into[count < 0 ? 0 : count] = 0;
    return count;
}

static void from_env(const char *name, char *into) {
    const char *value = getenv(name);
    snprintf(into, PATH_MAX, "%s", value ? value : "");
}

__attribute__((constructor)) static void init(void) {
    from_env("CHAOS_ROOT", root);
    from_env("CHAOS_ARM", arm_file);
    from_env("CHAOS_LOG", log_file);
    from_env("CHAOS_CLOCK", clock_file);
    snprintf(struck_file, sizeof struck_file, "%.4000s.struck", arm_file);
    long count = raw_read("/proc/self/cmdline", command, sizeof command);
    for (long i = 0; i + 1 < count; i++)
        if (!command[i]) command[i] = ' ';
    ready = root[0] && arm_file[0];
}

static int under(const char *path) {
    size_t size = strlen(root);
    return path && !strncmp(path, root, size) && (path[size] == 0 || path[size] == '/');
}

static const char *path_of(int fd, char *into) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, into, PATH_MAX - 1);
    if (size < 0) return NULL;
    into[size] = 0;
    return into;
}

static const char *absolute(int folder, const char *path, char *into) {
    char base[PATH_MAX];
    if (!path) return NULL;
    if (path[0] == '/') {
        snprintf(into, PATH_MAX, "%s", path);
        return into;
    }
    if (folder == AT_FDCWD ? !getcwd(base, sizeof base) : !path_of(folder, base)) return NULL;
    snprintf(into, PATH_MAX, "%.2000s/%.2000s", base, path);
    return into;
}

static int armed(struct arm *arm) {
    char text[512];
    if (raw_read(arm_file, text, sizeof text) <= 0) return 0;
    return sscanf(text, "%ld %15s %ld %d %127s %127s %127s", &arm->serial, arm->action, &arm->nth,
                  &arm->every, arm->ops, arm->who, arm->part) == 7;
}

static int meant(const struct arm *arm, const char *name, const char *path, const char *other) {
    char listed[160], wanted[48];
    snprintf(listed, sizeof listed, ",%s,", arm->ops);
    snprintf(wanted, sizeof wanted, ",%s,", name);
    if (strcmp(arm->ops, "-") && !strstr(listed, wanted)) return 0;
    if (strcmp(arm->who, "-") && !strstr(command, arm->who)) return 0;
    return !strcmp(arm->part, "-") || (path && strstr(path, arm->part)) ||
           (other && strstr(other, arm->part));
}

static void tell(const struct arm *arm, const char *name, const char *path) {
    char line[PATH_MAX + 128];
    int fd = raw_open(log_file, O_WRONLY | O_CREAT | O_APPEND);
    int size = snprintf(line, sizeof line, "%ld\t%d\t%s\t%s\t%s\n", arm->serial, (int)getpid(), name,
                        path ? path : "", arm->action);
    if (fd >= 0 && size > 0) syscall(SYS_write, fd, line, (size_t)size);
    syscall(SYS_close, fd);
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* 0: go on. 1: fail, errno is set. 2: write half and die. */
static int op(const char *name, const char *path, const char *other) {
    if (!ready || !(under(path) || under(other))) return 0;
    int saved = errno, verdict = 0;
    struct arm arm;
    if (armed(&arm) && meant(&arm, name, path, other)) {
        if (__atomic_exchange_n(&seen, arm.serial, __ATOMIC_SEQ_CST) != arm.serial) counter = 0;
        long number = __atomic_add_fetch(&counter, 1, __ATOMIC_SEQ_CST);
        int hit = number == arm.nth || (arm.every && number > arm.nth);
        if (hit && !arm.every)
            hit = !syscall(SYS_renameat, AT_FDCWD, arm_file, AT_FDCWD, struck_file);
        if (hit) {
            tell(&arm, name, path);
            if (!strcmp(arm.action, "kill")) die();
            verdict = strcmp(arm.action, "short") ? 1 : 2;
            if (verdict == 1) saved = atoi(arm.action);
        }
    }
    errno = saved;
    return verdict;
}

static void torn(int fd, const void *bytes, size_t size, off_t at, int has_place) {
    if (has_place) syscall(SYS_pwrite64, fd, bytes, size / 2, at);
    else syscall(SYS_write, fd, bytes, size / 2);
    die();
}

ssize_t write(int fd, const void *bytes, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    char path[PATH_MAX];
    int verdict = ready && fd > 2 ? op("write", path_of(fd, path), NULL) : 0;
    if (verdict == 2) torn(fd, bytes, size, 0, 0);
    return verdict ? -1 : write_r(fd, bytes, size);
}

typedef ssize_t (*pwriter)(int, const void *, size_t, off_t);
static ssize_t at_place(int fd, const void *bytes, size_t size, off_t at, pwriter real) {
    char path[PATH_MAX];
    int verdict = ready ? op("write", path_of(fd, path), NULL) : 0;
    if (verdict == 2) torn(fd, bytes, size, at, 1);
    return verdict ? -1 : real(fd, bytes, size, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return at_place(fd, bytes, size, at, pwrite_r);
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off_t);
    return at_place(fd, bytes, size, at, pwrite64_r);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    char path[PATH_MAX];
    return ready && op("write", path_of(fd, path), NULL) ? -1 : writev_r(fd, parts, count);
}

#define BY_FD(fn, label)                                                        \
    int fn(int fd) {                                                            \
        REAL(int, fn, int);                                                     \
        char path[PATH_MAX];                                                    \
        return ready && op(label, path_of(fd, path), NULL) ? -1 : fn##_r(fd);   \
    }
BY_FD(fsync, "fsync")
BY_FD(fdatasync, "fsync")

#define CUT(fn, type)                                                                         \
    int fn(int fd, type size) {                                                               \
        REAL(int, fn, int, type);                                                             \
        char path[PATH_MAX];                                                                  \
        return ready && op("truncate", path_of(fd, path), NULL) ? -1 : fn##_r(fd, size);      \
    }
CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

static int of_two(const char *name, int from, const char *a, int to, const char *b) {
    char x[PATH_MAX], y[PATH_MAX];
    return ready && op(name, absolute(from, a, x), absolute(to, b, y));
}
int rename(const char *a, const char *b) {
    REAL(int, rename, const char *, const char *);
    return of_two("rename", AT_FDCWD, a, AT_FDCWD, b) ? -1 : rename_r(a, b);
}
int renameat(int from, const char *a, int to, const char *b) {
    REAL(int, renameat, int, const char *, int, const char *);
    return of_two("rename", from, a, to, b) ? -1 : renameat_r(from, a, to, b);
}
int link(const char *a, const char *b) {
    REAL(int, link, const char *, const char *);
    return of_two("link", AT_FDCWD, a, AT_FDCWD, b) ? -1 : link_r(a, b);
}

static int of_one(const char *name, int folder, const char *path) {
    char x[PATH_MAX];
    return ready && op(name, absolute(folder, path, x), NULL);
}
int unlink(const char *path) {
    REAL(int, unlink, const char *);
    return of_one("unlink", AT_FDCWD, path) ? -1 : unlink_r(path);
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    return of_one("unlink", folder, path) ? -1 : unlinkat_r(folder, path, flags);
}
int rmdir(const char *path) {
    REAL(int, rmdir, const char *);
    return of_one("unlink", AT_FDCWD, path) ? -1 : rmdir_r(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    return of_one("mkdir", AT_FDCWD, path) ? -1 : mkdir_r(path, mode);
}

#define OPENS(folder)                                                     \
    va_list rest;                                                         \
    mode_t mode = 0;                                                      \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                \
        va_start(rest, flags);                                            \
        mode = va_arg(rest, mode_t);                                      \
        va_end(rest);                                                     \
    }                                                                     \
    if (flags & (O_CREAT | O_TRUNC) && of_one("create", folder, path)) return -1
int open(const char *path, int flags, ...) {
    REAL(int, open, const char *, int, ...);
    OPENS(AT_FDCWD);
    return open_r(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    REAL(int, open64, const char *, int, ...);
    OPENS(AT_FDCWD);
    return open64_r(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    REAL(int, openat, int, const char *, int, ...);
    OPENS(folder);
    return openat_r(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    REAL(int, openat64, int, const char *, int, ...);
    OPENS(folder);
    return openat64_r(folder, path, flags, mode);
}

/* The wall clock alone: CLOCK_MONOTONIC stays true. */
static long skew(void) {
    char text[32];
    return clock_file[0] && raw_read(clock_file, text, sizeof text) > 0 ? atol(text) : 0;
}
int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int code = clock_gettime_r(which, now);
    if (!code && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += skew();
    return code;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    now->tv_sec = t.tv_sec;
    now->tv_usec = t.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *into) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (into) *into = t.tv_sec;
    return t.tv_sec;
}
