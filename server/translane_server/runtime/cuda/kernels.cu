// The server's own kernels: row moves, encoded sources that enter rows, and greedy tokens that are fed back.
//
// `scripts/build-kernels` compiles this file to kernels.ptx. `kernels.py` fills the structures and launches the kernels.
// The tests also compile this file for the CPU, so it uses plain C++ and few of CUDA's names.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short u16;

// A kernel's parameters have 4 KB.
constexpr int MOVES = 320;
constexpr int SOURCES = 240;

// Contiguous blocks [R, H, C, D] of keys or values. Sizes are in bytes.
struct Blocks {
    unsigned char* address;
    u64 block_bytes;
    u64 row_bytes;
    u64 head_bytes;
    u32 heads;
    u32 lanes;  // 16-byte lanes of one position of one head
};

// Kind 0 is self-attention, kind 1 cross-attention. Every array has an element for each move.
struct Moves {
    Blocks kinds[2];
    u32 own_pairs;  // pairs of a self-attention block and a head that the grid covers; cross-attention follows
    u32 first_position;  // no move copies a decoded position before this one
    u16 source[MOVES];
    u16 target[MOVES];
    u16 start[MOVES];  // decoded positions start ... end - 1
    u16 end[MOVES];
    u16 source_length[MOVES];  // encoded positions 0 ... source_length - 1
    u16 group[MOVES + 1];  // group g has the moves group[g] ... group[g + 1] - 1
};

// Copies rows over rows. Grid: lanes of a (block, head) pair x pairs x groups of moves.
//
// A thread owns one lane of one pair, in all rows of its group of moves, and makes the group's moves in order. Each group
// writes its own rows, and reads no row that another group writes. So two threads share bytes only to read them.
extern "C" __global__ void move_rows(const __grid_constant__ Moves moves) {
    const bool own = blockIdx.y < moves.own_pairs;
    const Blocks& blocks = moves.kinds[own ? 0 : 1];
    const u32 pair = own ? blockIdx.y : blockIdx.y - moves.own_pairs;
    const u32 lane = blockIdx.x * blockDim.x + threadIdx.x + (own ? moves.first_position * blocks.lanes : 0);
    const u32 position = lane / blocks.lanes;
    unsigned char* const at_row_0 = blocks.address + (pair / blocks.heads) * blocks.block_bytes
                                    + (pair % blocks.heads) * blocks.head_bytes + u64(lane) * 16;
    const u32 last = moves.group[blockIdx.z + 1];
    for (u32 move = moves.group[blockIdx.z]; move < last; ++move) {
        const u32 start = own ? moves.start[move] : 0;
        const u32 end = own ? moves.end[move] : moves.source_length[move];
        if (position < start || position >= end) continue;
        const unsigned char* source = at_row_0 + moves.source[move] * blocks.row_bytes;
        unsigned char* target = at_row_0 + moves.target[move] * blocks.row_bytes;
        *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(source);
    }
}

// Every array has an element for each source. A staging block has [H, padded, D] of a source, from token `start` on.
struct Sources {
    Blocks cross;
    const unsigned char* staging;
    u64 staging_block_bytes;
    u32 start[SOURCES];
    u32 padded[SOURCES];
    u32 length[SOURCES];
    u32 row[SOURCES];
};

// Copies encoded sources into rows. Grid: lanes of a (block, head) pair x pairs x sources.
extern "C" __global__ void enter_rows(const __grid_constant__ Sources sources) {
    const Blocks& cross = sources.cross;
    const u32 lane = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 block = blockIdx.y / cross.heads;
    const u32 head = blockIdx.y % cross.heads;
    const u32 source = blockIdx.z;
    if (lane >= sources.length[source] * cross.lanes) return;
    const u64 staged_lane = u64(sources.start[source]) * cross.heads * cross.lanes
                            + u64(head) * sources.padded[source] * cross.lanes + lane;
    const unsigned char* from = sources.staging + block * sources.staging_block_bytes + staged_lane * 16;
    unsigned char* to = cross.address + block * cross.block_bytes + sources.row[source] * cross.row_bytes
                        + head * cross.head_bytes + u64(lane) * 16;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

struct Fed {
    const long long* ids;  // [n]
    long long* token_ids;  // [n]
    int* positions;  // [n]
    long long* history;  // [steps, stride]
    int* counter;  // steps that were taken before
    u32 n;
    u32 stride;
};

// Feeds n rows the tokens that a greedy step chose. Grid: one block, as all threads read the counter before it moves.
extern "C" __global__ void feed_back(const __grid_constant__ Fed fed) {
    const int step = *fed.counter;
    __syncthreads();
    if (threadIdx.x == 0) *fed.counter = step + 1;
    long long* const history = fed.history + u64(step) * fed.stride;
    for (u32 row = threadIdx.x; row < fed.n; row += blockDim.x) {
        const long long id = fed.ids[row];
        history[row] = id;
        fed.token_ids[row] = id;
        fed.positions[row] += 1;
    }
}
