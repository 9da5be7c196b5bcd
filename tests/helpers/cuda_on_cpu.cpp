// Runs the kernels on the CPU. The threads of a grid run one after the other, in random order; threads that meet at a
// barrier run on stacks of their own. Compiled with KERNELS, the path of kernels.cu.
//
// Copies of 16 bytes are watched: a thread may touch only what is allocated and aligned, and no two threads may touch the
// same bytes, unless both only read them.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <ucontext.h>
#include <unordered_map>
#include <vector>

struct Index {
    unsigned x, y, z;
};
static Index blockIdx, threadIdx, blockDim, gridDim;

struct Region {
    std::uintptr_t start, end;
};
struct Touched {
    unsigned thread;  // the first one
    bool shared, written;
};
static std::vector<Region> allocated;
static std::unordered_map<std::uintptr_t, Touched> touched;
static unsigned current_thread;
static int faults;

static bool touch(const void* lane, bool write) {
    const auto address = reinterpret_cast<std::uintptr_t>(lane);
    const bool inside = std::any_of(allocated.begin(), allocated.end(), [=](const Region& region) {
        return region.start <= address && address + 16 <= region.end;
    });
    if (!inside || address % 16) {
        ++faults;
        return false;
    }
    Touched& known = touched.try_emplace(address, Touched{current_thread, false, false}).first->second;
    known.shared |= known.thread != current_thread;
    known.written |= write;
    faults += known.shared && known.written;
    return true;
}

struct uint4 {
    unsigned x, y, z, w;

    uint4& operator=(const uint4& from) {
        const bool readable = touch(&from, false), writable = touch(this, true);
        if (readable && writable) std::memmove(static_cast<void*>(this), &from, sizeof *this);
        return *this;
    }
};

[[maybe_unused]] static void wait_for_the_block();

#define __global__
#define __grid_constant__
#define __syncthreads wait_for_the_block
#include KERNELS

using Threads = std::vector<unsigned>;
static ucontext_t block_context;
static std::vector<ucontext_t> thread_contexts;
static std::function<void()> thread_body;
static Threads waiting;

static void wait_for_the_block() {
    const unsigned thread = threadIdx.x;
    waiting.push_back(thread);
    swapcontext(&thread_contexts[thread], &block_context);
}

static void start_thread() {
    thread_body();
}

// One block with barriers: all threads run until they wait or end, then those that wait run on.
static void run_block(std::mt19937_64& random) {
    constexpr std::size_t stack = 1 << 16;
    const unsigned threads = blockDim.x;
    std::vector<char> stacks(threads * stack);
    thread_contexts.assign(threads, {});
    for (unsigned thread = 0; thread < threads; ++thread) {
        ucontext_t& context = thread_contexts[thread];
        getcontext(&context);
        context.uc_stack.ss_sp = &stacks[thread * stack];
        context.uc_stack.ss_size = stack;
        context.uc_link = &block_context;
        makecontext(&context, start_thread, 0);
    }
    Threads ready(threads);
    std::iota(ready.begin(), ready.end(), 0);
    while (!ready.empty()) {
        std::shuffle(ready.begin(), ready.end(), random);
        waiting.clear();
        for (unsigned thread : ready) {
            threadIdx = {thread, 0, 0};
            swapcontext(&block_context, &thread_contexts[thread]);
        }
        ready = waiting;
    }
}

template <class Argument>
static void run_grid(void (*kernel)(Argument), const void* argument, std::mt19937_64& random) {
    Threads all(gridDim.x * gridDim.y * gridDim.z * blockDim.x);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    for (unsigned thread : all) {
        current_thread = thread;
        threadIdx = {thread % blockDim.x, 0, 0};
        const unsigned block = thread / blockDim.x;
        blockIdx = {block % gridDim.x, block / gridDim.x % gridDim.y, block / gridDim.x / gridDim.y};
        kernel(*static_cast<const Argument*>(argument));
    }
}

// The size of what a kernel takes, or 0 where there is no such kernel.
extern "C" std::size_t argument_bytes(const char* name) {
    const std::string kernel = name;
    return kernel == "move_rows" ? sizeof(Moves) : kernel == "enter_rows" ? sizeof(Sources)
        : kernel == "feed_back" ? sizeof(Fed) : 0;
}

// Runs a kernel over blocks of `threads`, and returns how often a thread touched what it may not.
extern "C" int run(const char* name, const unsigned* grid, unsigned threads, const void* argument,
                   const Region* regions, std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {threads, 1, 1};
    blockIdx = {0, 0, 0};
    allocated.assign(regions, regions + count);
    touched.clear();
    faults = 0;
    const std::string kernel = name;
    if (kernel == "move_rows") run_grid<const Moves>(move_rows, argument, random);
    if (kernel == "enter_rows") run_grid<const Sources>(enter_rows, argument, random);
    if (kernel == "feed_back") {
        thread_body = [=] { feed_back(*static_cast<const Fed*>(argument)); };
        run_block(random);
    }
    return faults;
}
