/* A disk with faults, for a program that is started with this library in LD_PRELOAD. The file that FAULTY_DISK names is read with every write and
 * flush and says what is wrong: `MICROSECONDS ERRNO FOLDER`. Writes to and flushes of files whose path begins with FOLDER take that much longer,
 * and fail with that error unless it is 0; so does the allocation of space. Where the error is that there is no space (ENOSPC) only the allocation fails:
 * what is written lies in space that was allocated before. An empty file, or none: nothing is wrong. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* 0, or the error with which the call is to fail; the delay is over then. */
static int fault(int fd)
{
    char said[4200], folder[4096], path[4096], link[64];
    long microseconds;
    int error;
    const char *control = getenv("FAULTY_DISK");
    int file = control ? open(control, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    ssize_t length = read(file, said, sizeof said - 1);
    close(file);
    if (length <= 0)
        return 0;
    said[length] = 0;
    if (sscanf(said, "%ld %d %4095s", &microseconds, &error, folder) != 3)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (strncmp(path, folder, strlen(folder)) != 0)
        return 0;
    if (microseconds > 0) {
        struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
        while (nanosleep(&left, &left) != 0 && errno == EINTR)
            ;
    }
    return error;
}

/* The call of the C library that stands behind this one; `spared` is an error that it does not meet. */
#define REAL(type, name, spared, ...)                         \
    static type (*real)(__VA_ARGS__);                         \
    if (!real)                                                \
        real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name); \
    int error = fault(fd);                                    \
    if (error && error != (spared)) {                         \
        errno = error;                                        \
        return -1;                                            \
    }

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t position, int flags)
{
    REAL(ssize_t, "pwritev2", ENOSPC, int, const struct iovec *, int, off_t, int)
    return real(fd, parts, count, position, flags);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t position)
{
    REAL(ssize_t, "pwrite64", ENOSPC, int, const void *, size_t, off64_t)
    return real(fd, bytes, length, position);
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", ENOSPC, int)
    return real(fd);
}

int fsync(int fd)
{
    REAL(int, "fsync", ENOSPC, int)
    return real(fd);
}

int syncfs(int fd)
{
    REAL(int, "syncfs", ENOSPC, int)
    return real(fd);
}

int fallocate(int fd, int mode, off_t start, off_t length)
{
    REAL(int, "fallocate", 0, int, int, off_t, off_t)
    return real(fd, mode, start, length);
}

int fallocate64(int fd, int mode, off64_t start, off64_t length)
{
    REAL(int, "fallocate64", 0, int, int, off64_t, off64_t)
    return real(fd, mode, start, length);
}
