// Preloaded into a process, this makes its processor look like one without AVX-512, VNNI and AMX.
//
// The process loads libraries in which "int3; nop" stands for each cpuid instruction. The handler of SIGTRAP asks the
// real processor, and clears the bits of what is hidden (https://www.felixcloutier.com/x86/cpuid, leaf 7). Who opens
// /proc/cpuinfo gets the file that CPUINFO names.
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <ucontext.h>

#define BIT(number) (1u << (number))

struct registers {
    unsigned eax, ebx, ecx, edx;
};

static const struct registers HIDDEN[2] = {
    // AVX-512 in eleven parts and more; AVX512_VNNI is bit 11 of ecx, AMX bits 22, 24 and 25 of edx
    {0, BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31),
     BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14), BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)},
    // AVX-VNNI, AVX512_BF16, AMX-FP16, AVX-IFMA; AVX-VNNI-INT8 and -INT16, AVX-NE-CONVERT, AMX-COMPLEX, AVX10
    {BIT(4) | BIT(5) | BIT(21) | BIT(23), 0, 0, BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19)},
};

// How many times the handler has answered.
volatile int cpuid_answers;

void hide(unsigned leaf, unsigned subleaf, struct registers *found) {
    if (leaf != 7 || subleaf > 1) return;
    found->eax &= ~HIDDEN[subleaf].eax;
    found->ebx &= ~HIDDEN[subleaf].ebx;
    found->ecx &= ~HIDDEN[subleaf].ecx;
    found->edx &= ~HIDDEN[subleaf].edx;
}

static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);

static void answer(int number, siginfo_t *about, void *context) {
    (void)about;
    greg_t *saved = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (*(const unsigned char *)saved[REG_RIP] != 0x90) {  // a breakpoint of another origin: it ends the process
        struct sigaction usual = {.sa_handler = SIG_DFL};
        real_sigaction(number, &usual, NULL);
        raise(number);
        return;
    }
    struct registers found;
    unsigned leaf = (unsigned)saved[REG_RAX], subleaf = (unsigned)saved[REG_RCX];
    __cpuid_count(leaf, subleaf, found.eax, found.ebx, found.ecx, found.edx);
    hide(leaf, subleaf, &found);
    saved[REG_RAX] = found.eax;
    saved[REG_RBX] = found.ebx;
    saved[REG_RCX] = found.ecx;
    saved[REG_RDX] = found.edx;
    cpuid_answers++;
}

__attribute__((constructor)) static void begin(void) {
    real_sigaction = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
    struct sigaction ours = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    real_sigaction(SIGTRAP, &ours, NULL);
}

// Nobody else gets SIGTRAP.
int sigaction(int number, const struct sigaction *next, struct sigaction *last) {
    if (number != SIGTRAP) return real_sigaction(number, next, last);
    if (last) memset(last, 0, sizeof *last);
    return 0;
}

sighandler_t signal(int number, sighandler_t handler) {
    struct sigaction next = {.sa_handler = handler, .sa_flags = SA_RESTART}, last;
    sigemptyset(&next.sa_mask);
    return sigaction(number, &next, &last) ? SIG_ERR : last.sa_handler;
}

static const char *shown(const char *path) {
    return strcmp(path, "/proc/cpuinfo") ? path : CPUINFO;
}

static mode_t mode_of(int flags, va_list rest) {
    int takes_one = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    return takes_one ? va_arg(rest, mode_t) : 0;
}

#define OPENS(name)                                                     \
    int name(const char *path, int flags, ...) {                        \
        static int (*real)(const char *, int, ...);                     \
        if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        va_list rest;                                                   \
        va_start(rest, flags);                                          \
        mode_t mode = mode_of(flags, rest);                             \
        va_end(rest);                                                   \
        return real(shown(path), flags, mode);                          \
    }

OPENS(open)
OPENS(open64)
