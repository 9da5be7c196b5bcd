"""The wall clock decides nothing: it may jump by hours at any moment."""

import shutil
import subprocess

import pytest

from helpers.reliability.form import form

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

# What a process sees as the wall clock: another time within two hours, ten times a second.
JUMPING_CLOCK = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    unsigned long tick = now.tv_sec * 10 + now.tv_nsec / 100000000;
    return (long)(tick * 2654435761u % 7200) - 3600;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    int failed = syscall(SYS_clock_gettime, clock, found);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.fixture(scope="module")
def jumping_clock(tmp_path_factory):
    if not (compiler := shutil.which("cc")):
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(JUMPING_CLOCK)
    library = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, folder / "clock.c"], check=True)
    preloaded = {"LD_PRELOAD": str(library)}
    code = "import time\nfor _ in range(4): print(time.time()); time.sleep(0.15)"
    done = subprocess.run(["python3", "-c", code], env=preloaded, capture_output=True, text=True, check=True)
    times = [float(line) for line in done.stdout.split()]
    assert max(times) - min(times) > 60, "the clock does not jump"
    return preloaded


async def test_a_jumping_wall_clock_loses_nothing(start, works_and_ends, jumping_clock):
    with start(environment=jumping_clock) as server:
        await works_and_ends(server, form(50, 2000))
